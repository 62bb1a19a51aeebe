#!/usr/bin/env bash
# MIG layout of a p4de.24xlarge, for lab/alice-train
# Made by trimtab for spot-lab-alice-train; nothing here was run. As root, on an empty host:
#   bash p4de-24xlarge-us-east-1-on-demand-1g-10gb-services.sh enable|create|verify|map|restore
set -euo pipefail

# GPU -> its slices, the largest first: the driver places them in this order
declare -A LAYOUT=(
  [0]="1g.10gb,1g.10gb,1g.10gb,1g.10gb,1g.10gb,1g.10gb,1g.10gb"
  [1]="1g.10gb,1g.10gb,1g.10gb,1g.10gb,1g.10gb,1g.10gb,1g.10gb"
  [2]="1g.10gb,1g.10gb,1g.10gb,1g.10gb,1g.10gb,1g.10gb,1g.10gb"
  [3]="1g.10gb,1g.10gb,1g.10gb,1g.10gb,1g.10gb,1g.10gb,1g.10gb"
  [4]="1g.10gb,1g.10gb,1g.10gb,1g.10gb,1g.10gb,1g.10gb,1g.10gb"
  [5]="1g.10gb,1g.10gb,1g.10gb,1g.10gb,1g.10gb,1g.10gb,1g.10gb"
  [6]="1g.10gb,1g.10gb,1g.10gb,1g.10gb,1g.10gb,1g.10gb,1g.10gb"
  [7]="1g.10gb,1g.10gb,1g.10gb,1g.10gb,1g.10gb,1g.10gb,1g.10gb"
)

empty() {  # refuses while anything holds a GPU: cutting takes the GPU from whoever is on it
  local held
  held="$(nvidia-smi --query-compute-apps=pid --format=csv,noheader)"
  if [ -n "$held" ]; then
    echo "GPUs are held by: $held" >&2
    exit 1
  fi
}

enable() {
  empty
  for gpu in "${!LAYOUT[@]}"; do
    nvidia-smi -i "$gpu" -mig 1
  done
  # Ampere boards take the mode with a reset, which asks that no daemon (dcgm, nvidia-persistenced) holds them; a VM is rebooted
  nvidia-smi --query-gpu=index,mig.mode.current,mig.mode.pending --format=csv
}

create() {
  empty
  for gpu in "${!LAYOUT[@]}"; do
    nvidia-smi mig -i "$gpu" -dci > /dev/null 2>&1 || true  # nothing there to take away is no fault
    nvidia-smi mig -i "$gpu" -dgi > /dev/null 2>&1 || true
    nvidia-smi mig -i "$gpu" -cgi "${LAYOUT[$gpu]}" -C
  done
}

uuids() { nvidia-smi -L | sed -n 's/.*(UUID: \(MIG-[^)]*\)).*/\1/p'; }

verify() {
  local found
  found="$(uuids | wc -l)"
  if [ "$found" -ne 56 ]; then
    echo "56 slices were to be there, $found are" >&2
    exit 1
  fi
  echo "all 56 slices are there"
}

map() {  # each slice by its UUID, as systemd, Docker and Slurm take it; UUIDs are new after every create
  local number=0
  for uuid in $(uuids); do
    printf '%s\n' "slice $number" \
      "  systemd   Environment=CUDA_VISIBLE_DEVICES=$uuid" \
      "  docker    docker run --gpus device=$uuid ...   (or NVIDIA_VISIBLE_DEVICES=$uuid)"
    number=$((number + 1))
  done
  echo "Slurm finds them itself: AutoDetect=nvml in gres.conf, then restart slurmd; jobs get CUDA_VISIBLE_DEVICES from it"
}

restore() {  # whole GPUs again
  empty
  for gpu in "${!LAYOUT[@]}"; do
    nvidia-smi mig -i "$gpu" -dci > /dev/null 2>&1 || true
    nvidia-smi mig -i "$gpu" -dgi > /dev/null 2>&1 || true
    nvidia-smi -i "$gpu" -mig 0
  done
}

case "${1:-}" in
  enable | create | verify | map | restore) "$1" ;;
  *) echo "usage: $0 enable|create|verify|map|restore" >&2; exit 2 ;;
esac
