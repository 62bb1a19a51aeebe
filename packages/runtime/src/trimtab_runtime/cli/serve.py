"""`trimtab-runtime serve`: a batcher behind HTTP, found by its module and name."""

from __future__ import annotations

import logging
import os
import sys
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from operator import attrgetter

from trimtab_runtime import http  # its `serve` is looked up when it is called: help needs no uvicorn
from trimtab_runtime.batcher import Batcher
from trimtab_runtime.cli.options import span_s, whole_number
from trimtab_runtime.errors import InputError
from trimtab_runtime.http import BatchApp, Limits

DESCRIPTION = """\
Serve a batched function over HTTP: POST an item as JSON, get its result; GET /metrics for Prometheus.

The module is imported from the current folder or the Python path. SIGTERM or SIGINT answers what was accepted and ends.
Needs uvicorn: pip install 'trimtab-runtime[http]'.
"""
EXAMPLES = """\
Examples:
  {prog} service:embed
  {prog} service:embed --host 0.0.0.0 --port 8080 --path /embed --drain 20s
"""
MOST_PORT = 65_535


def run(arguments: Sequence[str], prog: str) -> int:
    """Serve until told to end; return 0."""
    given = parser(prog).parse_args(arguments)
    app = BatchApp(find_batcher(given.batcher), path=given.path, limits=Limits(drain_s=span_s(given.drain, "--drain")))
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")
    http.serve(app, host=given.host, port=given.port)
    return 0


def parser(prog: str) -> ArgumentParser:
    """Return the options of the command."""
    made = ArgumentParser(
        prog=prog,
        description=DESCRIPTION,
        epilog=EXAMPLES.format(prog=prog),
        formatter_class=RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    made.add_argument("batcher", metavar="MODULE:NAME", help="the batched function")
    made.add_argument("--host", default="127.0.0.1", help="address to listen on (default: %(default)s)")
    made.add_argument(
        "--port", type=whole_number(0, MOST_PORT), default=8000, help="port (default: %(default)s; 0: any)"
    )
    made.add_argument("--path", default="/predict", help="where items are posted (default: %(default)s)")
    made.add_argument("--drain", default="30s", metavar="TIME", help="time to answer at the end (default: %(default)s)")
    return made


def find_batcher(words: str) -> Batcher[object, object]:
    """Import a batcher by `module:name`; raises `InputError` where there is none."""
    module, _, name = words.partition(":")
    if not module or not name:
        raise InputError(f"{words!r}: give the module and the name of a batched function, as in service:embed")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    if find_spec(module.partition(".")[0]) is None:
        raise InputError(f"{words!r}: there is no module {module!r} here or on the Python path")
    try:
        found = attrgetter(name)(import_module(module))
    except AttributeError as error:
        raise InputError(f"{words!r}: {error}") from error
    if not isinstance(found, Batcher):
        raise InputError(
            f"{words!r} is a {type(found).__name__}, not a function under @trimtab_runtime.batch (streams are not served)"
        )
    return found
