"""Every declared target is judged by a replay, or the audit says of it that it is not, why, and what would help."""

from functools import cache
from itertools import product

import pytest
from tests.fleets import FleetRows

from trimtab.deployment.deployment import AS_IT_IS
from trimtab.fleet.build import build_fleet
from trimtab.fleet.model import Target
from trimtab.fleet.settings import Settings
from trimtab.fleet.targets import declared_in_vain
from trimtab.replay.outcomes.evaluate import Evaluator, cases_of
from trimtab.tables.workloads import TargetMetric

LE_S = (0.1, 0.5, 1.0, 2.0, float("inf"))
SETTINGS = Settings()
LIMITS = {"limit_s": 1.5, "limit_frac": 1.2}
TARGETS = [
    {"metric": metric, "quantile": 0.95, limit: LIMITS[limit]}
    for metric, limit in product(("latency", "ttft", "tpot", "queue_wait"), LIMITS)
] + [{"metric": "throughput", "limit_frac": 0.9}]
FIRST_TOKENS = "serve/first-tokens"
WHOLE_REQUESTS = "serve/whole"
UNMEASURED = "serve/unmeasured"
QUIET = "serve/quiet"
RUNS = "ml/runs"
OTHER = "ml/batch-over-http"
NOTEBOOK = "lab/notebook"
WORKLOADS = (FIRST_TOKENS, WHOLE_REQUESTS, UNMEASURED, QUIET, RUNS, OTHER, NOTEBOOK)


def requests(hour):
    return 3600 * (1 + hour % 24 / 4)


def latency_counts(hour):
    return [requests(hour) * share for share in (0.2, 0.5, 0.2, 0.1, 0.0)]


def first_token_counts(hour):
    return [requests(hour) * share for share in (0.6, 0.4, 0.0, 0.0, 0.0)]


@cache
def fleet(target):
    """One workload of each kind, all with the same declared target."""
    rows = FleetRows(7)
    for number, name in enumerate(WORKLOADS):
        owner = "Deployment" if name.startswith("serve/") else None
        rows.node(f"n{number}", "g5.xlarge").use(
            name, f"n{number}", 0, range(168), sm=lambda hour: 0.1 + hour % 24 / 50
        )
        if name == RUNS:
            for hour in range(0, 168, 7):
                rows.hold(name, f"n{number}", [0], start=hour, end=hour + 5, pod=f"run-{hour}")
                rows.job(name, hour - 0.5, hour, hour + 5, 1)
        else:
            rows.hold(name, f"n{number}", [0], owner_kind=owner)
    rows.demand(FIRST_TOKENS, requests, 1, LE_S, latency_counts, first_tokens=first_token_counts)
    rows.demand(WHOLE_REQUESTS, requests, 1, LE_S, latency_counts)
    rows.demand(UNMEASURED, requests, 1)
    rows.demand(OTHER, requests, 1)
    declared = {name: {"targets": [dict(target)]} for name in WORKLOADS}
    rows.workloads = {"ml/batch-*": {"kind": "batch"}} | declared
    return build_fleet(rows.bundle(), SETTINGS)


def named(target):
    return fleet(tuple(target.items()))


def declared_targets(target, name):
    return [one for one in named(target).workload(name).targets if one.declared]


def notes(target, name):
    return [note for note in declared_in_vain(named(target).workloads) if note.startswith(f"{name}: ")]


def judged_targets(target, name):
    case = cases_of(named(target), SETTINGS, seed=7)[name]
    return [one.target for one in Evaluator(case=case).outcome(AS_IT_IS).attained]


def word(target):
    limit = f"{target['limit_s']:g} s" if "limit_s" in target else f"{target['limit_frac']:g} x"
    return f"{target['metric']}-{limit}"


@pytest.mark.parametrize("name", WORKLOADS)
@pytest.mark.parametrize("target", TARGETS, ids=word)
def test_a_declared_target_is_judged_by_a_replay_or_named_in_a_note(target, name):
    judged, said = judged_targets(target, name), notes(target, name)

    held = declared_targets(target, name)

    assert all(one in judged for one in held)
    assert held or any(target["metric"] in note for note in said)


