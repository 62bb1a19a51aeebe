"""JSON text with its own checksum: a small file whose damage is always noticed.

The body is one line of JSON; the last line is `crc32 xxxxxxxx` over it. CRC-32 finds every single flipped bit and every
burst up to 32 bits (Koopman, "32-bit cyclic redundancy codes for Internet applications", DSN 2002).
"""

from __future__ import annotations

import zlib

from trimtab_runtime.errors import CheckpointDamaged

Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]
JsonObject = dict[str, Json]

_SEAL = b"\ncrc32 "
_SEAL_BYTES = len(_SEAL) + 8 + 1


def seal(body: JsonObject) -> bytes:
    """Return the JSON text of an object with its checksum line."""
    import json  # with the first manifest, not with the import of a checkpointer

    text = json.dumps(body, separators=(",", ":"), allow_nan=False).encode()
    return text + _SEAL + b"%08x\n" % zlib.crc32(text)


def _no_number(text: str) -> Json:
    raise ValueError(f"{text} is not a number of JSON")


def unseal(content: bytes, where: str) -> JsonObject:
    """Return the object in sealed text; raise `CheckpointDamaged` if a single bit of it differs from what was written."""
    import json

    text, line = content[:-_SEAL_BYTES], content[-_SEAL_BYTES:]
    if line != _SEAL + b"%08x\n" % zlib.crc32(text):
        raise CheckpointDamaged(f"{where}: the checksum of its text does not match; the file is damaged or cut short")
    try:
        body = json.loads(text, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        raise CheckpointDamaged(f"{where}: is not the JSON that this program writes: {error}") from error
    if not isinstance(body, dict):
        raise CheckpointDamaged(f"{where}: holds {type(body).__name__} where an object belongs")
    return body
