#!/usr/bin/env bash
# MPS on a p4de.24xlarge: 3 clients to a GPU, for aws/llm-api
# Made by trimtab for spot-aws-llm-api; nothing here was run. As root, on an empty host:
#   bash p4de-24xlarge-us-east-1-on-demand-mps-24-services.sh start|verify|map|stop
set -euo pipefail

export CUDA_MPS_PIPE_DIRECTORY=/tmp/nvidia-mps CUDA_MPS_LOG_DIRECTORY=/var/log/nvidia-mps

start() {
  mkdir -p "$CUDA_MPS_PIPE_DIRECTORY" "$CUDA_MPS_LOG_DIRECTORY"
  nvidia-smi -c EXCLUSIVE_PROCESS  # only the daemon talks to the GPUs, so that no process bypasses it
  nvidia-cuda-mps-control -d
  # a client gets no more than its share, and no more memory than its part: without the second one may starve the others
  echo "set_default_active_thread_percentage 33" | nvidia-cuda-mps-control
  memory_mib="$(nvidia-smi -i 0 --query-gpu=memory.total --format=csv,noheader,nounits)"
  for gpu in $(nvidia-smi --query-gpu=index --format=csv,noheader); do
    echo "set_default_device_pinned_mem_limit $gpu $((memory_mib / 3))M" | nvidia-cuda-mps-control
  done
}

verify() {
  echo get_default_active_thread_percentage | nvidia-cuda-mps-control
  nvidia-smi --query-gpu=index,compute_mode --format=csv
}

map() {  # what each client needs besides its GPU
  local pipes="$CUDA_MPS_PIPE_DIRECTORY"
  printf '%s\n' "systemd   Environment=CUDA_MPS_PIPE_DIRECTORY=$CUDA_MPS_PIPE_DIRECTORY" \
    "docker    docker run --gpus device=N --ipc=host -e CUDA_MPS_PIPE_DIRECTORY -v $pipes:$pipes ..." \
    "Slurm     GresTypes=gpu,mps and Gres=mps:100 for each GPU; jobs ask with --gres=mps:33"
}

stop() {
  echo quit | nvidia-cuda-mps-control
  nvidia-smi -c DEFAULT
}

case "${1:-}" in
  start | verify | map | stop) "$1" ;;
  *) echo "usage: $0 start|verify|map|stop" >&2; exit 2 ;;
esac
