"""Whole work beside another program: the law's limits, its order, and what is called safe."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from trimtab.physics.colocation import (
    CAREFUL_SPEED,
    EXPECTED_SPEED,
    HIGH_SPREAD,
    LOW_SPREAD,
    is_safe_pair,
    speed_beside,
)

PAIRS = Path(__file__).parents[3] / "shared/data/traces/util/lucid_colocation_pairs_rtx3090.parquet"
shares = st.floats(0, 1)


@given(own=shares, other=shares)
def test_the_expected_speed_lies_in_its_interval_and_above_the_careful_one(own, other):
    speed = speed_beside(own, other)

    assert 0 < speed.low <= speed.expected <= speed.high
    assert 0 < speed.careful <= speed.expected <= 1


@given(own=shares, other=shares, more=shares)
def test_a_busier_neighbour_never_helps(own, other, more):
    busier = max(other, more)

    assert speed_beside(own, busier).expected <= speed_beside(own, other).expected
    assert speed_beside(own, busier).careful <= speed_beside(own, other).careful
    assert is_safe_pair(own, other) or not is_safe_pair(own, busier)


@given(own=shares, other=shares)
def test_two_programs_do_not_take_more_time_than_there_is(own, other):
    taken = own * speed_beside(own, other).expected + other * speed_beside(other, own).expected

    assert taken <= 1 + 1e-9


def test_work_beside_a_program_that_does_nothing_is_as_fast_as_alone():
    assert speed_beside(0.7, 0.0).expected == 1
    assert speed_beside(0.7, 0.0).careful == 1


def test_two_runs_that_fill_the_gpu_are_not_called_safe():
    # the fair share of either; on an H100 a matrix product and a decoding model got 49 % and 46 % (benchmarks.real_gpu)
    assert speed_beside(1.0, 1.0).expected == 0.5
    assert not is_safe_pair(1.0, 1.0)
    assert is_safe_pair(0.05, 0.05)


@pytest.mark.skipif(not PAIRS.exists(), reason="the measured pairs are not here")
def test_the_constants_are_those_of_the_fit_and_hold_on_models_that_were_held_out():
    run = subprocess.run(
        [sys.executable, "-m", "benchmarks.interference", "--data", str(PAIRS)],
        capture_output=True,
        text=True,
        check=True,
    )
    found = json.loads(run.stdout.splitlines()[-1])

    assert found["fit_on_all"]["expected"] == pytest.approx(EXPECTED_SPEED, rel=0.01)
    assert found["fit_on_all"]["careful"] == pytest.approx(CAREFUL_SPEED, rel=0.02)
    assert found["fit_on_all"]["spread"] == pytest.approx([LOW_SPREAD, HIGH_SPREAD], abs=0.01)
    assert found["held_out_mape_frac"] <= 0.10
    assert 0.75 <= found["interval_80_holds_frac"] <= 0.85
    assert found["called_safe"] >= 250
    assert found["called_safe_that_lost_over_25_pct"] == 0
