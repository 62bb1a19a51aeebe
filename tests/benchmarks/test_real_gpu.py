"""What was measured on an H100 and an H200 holds what the page on real GPUs says."""

import json

import pytest
from benchmarks.real_gpu import (
    RECORDS,
    WAITS_FOR_THE_HOST,
    board_of,
    counters,
    engine_loads,
    other_models,
    repeats,
    training_memory,
    training_speed,
    transfers,
    unsafe_pairs,
)


@pytest.fixture(scope="module")
def records():
    return [json.loads(path.read_text()) for path in sorted(RECORDS.glob("gpu_*.json"))]


def test_the_profilers_readings_are_what_the_kernels_did(records):
    rows = [row for record in records for row in counters(record, board_of(record))]

    assert len(rows) == 11
    assert max(abs(row.error_frac) for row in rows) < 0.09


def test_work_that_keeps_a_board_busy_is_told_on_the_other_one_within_its_interval(records):
    first = [record for record in records if "others" in record]
    rows = [row for one in first for other in first if one is not other for row in transfers(one, other)]
    busy = [row for row in rows if row.name not in WAITS_FOR_THE_HOST]

    assert len(busy) == 25
    assert all(row.holds for row in busy)
    assert max(abs(row.error_frac) for row in busy) < 0.13


def test_training_of_all_weights_and_the_memory_of_training_are_told_as_stated(records):
    speed = [row for record in records for row in training_speed(record, board_of(record), lora=False)]
    memory = [row for record in records for row in training_memory(record, board_of(record))]

    assert sum(row.holds for row in speed) == len(speed) - 1
    assert max(abs(row.error_frac) for row in memory) < 0.16


def test_lora_with_adapters_of_32_bits_lies_in_its_interval_and_is_told_too_fast(records):
    rows = [row for record in records for row in training_speed(record, board_of(record), lora=True)]

    # the targets of training are missed here: what the derivation leaves out makes it 16 to 29 % slower
    assert all(row.holds for row in rows)
    assert max(row.error_frac for row in rows) < 0.30


def test_resnet_in_eager_pytorch_is_told_from_rows_of_two_older_chips_and_misses(records):
    rows = [row for record in records for row in other_models(record, board_of(record))]

    assert len(rows) == 8
    assert sum(row.holds for row in rows) == 1


def test_no_pair_that_is_called_safe_lost_a_quarter(records):
    assert [name for record in records for name in unsafe_pairs(record)] == []


def test_first_tokens_of_an_engine_that_is_not_ours_are_told_by_replay_once_its_pace_is_known(records):
    rows = [row for record in records for row in engine_loads(record, board_of(record), at_its_pace=True)]
    errors = [abs(row.error_frac) for row in rows]

    assert len(rows) == 18
    assert max(errors) < 0.25
    assert sum(errors) / len(errors) < 0.12


def test_two_boards_of_a_kind_agree_on_work_that_keeps_them_busy(records):
    first, again = (record for record in records if record["gpu"] == "NVIDIA H200")

    assert max(abs(row.error_frac) for row in repeats(first, again) if "qwen" not in row.name) < 0.04
