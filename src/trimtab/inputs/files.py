"""Files read whole within a stated size, and gzip unpacked within a stated growth."""

from __future__ import annotations

import gzip
import io
import zlib
from pathlib import Path
from typing import BinaryIO

from trimtab.errors import InputError
from trimtab.units import BYTES_PER_MIB

MOST_MIB = 512
"""The largest file that is read whole: twice the nodes and pods of a cluster of 5,000 nodes as JSON."""
MOST_GROWTH = 100
"""How many times its size a gzip file may unpack to: bills reach 10 to 40, what is packed to exhaust memory 1,000."""
GROWTH_FROM_MIB = 64
"""Growth is no matter below this."""
_GZIP = b"\x1f\x8b"


def read_bytes(path: Path, *, most_mib: int = MOST_MIB) -> bytes:
    """Return a file's bytes; raises InputError where it cannot be read or is larger than `most_mib`."""
    try:
        with path.open("rb") as stream:
            content = stream.read(most_mib * BYTES_PER_MIB + 1)
    except (OSError, ValueError) as error:
        raise InputError(f"cannot read {path}: {error}; check the path and your permission to read it") from error
    if len(content) > most_mib * BYTES_PER_MIB:
        raise InputError(f"{path}: larger than {most_mib} MiB, the most that is read at once; give it in smaller files")
    return content


def read_text(path: Path, *, most_mib: int = MOST_MIB, errors: str = "strict") -> str:
    """Return a UTF-8 file's text without its byte order mark; raises InputError. `errors` is that of `bytes.decode`."""
    content = read_bytes(path, most_mib=most_mib)
    try:
        return content.decode("utf-8-sig", errors=errors)
    except UnicodeDecodeError as error:
        raise InputError(f"cannot read {path}: no UTF-8 text ({error}); save it as UTF-8") from error


def read_packed(path: Path, *, most_mib: int = MOST_MIB) -> bytes:
    """Return a file's bytes, unpacked where it is gzip; raises InputError where it is damaged or too large unpacked."""
    content = read_bytes(path, most_mib=most_mib)
    if not content.startswith(_GZIP):
        return content
    with open_packed(path) as stream:
        unpacked = _all(stream, path, most_mib)
    if len(unpacked) > most_mib * BYTES_PER_MIB:
        raise InputError(f"{path}: more than {most_mib} MiB unpacked, the most that is read at once; give less of it")
    return unpacked


def open_packed(path: Path) -> BinaryIO:
    """Open a file to be read as a stream, unpacked on the way where it is gzip.

    Raises InputError where it cannot be opened; reading raises OSError where it is damaged or grows more than `MOST_GROWTH`
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
    """The content of a gzip file; raises OSError once it has grown too much."""

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


def _all(stream: BinaryIO, path: Path, most_mib: int) -> bytes:
    try:
        return stream.read(most_mib * BYTES_PER_MIB + 1)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error}") from error
