"""What replay loops share: their compiling with Numba, with machine code that is kept; array types; seconds by clock hour.

Numba's disk cache notices a change in the file of the compiled function only: who names the folder (`code_folder`) names
another one for other sources of `policies/` and `replay/`.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from enum import IntEnum
from functools import cache, update_wrapper
from threading import Lock
from types import ModuleType
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from trimtab.ledger.arrays import IntArray
from trimtab.replay.code_folder import code_folder
from trimtab.units import S_PER_HR

Function = TypeVar("Function", bound=Callable[..., object])
Item = TypeVar("Item")
Answer = TypeVar("Answer")
_inlined: list[Callable[..., object]] = []
"""Functions that compiled loops may call, and of which Numba does not know yet."""
_one_at_a_time = Lock()
logger = logging.getLogger(__name__)


class _Loop:
    """A loop that is made ready at its first call. Numba is imported then: that alone takes longer than a cheap command."""

    def __init__(self, function: Callable[..., object], *, counts_references: bool = True) -> None:
        self.py_func = function
        self._counts_references = counts_references
        self._ready: Callable[..., object] | None = None
        update_wrapper(self, function)

    def __call__(self, *arguments: object) -> object:
        return (self._ready or self._made_ready())(*arguments)

    @property
    def _numba_type_(self) -> object:
        # what Numba asks of a loop that another loop calls
        from numba import typeof

        return typeof(self._ready or self._made_ready())  # type: ignore[no-untyped-call]  # it has no annotations

    def _made_ready(self) -> Callable[..., object]:
        with _one_at_a_time:
            self._ready = self._ready or _compiling(self.py_func, self._counts_references)
            return self._ready


def compiled(function: Function) -> Function:
    """Compile a loop at its first call, or load it from the disk; `.py_func` holds the plain function."""
    return cast(Function, _Loop(function))


def compiled_in_place(function: Function) -> Function:
    """Compile a loop that makes no array and only changes those that it is given, often many in a record.

    Numba counts references to each array of a record at each step that takes it, which made the steps of a pool three times as
    slow. A loop that makes none needs no counts; one that does is refused by Numba when it is compiled.
    """
    return cast(Function, _Loop(function, counts_references=False))


@cache
def _tell_of_compiling() -> None:
    """Log each loop that is compiled and not loaded, which takes seconds; those that it calls are part of it."""
    from numba.core import event

    depth = 0  # Numba compiles one thing at a time

    class Told(event.Listener):
        def on_start(self, event: Any) -> None:
            nonlocal depth
            if depth == 0:
                loop = event.data["dispatcher"].py_func.__name__.strip("_").replace("_", " ")
                logger.info("compiling a loop of replays (%s), once on this machine", loop)
            depth += 1

        def on_end(self, event: Any) -> None:
            nonlocal depth
            depth -= 1

    event.register("numba:compile", Told())  # type: ignore[no-untyped-call]  # it has no annotations


def _compiling(function: Callable[..., object], counts_references: bool) -> Callable[..., object]:
    """Return a loop as Numba takes it, which knows of all functions that it may call by now."""
    import numba
    from numba.core import config
    from numba.extending import register_jitable

    _tell_of_compiling()
    while _inlined:
        register_jitable(forceinline=True)(_inlined.pop(0))
    # a folder's name speaks of the sources that the loops of one package inline, so each package names its own
    folder = code_folder(function.__module__)
    # Numba asks its settings for the folder when the function is defined, and has no argument for it
    settings = vars(config)
    before = settings["CACHE_DIR"]
    settings["CACHE_DIR"] = folder or before
    try:
        # Numba's published types leave out `_nrt`
        njit: Callable[..., Callable[..., Callable[..., object]]] = numba.njit
        return njit(cache=folder is not None, error_model="numpy", nogil=True, _nrt=counts_references)(function)
    finally:
        settings["CACHE_DIR"] = before


def inlined(function: Function) -> Function:
    """Let compiled loops call a plain function; called from Python it stays what it is."""
    _inlined.append(function)
    return function


def admit(module: ModuleType) -> None:
    """Let compiled loops call every function that a policy module defines."""
    for _, function in inspect.getmembers(module, inspect.isfunction):
        if function.__module__ == module.__name__:
            inlined(function)


_AT_ONCE = 2
"""More were not measured: on two cores, and most of a replay's Python holds the interpreter's lock."""


def side_by_side(work: Callable[[Item], Answer], items: Iterable[Item]) -> Iterator[Answer]:
    """Yield what work that is mostly replays answers of each item, in order, of two at a time.

    Compiled loops release the interpreter's lock. Work that is mostly Python takes longer so, since each short loop then waits
    for the lock.
    """
    with ThreadPoolExecutor(max_workers=_AT_ONCE) as pool:
        yield from pool.map(work, items)


Record = TypeVar("Record", bound=tuple[object, ...])


def as_numbers(record: Record) -> Record:
    """Return a named tuple, and those in it, with members of enums as whole numbers.

    Numba looks the type of an enum up in Python whenever compiled code is called, which takes longer than many a replay.
    """
    made: Callable[..., Record] = type(record)
    return made(*map(_as_number, record))


def _as_number(value: object) -> object:
    if isinstance(value, tuple):
        return as_numbers(value)
    return int(value) if isinstance(value, IntEnum) else value


CountArray = NDArray[np.int32]


@inlined
def add_interval(by_hour: IntArray, start_s: int, end_s: int, amount: int) -> None:
    """Add `amount` for each second of `[start_s, end_s)` to its hour; what lies beyond the last hour is left out."""
    last = min(end_s, len(by_hour) * S_PER_HR)
    now = max(start_s, 0)
    while now < last:
        hour = now // S_PER_HR
        until = min(last, (hour + 1) * S_PER_HR)
        by_hour[hour] += amount * (until - now)
        now = until
