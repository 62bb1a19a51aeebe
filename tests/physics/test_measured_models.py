"""Workloads other than language models: what must hold whatever the constants are."""

from dataclasses import replace

import pytest
from hypothesis import given, strategies as st

from trimtab.errors import Unpredictable
from trimtab.physics.measured_models import WorkloadQuery, predict_workload
from trimtab.physics.offers import board

RESNET50_GFLOP = 8.2


def one_batch(images, gpu="V100-SXM2-16GB"):
    return WorkloadQuery(
        task="resnet50",
        gpu=board(gpu),
        gpus=1,
        precision="fp16",
        domain="dleinference",
        mode="offline static batch",
        metric="throughput",
        unit_gflop=RESNET50_GFLOP,
        step_gflop=RESNET50_GFLOP * images,
    )


@given(images=st.integers(1, 512))
def test_a_larger_batch_never_runs_fewer_images_a_second(images):
    assert predict_workload(one_batch(images + 1)).value >= predict_workload(one_batch(images)).value


def test_twice_the_work_an_image_halves_the_images():
    asked = one_batch(64)

    half = predict_workload(replace(asked, unit_gflop=2 * asked.unit_gflop))

    assert half.value == pytest.approx(predict_workload(asked).value / 2)


def test_a_network_that_nobody_measured_is_not_guessed():
    with pytest.raises(Unpredictable, match="measure it once"):
        predict_workload(replace(one_batch(1), task="squeezenet"))