@pytest.mark.parametrize("name", WORKLOADS)
@pytest.mark.parametrize("target", TARGETS, ids=word)
def test_what_no_replay_judges_is_no_target(target, name):
    assert set(named(target).workload(name).targets) == set(judged_targets(target, name))


def test_a_multiple_of_what_was_not_measured_says_so_and_what_to_collect():
    target = {"metric": "latency", "quantile": 0.95, "limit_frac": 1.2}

    for name in (UNMEASURED, QUIET):
        (note,) = notes(target, name)
        assert "latency p95 <= 1.2 x observed" in note
        assert "no latency was measured" in note
        assert "give limit_s" in note
        assert "latency_le_s" in note


def test_a_limit_without_a_histogram_is_compared_with_the_wait_for_a_replica_and_says_so():
    target = {"metric": "latency", "quantile": 0.95, "limit_s": 1.5}

    for name in (UNMEASURED, QUIET):
        (held,) = declared_targets(target, name)
        (note,) = notes(target, name)
        assert held.limit_s == 1.5
        assert "compared with the wait for a replica alone" in note


def test_a_measured_latency_needs_no_note():
    for limit in LIMITS:
        assert not notes({"metric": "latency", "quantile": 0.95, limit: LIMITS[limit]}, WHOLE_REQUESTS)


def test_a_first_token_is_judged_by_the_whole_request_where_nothing_else_was_measured_and_that_is_said():
    (note,) = notes({"metric": "ttft", "quantile": 0.95, "limit_s": 1.5}, WHOLE_REQUESTS)

    assert "ttft p95 <= 1.5 s is judged by the whole request, which is longer" in note
    assert "ttft_le_s" in note


def test_a_time_per_token_is_dropped_and_the_note_names_what_would_hold_it():
    (note,) = notes({"metric": "tpot", "quantile": 0.95, "limit_s": 1.5}, WHOLE_REQUESTS)

    assert "tpot p95 <= 1.5 s is dropped: no time per token was measured" in note
    assert "tpot_le_s" in note


def test_a_multiple_of_a_first_token_is_one_of_the_first_tokens_that_were_seen():
    target = {"metric": "ttft", "quantile": 0.8, "limit_frac": 1.2}

    (held,) = declared_targets(target, FIRST_TOKENS)

    assert held.limit_s == pytest.approx(1.2 * 0.3)
    assert not notes(target, FIRST_TOKENS)


def test_nobody_who_declared_no_first_token_is_held_to_one():
    for one in named(TARGETS[0]).workload(FIRST_TOKENS).targets:
        assert one.metric is not TargetMetric.TTFT


def test_a_queue_wait_of_what_shows_no_runs_says_so():
    (note,) = notes({"metric": "queue_wait", "quantile": 0.95, "limit_s": 1.5}, OTHER)

    assert "no runs were seen" in note


def test_a_target_of_another_kind_says_of_which_kind_the_workload_is():
    (note,) = notes({"metric": "latency", "quantile": 0.95, "limit_s": 1.5}, NOTEBOOK)

    assert "a latency target, which changes nothing of notebook" in note


def test_a_multiple_is_one_of_the_quantile_that_is_declared():
    (held,) = declared_targets({"metric": "latency", "quantile": 0.7, "limit_frac": 1.2}, WHOLE_REQUESTS)

    assert held.limit_s == pytest.approx(1.2 * 0.5)


def test_a_multiple_of_a_queue_wait_is_one_of_the_wait_that_was_seen():
    (held,) = declared_targets({"metric": "queue_wait", "quantile": 0.95, "limit_frac": 1.2}, RUNS)

    assert held.limit_s == pytest.approx(1.2 * 1800)


@pytest.mark.parametrize(("limit_s", "said"), [(0.3, "0.3 s"), (999.0, "999 s"), (23_787.6, "23,788 s")])
def test_a_limit_of_hours_is_told_without_powers_of_ten(limit_s, said):
    target = Target(
        metric=TargetMetric.QUEUE_WAIT, limit_s=limit_s, required_frac=0.95, declared=True, because="it is declared"
    )

    assert target.describe() == f"queue_wait p95 <= {said}"
