"""Reads files written by others within a size limit: bytes, text, gzip with limited expansion, rows of CSV."""

from __future__ import annotations

import csv
import gzip
import io
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from trimtab.errors import InputError
from trimtab.units import BYTES_PER_MIB

MOST_MIB = 512
"""The largest file that is read whole: twice the nodes and pods of a cluster of 5,000 nodes as JSON."""
MOST_GROWTH = 100
"""How many times its size a gzip file may unpack to: bills reach 10 to 40, what is packed to exhaust memory 1,000."""
GROWTH_FROM_MIB = 64
"""Expansion is not checked below this size."""
_GZIP = b"\x1f\x8b"


def read_bytes(path: Path, *, most_mib: int = MOST_MIB) -> bytes:
    """Return a file's bytes. Raises InputError if it cannot be read or is larger than `most_mib`."""
    try:
        with path.open("rb") as stream:
            content = stream.read(most_mib * BYTES_PER_MIB + 1)
    except (OSError, ValueError) as error:
        raise InputError(f"cannot read {path}: {error}; check the path and your permission to read it") from error
    if len(content) > most_mib * BYTES_PER_MIB:
        raise InputError(f"{path}: larger than {most_mib} MiB, the most that is read at once; give it in smaller files")
    return content


def read_text(path: Path, *, most_mib: int = MOST_MIB, errors: str = "strict") -> str:
    """Return a UTF-8 file's text without its byte order mark. Raises InputError. `errors` is that of `bytes.decode`."""
    content = read_bytes(path, most_mib=most_mib)
    try:
        return content.decode("utf-8-sig", errors=errors)
    except UnicodeDecodeError as error:
        raise InputError(f"cannot read {path}: no UTF-8 text ({error}); save it as UTF-8") from error


def read_packed(path: Path) -> bytes:
    """Return a file's bytes, unpacked where it is gzip. Raises InputError if it is damaged or too large unpacked."""
    content = read_bytes(path)
    if not content.startswith(_GZIP):
        return content
    try:
        with open_packed(path) as stream:
            unpacked = stream.read(MOST_MIB * BYTES_PER_MIB + 1)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error}") from error
    if len(unpacked) > MOST_MIB * BYTES_PER_MIB:
        raise InputError(f"{path}: more than {MOST_MIB} MiB unpacked, the most that is read at once; give less of it")
    return unpacked


def open_packed(path: Path) -> BinaryIO:
    """Open a file to be read as a stream, unpacked on the way where it is gzip.

    Raises InputError if it cannot be opened; reading raises OSError where it is damaged or grows more than `MOST_GROWTH`
    times.
    """
    try:
        with path.open("rb") as stream:
            packed = stream.read(len(_GZIP)) == _GZIP
        if not packed:
            return path.open("rb")
        return io.BufferedReader(_Unpacked(path), buffer_size=BYTES_PER_MIB)
    except (OSError, ValueError) as error:
        raise InputError(f"cannot read {path}: {error}; check the path and your permission to read it") from error


class _Unpacked(io.RawIOBase):
    """The content of a gzip file. Raises OSError once it has grown too much."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path
        self._most = max(path.stat().st_size * MOST_GROWTH, GROWTH_FROM_MIB * BYTES_PER_MIB)
        self._read = 0
        self._stream = gzip.open(path)  # noqa: SIM115 closed with this object

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]  # io.RawIOBase takes any writable buffer
        """Fill the buffer with what comes next."""
        try:
            content = self._stream.read(len(buffer))
        except (EOFError, zlib.error) as error:
            raise OSError(f"damaged gzip: {error}; pack it again") from error
        self._read += len(content)
        if self._read > self._most:
            raise OSError(f"unpacks to more than {MOST_GROWTH} times its size; if that is right, unpack it first")
        buffer[: len(content)] = content
        return len(content)

    def close(self) -> None:
        """Close the file."""
        if not self.closed:
            self._stream.close()
        super().close()


MOST_COLUMNS = 4_096
"""The widest bill that is known, AWS' legacy CUR with tags, has about 400."""
MOST_HEAD_BYTES = BYTES_PER_MIB
_MOST_NAMED = 5


def read_csv_rows(path: Path) -> list[dict[str, str]]:
    """Return the rows of a CSV file with a head. Raises InputError. Row 2 of the file is the first that is returned."""
    return csv_rows(read_text(path), str(path))


def csv_rows(text: str, where: str) -> list[dict[str, str]]:
    """Return the rows of a CSV text by column; a cell that a short row lacks is empty. Raises InputError."""
    cells = csv.reader(io.StringIO(text, newline=""))
    try:
        rows = list(_checked(cells, where))
    except csv.Error as error:
        raise InputError(f"{where}: not readable as CSV ({error}); write it again as plain CSV in UTF-8") from error
    if not rows:
        return []
    head, body = rows[0], rows[1:]
    long = [number for number, row in enumerate(body, start=2) if len(row) > len(head)]
    if long:
        named = ", ".join(map(str, long[:_MOST_NAMED])) + (" ..." if len(long) > _MOST_NAMED else "")
        raise InputError(f"{where} row {named}: more cells than the {len(head)} columns; quote cells that hold commas")
    return [dict(zip(head, [*row, *[""] * (len(head) - len(row))], strict=True)) for row in body]


def check_columns(names: list[str], where: str) -> None:
    """Raise InputError where there are too many columns, or two of one name."""
    if len(names) > MOST_COLUMNS:
        raise InputError(
            f"{where}: {len(names):,} columns, where {MOST_COLUMNS:,} are the most; keep those that are needed"
        )
    twice = sorted({name for name in names if name and names.count(name) > 1}) if len(set(names)) < len(names) else []
    if twice:
        raise InputError(f"{where}: the column {', '.join(twice[:_MOST_NAMED])} stands twice; keep one")


def _checked(cells: Iterator[list[str]], where: str) -> Iterator[list[str]]:
    """Yield the rows that are not empty; the head is checked before any other row is read."""
    head: list[str] | None = None
    for row in cells:
        if row and head is None:
            head = row
            check_columns(head, where)
        if row:
            yield row
