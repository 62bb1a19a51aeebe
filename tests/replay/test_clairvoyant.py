"""The least cost in hindsight, by hand."""

import numpy as np
import pytest

from trimtab.replay.compare import clairvoyant_replica_hr


def cost_s(load, cold_start_s=30):
    return clairvoyant_replica_hr(np.array(load, dtype=float), step_s=15, cold_start_s=cold_start_s) * 3600


def test_a_short_gap_is_bridged_and_a_long_one_is_not():
    assert cost_s([1, 0, 1]) == pytest.approx(45)
    assert cost_s([1, 0, 0, 0, 1]) == pytest.approx(15 + 30 + 15)


def test_a_later_level_pays_its_start():
    assert cost_s([1, 2, 1]) == pytest.approx(45 + 30 + 15)


def test_a_gap_in_the_record_needs_what_was_needed_before():
    assert cost_s([2, float("nan"), 2]) == pytest.approx(90)
