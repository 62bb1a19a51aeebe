"""One slot a dimension, each owed to the lever that stated it."""

from dataclasses import fields
from typing import get_args

import pytest

from trimtab.catalog.pools import Pool
from trimtab.deployment.deployment import AS_IT_IS, Deployment, dimension_of
from trimtab.deployment.effects import FleetEffect, ReleaseIdle, SetGpuCount, StartBeforeRuns, WorkloadEffect

COUNT = SetGpuCount(gpus=1, before=4, pool=Pool("aws", "p3.2xlarge", "us-east-1"), gpus_per_node=1)


def test_every_effect_on_a_workload_has_one_dimension_and_no_other_has_any():
    kinds = get_args(WorkloadEffect)
    names = {field.name for field in fields(Deployment)} - {"owed_to"}

    assert {dimension_of(object.__new__(kind)) for kind in kinds} == names
    for kind in get_args(FleetEffect):
        with pytest.raises(KeyError):
            dimension_of(object.__new__(kind))


def test_two_effects_of_one_dimension_are_refused_by_the_levers_that_state_them():
    release = ReleaseIdle(startup_s=300.0)

    with pytest.raises(ValueError, match="idle-release and schedule both change a workload's holding"):
        Deployment.of(("idle-release", release), ("schedule", StartBeforeRuns(lead_s=300.0)))


def test_what_is_left_of_some_levers_is_what_they_stated():
    whole = Deployment.of(("idle-release", ReleaseIdle(startup_s=1.0)), ("gpu-count", COUNT))

    assert whole.restricted({"gpu-count"}) == Deployment.of(("gpu-count", COUNT)) == whole.without("holding")
    assert whole.only("holding").levers == {"idle-release"}
    assert whole.restricted(()) == AS_IT_IS
