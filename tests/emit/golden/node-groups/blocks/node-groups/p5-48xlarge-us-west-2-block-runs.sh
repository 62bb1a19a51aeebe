#!/usr/bin/env bash
# p5.48xlarge in us-west-2, 0 to 3 nodes, for research/vision-exp
# Made by trimtab for idle-release-research-vision-exp; nothing here was run. It makes groups and takes none away.
set -euo pipefail

# FILL IN: the cluster, the role of its nodes, the subnets (separated by blanks), an AMI type with NVIDIA's driver
: "${CLUSTER:?name of the EKS cluster}" "${NODE_ROLE:?ARN of the IAM role of its nodes}" "${SUBNETS:?subnet ids}"
AMI_TYPE="${AMI_TYPE:-AL2023_x86_64_NVIDIA}"
if [ -z "${RESERVATION:-}" ]; then
# Once: the group on demand, for what finds no booked node
# shellcheck disable=SC2086  # subnets are several words
aws eks create-nodegroup --region us-west-2 --cluster-name "$CLUSTER" --nodegroup-name trimtab-p5-48xlarge-us-west-2-block-runs-fallback \
  --node-role "$NODE_ROLE" --subnets $SUBNETS --ami-type "$AMI_TYPE" \
  --instance-types p5.48xlarge --capacity-type ON_DEMAND \
  --scaling-config minSize=0,maxSize=3,desiredSize=0 \
  --labels trimtab.dev/node-pool=trimtab-p5-48xlarge-us-west-2-block-runs \
  --taints key=nvidia.com/gpu,value=present,effect=NO_SCHEDULE
aws eks wait nodegroup-active --region us-west-2 --cluster-name "$CLUSTER" --nodegroup-name trimtab-p5-48xlarge-us-west-2-block-runs-fallback
  exit
fi

# For each block that was bought: RESERVATION=cr-... NODES=4 SUBNETS=<those of its zone> bash this-script.
# Its nodes are reclaimed half an hour before it ends; delete its group afterwards:
#   aws eks delete-nodegroup --region us-west-2 --cluster-name "$CLUSTER" --nodegroup-name "$NAME"
: "${NODES:?nodes of the block}"
NAME=trimtab-p5-48xlarge-us-west-2-block-runs-"${RESERVATION#cr-}"
aws ec2 create-launch-template --region us-west-2 --launch-template-name "$NAME" --launch-template-data \
  '{"InstanceType": "p5.48xlarge", "InstanceMarketOptions": {"MarketType": "capacity-block"},
    "CapacityReservationSpecification": {"CapacityReservationTarget": {"CapacityReservationId": "'"$RESERVATION"'"}}}'
# shellcheck disable=SC2086  # subnets are several words
aws eks create-nodegroup --region us-west-2 --cluster-name "$CLUSTER" --nodegroup-name "$NAME" \
  --node-role "$NODE_ROLE" --subnets $SUBNETS --ami-type "$AMI_TYPE" \
  --launch-template "name=$NAME,version=1" --capacity-type CAPACITY_BLOCK \
  --scaling-config "minSize=0,maxSize=$NODES,desiredSize=0" \
  --labels trimtab.dev/node-pool=trimtab-p5-48xlarge-us-west-2-block-runs \
  --taints key=nvidia.com/gpu,value=present,effect=NO_SCHEDULE
