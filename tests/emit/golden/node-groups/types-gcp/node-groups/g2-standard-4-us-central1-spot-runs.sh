#!/usr/bin/env bash
# g2-standard-4 in us-central1, 0 to 20 nodes, for research/vision-exp
# Made by trimtab for spot-research-vision-exp; nothing here was run. It makes groups and takes none away.
set -euo pipefail

# FILL IN: the cluster, and the accelerator of g2-standard-4 as `gcloud compute accelerator-types list` spells it
: "${CLUSTER:?name of the GKE cluster}" "${ACCELERATOR:?such as nvidia-tesla-a100}"

gcloud container node-pools create trimtab-g2-standard-4-us-central1-6388f3 --cluster "$CLUSTER" --location us-central1 \
  --machine-type g2-standard-4 --spot \
  --accelerator "type=$ACCELERATOR,count=1,gpu-driver-version=default" \
  --num-nodes 0 --enable-autoscaling --total-min-nodes 0 --total-max-nodes 20 --location-policy ANY \
  --node-labels cloud.google.com/compute-class=trimtab-g2-standard-4-us-central1-spot-runs \
  --node-taints cloud.google.com/compute-class=trimtab-g2-standard-4-us-central1-spot-runs:NoSchedule,nvidia.com/gpu=spot:NoSchedule
gcloud container node-pools create trimtab-g2-standard-4-us-central1-1e4470 --cluster "$CLUSTER" --location us-central1 \
  --machine-type g2-standard-8 --spot \
  --accelerator "type=$ACCELERATOR,count=1,gpu-driver-version=default" \
  --num-nodes 0 --enable-autoscaling --total-min-nodes 0 --total-max-nodes 20 --location-policy ANY \
  --node-labels cloud.google.com/compute-class=trimtab-g2-standard-4-us-central1-spot-runs \
  --node-taints cloud.google.com/compute-class=trimtab-g2-standard-4-us-central1-spot-runs:NoSchedule,nvidia.com/gpu=spot:NoSchedule
gcloud container node-pools create trimtab-g2-standard-4-us-central1-d0c6c7 --cluster "$CLUSTER" --location us-central1 \
  --machine-type g2-standard-12 --spot \
  --accelerator "type=$ACCELERATOR,count=1,gpu-driver-version=default" \
  --num-nodes 0 --enable-autoscaling --total-min-nodes 0 --total-max-nodes 20 --location-policy ANY \
  --node-labels cloud.google.com/compute-class=trimtab-g2-standard-4-us-central1-spot-runs \
  --node-taints cloud.google.com/compute-class=trimtab-g2-standard-4-us-central1-spot-runs:NoSchedule,nvidia.com/gpu=spot:NoSchedule
gcloud container node-pools create trimtab-g2-standard-4-us-central1-3cd60f --cluster "$CLUSTER" --location us-central1 \
  --machine-type g2-standard-16 --spot \
  --accelerator "type=$ACCELERATOR,count=1,gpu-driver-version=default" \
  --num-nodes 0 --enable-autoscaling --total-min-nodes 0 --total-max-nodes 20 --location-policy ANY \
  --node-labels cloud.google.com/compute-class=trimtab-g2-standard-4-us-central1-spot-runs \
  --node-taints cloud.google.com/compute-class=trimtab-g2-standard-4-us-central1-spot-runs:NoSchedule,nvidia.com/gpu=spot:NoSchedule
gcloud container node-pools create trimtab-g2-standard-4-us-central1-2fdd2d --cluster "$CLUSTER" --location us-central1 \
  --machine-type g2-standard-4 \
  --accelerator "type=$ACCELERATOR,count=1,gpu-driver-version=default" \
  --num-nodes 0 --enable-autoscaling --total-min-nodes 0 --total-max-nodes 20 --location-policy ANY \
  --node-labels cloud.google.com/compute-class=trimtab-g2-standard-4-us-central1-spot-runs \
  --node-taints cloud.google.com/compute-class=trimtab-g2-standard-4-us-central1-spot-runs:NoSchedule,nvidia.com/gpu=spot:NoSchedule
