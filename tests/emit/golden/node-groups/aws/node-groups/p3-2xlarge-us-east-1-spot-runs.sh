#!/usr/bin/env bash
# p3.2xlarge in us-east-1, 0 to 3 nodes, for research/vision-exp
# Made by trimtab for spot-research-vision-exp; nothing here was run. It makes groups and takes none away.
set -euo pipefail

# FILL IN: the cluster, the role of its nodes, the subnets (separated by blanks), an AMI type with NVIDIA's driver
: "${CLUSTER:?name of the EKS cluster}" "${NODE_ROLE:?ARN of the IAM role of its nodes}" "${SUBNETS:?subnet ids}"
AMI_TYPE="${AMI_TYPE:-AL2023_x86_64_NVIDIA}"

# shellcheck disable=SC2086  # subnets are several words
aws eks create-nodegroup --region us-east-1 --cluster-name "$CLUSTER" --nodegroup-name trimtab-p3-2xlarge-us-east-1-spot-runs \
  --node-role "$NODE_ROLE" --subnets $SUBNETS --ami-type "$AMI_TYPE" \
  --instance-types p3.2xlarge --capacity-type SPOT \
  --scaling-config minSize=0,maxSize=3,desiredSize=0 \
  --labels trimtab.dev/node-pool=trimtab-p3-2xlarge-us-east-1-spot-runs \
  --taints key=nvidia.com/gpu,value=spot,effect=NO_SCHEDULE
aws eks wait nodegroup-active --region us-east-1 --cluster-name "$CLUSTER" --nodegroup-name trimtab-p3-2xlarge-us-east-1-spot-runs
# shellcheck disable=SC2086  # subnets are several words
aws eks create-nodegroup --region us-east-1 --cluster-name "$CLUSTER" --nodegroup-name trimtab-p3-2xlarge-us-east-1-spot-runs-fallback \
  --node-role "$NODE_ROLE" --subnets $SUBNETS --ami-type "$AMI_TYPE" \
  --instance-types p3.2xlarge --capacity-type ON_DEMAND \
  --scaling-config minSize=0,maxSize=3,desiredSize=0 \
  --labels trimtab.dev/node-pool=trimtab-p3-2xlarge-us-east-1-spot-runs \
  --taints key=nvidia.com/gpu,value=spot,effect=NO_SCHEDULE
aws eks wait nodegroup-active --region us-east-1 --cluster-name "$CLUSTER" --nodegroup-name trimtab-p3-2xlarge-us-east-1-spot-runs-fallback
