#!/usr/bin/env bash
# Slurm's SuspendProgram: ends the machines of a hostlist; halted ones may be billed on.
# Made by trimtab; nothing here was run. Read it, fill it in, and try it with one node by hand before Slurm does.
set -euo pipefail

: "${GROUP:=}"

for node in $(scontrol show hostnames "$1"); do
  case "$node" in
    p4de-24xlarge-us-east-1-on-demand-1g-10gb-services-*)
      aws ec2 describe-instances --region us-east-1 --filters "Name=tag:Name,Values=$node" Name=tag:trimtab,Values=slurm Name=instance-state-name,Values=pending,running --query 'Reservations[].Instances[].InstanceId' --output text |
        xargs --no-run-if-empty aws ec2 terminate-instances --region us-east-1 --instance-ids ;;
    *) echo "trimtab-suspend: no such node: $node" >&2 ;;
  esac
done
