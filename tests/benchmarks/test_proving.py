"""The proving ground end to end on a tiny fleet, what it counts as what, and the world beside the referee's program."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks.proving import referee
from benchmarks.proving.__main__ import main
from benchmarks.proving.bound import bound_usd
from benchmarks.proving.claims import Claim, Target, guard_of
from benchmarks.proving.enact import NotPlayed, enact
from benchmarks.proving.families import FAMILIES, multi_pod_runs, price_cut, small_runs
from benchmarks.proving.families_after import ADDED_AFTER, maintenance, two_regions
from benchmarks.proving.families_recorded import TRACES, recorded, recorded_jobs, recorded_spot
from benchmarks.proving.fleet import P4D, Fleet, RunsTruth, kind_of
from benchmarks.proving.runner import families
from benchmarks.proving.score import Verdict, judge, totals
from benchmarks.proving.world.clock import DAY_S, HOUR_S, HOURS_PER_DAY
from benchmarks.proving.world.rules import RecordingRule
from benchmarks.proving.world.runs import Ground, Run, play_runs, taken_over
from benchmarks.proving.world.service import Guard
from hypothesis import given, strategies as st

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
    everyone = families()
    assert len({family.name for family in everyone}) == len(everyone)
    assert len(FAMILIES) >= 15
    assert all(family.frozen for family in FAMILIES)
    assert len(ADDED_AFTER) >= 6
    assert not any(family.frozen for family in (*ADDED_AFTER, *recorded()))

    one, other = (small_runs(3, DAYS) for _ in range(2))

    assert one.runs[0].runs == other.runs[0].runs
    assert one.runs[0].runs != small_runs(4, DAYS).runs[0].runs


def verdict(outcome: str, **further: object) -> Verdict:
    """Return the verdict of a fleet with one workload."""
    fields: dict[str, object] = {"family": "x", "seed": 1, "frozen": True, "workloads": 1, "outcome": outcome}
    return Verdict(**{**fields, **further})  # type: ignore[arg-type]  # the fields above, by name


def test_refusals_and_crashes_are_never_left_out_of_what_was_to_be_claimed() -> None:
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

    # 43: one service in which a tie between nodes, or a first decision 15 s later, costs half as much again for two days
    found = [*referee.comparisons(3), *referee.comparisons(1, first=43)]

    assert [one.seed for one in found if not one.agrees] == []


def kept_by(tmp_path: Path, *verdicts: Verdict) -> str:
    path = tmp_path / "verdicts.jsonl"
    path.write_text("".join(one.to_json() + "\n" for one in verdicts), encoding="utf-8")
    return str(path)


KEPT = verdict("judged", claimed=2, kept=2, workloads_claimed=1, before_usd=100.0, claimed_usd=50.0, true_usd=51.0)


def test_the_small_form_passes_where_every_claim_holds_or_none_was_made(tmp_path: Path) -> None:
    main(["--small", "--merge", kept_by(tmp_path, KEPT, verdict("refused", message="14 days are needed"))])


@pytest.mark.parametrize(
    "broken",
    [
        verdict("judged", claimed=2, kept=1, claimed_usd=1.0, misses=("MISSED a/b latency",)),
        verdict("judged", claimed_usd=1.0, breaches=("BREACH the fit window",)),
        verdict("crashed", message="KeyError: 'x'"),
    ],
    ids=["target", "breach", "crash"],
)
def test_the_small_form_fails_at_a_broken_target_a_breach_and_a_crash(
    tmp_path: Path, broken: Verdict, capsys: pytest.CaptureFixture[str]
) -> None:
    path = kept_by(tmp_path, KEPT, broken)

    with pytest.raises(SystemExit) as ended:
        main(["--small", "--merge", path])

    assert ended.value.code not in {0, None}
    assert "x 1: " in str(ended.value.code)
    main(["--merge", path])  # without it the figures are only stated
    assert '"fleets": 2' in capsys.readouterr().out


def test_an_unknown_family_is_a_usage_error() -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--family", "nonesuch"])

    assert ended.value.code == 2


def test_a_verdict_is_read_back_as_it_was_written() -> None:
    one = verdict("judged", breaches=("BREACH a", "BREACH b"), misses=("MISSED c",), wall_s=1.5)

    assert Verdict.from_json(one.to_json()) == one


def test_the_bound_lies_below_what_history_cost_and_above_nothing() -> None:
    for fleet in (multi_pod_runs(2, DAYS), price_cut(1, DAYS), two_regions(1, DAYS)):
        true = enact(fleet, claim())

        assert 0 < bound_usd(fleet, claim()) < true.before_usd


OF = '{namespace="prod",workload="chat"}'
OF_GUARD = '{namespace="prod",workload="chat",guard="latency-p95"}'
WATCHES = (
    f"sum(trimtab:guard_times{OF_GUARD} > 1.1) * sum(avg_over_time(trimtab:load_replicas{OF}[5m]))\n  or vector(0)"
)
CHATS = 'vllm:e2e_request_latency_seconds_bucket{namespace="prod",pod=~"chat-[a-z]{1,10}"'
ASKS = (
    f"sum(min_over_time(trimtab:replicas_ready{OF}[5m])) * clamp((sum(histogram_quantile(scalar(clamp_min(0.95 - 0.65\n"
    f'  / sqrt(clamp_min(sum(increase({CHATS},le="+Inf"}}[5m])), 1)), 0)),\n'
    f"  sum by (namespace, le) (rate({CHATS}}}[5m]))))\n"
    "  / 30.127) > 1, 1.2, 2)"
)
ASKED = (
    f"(sum(trimtab:guard_asks{OF_GUARD}) * 0.7 / clamp_min(sum(avg_over_time(trimtab:load_replicas{OF}[5m])), 0.001))"
)
HELD = f"(1 + 0.99712 * (sum(last_over_time(trimtab:guard_times{OF_GUARD}[1h])) - 1))"
TIMES = f"clamp_max({ASKED} > {HELD} or {HELD} or {ASKED}, 2)"


def guard_rules(asks: str = ASKS, times: str = TIMES) -> list[RecordingRule]:
    return [
        RecordingRule(record=f"trimtab:guard_{name}", expression=expression, labels={"guard": "latency-p95"})
        for name, expression in (("asks", asks), ("times", times))
    ]


def test_a_guard_is_read_as_it_is_emitted_and_in_no_other_form() -> None:
    assert guard_of(WATCHES, "latency-p95", guard_rules()) == Guard(
        quantile=0.95,
        chance=0.65,
        limit_s=30.127,
        least=1.2,
        most=2.0,
        times_target_frac=0.7,
        kept_frac=0.99712,
        off=1.1,
    )
    assert guard_of(WATCHES.replace("avg_over", "max_over"), "latency-p95", guard_rules()) is None
    assert guard_of(WATCHES, "ttft-p95", guard_rules()) is None
    assert guard_of(WATCHES, "latency-p95", guard_rules(asks=ASKS.replace("min_over_time", "max_over_time"))) is None
    assert guard_of(WATCHES, "latency-p95", guard_rules(asks=ASKS.replace("[5m]", "[10m]"))) is None
    assert guard_of(WATCHES, "latency-p95", guard_rules(times=TIMES.replace("clamp_max", "clamp_min"))) is None


def backlog() -> Fleet:
    """Return two days' queue for one node: the runs that wait as the window begins came more than a day before."""
    runs = [
        Run(
            name=f"run-{at}",
            workload="research/queue",
            submit_s=at * 3600.0,
            pods=1,
            pod_gpus=1,
            work_s=2.0 * DAY_S,
        )
        for at in range(20)
    ]
    truth = RunsTruth(name="research/queue", machine=P4D, standing=1, runs=runs)
    return Fleet(family="backlog", seed=1, hours=DAYS * HOURS_PER_DAY, runs=(truth,))


