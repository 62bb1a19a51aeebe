#!/usr/bin/env bash
# p3.2xlarge in us-east-1, 0 to 20 nodes, for prod/chat-api
# Made by trimtab for idle-release-prod-chat-api; nothing here was run. It makes groups and takes none away.
set -euo pipefail

# FILL IN: the cluster, the role of its nodes, the subnets (separated by blanks), an AMI type with NVIDIA's driver
: "${CLUSTER:?name of the EKS cluster}" "${NODE_ROLE:?ARN of the IAM role of its nodes}" "${SUBNETS:?subnet ids}"
AMI_TYPE="${AMI_TYPE:-AL2023_x86_64_NVIDIA}"

# shellcheck disable=SC2086  # subnets are several words
aws eks create-nodegroup --region us-east-1 --cluster-name "$CLUSTER" --nodegroup-name trimtab-p3-2xlarge-us-east-1-spot-services-4-share-1-fallback \
  --node-role "$NODE_ROLE" --subnets $SUBNETS --ami-type "$AMI_TYPE" \
  --instance-types p3.2xlarge --capacity-type ON_DEMAND \
  --scaling-config minSize=0,maxSize=5,desiredSize=0 \
  --labels trimtab.dev/node-pool=trimtab-p3-2xlarge-us-east-1-spot-services-4,trimtab.dev/spread=1 \
  --taints key=nvidia.com/gpu,value=spot,effect=NO_SCHEDULE
aws eks wait nodegroup-active --region us-east-1 --cluster-name "$CLUSTER" --nodegroup-name trimtab-p3-2xlarge-us-east-1-spot-services-4-share-1-fallback
# shellcheck disable=SC2086  # subnets are several words
aws eks create-nodegroup --region us-east-1 --cluster-name "$CLUSTER" --nodegroup-name trimtab-p3-2xlarge-us-east-1-spot-services-4-share-2 \
  --node-role "$NODE_ROLE" --subnets $SUBNETS --ami-type "$AMI_TYPE" \
  --instance-types p3.2xlarge --capacity-type SPOT \
  --scaling-config minSize=0,maxSize=5,desiredSize=0 \
  --labels trimtab.dev/node-pool=trimtab-p3-2xlarge-us-east-1-spot-services-4,trimtab.dev/spread=2 \
  --taints key=nvidia.com/gpu,value=spot,effect=NO_SCHEDULE
aws eks wait nodegroup-active --region us-east-1 --cluster-name "$CLUSTER" --nodegroup-name trimtab-p3-2xlarge-us-east-1-spot-services-4-share-2
# shellcheck disable=SC2086  # subnets are several words
aws eks create-nodegroup --region us-east-1 --cluster-name "$CLUSTER" --nodegroup-name trimtab-p3-2xlarge-us-east-1-spot-services-4-share-2-fallback \
  --node-role "$NODE_ROLE" --subnets $SUBNETS --ami-type "$AMI_TYPE" \
  --instance-types p3.2xlarge --capacity-type ON_DEMAND \
  --scaling-config minSize=0,maxSize=5,desiredSize=0 \
  --labels trimtab.dev/node-pool=trimtab-p3-2xlarge-us-east-1-spot-services-4,trimtab.dev/spread=2 \
  --taints key=nvidia.com/gpu,value=spot,effect=NO_SCHEDULE
aws eks wait nodegroup-active --region us-east-1 --cluster-name "$CLUSTER" --nodegroup-name trimtab-p3-2xlarge-us-east-1-spot-services-4-share-2-fallback
# shellcheck disable=SC2086  # subnets are several words
aws eks create-nodegroup --region us-east-1 --cluster-name "$CLUSTER" --nodegroup-name trimtab-p3-2xlarge-us-east-1-spot-services-4-share-3 \
  --node-role "$NODE_ROLE" --subnets $SUBNETS --ami-type "$AMI_TYPE" \
  --instance-types p3.2xlarge --capacity-type SPOT \
  --scaling-config minSize=0,maxSize=5,desiredSize=0 \
  --labels trimtab.dev/node-pool=trimtab-p3-2xlarge-us-east-1-spot-services-4,trimtab.dev/spread=3 \
  --taints key=nvidia.com/gpu,value=spot,effect=NO_SCHEDULE
aws eks wait nodegroup-active --region us-east-1 --cluster-name "$CLUSTER" --nodegroup-name trimtab-p3-2xlarge-us-east-1-spot-services-4-share-3
# shellcheck disable=SC2086  # subnets are several words
aws eks create-nodegroup --region us-east-1 --cluster-name "$CLUSTER" --nodegroup-name trimtab-p3-2xlarge-us-east-1-spot-services-4-share-3-fallback \
  --node-role "$NODE_ROLE" --subnets $SUBNETS --ami-type "$AMI_TYPE" \
  --instance-types p3.2xlarge --capacity-type ON_DEMAND \
  --scaling-config minSize=0,maxSize=5,desiredSize=0 \
  --labels trimtab.dev/node-pool=trimtab-p3-2xlarge-us-east-1-spot-services-4,trimtab.dev/spread=3 \
  --taints key=nvidia.com/gpu,value=spot,effect=NO_SCHEDULE
aws eks wait nodegroup-active --region us-east-1 --cluster-name "$CLUSTER" --nodegroup-name trimtab-p3-2xlarge-us-east-1-spot-services-4-share-3-fallback
# shellcheck disable=SC2086  # subnets are several words
aws eks create-nodegroup --region us-east-1 --cluster-name "$CLUSTER" --nodegroup-name trimtab-p3-2xlarge-us-east-1-spot-services-4-share-4 \
  --node-role "$NODE_ROLE" --subnets $SUBNETS --ami-type "$AMI_TYPE" \
  --instance-types p3.2xlarge --capacity-type SPOT \
  --scaling-config minSize=0,maxSize=5,desiredSize=0 \
  --labels trimtab.dev/node-pool=trimtab-p3-2xlarge-us-east-1-spot-services-4,trimtab.dev/spread=4 \
  --taints key=nvidia.com/gpu,value=spot,effect=NO_SCHEDULE
aws eks wait nodegroup-active --region us-east-1 --cluster-name "$CLUSTER" --nodegroup-name trimtab-p3-2xlarge-us-east-1-spot-services-4-share-4
# shellcheck disable=SC2086  # subnets are several words
aws eks create-nodegroup --region us-east-1 --cluster-name "$CLUSTER" --nodegroup-name trimtab-p3-2xlarge-us-east-1-spot-services-4-share-4-fallback \
  --node-role "$NODE_ROLE" --subnets $SUBNETS --ami-type "$AMI_TYPE" \
  --instance-types p3.2xlarge --capacity-type ON_DEMAND \
  --scaling-config minSize=0,maxSize=5,desiredSize=0 \
  --labels trimtab.dev/node-pool=trimtab-p3-2xlarge-us-east-1-spot-services-4,trimtab.dev/spread=4 \
  --taints key=nvidia.com/gpu,value=spot,effect=NO_SCHEDULE
aws eks wait nodegroup-active --region us-east-1 --cluster-name "$CLUSTER" --nodegroup-name trimtab-p3-2xlarge-us-east-1-spot-services-4-share-4-fallback
