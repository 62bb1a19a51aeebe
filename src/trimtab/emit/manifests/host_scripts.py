"""GPUs that are cut or shared on machines without Kubernetes: scripts for one host, and the order from host to host.

Sources: NVIDIA Multi-Instance GPU User Guide ("Getting Started with MIG": enabling, instances, device names; instances do not
outlive a reboot, and a process sees one instance alone) and NVIDIA Multi-Process Service (control daemon, environment, limits).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from trimtab.catalog.kinds import Isolation
from trimtab.emit.manifests.emission import ApplyStage, ManifestFile, node_name
from trimtab.emit.manifests.gpu_sharing import Cut
from trimtab.emit.manifests.pool_specs import PoolSpec

_HEAD = """#!/usr/bin/env bash
# {about}
# Made by trimtab for {actions}; nothing here was run. As root, on an empty host:
#   bash {file} {verbs}
set -euo pipefail
"""


def host_files(specs: Sequence[PoolSpec]) -> Iterator[ManifestFile]:
    """Yield the script and the order of each need whose GPUs are cut or shared; time slices ask for none."""
    for spec in specs:
        if spec.cut is None:
            continue
        name = node_name(spec.name.removeprefix("trimtab-"))
        text = (
            mig_script(spec, spec.cut, f"{name}.sh")
            if spec.cut.isolated
            else _sharing_script(spec, spec.cut, f"{name}.sh")
        )
        if text:
            yield _file(spec, f"hosts/{name}.sh", text, "script for a host")
            yield _file(
                spec, f"orders/hosts-{name}.md", transition_page(spec, spec.cut, f"{name}.sh"), "steps for a person"
            )


def _file(spec: PoolSpec, path: str, text: str, kind: str) -> ManifestFile:
    return ManifestFile(
        path=path, text=text, kind=kind, actions=tuple(action.id for action in spec.actions), stage=ApplyStage.NODES
    )


def _head(spec: PoolSpec, about: str, file: str, verbs: str) -> str:
    return _HEAD.format(about=about, actions=", ".join(action.id for action in spec.actions), file=file, verbs=verbs)


def mig_script(spec: PoolSpec, cut: Cut, file: str) -> str:
    """Return the script that cuts the GPUs of one host: enable, create, verify, map, restore."""
    layout = [(gpu, slices) for gpus, slices in cut.devices() for gpu in gpus]
    rows = "\n".join(
        f'  [{gpu}]="{",".join(name for name, count in slices.items() for _ in range(count))}"'
        for gpu, slices in layout
    )
    total = sum(sum(slices.values()) for _, slices in layout)
    about = f"MIG layout of a {spec.pool.instance_type}, for {', '.join(spec.workloads)}"
    return f"""{_head(spec, about, file, "enable|create|verify|map|restore")}
# GPU -> its slices, the largest first: the driver places them in this order
declare -A LAYOUT=(
{rows}
)

empty() {{  # refuses while anything holds a GPU: cutting takes the GPU from whoever is on it
  local held
  held="$(nvidia-smi --query-compute-apps=pid --format=csv,noheader)"
  if [ -n "$held" ]; then
    echo "GPUs are held by: $held" >&2
    exit 1
  fi
}}

enable() {{
  empty
  for gpu in "${{!LAYOUT[@]}}"; do
    nvidia-smi -i "$gpu" -mig 1
  done
  # Ampere boards take the mode with a reset, which asks that no daemon (dcgm, nvidia-persistenced) holds them; a VM is rebooted
  nvidia-smi --query-gpu=index,mig.mode.current,mig.mode.pending --format=csv
}}

create() {{
  empty
  for gpu in "${{!LAYOUT[@]}}"; do
    nvidia-smi mig -i "$gpu" -dci > /dev/null 2>&1 || true  # nothing there to take away is no fault
    nvidia-smi mig -i "$gpu" -dgi > /dev/null 2>&1 || true
    nvidia-smi mig -i "$gpu" -cgi "${{LAYOUT[$gpu]}}" -C
  done
}}

uuids() {{ nvidia-smi -L | sed -n 's/.*(UUID: \\(MIG-[^)]*\\)).*/\\1/p'; }}

verify() {{
  local found
  found="$(uuids | wc -l)"
  if [ "$found" -ne {total} ]; then
    echo "{total} slices were to be there, $found are" >&2
    exit 1
  fi
  echo "all {total} slices are there"
}}

map() {{  # each slice by its UUID, as systemd, Docker and Slurm take it; UUIDs are new after every create
  local number=0
  for uuid in $(uuids); do
    printf '%s\\n' "slice $number" \\
      "  systemd   Environment=CUDA_VISIBLE_DEVICES=$uuid" \\
      "  docker    docker run --gpus device=$uuid ...   (or NVIDIA_VISIBLE_DEVICES=$uuid)"
    number=$((number + 1))
  done
  echo "Slurm finds them itself: AutoDetect=nvml in gres.conf, then restart slurmd; jobs get CUDA_VISIBLE_DEVICES from it"
}}

restore() {{  # whole GPUs again
  empty
  for gpu in "${{!LAYOUT[@]}}"; do
    nvidia-smi mig -i "$gpu" -dci > /dev/null 2>&1 || true
    nvidia-smi mig -i "$gpu" -dgi > /dev/null 2>&1 || true
    nvidia-smi -i "$gpu" -mig 0
  done
}}