def test_a_plan_does_not_do_in_advance_what_history_left_to_the_window() -> None:
    fleet = backlog()
    change = ("research/queue", "ReleaseIdle", {"startup_s": 300.0})

    true = enact(fleet, claim(changes=(change,)))

    # at the window's start 8 runs have most of a day left and the other 4 all of theirs: 12 GPUs for most of a day
    assert bound_usd(fleet, claim()) < true.after_usd
    assert true.after_usd > 1.4 * true.before_usd


def test_runs_go_on_where_they_were_before_those_that_waited() -> None:
    # given: two nodes of one GPU; at 50 s `a` has half of its work left, `b` nine tenths, `c` waits and `d` has ended
    runs = [
        Run(name=name, workload="a/b", submit_s=submit_s, pods=1, pod_gpus=1, work_s=work_s)
        for name, submit_s, work_s in (("d", 0.0, 10.0), ("a", 0.0, 100.0), ("c", 20.0, 30.0), ("b", 10.0, 400.0))
    ]
    before = play_runs(runs, Ground(gpus_per_node=1, standing=2), horizon_s=1000.0)
    taken = taken_over(before, 50.0)

    after = play_runs(runs, Ground(gpus_per_node=1, standing=1, speed=2.0), horizon_s=1000.0, taken=taken)

    assert {ended.run.name: (ended.start_s, ended.end_s) for ended in after.ended} == {
        "a": (50.0, 75.0),
        "b": (75.0, 255.0),
        "c": (255.0, 270.0),
    }


