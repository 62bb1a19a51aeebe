"""Refusals by deadline are only as good as the estimate behind them: a slow start or a slow phase must pass."""

import time

import pytest

from trimtab_runtime import batch
from trimtab_runtime.errors import DeadlineExceeded


class Device:
    """A model whose time a batch can be changed."""

    def __init__(self, run_s):
        self.run_s = run_s
        self.runs = 0

    def __call__(self, items):
        self.runs += 1
        time.sleep(self.run_s)
        return items


def outcomes(model, number, within_s):
    """Ask one after another; return for each whether it was answered."""
    answered = []
    for item in range(number):
        try:
            model.call(item, within_s=within_s)
            answered.append(True)
        except DeadlineExceeded:
            answered.append(False)
            time.sleep(0.002)
    return answered


def test_a_slow_first_batch_does_not_refuse_everybody_after_it():
    device = Device(0.3)

    @batch
    def model(items: list[int]) -> list[int]:
        return device(items)

    model.call(0)
    device.run_s = 0.0

    assert all(outcomes(model, 20, within_s=0.15))


def test_after_a_slow_phase_a_probe_finds_out_that_it_is_over():
    device = Device(0.03)

    @batch
    def model(items: list[int]) -> list[int]:
        return device(items)

    for item in range(10):
        model.call(item)
    device.run_s = 0.0

    answered = outcomes(model, 300, within_s=0.015)

    assert not answered[0]
    assert all(answered[-50:])


def test_a_model_that_is_too_slow_for_every_deadline_is_probed_seldom():
    device = Device(0.02)

    @batch
    def model(items: list[int]) -> list[int]:
        return device(items)

    for item in range(10):
        model.call(item)
    before, began = device.runs, time.monotonic()
    outcomes(model, 100, within_s=0.005)
    elapsed_s = time.monotonic() - began

    assert (device.runs - before) * 0.02 <= 0.3 * elapsed_s + 0.04


def test_once_known_a_run_time_refuses_what_it_cannot_meet():
    device = Device(0.02)

    @batch
    def model(items: list[int]) -> list[int]:
        return device(items)

    for item in range(10):
        model.call(item)

    with pytest.raises(DeadlineExceeded):
        model.call(2, within_s=0.005)
    assert device.runs == 10
