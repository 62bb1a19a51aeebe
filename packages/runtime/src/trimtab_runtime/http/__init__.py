"""A batcher behind HTTP: an ASGI application for any server, and `serve`, which runs it under uvicorn (the extra `http`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trimtab_runtime.errors import UsageError
from trimtab_runtime.http.app import BatchApp, Limits

if TYPE_CHECKING:  # so that a type checker sees the functions and not what `__getattr__` returns
    from trimtab_runtime.http.serving import serve, server

__all__ = ["BatchApp", "Limits", "serve", "server"]


def __getattr__(name: str) -> object:
    if name not in ("serve", "server"):
        raise AttributeError(f"module 'trimtab_runtime.http' has no attribute {name!r}")
    try:
        from trimtab_runtime.http import serving
    except ImportError as missing:
        raise UsageError(
            f"http: serving needs uvicorn and httptools ({missing}): pip install 'trimtab-runtime[http]', "
            "or give the BatchApp to any other ASGI server"
        ) from missing
    return getattr(serving, name)
