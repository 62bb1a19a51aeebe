"""Save, stall and load times of this package and its peers beside the disk's durable limit, in rounds that share the noise.

In each round every contender saves the same state once, after a `sync`, into an emptied folder. Two limits: 16 MiB writes
and one fsync through the page cache, as peers write, and the same past it (O_DIRECT), as we do, from memory that is
aligned already. Shares are of the limit: the best round of each, and the median over rounds of the ratio within a round.
"""

from __future__ import annotations

import importlib.util
import logging
import mmap
import os
import shutil
import statistics
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed.checkpoint as dcp

from benchmarks.reference.flat_checkpoint import FlatWriter
from trimtab.units import BYTES_PER_GB, BYTES_PER_MIB

TENSORS = 192
BLOCK_BYTES = 16 * BYTES_PER_MIB
LIMIT = "limit: 16 MiB writes + fsync"
DIRECT = "limit: 16 MiB direct writes + fsync"
COPY = "limit: copy into memory allocated before"
OURS = "trimtab"

State = dict[str, torch.Tensor]
Action = Callable[[], float]
"""Does one thing and returns the seconds that count."""


def make_state(mib: int) -> State:
    """Return float32 tensors of about this size together."""
    torch.manual_seed(0)
    return {f"tensor.{index}": torch.randn(mib * BYTES_PER_MIB // 4 // TENSORS) for index in range(TENSORS)}


def fsync_path(path: Path) -> None:
    """Flush a file's data or a folder's names."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def durable(path: Path, write: Callable[[Path], object]) -> None:
    """Write beside a path, flush, rename over it, flush the folder: the protocol given to peers that have none."""
    temporary = path.with_suffix(".tmp")
    write(temporary)
    fsync_path(temporary)
    temporary.replace(path)
    fsync_path(path.parent)


def raw_write(path: Path, total: int, block: memoryview) -> None:
    """Write this many bytes through the page cache and flush them."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    written = 0
    while written < total:
        written += os.write(descriptor, block[: total - written])
    os.fsync(descriptor)
    os.close(descriptor)


def direct_write(path: Path, content: memoryview) -> None:
    """Write aligned memory past the page cache and flush it; its size is a multiple of the blocks."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | getattr(os, "O_DIRECT", 0), 0o644)
    for start in range(0, len(content), BLOCK_BYTES):
        os.pwrite(descriptor, content[start : start + BLOCK_BYTES], start)
    os.fsync(descriptor)
    os.close(descriptor)


def aligned_memory(size_bytes: int, content: memoryview) -> memoryview:
    """Return page-aligned memory of at least this size in whole blocks, filled with repetitions of the content."""
    memory = memoryview(mmap.mmap(-1, -(-size_bytes // len(content)) * len(content)))
    for start in range(0, len(memory), len(content)):
        memory[start : start + len(content)] = content
    return memory


def dcp_save(state: State, folder: Path, threads: int) -> None:
    """Save by torch.distributed.checkpoint with its files flushed."""
    writer = dcp.FileSystemWriter(folder / "dcp", thread_count=threads, sync_files=True)
    dcp.save(state, storage_writer=writer, no_dist=True)


class Contenders:
    """Everything that is timed, on one state in one scratch folder."""

    def __init__(self, state: State, folder: Path) -> None:
        self._state = state
        self._folder = folder
        self._copies = {name: torch.empty_like(tensor).zero_() for name, tensor in state.items()}
        self.total_bytes = sum(tensor.numel() * tensor.element_size() for tensor in state.values())
        self._block = memoryview(os.urandom(BLOCK_BYTES))
        self._aligned = aligned_memory(self.total_bytes, self._block)

    def all(self) -> dict[str, Action]:
        """Return what is timed, by name, in the order of a round."""
        actions: dict[str, Action] = {
            LIMIT: _timed(lambda: raw_write(self._folder / "raw", self.total_bytes, self._block)),
            DIRECT: _timed(lambda: direct_write(self._folder / "direct", self._aligned)),
            "torch.save": _timed(
                lambda: durable(self._folder / "state.pt", lambda path: torch.save(self._state, path))
            ),
        }
        if importlib.util.find_spec("safetensors") is not None:
            from safetensors.torch import save_file

            path = self._folder / "state.safetensors"
            actions["safetensors"] = _timed(lambda: durable(path, lambda target: save_file(self._state, target)))
        actions |= {
            "DCP, 1 thread": _timed(lambda: dcp_save(self._state, self._folder, 1)),
            "DCP, 2 threads": _timed(lambda: dcp_save(self._state, self._folder, 2)),
            COPY: _timed(self._copy),
            "DCP async_save: stall": self._dcp_stall,
        }
        return actions

    def _copy(self) -> None:
        for name, tensor in self._state.items():
            self._copies[name].copy_(tensor)

    def _dcp_stall(self) -> float:
        began_s = time.perf_counter()
        future = dcp.async_save(self._state, checkpoint_id=str(self._folder / "dcp"), no_dist=True)
        stalled_s = time.perf_counter() - began_s
        future.result()
        return stalled_s


class Ours:
    """This package's save, stall and load through a job's interface; its buffers live across rounds, as in a job."""

    def __init__(self, state: State, folder: Path) -> None:
        self._state = state
        self._writer = FlatWriter(folder / "ours")
        self._step = 0
        self.save()

    def save(self) -> float:
        """Return the seconds until a synchronous save is durable."""
        self._step += 1
        began_s = time.perf_counter()
        self._writer.save(self._step, self._state)
        return time.perf_counter() - began_s

    def stall(self) -> float:
        """Return the seconds that an asynchronous save holds the caller up, once nothing of the one before is under way."""
        self._writer.settle()
        self._step += 1
        began_s = time.perf_counter()
        pending = self._writer.save_async(self._step, self._state)
        stalled_s = time.perf_counter() - began_s
        pending.wait()
        return stalled_s

    def load(self) -> float:
        """Return the seconds of a verified load."""
        began_s = time.perf_counter()
        self._writer.load()
        return time.perf_counter() - began_s


def _timed(action: Callable[[], object]) -> Action:
    def run() -> float:
        began_s = time.perf_counter()
        action()
        return time.perf_counter() - began_s

    return run


def measure(folder: Path, mib: int, rounds: int, progress: Callable[[str, float], None]) -> dict[str, object]:
    """Return the figures of all contenders."""
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    state = make_state(mib)
    scratch = folder / "peers"
    contenders = Contenders(state, scratch)
    ours = Ours(state, folder)
    actions = contenders.all() | {OURS: ours.save, f"{OURS}: stall": ours.stall, f"{OURS}: load": ours.load}
    seconds: dict[str, list[float]] = {name: [] for name in actions}
    for _ in range(rounds):
        for name, action in actions.items():
            shutil.rmtree(scratch, ignore_errors=True)
            scratch.mkdir(parents=True)
            os.sync()
            seconds[name].append(action())
            progress(name, seconds[name][-1])
    return summary(seconds, contenders.total_bytes)


def summary(seconds: dict[str, list[float]], total_bytes: int) -> dict[str, object]:
    """Return shares of the limit and stalls per gigabyte."""
    size_gb = total_bytes / BYTES_PER_GB
    limit, direct = seconds[LIMIT], seconds[DIRECT]
    saves = [name for name in seconds if not name.startswith("limit") and "stall" not in name and "load" not in name]
    return {
        "size_gb": round(size_gb, 3),
        "rounds": len(limit),
        "limit_gb_s": round(size_gb / min(limit), 3),
        "direct_limit_gb_s": round(size_gb / min(direct), 3),
        "save_frac_of_direct_limit": round(min(direct) / min(seconds[OURS]), 3),
        "save_frac_of_direct_limit_median": round(
            statistics.median(a / b for a, b in zip(direct, seconds[OURS], strict=True)), 3
        ),
        "save_over_peers_median": {
            name: round(statistics.median(a / b for a, b in zip(seconds[name], seconds[OURS], strict=True)), 3)
            for name in saves
            if name != OURS
        },
        "save_frac_of_limit": {name: round(min(limit) / min(seconds[name]), 3) for name in saves},
        "save_frac_of_limit_median": {
            name: round(statistics.median(a / b for a, b in zip(limit, seconds[name], strict=True)), 3)
            for name in saves
        },
        "stall_s_per_gb": {
            name.partition(":")[0]: round(min(seconds[name]) / size_gb, 4) for name in seconds if "stall" in name
        },
        "stall_s_per_gb_median": {
            name.partition(":")[0]: round(statistics.median(seconds[name]) / size_gb, 4)
            for name in seconds
            if "stall" in name
        },
        "copy_limit_s_per_gb": round(min(seconds[COPY]) / size_gb, 4),
        "load_gb_s": round(size_gb / min(seconds[f"{OURS}: load"]), 3),
    }
