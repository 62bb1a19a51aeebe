"""SIGKILL a process that saves without pause at random instants, and look at what a fresh process then finds.

Outcomes: `ok` the newest promised step or a later one loads, `stale` an older one, `lost` none, `mixed` tensors of
two saves in one checkpoint, `fail` an error. A step is promised once its save has returned. The folder is never
cleaned in between: a person's hand would hide a fault. SIGKILL tests order and atomicity; that files and folders are
flushed in the right order is tested apart.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from benchmarks.reference.flat_checkpoint import FlatWriter
from trimtab.errors import CheckpointError
from trimtab.units import BYTES_PER_MIB

ARRAYS = 8
KILL_WINDOW_S = 0.05
FIRST_SAVE_TIMEOUT_S = 60.0
PROMISES = "promised"
OUTCOMES = ("ok", "stale", "lost", "mixed", "fail")


def make_state(size_bytes: int) -> dict[str, object]:
    """Return arrays of about this size together; each begins with its step."""
    length = size_bytes // ARRAYS // 8
    return {f"part.{index}": np.zeros(length) for index in range(ARRAYS)}


def last_promised(folder: Path) -> int:
    """Return the last step whose save returned, 0 if none; a line cut short by the kill promises nothing."""
    path = folder / PROMISES
    lines = path.read_text().split("\n")[:-1] if path.exists() else []
    return int(lines[-1]) if lines else 0


def save_forever(folder: Path, size_bytes: int) -> None:
    """Save without pause; after each save that returned, append its step to the file of promises."""
    state = make_state(size_bytes)
    writer = FlatWriter(folder / "checkpoints")
    promises = os.open(folder / PROMISES, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    step = last_promised(folder)
    while True:
        step += 1
        for array in state.values():
            np.asarray(array)[:] = step
        writer.save(step, state)
        os.write(promises, b"%d\n" % step)


def verdict(folder: Path) -> str:
    """Load the newest checkpoint and return the outcome, with its reason where it failed."""
    promised = last_promised(folder)
    try:
        found = FlatWriter(folder / "checkpoints").load()
    except CheckpointError as error:
        return f"fail {error}"
    if found is None:
        return "lost"
    step, state = found
    if any(not np.all(np.asarray(array) == step) for array in state.values()):
        return "mixed"
    return "ok" if step >= promised else "stale"


def in_child(action: Callable[[], object]) -> int:
    """Fork, run the action silently and return the child's id."""
    child = os.fork()
    if child == 0:
        try:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
            action()
        finally:
            os._exit(0)
    return child


def verdict_in_child(folder: Path) -> str:
    """Return the verdict of a process that shares no memory with the one that was killed."""
    reader, writer = os.pipe()
    child = in_child(lambda: os.write(writer, verdict(folder).encode()))
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        answer = pipe.read().decode()
    os.waitpid(child, 0)
    return answer or "fail the reader died"


def kill_once(folder: Path, size_bytes: int, rng: random.Random) -> str:
    """Let a process save at least once, kill it at a random instant, and return the verdict."""
    promises = folder / PROMISES
    size_before = promises.stat().st_size if promises.exists() else 0
    child = in_child(lambda: save_forever(folder, size_bytes))
    deadline_s = time.monotonic() + FIRST_SAVE_TIMEOUT_S
    while (promises.stat().st_size if promises.exists() else 0) == size_before:
        if time.monotonic() > deadline_s or os.waitpid(child, os.WNOHANG)[0]:
            return "fail no save returned"
        time.sleep(0.001)
    time.sleep(rng.random() * KILL_WINDOW_S)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return verdict_in_child(folder)


def kill_loop(
    folder: Path, kills: int, size_bytes: int, seed: int, progress: Callable[[int], None]
) -> dict[str, object]:
    """Return the counts of outcomes over many kills, with the reasons of the failures."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    rng = random.Random(seed)
    counts = dict.fromkeys(OUTCOMES, 0)
    reasons: dict[str, int] = {}
    for done in range(kills):
        outcome, _, reason = kill_once(folder, size_bytes, rng).partition(" ")
        counts[outcome] += 1
        if reason:
            reasons[reason] = reasons.get(reason, 0) + 1
        progress(done + 1)
    saves = last_promised(folder)
    shutil.rmtree(folder)
    return {
        "kills": kills,
        "size_mib": size_bytes / BYTES_PER_MIB,
        "promised_saves": saves,
        **counts,
        "reasons": reasons,
    }
