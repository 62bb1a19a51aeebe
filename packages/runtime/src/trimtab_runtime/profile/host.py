"""The program beside the GPUs: its processes, how much of its CPU it uses, what PyTorch's allocator held."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path

from trimtab_runtime.units import BYTES_PER_GIB

PROC = Path("/proc")
CGROUP_CPU = Path("/sys/fs/cgroup/cpu.max")


def process_tree(root: int) -> frozenset[int]:
    """Return a process and all that descend from it; empty if it is gone or /proc is not there."""
    found: set[int] = set()
    open_ends = [root] if _stat(root) else []
    while open_ends:
        pid = open_ends.pop()
        found.add(pid)
        open_ends.extend(child for child in _children(pid) if child not in found)
    return frozenset(found)


def _children(pid: int) -> list[int]:
    """Return a process's children as the kernel lists them by thread: no walk over every process of the machine."""
    found: list[int] = []
    for file in (PROC / str(pid) / "task").glob("*/children"):
        with suppress(OSError, ValueError):
            found.extend(int(child) for child in file.read_text().split())
    return found


def cpu_seconds(pids: frozenset[int]) -> float:
    """Return the CPU time that processes and their ended children used so far."""
    ticks = os.sysconf("SC_CLK_TCK")
    return sum(sum(float(field) for field in fields[11:15]) for pid in pids if (fields := _stat(pid))) / ticks


def cpu_limit() -> float:
    """Return how many CPUs this program may use: its affinity, and its cgroup's quota where one is set."""
    cores = float(len(os.sched_getaffinity(0)))
    with suppress(OSError, ValueError):
        quota, period = CGROUP_CPU.read_text().split()
        if quota != "max":
            return min(cores, float(quota) / float(period))
    return cores


def _stat(pid: int) -> list[str]:
    """Return the fields of /proc/PID/stat from the state on; the name before them may hold anything."""
    try:
        return (PROC / str(pid) / "stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return []


def torch_peaks() -> list[dict[str, object]]:
    """Return what PyTorch's allocator held at most, per CUDA device; empty if this process has not loaded it."""
    torch = sys.modules.get("torch")
    cuda = getattr(torch, "cuda", None)
    if cuda is None or not cuda.is_available() or not cuda.is_initialized():
        return []
    found: list[dict[str, object]] = []
    with suppress(RuntimeError):  # torch's own, after a CUDA error: it must not reach the program from here
        for index in range(cuda.device_count()):
            stats = cuda.memory_stats(index)
            found.append(
                {
                    "device": index,
                    "allocated_peak_gib": cuda.max_memory_allocated(index) / BYTES_PER_GIB,
                    "reserved_peak_gib": cuda.max_memory_reserved(index) / BYTES_PER_GIB,
                    "allocator_retries": stats.get("num_alloc_retries"),
                    "out_of_memory_errors": stats.get("num_ooms"),
                }
            )
    return found
