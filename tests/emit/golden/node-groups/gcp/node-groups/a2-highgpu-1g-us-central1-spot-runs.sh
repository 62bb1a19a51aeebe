#!/usr/bin/env bash
# a2-highgpu-1g in us-central1, 0 to 3 nodes, for research/vision-exp
# Made by trimtab for spot-research-vision-exp; nothing here was run. It makes groups and takes none away.
set -euo pipefail

# FILL IN: the cluster, and the accelerator of a2-highgpu-1g as `gcloud compute accelerator-types list` spells it
: "${CLUSTER:?name of the GKE cluster}" "${ACCELERATOR:?such as nvidia-tesla-a100}"

gcloud container node-pools create trimtab-a2-highgpu-1g-us-central1-7a8d50 --cluster "$CLUSTER" --location us-central1 \
  --machine-type a2-highgpu-1g --spot \
  --accelerator "type=$ACCELERATOR,count=1,gpu-driver-version=default" \
  --num-nodes 0 --enable-autoscaling --total-min-nodes 0 --total-max-nodes 3 --location-policy ANY \
  --node-labels cloud.google.com/compute-class=trimtab-a2-highgpu-1g-us-central1-spot-runs \
  --node-taints cloud.google.com/compute-class=trimtab-a2-highgpu-1g-us-central1-spot-runs:NoSchedule,nvidia.com/gpu=spot:NoSchedule
gcloud container node-pools create trimtab-a2-highgpu-1g-us-central1-992fb1 --cluster "$CLUSTER" --location us-central1 \
  --machine-type a2-highgpu-1g \
  --accelerator "type=$ACCELERATOR,count=1,gpu-driver-version=default" \
  --num-nodes 0 --enable-autoscaling --total-min-nodes 0 --total-max-nodes 3 --location-policy ANY \
  --node-labels cloud.google.com/compute-class=trimtab-a2-highgpu-1g-us-central1-spot-runs \
  --node-taints cloud.google.com/compute-class=trimtab-a2-highgpu-1g-us-central1-spot-runs:NoSchedule,nvidia.com/gpu=spot:NoSchedule
