"""Bring answers to callers on whatever event loop or thread they wait, one wake-up a loop and batch."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import InvalidStateError
from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING

from trimtab_runtime.batcher.metrics import Metrics
from trimtab_runtime.batcher.request import Request

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

logger = logging.getLogger(__name__)


def nothing() -> None:
    """Do nothing after the answers."""


def deliver(
    requests: Sequence[Request],
    results: Sequence[object],
    metrics: Metrics,
    here: object = None,
    after: Callable[[], None] = nothing,
) -> None:
    """Answer requests in order; a result that is an exception is raised to its caller.

    `here` is the event loop that this runs on, if any; other loops are called once each, thread callers are answered in place.
    `after` is called once, where the first answers are: on an event loop the worker need not wait for it.
    """
    loops = {request.loop for request in requests}
    if len(loops) == 1:
        _send(requests, results, loops.pop(), metrics, here, after)
        return
    for loop in loops:
        mine = [(request, result) for request, result in zip(requests, results, strict=True) if request.loop is loop]
        _send([request for request, _ in mine], [result for _, result in mine], loop, metrics, here, after)
        after = nothing


def _send(
    requests: Sequence[Request],
    results: Sequence[object],
    loop: AbstractEventLoop | None,
    metrics: Metrics,
    here: object,
    after: Callable[[], None],
) -> None:
    if loop is None or loop is here:
        after()
        _answer(requests, results, metrics, nothing)
        return
    try:
        loop.call_soon_threadsafe(_answer, requests, results, metrics, after)
    except RuntimeError:  # the loop was closed with the callers on it
        after()
        metrics.count_answers(requests, monotonic(), abandoned=len(requests), failed=0)
        logger.debug("%d answers had no event loop left to go to", len(requests))


def _answer(
    requests: Sequence[Request], results: Sequence[object], metrics: Metrics, after: Callable[[], None]
) -> None:
    abandoned = failed = 0
    for request, result in zip(requests, results, strict=True):
        reply = request.reply
        try:
            if reply.done():
                abandoned += 1
            elif isinstance(result, Exception):
                reply.set_exception(result)
                failed += 1
            else:
                reply.set_result(result)
        except InvalidStateError:  # a thread has just cancelled it; on an event loop nothing comes between
            abandoned += 1
    metrics.count_answers(requests, monotonic(), abandoned=abandoned, failed=failed)
    after()


def refuse(requests: Sequence[Request], error: Exception, metrics: Metrics, reason: str) -> None:
    """Fail requests that were never run, each where its caller waits."""
    metrics.count_refused(reason, len(requests))
    for request in requests:
        if request.loop is None:
            _fail(request, error)
            continue
        try:
            request.loop.call_soon_threadsafe(_fail, request, error)
        except RuntimeError:
            logger.debug("a refused request had no event loop left")


def _fail(request: Request, error: Exception) -> None:
    with suppress(InvalidStateError):
        if not request.reply.done():
            request.reply.set_exception(error)
