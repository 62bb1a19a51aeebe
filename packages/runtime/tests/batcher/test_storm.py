"""The short form of the request storm; `python -m benchmarks.batcher_storm` is the long one."""

import logging

import pytest
from benchmarks.batcher_storm import storm


@pytest.mark.parametrize(("seed", "workers"), [(1, 1), (2, 3)])
def test_every_request_of_a_storm_ends_once_right_and_in_order(seed, workers, caplog):
    caplog.set_level(logging.ERROR)

    found = storm(30_000, seed, workers)

    assert (found["hung"], found["wrong"], found["reordered"]) == (0, 0, 0)
    assert sum(found["ends"].values()) == 30_000
    assert set(found["ends"]) == {"answered", "cancelled", "poison", "refused: deadline", "refused: closed"}
    assert found["out_of_memory"] > 0
    assert found["extra_runs_per_fault"] <= 12  # 2 log2(64)
