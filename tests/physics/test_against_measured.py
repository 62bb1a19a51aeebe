"""Anchors: the packaged constants against published measurements, with the tolerance stated.

These rows were used in the fit; errors on groups that were held back stand in docs/benchmarks/physics.md.
"""

import numpy as np
import pytest
from benchmarks.fitted import packaged_estimates
from benchmarks.memory_fit import MemoryModel, engine_memory, is_fitted, predicted_gb
from benchmarks.memory_rows import read_memory
from benchmarks.perf_rows import is_ttft, language_model, read_rows

from trimtab.physics.fitted import memory_fit

pytestmark = pytest.mark.shared


@pytest.fixture(scope="module")
def rows(shared_dir):
    return read_rows(shared_dir / "data" / "perf" / "measured.csv")


@pytest.fixture(scope="module")
def answers(rows):
    return packaged_estimates(rows)


def test_few_nvidia_rows_are_left_unanswered(rows, answers):
    nvidia = [row for row in rows if row.is_nvidia]

    assert sum(row.id not in answers for row in nvidia) <= 0.005 * len(nvidia)


def test_language_models_on_nvidia_are_within_10_percent_at_the_median(rows, answers):
    mine = [
        row
        for row in rows
        if row.is_nvidia and row.kind == "inference" and language_model(row) and not is_ttft(row) and row.id in answers
    ]

    errors = [abs(answers[row.id].value / row.value - 1) for row in mine]

    assert len(mine) > 3000
    assert np.median(errors) < 0.10


def test_intervals_hold_at_least_what_they_promise_on_known_rows(rows, answers):
    known = [row for row in rows if row.id in answers]

    inside = np.mean([answers[row.id].low <= row.value <= answers[row.id].high for row in known])

    assert 0.80 <= inside <= 0.97


def test_memory_peaks_are_within_12_percent_on_average(shared_dir):
    peaks = [row for row in read_memory(shared_dir / "data" / "perf" / "memory.csv") if is_fitted(row)]
    model = MemoryModel(memory_fit(), dict(engine_memory()))

    errors = [abs(predicted_gb(row, model) / row.peak_gb - 1) for row in peaks]

    assert np.mean(errors) < 0.12
