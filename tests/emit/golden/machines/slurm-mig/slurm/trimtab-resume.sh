#!/usr/bin/env bash
# Slurm's ResumeProgram: starts the nodes of a hostlist, each by its own name.
# Made by trimtab; nothing here was run. Read it, fill it in, and try it with one node by hand before Slurm does.
set -euo pipefail

# FILL IN: a launch template (AWS, GCP) or image (Azure) whose machines join this cluster with slurmd under the name they get.
: "${TEMPLATE:?launch template or image of a compute node}" "${GROUP:=}"

for node in $(scontrol show hostnames "$1"); do
  case "$node" in
    p4de-24xlarge-us-east-1-on-demand-1g-10gb-services-*)
      aws ec2 run-instances --region us-east-1 --launch-template "LaunchTemplateName=$TEMPLATE" --instance-type p4de.24xlarge --tag-specifications "ResourceType=instance,Tags=[{Key=Name,Value=$node},{Key=trimtab,Value=slurm}]" ;;
    *) echo "trimtab-resume: no such node: $node" >&2 ;;
  esac
done
