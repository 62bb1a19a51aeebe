"""Workers of a cluster that judge batches of workloads; what is chosen jointly stays in this process, so the plan is the same.

dask://HOST:8786    a Dask scheduler; ?protocol=tls with the certificates of its own configuration

What a worker is sent is the workload's history, and what it sends back is what was replayed: nothing is kept there.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, TypeVar, cast
from urllib.parse import SplitResult, parse_qsl, urlsplit

from trimtab import __version__
from trimtab.cli.outcome_cache import program_digest
from trimtab.errors import SourceError, UsageError
from trimtab.plan.needed_replays import Workers

if TYPE_CHECKING:
    from distributed import Client, Future

_Work = TypeVar("_Work")
_Answer = TypeVar("_Answer")
_CONNECT_S = 15.0
_LOOK_S = 10.0
"""How often somebody looks whether any worker is left, while an answer takes its time."""


@contextmanager
def open_workers(url: str | None) -> Iterator[Workers | None]:
    """Open the workers that a URL names, None where none does.

    Raises UsageError for a URL that names no engine and SourceError where it cannot be reached or runs another program.
    """
    if url is None:
        yield None
        return
    parts = urlsplit(url)
    if parts.scheme != "dask" or not parts.netloc:
        raise UsageError(f"--engine {url!r}: give dask://HOST:PORT, the address of a Dask scheduler")
    with _client(parts) as client:
        _require_same_program(client)
        yield DaskWorkers(client=client)


@contextmanager
def _client(parts: SplitResult) -> Iterator[Client]:
    try:
        from distributed import Client
    except ImportError as error:
        raise UsageError("--engine dask:// needs Dask: pip install 'trimtab[dask]'") from error
    protocol = dict(parse_qsl(parts.query)).get("protocol", "tcp")
    address = f"{protocol}://{parts.netloc}"
    try:
        client = Client(address, timeout=_CONNECT_S, set_as_default=False)
    except (OSError, ValueError) as error:
        raise SourceError(
            f"no Dask scheduler answers at {address}: {error}; start one with `dask scheduler`, and workers with "
            f"`dask worker {parts.netloc}`"
        ) from error
    try:
        yield client
    finally:
        client.close()


def _require_same_program(client: Client) -> None:
    """Raise SourceError where there is no worker, or one of them runs another state of trimtab: its replays would be others."""
    answers: dict[str, object] = client.run(program, on_error="return")
    if not answers:
        raise SourceError(
            f"the Dask scheduler at {client.scheduler.address} has no workers: start some with `dask worker`"
        )
    mine, others = program(), []
    for worker, answer in sorted(answers.items()):
        if isinstance(answer, ModuleNotFoundError | ImportError | AttributeError):
            others.append(f"{worker} cannot load it ({answer})")
        elif isinstance(answer, BaseException):
            others.append(f"{worker} did not answer ({answer})")
        elif answer != mine:
            others.append(f"{worker} has {' '.join(map(str, answer)) if isinstance(answer, tuple) else answer}")
    if others:
        raise SourceError(
            f"workers must run this very trimtab, {' '.join(mine)}: {'; '.join(others)}. Install it there: "
            f"pip install 'trimtab[dask]=={__version__}', and start them again"
        )


@cache
def program() -> tuple[str, str]:
    """Return the version of trimtab in this process, and what tells its files from others of that version."""
    return __version__, program_digest()[:12]


@dataclass(frozen=True, slots=True, kw_only=True)
class DaskWorkers:
    """The workers of a Dask cluster."""

    client: Client

    def answers(self, job: Callable[[_Work], _Answer], work: Sequence[_Work]) -> Iterator[_Answer]:
        """Yield what a function of a module says of each piece of work, in order.

        A piece whose worker is lost is done again by another. Raises SourceError where none is left.
        """
        with warnings.catch_warnings():
            # a batch is a few workloads' histories, and is sent once
            warnings.filterwarnings("ignore", message="Sending large graph")
            # as its own arguments, and not scattered: the scheduler then holds all that it takes to do a piece again
            futures = [self.client.submit(job, piece, pure=False) for piece in work]
        try:
            for future in futures:
                yield cast("_Answer", self._answer(future))
        finally:
            self.client.cancel(futures)

    def _answer(self, future: Future[object]) -> object:
        from distributed import KilledWorker
        from distributed.client import FutureCancelledError

        while True:
            try:
                answer: object = future.result(timeout=_LOOK_S)
            except TimeoutError:
                if not self.client.nthreads():
                    raise SourceError(
                        "all workers of the Dask cluster are gone: start some, and run this again"
                    ) from None
            except (KilledWorker, FutureCancelledError) as error:
                raise SourceError(
                    f"the Dask cluster gave a batch of workloads up: {error}; did its workers run out of memory?"
                ) from error
            else:
                return answer
