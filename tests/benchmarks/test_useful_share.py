"""The share of machine time that ends up as saved work."""

import pytest
from benchmarks.reference.useful_share import useful_frac

from trimtab_runtime.policies.checkpointing import CheckpointRule, Hazard

RULE = CheckpointRule(
    hazard=Hazard((0.0,), (0.0,)),
    notice_s=120.0,
    notice_missing_frac=0.0,
    min_interval_s=1.0,
    max_interval_s=100.0,
    save_slack=1.5,
    margin_s=0.0,
)


def test_the_useful_share_by_hand():
    without = useful_frac([1000.0], 180.0, RULE, 60.0, [False])
    with_notice = useful_frac([1000.0], 180.0, RULE, 60.0, [True])

    assert without == pytest.approx(5 * 100 / 1000)
    assert with_notice == pytest.approx(5 * 100 / 1000)
    assert useful_frac([1050.0], 180.0, RULE, 60.0, [True]) == pytest.approx((5 * 100 + 10) / 1050)