@given(
    lengths=st.lists(st.floats(60.0, 5000.0), min_size=1, max_size=12), nodes=st.integers(1, 4), at_s=st.floats(0, 8000)
)
def test_no_work_is_lost_or_done_twice_where_a_plan_takes_over(lengths: list[float], nodes: int, at_s: float) -> None:
    runs = [
        Run(name=f"{at}", workload="a/b", submit_s=at * 300.0, pods=1, pod_gpus=1, work_s=work_s)
        for at, work_s in enumerate(lengths)
    ]
    horizon_s = 1e6
    before = play_runs(runs, Ground(gpus_per_node=1, standing=nodes), horizon_s=horizon_s)
    ground = Ground(gpus_per_node=1, elastic=True, boot_s=60.0)

    after = play_runs(runs, ground, horizon_s=horizon_s, taken=taken_over(before, at_s))

    first_s = sum(max(0.0, min(hold.end_s, at_s) - hold.start_s) for hold in before.holds)
    then_s = sum(hold.end_s - hold.start_s for hold in after.holds)
    assert first_s + then_s == pytest.approx(sum(lengths))
    assert all(hold.start_s >= at_s for hold in after.holds)


def test_the_bound_of_runs_is_their_gpu_hours_at_the_cheapest_true_speed() -> None:
    # given: A100s at $21.957642 / 8 an hour; pods of 8 leave nodes of 8 to choose from
    fleet = multi_pod_runs(2, DAYS)
    begin_s, end_s = 3 * DAY_S, 4 * DAY_S
    held = fleet.stories["research/pretrain"].holds
    gpu_s = sum(max(0.0, min(one.end_s, end_s) - max(one.start_s, begin_s)) * len(one.places) for one in held)

    assert bound_usd(fleet, claim()) <= gpu_s / HOUR_S * 21.957642 / 8


def test_a_replaced_node_is_billed_beside_the_one_that_it_replaces() -> None:
    fleet = maintenance(1, DAYS)
    service = fleet.services[0]

    lives = fleet.lives()[service.name][kind_of(service.home)]

    once_s = (service.boot_s + service.load_s) * len(service.restarts_s) * service.sites[0].replicas
    assert sum(end - begin for begin, end in lives) == pytest.approx(service.sites[0].replicas * DAYS * DAY_S + once_s)


def test_recorded_jobs_ask_for_what_they_asked_for(shared_dir: Path) -> None:
    assert recorded()
    assert TRACES.is_relative_to(shared_dir)

    runs = recorded_jobs(1, 10).runs[0].runs

    assert runs
    assert all(0 <= run.submit_s < 10 * DAY_S for run in runs)
    assert {run.gpus for run in runs} <= {1, 2, 4, 8, 16, 24, 32}


def test_recorded_spot_is_gone_at_times_to_the_end_of_the_history(shared_dir: Path) -> None:
    assert TRACES.is_relative_to(shared_dir)

    last_day_s = 13 * DAY_S
    gone = [sum(end - max(begin, last_day_s - DAY_S) for begin, end in recorded_spot(seed, 14).droughts if end > last_day_s)
            for seed in range(8)]  # fmt: skip

    assert sum(length > 0 for length in gone) >= 6
