#!/usr/bin/env bash
# Standard_NC24ads_A100_v4 in eastus, 0 to 3 nodes, for research/vision-exp
# Made by trimtab for spot-research-vision-exp; nothing here was run. It makes groups and takes none away.
set -euo pipefail

# FILL IN: the resource group and the cluster. A spot pool gets the taint kubernetes.azure.com/scalesetpriority=spot from AKS.
: "${GROUP:?resource group}" "${CLUSTER:?name of the AKS cluster}"

az aks nodepool add --resource-group "$GROUP" --cluster-name "$CLUSTER" --name tt958b1785eb \
  --node-vm-size Standard_NC24ads_A100_v4 --mode User \
  --priority Spot --eviction-policy Delete --spot-max-price -1 \
  --node-count 0 --enable-cluster-autoscaler --min-count 0 --max-count 3 \
  --labels trimtab.dev/node-pool=trimtab-standard-nc24ads-a100-v4-eastus-spot-runs --node-taints nvidia.com/gpu=spot:NoSchedule
az aks nodepool add --resource-group "$GROUP" --cluster-name "$CLUSTER" --name tt2dc08b6910 \
  --node-vm-size Standard_NC24ads_A100_v4 --mode User \
  --node-count 0 --enable-cluster-autoscaler --min-count 0 --max-count 3 \
  --labels trimtab.dev/node-pool=trimtab-standard-nc24ads-a100-v4-eastus-spot-runs --node-taints nvidia.com/gpu=spot:NoSchedule
