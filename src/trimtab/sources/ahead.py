"""Answers fetched ahead of their use: a bounded number at once, taken by what was asked."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Generic, TypeVar

Question = TypeVar("Question", bound=Hashable)
Answer = TypeVar("Answer")


class ReadAhead(Generic[Question, Answer]):
    """Fetches the answers to a list of questions in its order while earlier ones are worked on.

    At most `at_once` are being fetched and as many again wait to be taken, if they are taken in the list's order. A question
    that is not in the list is fetched when it is taken.
    """

    def __init__(
        self,
        pool: ThreadPoolExecutor,
        questions: Iterable[Question],
        fetch: Callable[[Question], Answer],
        at_once: int,
    ) -> None:
        self._pool = pool
        self._left: Iterator[Question] = iter(questions)
        self._fetch = fetch
        self._at_once = at_once
        self._begun: dict[Question, Future[Answer]] = {}

    def take(self, question: Question) -> Answer:
        """Return the answer to a question, and begin to fetch what comes after it."""
        self._fill(self._at_once)
        found = self._begun.pop(question, None)
        if found is None:
            return self._fetch(question)
        self._fill(self._at_once)
        return found.result()

    def _fill(self, most: int) -> None:
        while len(self._begun) < most and (question := next(self._left, None)) is not None:
            self._begun[question] = self._pool.submit(self._fetch, question)

    def cancel(self) -> None:
        """Begin no more."""
        self._left = iter(())
        for future in self._begun.values():
            future.cancel()


@contextmanager
def read_ahead(
    questions: Iterable[Question], fetch: Callable[[Question], Answer], at_once: int
) -> Iterator[ReadAhead[Question, Answer]]:
    """Open a ReadAhead with threads of its own; an error of a fetch is raised where its answer is taken."""
    with ThreadPoolExecutor(max_workers=at_once, thread_name_prefix="ask") as pool:
        ahead = ReadAhead(pool, questions, fetch, at_once)
        try:
            yield ahead
        finally:
            ahead.cancel()
