"""How valid inputs are damaged: in their bytes, their characters, their cells, or the values of their tree."""

from __future__ import annotations

import copy
import csv
import io
import json
import random
from collections.abc import Callable
from typing import cast
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from benchmarks.fuzz import damaged

Wound = Callable[[bytes, random.Random], bytes]
DEEP = 200
CELLS = (
    "", "NaN", "nan", "NULL", "inf", "-1", "0", "1e308", "-1e308", "9223372036854775808", "5000000000.01", "1" * 400,
    "0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z", "2026-02-30", "=HYPERLINK(1)", "\x1b[2J", "\u202egnp",
    "a\nb", '"', "é" * 50,
)  # fmt: skip
ODD: tuple[object, ...] = (
    None, True, -1, 0, 1e308, float("nan"), float("inf"), 2**63, 10**30, [], {}, [[]], {"": {}}, *CELLS,
)  # fmt: skip


def _aliases(first: bytes, each: bytes) -> bytes:
    """Return YAML of a kilobyte whose aliases stand for 9^14 values."""
    lines = (b"a%d: &a%d " % (n, n) + each % b",".join([b"*a%d" % (n - 1)] * 9) for n in range(1, 15))
    return b"\n".join((b"a0: &a0 " + first, *lines, b""))


BOMBS = (
    b"[" * 20_000,
    b'{"a":' * 20_000,
    _aliases(b"[x, x]", b"[%s]"),
    _aliases(b"{k: 1}", b"{<<: [%s]}"),
    b",".join(b"c%d" % n for n in range(100_000)) + b"\n1\n",
    b"x" * 2_000_000,
    b'a,b\n"' + b"y" * 300_000,
    b"\x1f\x8b" + bytes(100),
    b"\xff\xfe\x00\x00",
    b"",
)
_BOMB_SHARE = 0.002


def in_text(content: bytes, rng: random.Random) -> bytes:
    """Return text with characters cut, doubled, moved or swapped in; rarely a bomb in its place."""
    if rng.random() < _BOMB_SHARE:
        return rng.choice(BOMBS)
    return damaged(content.decode("utf-8", "replace"), rng).encode("utf-8", "replace")


def in_bytes(content: bytes, rng: random.Random) -> bytes:
    """Return bytes with one to eight flipped, or cut short, or with a piece moved."""
    found = bytearray(content)
    match rng.randrange(4):
        case 0:
            return bytes(found[: rng.randrange(len(found) + 1)])
        case 1:
            at = rng.randrange(len(found))
            return bytes(found[:at] + found[at + rng.randint(1, 64) :])
        case _:
            for _ in range(rng.randint(1, 8)):
                found[rng.randrange(len(found))] = rng.randrange(256)
            return bytes(found)


def in_cells(content: bytes, rng: random.Random) -> bytes:
    """Return CSV with one to three cells replaced by odd ones, a row doubled or a column left out; or damaged as text."""
    if rng.random() < 0.3:
        return in_text(content, rng)
    rows = list(csv.reader(io.StringIO(content.decode())))
    for _ in range(rng.randint(1, 3)):
        row = rng.randrange(len(rows))
        match rng.randrange(6):
            case 0:
                rows.append(list(rows[row]))
            case 1 if len(rows[0]) > 1:
                gone = rng.randrange(len(rows[0]))
                rows = [[cell for at, cell in enumerate(one) if at != gone] for one in rows]
            case _ if rows[row]:
                rows[row][rng.randrange(len(rows[row]))] = rng.choice(CELLS)
    stream = io.StringIO()
    csv.writer(stream).writerows(rows)
    return stream.getvalue().encode("utf-8", "replace")


def in_json(content: bytes, rng: random.Random) -> bytes:
    """Return JSON with one to three of its values replaced by odd ones or left out; or damaged as text."""
    if rng.random() < 0.3:
        return in_text(content, rng)
    return json.dumps(_odd_tree(json.loads(content), rng)).encode("utf-8", "replace")


