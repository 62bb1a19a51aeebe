"""A kind of input of the damaged inputs: valid ones, how one is damaged, what reads it; and what those who list kinds share."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.mutation_wounds import Wound
from trimtab.cli import root
from trimtab.errors import TrimtabError

OWN = Path(__file__).parent.parent / "tests" / "data"
EARLIER = OWN / "written_by_0_1_0"
START = datetime(2026, 9, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A kind of input: valid ones, how one is damaged, what reads it; `cost` is about how many times a cheap reader's time."""

    name: str
    seeds: tuple[bytes, ...]
    wound: Wound
    read: Callable[[bytes], object]
    cost: int = 1


def via_file(folder: Path, name: str, read: Callable[[Path], object]) -> Callable[[bytes], object]:
    """Return a reader of bytes through a file of that name."""

    def through(content: bytes) -> object:
        path = folder / name
        path.write_bytes(content)
        return read(path)

    return through


def refusal(read: Callable[[], object]) -> str:
    """Read what is to be refused whole too, and return what is said of it."""
    try:
        return str(read())
    except TrimtabError as error:
        return str(error)


def run_command(*arguments: str) -> object:
    """Run a whole command in this process, its answer thrown away."""
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        return root.main(args=list(arguments), prog_name="trimtab", standalone_mode=False)


def parquet_bytes(columns: Mapping[str, object]) -> bytes:
    """Return a Parquet file of these columns."""
    stream = io.BytesIO()
    pq.write_table(pa.table(dict(columns)), stream)
    return stream.getvalue()


def text_lines(*lines: str) -> bytes:
    """Return a text file of these lines."""
    return ("\n".join(lines) + "\n").encode()
