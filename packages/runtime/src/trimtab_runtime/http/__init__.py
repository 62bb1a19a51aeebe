"""A small HTTP face for batchers: an ASGI application and an ASGI server, of the standard library alone."""

from trimtab_runtime.http.app import BatchApp
from trimtab_runtime.http.server import Server, serve

__all__ = ["BatchApp", "Server", "serve"]