def in_lines(content: bytes, rng: random.Random) -> bytes:
    """Return JSON a line with one line damaged as JSON, or the whole as text."""
    if rng.random() < 0.3:
        return in_text(content, rng)
    lines = content.splitlines()
    at = rng.randrange(len(lines))
    lines[at] = in_json(lines[at], rng)
    return b"\n".join(lines)


def in_query(content: bytes, rng: random.Random) -> bytes:
    """Return a request's line with a value replaced by an odd one, quoted or not, or said twice; or damaged as text."""
    head, _, query = content.partition(b"?")
    pairs = [pair.split(b"=") for pair in query.split(b"&") if b"=" in pair]
    if not pairs or rng.random() < 0.4:
        return in_text(content, rng)
    pair = rng.choice(pairs)
    odd = str(rng.choice(CELLS))
    pair[1] = quote(odd).encode() if rng.random() < 0.7 else odd.encode("utf-8", "replace")
    if rng.random() < 0.2:
        pairs.append(list(pair))
    return head + b"?" + b"&".join(b"=".join(pair) for pair in pairs)


def in_yaml(content: bytes, rng: random.Random) -> bytes:
    """Return YAML with one to three of its values replaced by odd ones or left out; or damaged as text."""
    if rng.random() < 0.5:
        return in_text(content, rng)
    return yaml.safe_dump(_odd_tree(yaml.safe_load(content), rng), allow_unicode=True, sort_keys=False).encode(
        "utf-8", "replace"
    )


def in_parquet(content: bytes, rng: random.Random) -> bytes:
    """Return Parquet with its bytes damaged, or with odd values in one of its columns, or that column left out."""
    if rng.random() < 0.5:
        return in_bytes(content, rng)
    table = pq.read_table(io.BytesIO(content), use_threads=False)
    at = rng.randrange(table.num_columns)
    match rng.randrange(5):
        case 0:
            table = table.remove_column(at)
        case 1:
            table = table.slice(0, rng.choice((0, 1)))
        case 2:
            table = pa.concat_tables([table, table])
        case _:
            table = table.set_column(at, table.column_names[at], _odd_column(table.column(at), rng))
    stream = io.BytesIO()
    pq.write_table(table, stream)
    return stream.getvalue()


def _odd_column(column: pa.ChunkedArray, rng: random.Random) -> pa.Array:
    """Return a column with one value of an odd kind, or all of another type."""
    values = column.to_pylist()
    if not values:
        return pa.nulls(0, column.type)
    values[rng.randrange(len(values))] = rng.choice(ODD)
    for kind in (column.type, pa.float64(), pa.string()):
        try:
            return pa.array(values if kind == column.type else [_as(kind, value) for value in values], type=kind)
        except (pa.ArrowException, OverflowError, TypeError, ValueError, UnicodeError):
            continue
    return pa.nulls(len(values))


def _as(kind: pa.DataType, value: object) -> object:
    if pa.types.is_string(kind):
        return str(value)
    return float(value) if isinstance(value, int | float | str) else None


def _odd_tree(tree: object, rng: random.Random) -> object:
    tree = copy.deepcopy(tree)
    is_deep = False
    for _ in range(rng.randint(1, 3)):
        places = list(_places(tree))
        if not places:
            return rng.choice(ODD)
        holder, key = rng.choice(places)
        match rng.randrange(6):
            case 0:
                del holder[key]
            case 1:
                holder[key] = [holder[key]]
            case 2 if rng.random() < 0.05 and not is_deep:  # twice as deep, and no writer of YAML could write it
                is_deep = True
                deep: object = holder[key]
                for _ in range(DEEP):
                    deep = [deep]
                holder[key] = deep
            case _:
                holder[key] = copy.deepcopy(rng.choice(ODD))
    return tree


def _places(tree: object) -> list[tuple[dict[object, object], object]]:
    """Return every place of a tree: what holds it, and its key there. A list takes items by number as a dict does by key."""
    found: list[tuple[dict[object, object], object]] = []
    level = [tree]
    while level:
        one = level.pop()
        if isinstance(one, dict | list):
            inside = dict(one) if isinstance(one, dict) else dict(enumerate(one))
            found += [(cast("dict[object, object]", one), key) for key in inside]
            level += inside.values()
    return found
