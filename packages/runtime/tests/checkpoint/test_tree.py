"""Nested state survives the way through JSON, exactly and with its types, and loading it runs no code."""

import json
import math

import numpy as np
from hypothesis import given, strategies as st

from trimtab_runtime.checkpoint.arrays import extent
from trimtab_runtime.checkpoint.records import lay_out
from trimtab_runtime.checkpoint.shard_reader import Destination, split_into_chunks
from trimtab_runtime.checkpoint.tree import decode, encode

scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary(max_size=20)
    | st.complex_numbers(allow_nan=False)
)
keys = st.text() | st.integers() | st.booleans() | st.tuples(st.integers(), st.text())
states = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(keys, inner, max_size=4)
        | st.tuples(inner, inner)
        | st.sets(st.integers(), max_size=1)
    ),
    max_leaves=20,
)


def there_and_back(state):
    body, leaves = encode(state)
    values = {leaf.name: leaf.value for leaf in leaves}
    return decode(json.loads(json.dumps(body, allow_nan=False)), values.__getitem__)


@given(states)
def test_state_comes_back_equal_and_of_the_same_types(state):
    assert repr(there_and_back(state)) == repr(state)


def test_numbers_that_json_has_not():
    back = there_and_back([math.inf, -math.inf, math.nan, 2**200, -0.0])

    assert back[:2] == [math.inf, -math.inf]
    assert math.isnan(back[2])
    assert back[3] == 2**200
    assert math.copysign(1.0, back[4]) == -1.0


def test_keys_that_look_like_our_own_marks_stay_keys():
    state = {"$tensor": "not one", "nested": {"$tuple": [1, 2]}}

    assert there_and_back(state) == state


def test_arrays_at_paths_that_collide_stay_apart():
    state = {"a/b": np.zeros(2), "a": {"b": np.ones(2)}}

    back = there_and_back(state)

    assert back["a/b"].tolist() == [0, 0]
    assert back["a"]["b"].tolist() == [1, 1]


@given(st.lists(st.integers(0, 300), max_size=30))
def test_records_do_not_overlap_are_aligned_and_fill_whole_blocks(lengths):
    records, size_bytes = lay_out([extent(str(index), np.zeros(length, "u1")) for index, length in enumerate(lengths)])

    end = 0
    for record, length in zip(records, lengths, strict=True):
        assert record.offset_bytes % 64 == 0
        assert record.offset_bytes >= end
        end = record.offset_bytes + length
    assert end <= size_bytes < end + 64 + 4096
    assert size_bytes % 4096 == 0


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 50)), max_size=12), st.integers(1, 40), st.integers(0, 30))
def test_chunks_hold_every_byte_once_and_in_order(runs, chunk_bytes, tail):
    into, offset = [], 0
    for gap, length in runs:
        into.append(Destination(offset + gap, memoryview(bytearray(length))))
        offset += gap + length

    chunks = split_into_chunks(into, offset + tail, chunk_bytes)

    lengths = [sum(part if isinstance(part, int) else len(part) for part in chunk) for chunk in chunks]
    assert sum(lengths) == offset + tail
    assert all(length == chunk_bytes for length in lengths[:-1])
    for number, chunk in enumerate(chunks):
        for part in chunk:
            if not isinstance(part, int):
                part[:] = bytes([number % 256]) * len(part)
    for destination in into:
        for index, byte in enumerate(destination.memory):
            assert byte == (destination.offset_bytes + index) // chunk_bytes % 256