case "${{1:-}}" in
  enable | create | verify | map | restore) "$1" ;;
  *) echo "usage: $0 enable|create|verify|map|restore" >&2; exit 2 ;;
esac
"""


def _sharing_script(spec: PoolSpec, cut: Cut, file: str) -> str:
    """Return the script of the MPS daemon; empty for time slices, which the driver gives to whoever asks."""
    if cut.kinds[0].kept_apart_by is not Isolation.MPS:
        return ""
    share = 100 // cut.per_gpu
    about = f"MPS on a {spec.pool.instance_type}: {cut.per_gpu} clients to a GPU, for {', '.join(spec.workloads)}"
    return f"""{_head(spec, about, file, "start|verify|map|stop")}
export CUDA_MPS_PIPE_DIRECTORY=/tmp/nvidia-mps CUDA_MPS_LOG_DIRECTORY=/var/log/nvidia-mps

start() {{
  mkdir -p "$CUDA_MPS_PIPE_DIRECTORY" "$CUDA_MPS_LOG_DIRECTORY"
  nvidia-smi -c EXCLUSIVE_PROCESS  # only the daemon talks to the GPUs, so that no process bypasses it
  nvidia-cuda-mps-control -d
  # a client gets no more than its share, and no more memory than its part: without the second one may starve the others
  echo "set_default_active_thread_percentage {share}" | nvidia-cuda-mps-control
  memory_mib="$(nvidia-smi -i 0 --query-gpu=memory.total --format=csv,noheader,nounits)"
  for gpu in $(nvidia-smi --query-gpu=index --format=csv,noheader); do
    echo "set_default_device_pinned_mem_limit $gpu $((memory_mib / {cut.per_gpu}))M" | nvidia-cuda-mps-control
  done
}}

verify() {{
  echo get_default_active_thread_percentage | nvidia-cuda-mps-control
  nvidia-smi --query-gpu=index,compute_mode --format=csv
}}

map() {{  # what each client needs besides its GPU
  local pipes="$CUDA_MPS_PIPE_DIRECTORY"
  printf '%s\\n' "systemd   Environment=CUDA_MPS_PIPE_DIRECTORY=$CUDA_MPS_PIPE_DIRECTORY" \\
    "docker    docker run --gpus device=N --ipc=host -e CUDA_MPS_PIPE_DIRECTORY -v $pipes:$pipes ..." \\
    "Slurm     GresTypes=gpu,mps and Gres=mps:100 for each GPU; jobs ask with --gres=mps:{share}"
}}

stop() {{
  echo quit | nvidia-cuda-mps-control
  nvidia-smi -c DEFAULT
}}

case "${{1:-}}" in
  start | verify | map | stop) "$1" ;;
  *) echo "usage: $0 start|verify|map|stop" >&2; exit 2 ;;
esac
"""


def transition_page(spec: PoolSpec, cut: Cut, file: str) -> str:
    """Return the order in which hosts go from their present layout to the new one, and what breaks on the way."""
    make, back = ("enable, create, verify", "restore") if cut.isolated else ("start, verify", "stop")
    verbs = "\n".join(f"   bash {file} {verb}" for verb in make.split(", "))
    seen = (
        "A process sees one slice and calls it `cuda:0`; `cuda:1` is not there. Without `CUDA_VISIBLE_DEVICES` every process "
        "takes the first slice of the first GPU, and all share it. UUIDs change with every `create`, so make the map again."
        if cut.isolated
        else "A process without `CUDA_MPS_PIPE_DIRECTORY` cannot reach the GPU at all, since it is in exclusive mode; `cuda:0` "
        "is the first GPU for everybody, so say which GPU each client takes."
    )
    reboot = (
        "Instances are gone after a reboot (on Hopper and later the mode too): run `enable` and `create` from a systemd unit "
        "of type oneshot, `Before=slurmd.service docker.service`."
        if cut.isolated
        else "The daemon is gone after a reboot: start it from a systemd unit, `Before=slurmd.service docker.service`."
    )
    return f"""# Cut the GPUs of {spec.pool.instance_type} for {", ".join(spec.workloads)}

One host at a time; go on to the next when `verify` passes and the canary of the decision record holds. As many hosts as serve \
the peak must stay in their old layout until then.

1. **Empty the host.** Slurm: `scontrol update NodeName=HOST State=DRAIN Reason="new GPU layout"`, wait for `sinfo -n HOST` \
to say drained. systemd, Docker: stop the units or containers, callers elsewhere first. A layout in use cannot be changed.
2. **Search for what names a GPU by number**, which means another thing afterwards:

   ```sh
   grep -rnE 'cuda:[0-9]|CUDA_VISIBLE_DEVICES|NVIDIA_VISIBLE_DEVICES|device_ids|--gpus' /etc/systemd /etc/docker PATHS
   ```

   {seen}
3. **Change the layout**, as root on the host:

   ```sh
{verbs}
   bash {file} map
   ```

4. **Start one workload** with what `map` says, look at its memory and speed for an hour, then the others.
5. **Take the host back**: `scontrol update NodeName=HOST State=RESUME`, after slurmd was restarted; units and containers else.

{reboot}

## The way back

Empty the host as above, `bash {file} {back}`, and start what was there with its old settings.
"""
