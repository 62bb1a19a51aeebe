"""The proving ground end to end on a tiny fleet, what it counts as what, and the world beside the referee's program."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks.proving import referee
from benchmarks.proving.claims import Claim, Target
from benchmarks.proving.enact import NotPlayed, enact
from benchmarks.proving.families import FAMILIES, multi_pod_runs, small_runs
from benchmarks.proving.score import Verdict, judge, totals
from benchmarks.proving.world.clock import HOURS_PER_DAY

DAYS = 4


def claim(**further: object) -> Claim:
    """Return the claim of an audit that changes nothing."""
    fields: dict[str, object] = {
        "fit_start_hr": 0,
        "fit_hours": 3 * HOURS_PER_DAY,
        "proof_start_hr": 3 * HOURS_PER_DAY,
        "proof_hours": HOURS_PER_DAY,
        "fit_bill_usd_mo": 0.0,
        "before_usd": 0.0,
        "after_usd": 0.0,
        "clairvoyant_usd": 0.0,
        "low_usd_mo": 0.0,
        "high_usd_mo": 0.0,
        "unjudged_usd_mo": 0.0,
        "targets": (),
        "changes": (),
        "manifests": (),
        "withheld": (),
    }
    return Claim(**{**fields, **further})  # type: ignore[arg-type]  # the fields above, by name


def test_a_tiny_fleet_is_audited_enacted_and_compared(tmp_path: Path) -> None:
    family = next(family for family in FAMILIES if family.name == "multi-pod-runs")

    verdict = judge(family, 2, DAYS, tmp_path / "fleet")

    assert verdict.outcome in {"judged", "refused"}
    assert verdict.outcome == "refused" or not verdict.breaches
    assert (tmp_path / "fleet" / "bundle" / "bundle.yaml").is_file()


def test_a_plan_that_changes_nothing_costs_what_history_did() -> None:
    fleet = multi_pod_runs(2, DAYS)
    target = Target(
        workload="research/pretrain", metric="throughput", limit_s=None, required_frac=0.9, attained_frac=1.0, kept=True
    )

    true = enact(fleet, claim(targets=(target,)))

    nodes = fleet.runs[0].standing
    assert true.before_usd == pytest.approx(nodes * HOURS_PER_DAY * 21.957642)
    assert true.after_usd == true.before_usd
    assert true.attained == {target: pytest.approx(1.0)}


def test_released_nodes_make_several_runs_share_a_node() -> None:
    fleet = small_runs(1, DAYS)
    change = ("research/small", "ReleaseIdle", {"startup_s": 300.0})

    true = enact(fleet, claim(changes=(change,)))

    assert 0 < true.after_usd < true.before_usd


def test_what_the_world_cannot_play_is_said() -> None:
    change = ("research/pretrain", "BookBlocks", {})

    with pytest.raises(NotPlayed, match="BookBlocks"):
        enact(multi_pod_runs(2, DAYS), claim(changes=(change,)))


def test_every_family_has_its_own_name_and_gives_the_same_fleet_for_the_same_seed() -> None:
    assert len({family.name for family in FAMILIES}) == len(FAMILIES) >= 15

    one, other = (small_runs(3, DAYS) for _ in range(2))

    assert one.runs[0].runs == other.runs[0].runs
    assert one.runs[0].runs != small_runs(4, DAYS).runs[0].runs


def test_refusals_and_crashes_are_never_left_out_of_what_was_to_be_claimed() -> None:
    def verdict(outcome: str, **further: object) -> Verdict:
        fields: dict[str, object] = {"family": "x", "seed": 1, "frozen": True, "workloads": 1, "outcome": outcome}
        return Verdict(**{**fields, **further})  # type: ignore[arg-type]  # the fields above, by name

    judged = verdict(
        "judged",
        claimed=2,
        kept=1,
        workloads_claimed=1,
        before_usd=100.0,
        claimed_usd=50.0,
        true_usd=51.0,
        clairvoyant_usd=40.0,
    )

    found = totals([judged, verdict("crashed"), verdict("refused"), verdict("not played")])

    assert found["targets_kept_frac"] == 0.5
    assert found["targets_claimed_frac"] == 0.25
    assert found["cost_within_5pct_frac"] == 1.0
    assert found["realised_of_clairvoyant_frac"] == 0.0  # a claimed target is broken: nothing was saved
    assert (found["crashed"], found["refused"], found["not_played"]) == (1, 1, 1)


def test_the_world_agrees_with_the_referees_simulation(shared_dir: Path) -> None:
    assert referee.REFEREE.is_relative_to(shared_dir)

    found = list(referee.comparisons(4))

    assert [one.seed for one in found if not one.agrees] == []
