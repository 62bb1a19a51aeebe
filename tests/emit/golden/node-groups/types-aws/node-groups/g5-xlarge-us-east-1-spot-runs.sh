#!/usr/bin/env bash
# g5.xlarge in us-east-1, 0 to 20 nodes, for research/vision-exp
# Made by trimtab for spot-research-vision-exp; nothing here was run. It makes groups and takes none away.
set -euo pipefail

# FILL IN: the cluster, the role of its nodes, the subnets (separated by blanks), an AMI type with NVIDIA's driver
: "${CLUSTER:?name of the EKS cluster}" "${NODE_ROLE:?ARN of the IAM role of its nodes}" "${SUBNETS:?subnet ids}"
AMI_TYPE="${AMI_TYPE:-AL2023_x86_64_NVIDIA}"

# shellcheck disable=SC2086  # subnets are several words
aws eks create-nodegroup --region us-east-1 --cluster-name "$CLUSTER" --nodegroup-name trimtab-g5-xlarge-us-east-1-spot-runs \
  --node-role "$NODE_ROLE" --subnets $SUBNETS --ami-type "$AMI_TYPE" \
  --instance-types g5.xlarge g5.2xlarge g5.4xlarge g5.8xlarge --capacity-type SPOT \
  --scaling-config minSize=0,maxSize=20,desiredSize=0 \
  --labels trimtab.dev/node-pool=trimtab-g5-xlarge-us-east-1-spot-runs \
  --taints key=nvidia.com/gpu,value=spot,effect=NO_SCHEDULE
aws eks wait nodegroup-active --region us-east-1 --cluster-name "$CLUSTER" --nodegroup-name trimtab-g5-xlarge-us-east-1-spot-runs
# shellcheck disable=SC2086  # subnets are several words
aws eks create-nodegroup --region us-east-1 --cluster-name "$CLUSTER" --nodegroup-name trimtab-g5-xlarge-us-east-1-spot-runs-fallback \
  --node-role "$NODE_ROLE" --subnets $SUBNETS --ami-type "$AMI_TYPE" \
  --instance-types g5.xlarge --capacity-type ON_DEMAND \
  --scaling-config minSize=0,maxSize=20,desiredSize=0 \
  --labels trimtab.dev/node-pool=trimtab-g5-xlarge-us-east-1-spot-runs \
  --taints key=nvidia.com/gpu,value=spot,effect=NO_SCHEDULE
aws eks wait nodegroup-active --region us-east-1 --cluster-name "$CLUSTER" --nodegroup-name trimtab-g5-xlarge-us-east-1-spot-runs-fallback
