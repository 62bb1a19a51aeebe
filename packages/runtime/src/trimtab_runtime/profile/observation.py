"""`with trimtab.profile():` what the GPUs do while a piece of a program runs, without disturbing it.

    with trimtab.profile(out="profile.json") as seen:
        for batch in loader:
            train(batch)
            seen.count(tokens=batch.tokens)

Nothing of this raises into the program: where there is no driver, or a device goes, the profile says so.
"""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from trimtab_runtime.errors import ProfileError
from trimtab_runtime.profile import host
from trimtab_runtime.profile.document import SCHEMA_VERSION, device_document, gpu_name, troubles_document
from trimtab_runtime.profile.nvml import Nvml
from trimtab_runtime.profile.sampler import Sampler

logger = logging.getLogger(__name__)

INTERVAL_S = 0.2
"""NVML averages utilization over a sixth of a second to a second (nvml.h): faster sampling sees nothing more."""
STOP_S = 5.0
"""A call that has not come back by then is left alone."""
CPU_EVERY_S = 5.0


class Profile:
    """Observes all GPUs from a thread of its own between `start` and `stop`; also a context manager.

    `pid` names the program whose processes and CPU count: None is this one. `library` is another NVML to load.
    """

    def __init__(
        self,
        out: str | Path | None = None,
        *,
        interval_s: float = INTERVAL_S,
        pid: int | None = None,
        library: str | None = None,
    ) -> None:
        self.interval_s = interval_s
        self.problem: str | None = None
        """Why nothing was observed; None if something was."""
        self._out = None if out is None else Path(out)
        self._pid, self._library = pid or os.getpid(), library
        self._nvml: Nvml | None = None
        self._sampler: Sampler | None = None
        self._thread: threading.Thread | None = None
        self._ended, self._turn = threading.Event(), threading.Lock()
        self._started_s = self._stopped_s = 0.0
        self._epoch_s = 0.0
        self._counted: dict[str, float] = {}
        self._late = 0
        self._longest_round_s = 0.0
        self._stuck = False
        self._cpu_s = self._cpu_begun_s = 0.0
        self._cpu_due_s = 0.0
        self._own_pids: set[int] = set()

    def start(self) -> Self:
        """Begin to observe; where that is impossible `problem` says why."""
        self._started_s, self._epoch_s = time.monotonic(), time.time()
        try:
            self._nvml = Nvml(self._library)
            self._sampler = Sampler(
                self._nvml, now_s=self._started_s, epoch_s=self._epoch_s, interval_s=self.interval_s
            )
        except ProfileError as error:
            self.problem = str(error)
            logger.warning("no GPU is observed: %s", error)
            return self
        if not self._sampler.devices:
            reasons = "; ".join(f"GPU {board.index}: {board.reason}" for board in self._sampler.unreadable)
            self.problem = f"the driver shows no GPU that can be read{f' ({reasons})' if reasons else ''}"
        self._look_at_program(self._started_s)
        self._cpu_begun_s = self._cpu_s
        self._thread = threading.Thread(target=self._loop, args=(self._sampler,), name="trimtab-profile", daemon=True)
        self._thread.start()
        return self

    def count(self, **amounts: float) -> None:
        """Count work done (tokens=, steps=, items=): the profile then states rates, which `trimtab fit` calibrates on."""
        for name, amount in amounts.items():
            self._counted[name] = self._counted.get(name, 0.0) + amount

    def _loop(self, sampler: Sampler) -> None:
        """Sample at even moments; a round that takes longer lets moments pass, which is counted."""
        due_s = self._started_s + self.interval_s
        while not self._ended.wait(max(0.0, due_s - time.monotonic())):
            begun_s = time.monotonic()
            with self._turn:
                if self._stuck:
                    return
                try:
                    sampler.round(begun_s)
                except Exception as error:
                    # a program must not fail for its observer; what was seen until now is kept
                    self.problem = f"observed until {begun_s - self._started_s:.1f} s, then: {error!r}"
                    logger.exception("the observation ended early")
                    return
            taken_s = time.monotonic() - begun_s
            self._longest_round_s = max(self._longest_round_s, taken_s)
            if begun_s >= self._cpu_due_s:
                self._look_at_program(begun_s)
            missed = int((time.monotonic() - due_s) / self.interval_s)
            self._late += missed
            due_s += self.interval_s * (missed + 1)

    def _look_at_program(self, now_s: float) -> None:
        pids = host.process_tree(self._pid)
        self._own_pids.update(pids)
        self._cpu_s = max(self._cpu_s, host.cpu_seconds(pids))
        self._cpu_due_s = now_s + CPU_EVERY_S

    def stop(self) -> None:
        """End the observation; a call of the driver that does not come back is left alone and reported."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join(STOP_S)
            self._stuck = self._thread.is_alive()
            if not self._stuck:
                self._look_at_program(time.monotonic())
        self._stopped_s = time.monotonic()
        if self._sampler is not None and not self._stuck:
            self._sampler.close_hour(self._stopped_s)
            if self._nvml is not None:
                self._nvml.close()

    def document(self) -> dict[str, object]:
        """Return the profile as plain values; while the observation runs, what was seen so far."""
        now_s = self._stopped_s or time.monotonic()
        wall_s = now_s - self._started_s
        sampler = self._sampler
        if self._stuck or not self._turn.acquire(timeout=STOP_S):
            return self._frame(wall_s, [], [], waiting=True)
        try:
            if sampler is None:
                return self._frame(wall_s, [], [])
            sampler.flush()
            devices = [device_document(sampler, device, now_s) for device in sampler.devices]
            return self._frame(wall_s, devices, troubles_document(sampler))
        finally:
            self._turn.release()

    def _frame(
        self,
        wall_s: float,
        devices: list[dict[str, object]],
        troubles: list[dict[str, object]],
        *,
        waiting: bool = False,
    ) -> dict[str, object]:
        sampler = self._sampler
        rates = {f"{_rate_name(name)}": amount / wall_s for name, amount in self._counted.items() if wall_s > 0}
        boards = [] if sampler is None else [device for device in sampler.devices if device.parent is None]
        return {
            "schema_version": SCHEMA_VERSION,
            "kind": "trimtab profile",
            "gpu": None if sampler is None else gpu_name(sampler),
            "gpus": len(boards) or None,
            **rates,
            "problem": "a call of the driver has not come back" if waiting else self.problem,
            "started_epoch_s": self._epoch_s,
            "wall_s": wall_s,
            "interval_s": self.interval_s,
            "samples": 0 if sampler is None else sampler.rounds,
            "samples_missed": self._late,
            "longest_sample_s": self._longest_round_s,
            "unobserved_s": None if sampler is None else sampler.unobserved_until(self._stopped_s or time.monotonic()),
            "program": {
                "pids": sorted(self._own_pids),
                "cpu_s": self._cpu_s - self._cpu_begun_s,
                "cpu_limit": host.cpu_limit(),
                "counted": dict(self._counted),
            },
            "torch": host.torch_peaks(),
            "devices": devices,
            "troubles": troubles,
        }

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        if self._out is None:
            return
        try:
            self._out.write_text(json.dumps(self.document(), indent=1), encoding="utf-8")
        except OSError as failed:
            logger.error("the profile could not be written: %s", failed)
            return
        logger.info("profile written; read it with: trimtab profile --read %s", self._out)


def _rate_name(counted: str) -> str:
    return {"tokens": "tok_s", "requests": "req_s"}.get(counted, f"{counted}_s")
