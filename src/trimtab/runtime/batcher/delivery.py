"""Bring answers to callers on whatever event loop or thread they wait, one wake-up a loop and batch."""

from __future__ import annotations

import logging
from asyncio import AbstractEventLoop, InvalidStateError
from collections.abc import Iterable, Sequence
from time import monotonic

from trimtab.runtime.batcher.metrics import Metrics
from trimtab.runtime.batcher.request import Request

logger = logging.getLogger(__name__)

Answers = Sequence[tuple[Request, object]]


def deliver(requests: Sequence[Request], results: Iterable[object], metrics: Metrics, here: object = None) -> None:
    """Answer requests in order; a result that is an exception is raised to its caller.

    `here` is the event loop that this runs on, if any; other loops are called once each, thread callers are answered in place.
    """
    answers = list(zip(requests, results, strict=True))
    loop = answers[0][0].loop
    if all(request.loop is loop for request in requests):
        _send(answers, loop, metrics, here)
        return
    by_loop: dict[AbstractEventLoop | None, list[tuple[Request, object]]] = {}
    for answer in answers:
        by_loop.setdefault(answer[0].loop, []).append(answer)
    for loop, part in by_loop.items():
        _send(part, loop, metrics, here)


def _send(answers: Answers, loop: AbstractEventLoop | None, metrics: Metrics, here: object) -> None:
    if loop is None or loop is here:
        _answer(answers, metrics)
        return
    try:
        loop.call_soon_threadsafe(_answer, answers, metrics)
    except RuntimeError:  # the loop was closed with the callers on it
        requests = [request for request, _ in answers]
        metrics.count_answers(requests, monotonic(), abandoned=len(requests), failed=0)
        logger.debug("%d answers had no event loop left to go to", len(requests))


def _answer(answers: Answers, metrics: Metrics) -> None:
    abandoned = failed = 0
    for request, result in answers:
        reply = request.reply
        try:
            if reply.done():
                abandoned += 1
            elif isinstance(result, Exception):
                failed += 1
                reply.set_exception(result)
            else:
                reply.set_result(result)
        except InvalidStateError:  # cancelled by another thread just now
            abandoned += 1
    metrics.count_answers([request for request, _ in answers], monotonic(), abandoned=abandoned, failed=failed)


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
    try:
        if not request.reply.done():
            request.reply.set_exception(error)
    except InvalidStateError:  # cancelled by another thread just now
        return
