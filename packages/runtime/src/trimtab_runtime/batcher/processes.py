"""Run the batch function in a process of its own: a crash of the model fails its batch, not the program.

The process is spawned, not forked, so that CUDA and threads are safe; it imports the function by its module and name. Items and
results travel as pickles.
"""

from __future__ import annotations

import multiprocessing
import sys
from collections.abc import Callable
from importlib import import_module
from math import inf
from multiprocessing.connection import Connection
from operator import attrgetter
from types import TracebackType
from typing import NoReturn, cast

from trimtab_runtime.batcher.recovery import Attempt
from trimtab_runtime.errors import UsageError, WorkerLost

RUN_LIMIT_S = 600.0
"""Default time limit of a batch in a process; a process that exceeds it counts as hung."""
START_LIMIT_S = 1800.0
"""How long a process may take to import its function and load its model: 140 GB at 125 MB/s take 19 minutes."""
END_WAIT_S = 5.0
"""How long a process that was told to end may take before it is killed."""
READY = "ready"
"""Sent by a process once its function is imported: the limit of a run does not count the loading of a model."""


def importable(function: Callable[..., object]) -> tuple[str, str]:
    """Return the module and name by which another process finds a function; raise `UsageError` where it cannot."""
    module, name = getattr(function, "__module__", ""), getattr(function, "__qualname__", "")
    if not module or not name or "<locals>" in name or "<lambda>" in name:
        raise UsageError(
            f"batch: a process worker must import its function by name, and {function!r} has none at module level"
        )
    return module, name


def find_function(module: str, name: str) -> Callable[[list[object]], object]:
    """Import a batch function; where the name is its batcher, return the function inside."""
    found = attrgetter(name)(import_module(module))
    return cast("Callable[[list[object]], object]", getattr(found, "function", found))


def serve(connection: Connection, module: str, name: str) -> None:
    """Answer batches until the other side hangs up: what the worker process runs."""
    with Attempt() as imported:
        function = find_function(module, name)
    with Attempt():  # the other side may have given up meanwhile, which the next line to it tells
        connection.send(READY)
    while True:
        try:
            items = connection.recv()
        except EOFError:
            return
        results: object = None
        with Attempt() as tried:
            if imported.error is not None:
                raise imported.error
            results = function(items)
        with Attempt() as sent:
            connection.send((results, tried.error))
        if sent.error is not None:
            connection.send((None, WorkerLost(f"{name}: the answer cannot be pickled: {sent.error}")))


class ProcessCall:
    """A batch function in another process, started at the first call and again after it has died."""

    def __init__(
        self, module: str, name: str, run_limit_s: float | None, *, start_limit_s: float = START_LIMIT_S
    ) -> None:
        self._module = module
        self._name = name
        self._run_limit_s = RUN_LIMIT_S if run_limit_s is None else run_limit_s
        self._start_limit_s = start_limit_s
        self._process: multiprocessing.process.BaseProcess | None = None
        self._connection: Connection | None = None
        self._ready = False

    def __enter__(self) -> ProcessCall:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def __call__(self, items: list[object]) -> object:
        connection = self._connection or self._start()
        try:
            if not self._ready:
                if not connection.poll(self._start_limit_s):
                    self._kill(f"did not import its function within {self._start_limit_s:g} s and was killed")
                self._ready = connection.recv() == READY
            connection.send(items)
            if not connection.poll(None if self._run_limit_s == inf else self._run_limit_s):
                self._kill(
                    f"took longer than {self._run_limit_s:g} s on a batch of {len(items)} and was killed; "
                    "raise run_limit_s where a batch may take that long"
                )
            results, error = connection.recv()
        except (EOFError, ConnectionError) as lost:
            code = self._end()
            raise WorkerLost(
                f"{self._name}: the worker process died with exit code {code} on a batch of {len(items)}"
            ) from lost
        if error is not None:
            raise error
        return cast(object, results)

    def _kill(self, why: str) -> NoReturn:
        """End a process that hangs; the next batch starts another."""
        process = self._process
        if process is not None:
            process.kill()
        self._end()
        raise WorkerLost(f"{self._name}: the worker process {why}") from TimeoutError()

    def _start(self) -> Connection:
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        process = context.Process(target=serve, args=(theirs, self._module, self._name), daemon=True)
        process.start()
        theirs.close()
        self._process, self._connection, self._ready = process, ours, False
        return ours

    def _end(self) -> int | None:
        """Hang up, wait for the process, kill it if it lingers; return its exit code."""
        if self._connection is not None:
            self._connection.close()
        process = self._process
        self._process = self._connection = None
        if process is None or sys.is_finalizing():
            return None
        process.join(END_WAIT_S)
        if process.is_alive():
            process.kill()
            process.join()
        return process.exitcode
