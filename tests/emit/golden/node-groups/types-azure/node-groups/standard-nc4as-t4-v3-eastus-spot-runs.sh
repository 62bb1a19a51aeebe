#!/usr/bin/env bash
# Standard_NC4as_T4_v3 in eastus, 0 to 20 nodes, for research/vision-exp
# Made by trimtab for spot-research-vision-exp; nothing here was run. It makes groups and takes none away.
set -euo pipefail

# FILL IN: the resource group and the cluster. A spot pool gets the taint kubernetes.azure.com/scalesetpriority=spot from AKS.
: "${GROUP:?resource group}" "${CLUSTER:?name of the AKS cluster}"

az aks nodepool add --resource-group "$GROUP" --cluster-name "$CLUSTER" --name ttf7bbe512c6 \
  --node-vm-size Standard_NC4as_T4_v3 --mode User \
  --priority Spot --eviction-policy Delete --spot-max-price -1 \
  --node-count 0 --enable-cluster-autoscaler --min-count 0 --max-count 20 \
  --labels trimtab.dev/node-pool=trimtab-standard-nc4as-t4-v3-eastus-spot-runs --node-taints nvidia.com/gpu=spot:NoSchedule
az aks nodepool add --resource-group "$GROUP" --cluster-name "$CLUSTER" --name tt84d3115eeb \
  --node-vm-size Standard_NC8as_T4_v3 --mode User \
  --priority Spot --eviction-policy Delete --spot-max-price -1 \
  --node-count 0 --enable-cluster-autoscaler --min-count 0 --max-count 20 \
  --labels trimtab.dev/node-pool=trimtab-standard-nc4as-t4-v3-eastus-spot-runs --node-taints nvidia.com/gpu=spot:NoSchedule
az aks nodepool add --resource-group "$GROUP" --cluster-name "$CLUSTER" --name tt6b94a8d908 \
  --node-vm-size Standard_NC4as_T4_v3 --mode User \
  --node-count 0 --enable-cluster-autoscaler --min-count 0 --max-count 20 \
  --labels trimtab.dev/node-pool=trimtab-standard-nc4as-t4-v3-eastus-spot-runs --node-taints nvidia.com/gpu=spot:NoSchedule
