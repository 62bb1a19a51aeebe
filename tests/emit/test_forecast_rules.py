"""Emitted forecast rules read back: the policy that was written, or a refusal."""

import pytest
from hypothesis import given, settings, strategies as st

from trimtab.emit.manifests.forecast_rules import forecast_records, read_forecast
from trimtab.policies.forecast import ForecastPolicy, ForecastRules, forecast_policy
from trimtab.policies.scaling import NO_LIMIT, HpaPolicy, Metric

LABELS = '{namespace="prod",workload="api"}'


def written(policy):
    load, demand = f"trimtab:load_replicas{LABELS}", f"trimtab:demand_replicas{LABELS}"
    return forecast_records(policy, load, demand, LABELS)


def shares(least=0.001, most=20.0):
    return st.floats(least, most).map(lambda value: float(f"{value:.6g}"))


windows = st.integers(2, 7 * 86400)
rules = st.builds(
    ForecastRules,
    lead_s=st.integers(1, 80_000),
    **{
        name: windows if name.endswith("_s") else shares(1e-5 if name == "late_frac" else 0.001)
        for name in ForecastRules._fields
        if name != "lead_s"
    },
)
policies = st.builds(
    ForecastPolicy,
    rules=rules,
    hpa=st.builds(
        lambda **counted_on: HpaPolicy(metric=Metric.SIGNAL, **counted_on),
        target_frac=shares(0.05, 1.0),
        min_replicas=st.integers(1, 50),
        max_replicas=st.one_of(st.integers(50, 500), st.just(NO_LIMIT)),
        down_stabilization_s=st.integers(15, 3600),
    ),
)


@given(policies)
@settings(deadline=None)
def test_rules_are_read_as_the_policy_that_wrote_them(policy):
    assert read_forecast(written(policy), LABELS) == policy


@pytest.mark.parametrize("record", written(forecast_policy(cold_start_s=120.0)))
def test_a_rule_that_departs_from_the_form_is_refused(record):
    records = written(forecast_policy(cold_start_s=120.0, max_replicas=20))

    assert read_forecast(records, LABELS) is not None
    assert read_forecast({**records, record: records[record] + " * 2"}, LABELS) is None
    assert read_forecast({name: text for name, text in records.items() if name != record}, LABELS) is None


def test_rules_whose_numbers_contradict_one_another_are_refused():
    policy = forecast_policy(cold_start_s=120.0)
    longer = policy._replace(rules=policy.rules._replace(lead_s=policy.rules.lead_s + 60))

    assert (
        read_forecast({**written(policy), "trimtab:forecast_slow": written(longer)["trimtab:forecast_slow"]}, LABELS)
        is None
    )
