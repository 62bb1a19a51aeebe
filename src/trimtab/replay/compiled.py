"""Compile replay loops, and the policies they drive, with Numba; keep the machine code between runs.

Numba's disk cache notices a change in the file of the compiled function only. The folder here carries a hash of all sources
of `policies/` and `replay/`, so that a changed rule is never served from yesterday's code.
"""

from __future__ import annotations

import hashlib
import inspect
import logging
import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import TypeVar, cast

import numba
from numba.core import config
from numba.extending import register_jitable

import trimtab.policies

logger = logging.getLogger(__name__)

Function = TypeVar("Function", bound=Callable[..., object])

SOURCES = (Path(trimtab.policies.__file__).parent, Path(__file__).parent)


@cache
def cache_dir() -> Path | None:
    """Return the folder for this state of the sources, or None where none can be written."""
    digest = hashlib.sha256()
    for folder in SOURCES:
        for source in sorted(folder.glob("*.py")):
            digest.update(source.name.encode() + b"\0" + source.read_bytes())
    base = Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"))
    folder = base / "trimtab" / "compiled" / digest.hexdigest()[:16]
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        logger.warning("replay compiles anew in each process: cannot write %s (%s)", folder, error)
        return None
    if not os.access(folder, os.W_OK):
        logger.warning("replay compiles anew in each process: cannot write %s", folder)
        return None
    return folder


def compiled(function: Function) -> Function:
    """Compile a loop at its first call, or load it from the disk; `.py_func` holds the plain function."""
    folder = cache_dir()
    if folder is None:
        return cast(Function, numba.njit(nogil=True)(function))
    settings = vars(config)
    before = settings["CACHE_DIR"]
    settings["CACHE_DIR"] = str(folder)
    try:
        return cast(Function, numba.njit(cache=True, error_model="numpy", nogil=True)(function))
    finally:
        settings["CACHE_DIR"] = before


def inlined(function: Function) -> Function:
    """Let compiled loops call a plain function; called from Python it stays what it is."""
    register_jitable(forceinline=True)(function)
    return function


def admit(module: ModuleType) -> None:
    """Let compiled loops call every function that a policy module defines."""
    for _, function in inspect.getmembers(module, inspect.isfunction):
        if function.__module__ == module.__name__:
            inlined(function)
