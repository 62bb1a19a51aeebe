#!/usr/bin/env bash
# a2-highgpu-1g in us-central1, 0 to 20 nodes, for prod/chat-api
# Made by trimtab for idle-release-prod-chat-api; nothing here was run. It makes groups and takes none away.
set -euo pipefail

# FILL IN: the cluster, and the accelerator of a2-highgpu-1g as `gcloud compute accelerator-types list` spells it
: "${CLUSTER:?name of the GKE cluster}" "${ACCELERATOR:?such as nvidia-tesla-a100}"

gcloud container node-pools create trimtab-a2-highgpu-1g-us-central1-06aa30 --cluster "$CLUSTER" --location us-central1 \
  --machine-type a2-highgpu-1g \
  --accelerator "type=$ACCELERATOR,count=1,gpu-driver-version=default" \
  --num-nodes 0 --enable-autoscaling --total-min-nodes 0 --total-max-nodes 5 --location-policy ANY \
  --node-labels cloud.google.com/compute-class=trimtab-a2-highgpu-1g-us-central1-spot-services-4,trimtab.dev/spread=1 \
  --node-taints cloud.google.com/compute-class=trimtab-a2-highgpu-1g-us-central1-spot-services-4:NoSchedule,nvidia.com/gpu=spot:NoSchedule
gcloud container node-pools create trimtab-a2-highgpu-1g-us-central1-f93984 --cluster "$CLUSTER" --location us-central1 \
  --machine-type a2-highgpu-1g --spot \
  --accelerator "type=$ACCELERATOR,count=1,gpu-driver-version=default" \
  --num-nodes 0 --enable-autoscaling --total-min-nodes 0 --total-max-nodes 5 --location-policy ANY \
  --node-labels cloud.google.com/compute-class=trimtab-a2-highgpu-1g-us-central1-spot-services-4,trimtab.dev/spread=2 \
  --node-taints cloud.google.com/compute-class=trimtab-a2-highgpu-1g-us-central1-spot-services-4:NoSchedule,nvidia.com/gpu=spot:NoSchedule
gcloud container node-pools create trimtab-a2-highgpu-1g-us-central1-5709cf --cluster "$CLUSTER" --location us-central1 \
  --machine-type a2-highgpu-1g \
  --accelerator "type=$ACCELERATOR,count=1,gpu-driver-version=default" \
  --num-nodes 0 --enable-autoscaling --total-min-nodes 0 --total-max-nodes 5 --location-policy ANY \
  --node-labels cloud.google.com/compute-class=trimtab-a2-highgpu-1g-us-central1-spot-services-4,trimtab.dev/spread=2 \
  --node-taints cloud.google.com/compute-class=trimtab-a2-highgpu-1g-us-central1-spot-services-4:NoSchedule,nvidia.com/gpu=spot:NoSchedule
gcloud container node-pools create trimtab-a2-highgpu-1g-us-central1-95f489 --cluster "$CLUSTER" --location us-central1 \
  --machine-type a2-highgpu-1g --spot \
  --accelerator "type=$ACCELERATOR,count=1,gpu-driver-version=default" \
  --num-nodes 0 --enable-autoscaling --total-min-nodes 0 --total-max-nodes 5 --location-policy ANY \
  --node-labels cloud.google.com/compute-class=trimtab-a2-highgpu-1g-us-central1-spot-services-4,trimtab.dev/spread=3 \
  --node-taints cloud.google.com/compute-class=trimtab-a2-highgpu-1g-us-central1-spot-services-4:NoSchedule,nvidia.com/gpu=spot:NoSchedule
gcloud container node-pools create trimtab-a2-highgpu-1g-us-central1-f17a01 --cluster "$CLUSTER" --location us-central1 \
  --machine-type a2-highgpu-1g \
  --accelerator "type=$ACCELERATOR,count=1,gpu-driver-version=default" \
  --num-nodes 0 --enable-autoscaling --total-min-nodes 0 --total-max-nodes 5 --location-policy ANY \
  --node-labels cloud.google.com/compute-class=trimtab-a2-highgpu-1g-us-central1-spot-services-4,trimtab.dev/spread=3 \
  --node-taints cloud.google.com/compute-class=trimtab-a2-highgpu-1g-us-central1-spot-services-4:NoSchedule,nvidia.com/gpu=spot:NoSchedule
gcloud container node-pools create trimtab-a2-highgpu-1g-us-central1-52353b --cluster "$CLUSTER" --location us-central1 \
  --machine-type a2-highgpu-1g --spot \
  --accelerator "type=$ACCELERATOR,count=1,gpu-driver-version=default" \
  --num-nodes 0 --enable-autoscaling --total-min-nodes 0 --total-max-nodes 5 --location-policy ANY \
  --node-labels cloud.google.com/compute-class=trimtab-a2-highgpu-1g-us-central1-spot-services-4,trimtab.dev/spread=4 \
  --node-taints cloud.google.com/compute-class=trimtab-a2-highgpu-1g-us-central1-spot-services-4:NoSchedule,nvidia.com/gpu=spot:NoSchedule
gcloud container node-pools create trimtab-a2-highgpu-1g-us-central1-157fe0 --cluster "$CLUSTER" --location us-central1 \
  --machine-type a2-highgpu-1g \
  --accelerator "type=$ACCELERATOR,count=1,gpu-driver-version=default" \
  --num-nodes 0 --enable-autoscaling --total-min-nodes 0 --total-max-nodes 5 --location-policy ANY \
  --node-labels cloud.google.com/compute-class=trimtab-a2-highgpu-1g-us-central1-spot-services-4,trimtab.dev/spread=4 \
  --node-taints cloud.google.com/compute-class=trimtab-a2-highgpu-1g-us-central1-spot-services-4:NoSchedule,nvidia.com/gpu=spot:NoSchedule
