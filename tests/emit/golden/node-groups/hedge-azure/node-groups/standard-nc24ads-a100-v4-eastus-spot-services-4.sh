#!/usr/bin/env bash
# Standard_NC24ads_A100_v4 in eastus, 0 to 20 nodes, for prod/chat-api
# Made by trimtab for idle-release-prod-chat-api; nothing here was run. It makes groups and takes none away.
set -euo pipefail

# FILL IN: the resource group and the cluster. A spot pool gets the taint kubernetes.azure.com/scalesetpriority=spot from AKS.
: "${GROUP:?resource group}" "${CLUSTER:?name of the AKS cluster}"

az aks nodepool add --resource-group "$GROUP" --cluster-name "$CLUSTER" --name tt48b863e679 \
  --node-vm-size Standard_NC24ads_A100_v4 --mode User \
  --node-count 0 --enable-cluster-autoscaler --min-count 0 --max-count 5 \
  --labels trimtab.dev/node-pool=trimtab-standard-nc24ads-a100-v4-eastus-spot-services-4 trimtab.dev/spread=1 --node-taints nvidia.com/gpu=spot:NoSchedule
az aks nodepool add --resource-group "$GROUP" --cluster-name "$CLUSTER" --name ttef57d8ee1a \
  --node-vm-size Standard_NC24ads_A100_v4 --mode User \
  --priority Spot --eviction-policy Delete --spot-max-price -1 \
  --node-count 0 --enable-cluster-autoscaler --min-count 0 --max-count 5 \
  --labels trimtab.dev/node-pool=trimtab-standard-nc24ads-a100-v4-eastus-spot-services-4 trimtab.dev/spread=2 --node-taints nvidia.com/gpu=spot:NoSchedule
az aks nodepool add --resource-group "$GROUP" --cluster-name "$CLUSTER" --name ttadeeb7928c \
  --node-vm-size Standard_NC24ads_A100_v4 --mode User \
  --node-count 0 --enable-cluster-autoscaler --min-count 0 --max-count 5 \
  --labels trimtab.dev/node-pool=trimtab-standard-nc24ads-a100-v4-eastus-spot-services-4 trimtab.dev/spread=2 --node-taints nvidia.com/gpu=spot:NoSchedule
az aks nodepool add --resource-group "$GROUP" --cluster-name "$CLUSTER" --name tt4d3e823a87 \
  --node-vm-size Standard_NC24ads_A100_v4 --mode User \
  --priority Spot --eviction-policy Delete --spot-max-price -1 \
  --node-count 0 --enable-cluster-autoscaler --min-count 0 --max-count 5 \
  --labels trimtab.dev/node-pool=trimtab-standard-nc24ads-a100-v4-eastus-spot-services-4 trimtab.dev/spread=3 --node-taints nvidia.com/gpu=spot:NoSchedule
az aks nodepool add --resource-group "$GROUP" --cluster-name "$CLUSTER" --name tt55bfd6c810 \
  --node-vm-size Standard_NC24ads_A100_v4 --mode User \
  --node-count 0 --enable-cluster-autoscaler --min-count 0 --max-count 5 \
  --labels trimtab.dev/node-pool=trimtab-standard-nc24ads-a100-v4-eastus-spot-services-4 trimtab.dev/spread=3 --node-taints nvidia.com/gpu=spot:NoSchedule
az aks nodepool add --resource-group "$GROUP" --cluster-name "$CLUSTER" --name ttb1789cffa4 \
  --node-vm-size Standard_NC24ads_A100_v4 --mode User \
  --priority Spot --eviction-policy Delete --spot-max-price -1 \
  --node-count 0 --enable-cluster-autoscaler --min-count 0 --max-count 5 \
  --labels trimtab.dev/node-pool=trimtab-standard-nc24ads-a100-v4-eastus-spot-services-4 trimtab.dev/spread=4 --node-taints nvidia.com/gpu=spot:NoSchedule
az aks nodepool add --resource-group "$GROUP" --cluster-name "$CLUSTER" --name tt4990e3b13f \
  --node-vm-size Standard_NC24ads_A100_v4 --mode User \
  --node-count 0 --enable-cluster-autoscaler --min-count 0 --max-count 5 \
  --labels trimtab.dev/node-pool=trimtab-standard-nc24ads-a100-v4-eastus-spot-services-4 trimtab.dev/spread=4 --node-taints nvidia.com/gpu=spot:NoSchedule
