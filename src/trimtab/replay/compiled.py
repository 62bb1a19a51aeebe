"""Compile replay loops, and the policies they drive, with Numba; their machine code is kept where the rim names a folder.

Numba's disk cache notices a change in the file of the compiled function only: who names the folder (`code_folder`) names
another one for other sources of `policies/` and `replay/`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import ModuleType
from typing import TypeVar, cast

import numba
from numba.core import config
from numba.extending import register_jitable

from trimtab.replay.code_folder import code_folder

Function = TypeVar("Function", bound=Callable[..., object])


def compiled(function: Function) -> Function:
    """Compile a loop at its first call, or load it from the disk; `.py_func` holds the plain function."""
    # a folder's name speaks of the sources that the loops of one package inline, so each package names its own
    folder = code_folder(function.__module__)
    # Numba asks its settings for the folder when the function is defined, and has no argument for it
    settings = vars(config)
    before = settings["CACHE_DIR"]
    settings["CACHE_DIR"] = folder or before
    try:
        compile_loop = numba.njit(cache=folder is not None, error_model="numpy", nogil=True)
        return cast(Function, compile_loop(function))
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
