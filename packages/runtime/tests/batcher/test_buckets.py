"""Keys that group items of similar length."""

import pytest
from hypothesis import given, strategies as st

from trimtab_runtime.batcher import buckets
from trimtab_runtime.errors import ItemTooLarge, UsageError


@given(st.sets(st.integers(1, 1000), min_size=1), st.integers(0, 1000))
def test_the_bucket_is_the_smallest_edge_that_holds_the_item(edges, length):
    key = buckets(*edges, of=lambda item: item)
    if length > max(edges):
        with pytest.raises(ItemTooLarge, match="largest bucket"):
            key(length)
    else:
        assert key(length) == min(edge for edge in edges if edge >= length)


def test_edges_must_be_positive():
    with pytest.raises(UsageError):
        buckets()
    with pytest.raises(UsageError):
        buckets(0, 5)
