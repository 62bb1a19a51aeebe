"""Time of broken things is a kind of waste of its own, is named with whom to call, and sums with the rest to the bill."""

import pytest
from hypothesis import given, settings, strategies as st
from tests.diagnose.untidy_fleet import broken_usd, fault, found_in, pod
from tests.fleets import FleetRows, at

from trimtab.diagnose.broken import crash_loop_s
from trimtab.diagnose.cluster_records import Call
from trimtab.diagnose.findings import WasteKind


def runs(*states, checkpoint_s=None):
    """Return a day of one node on which a run of four hours ends in each state, one after the other."""
    rows = FleetRows(1).node("n", "p3.8xlarge")
    for turn, state in enumerate(states):
        start = turn * 4
        rows.hold("lab/x", "n", range(4), start, start + 4, pod=f"x-{turn}", owner_kind="Job")
        rows.job("lab/x", start, start, start + 4, 4, name=f"x-{turn}", state=state)
        rows.rows["jobs"][-1] |= {"node": "n", "checkpoint_interval_s": checkpoint_s}
        for gpu in range(4):
            rows.use("lab/x", "n", gpu, range(start, start + 4), sm=0.9)
    return rows


@pytest.mark.parametrize("state", ["failed", "timeout", "node_fail", "preempted", "requeued"])
def test_a_run_that_failed_without_checkpoints_lost_all_its_time(state):
    found, waste = found_in(runs("completed", state))

    assert waste[WasteKind.FAILED_RUNS] == 4
    assert waste[WasteKind.USEFUL] == 4
    assert [row.cost.gpu_hours for row in found.broken] == [16]


@pytest.mark.parametrize("state", ["completed", "cancelled", "running"])
def test_a_run_that_did_not_fail_lost_nothing(state):
    found, waste = found_in(runs(state))

    assert not found.broken
    assert WasteKind.FAILED_RUNS not in waste


def test_a_run_with_checkpoints_lost_what_followed_the_last_one():
    found, waste = found_in(runs("failed", checkpoint_s=3 * 3600.0))

    assert waste[WasteKind.FAILED_RUNS] == 1
    assert "saved checkpoints" in found.broken[0].breakage.evidence


def test_the_cost_of_failed_attempts_is_laid_on_the_runs_that_completed():
    found, _ = found_in(runs("failed", "completed", "completed"))

    assert found.broken[0].retried == (
        "33.3% of what lab/x cost; each of its 2 completed runs cost $6.00 with them and $4.00 without"
    )


def test_runs_that_ended_before_the_history_say_nothing_of_it():
    """A cluster keeps finished Jobs and their pods: neither counts among the runs of the history, nor do its hours before."""
    rows = runs("failed", "completed", "completed", "completed")
    for number in range(9):
        rows.job("lab/x", -900 - number, -900 - number, -890 - number, 4, name=f"old-{number}", state="failed")
        rows.hold("lab/x", "n", range(4), -900 - number, -890 - number, pod=f"old-{number}", owner_kind="Job")
    rows.rows["jobs"][0]["start"] = at(-96)

    found, waste = found_in(rows)

    (row,) = found.broken
    assert row.breakage.items == ("x-0",)
    assert "1 of 4 runs ended as failed: x-0 lost 4.0 h" in row.breakage.evidence
    assert waste[WasteKind.FAILED_RUNS] == 4


def test_a_failed_run_on_several_nodes_costs_each_its_part():
    rows = FleetRows(1).node("a", "p3.8xlarge").node("b", "p3.8xlarge")
    for node in ("a", "b"):
        rows.hold("lab/x", node, range(4), 0, 6, pod=f"x-{node}", owner_kind="Job")
    rows.job("lab/x", 0, 0, 6, 8, name="x", state="failed")
    rows.rows["jobs"][-1]["node"] = "a,b"

    assert broken_usd(found_in(rows)[0]) == {("runs that failed", "lab/x"): 12}


def test_a_run_that_failed_right_after_a_fault_of_its_node_is_the_providers():
    rows = fault(runs("failed"), "n", "xid", 3.9, device="n/0", code=79)

    found, _ = found_in(rows)

    failed = next(row for row in found.broken if row.breakage.kind is WasteKind.FAILED_RUNS)
    assert failed.breakage.call is Call.PROVIDER
    assert "XID 79" in failed.breakage.evidence


def test_an_xid_of_a_program_leaves_the_failure_with_its_owner():
    found, _ = found_in(fault(runs("failed"), "n", "xid", 3.9, device="n/0", code=31))

    assert [row.breakage.call for row in found.broken] == [Call.OWNER]


def crashing(restarts, life_s=20.0, hours=24, **more):
    rows = FleetRows(2).node("n", "g5.xlarge")
    rows.hold("prod/llm", "n", [0], 48 - hours, pod="llm-0", owner_kind="Deployment")
    rows.use("prod/llm", "n", 0, range(48 - hours, 48), sm=0.0)
    told = {"waiting": "CrashLoopBackOff", "last_exit": "OOMKilled", "last_ended": at(47.99)} | more
    return pod(rows, "prod/llm", "llm-0", "n", created=48 - hours, restarts=restarts, last_life_s=life_s, **told)


def test_a_crash_loop_of_400_restarts_is_named_with_its_pod_and_what_it_holds():
    found, waste = found_in(crashing(400))

    (row,) = found.broken
    assert row.breakage.items == ("llm-0",)
    assert "400 restarts, last with OOMKilled" in row.breakage.evidence
    assert row.cost.micro_usd == 24_000_000  # more pauses than it was there: all the time that it held its GPU
    assert row.cost.usd_hr == 1.0
    assert waste[WasteKind.FAILED_RUNS] == 24


def test_a_crash_loop_that_began_lately_costs_its_pauses_and_lives():
    found, _ = found_in(crashing(12, life_s=60.0))

    hours = crash_loop_s(12, 60.0) / 3600
    assert found.broken[0].cost.micro_usd == pytest.approx(hours * 1e6, rel=1e-6)


@pytest.mark.parametrize(
    "told",
    [
        {"restarts": 4},
        {"restarts": 30, "life_s": 86_400.0},
        {"restarts": 40, "waiting": None, "ready": at(1), "last_ended": at(1)},
    ],
    ids=["a few restarts", "a restart a day", "crashed long ago and ready since"],
)
def test_restarts_alone_are_no_crash_loop(told):
    assert not found_in(crashing(**told))[0].broken


def test_a_cordoned_node_costs_what_nobody_holds_of_it():
    rows = FleetRows(1).node("n", "p3.8xlarge").hold("lab/x", "n", range(4), 0, 12)
    for gpu in range(4):
        rows.use("lab/x", "n", gpu, range(12), sm=0.9)

    found, waste = found_in(fault(rows, "n", "cordoned", 6))

    assert waste[WasteKind.FAULTY_NODES] == 12
    assert [row.breakage.call for row in found.broken] == [Call.PLATFORM]


def test_a_node_cordoned_for_an_upgrade_of_minutes_is_not_named():
    assert not found_in(fault(FleetRows(1).node("n", "p3.8xlarge"), "n", "cordoned", 6, 6.5))[0].broken


def test_a_gpu_off_the_bus_costs_its_time_until_it_works_again():
    rows = FleetRows(1).node("n", "p3.8xlarge").hold("lab/x", "n", range(4))
    for gpu in range(4):
        rows.use("lab/x", "n", gpu, range(24), sm=lambda hour, gpu=gpu: 0.0 if gpu == 0 and 6 <= hour < 16 else 0.9)

    found, waste = found_in(fault(rows, "n", "xid", 6, device="n/0", code=79))

    assert waste[WasteKind.FAULTY_NODES] == 2.5  # ten hours of a quarter of the node
    assert found.broken[0].breakage.call is Call.PROVIDER


@pytest.mark.parametrize("code", [13, 31, 43, 45])
def test_xids_of_programs_are_no_fault_of_the_board(code):
    rows = FleetRows(1).node("n", "p3.8xlarge").hold("lab/x", "n", range(4))

    assert not found_in(fault(rows, "n", "xid", 6, device="n/0", code=code))[0].broken


def test_a_fault_after_which_the_gpu_works_on_costs_nothing():
    rows = FleetRows(1).node("n", "p3.8xlarge").hold("lab/x", "n", range(4))
    for gpu in range(4):
        rows.use("lab/x", "n", gpu, range(24), sm=0.9)

    assert not found_in(fault(rows, "n", "xid", 6, device="n/0", code=79))[0].broken


def test_throttling_costs_the_share_of_speed_that_it_took():
    rows = FleetRows(1).node("n", "p3.8xlarge").hold("lab/x", "n", range(4))
    for gpu in range(4):
        rows.use("lab/x", "n", gpu, range(24), sm=0.9)

    found, waste = found_in(fault(rows, "n", "thermal-throttle", 0, 10, device="n/2", lost_frac=0.4))

    assert waste[WasteKind.FAULTY_NODES] == pytest.approx(1.0)  # 10 h of a quarter of the node at 40 %
    assert "40% slower" in found.broken[0].breakage.evidence


def test_clocks_that_differ_by_a_little_are_no_throttling():
    rows = FleetRows(1).node("n", "p3.8xlarge").hold("lab/x", "n", range(4))

    assert not found_in(fault(rows, "n", "thermal-throttle", 0, 10, device="n/2", lost_frac=0.03))[0].broken


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.integers(0, 20),
            st.integers(1, 12),
            st.sampled_from(["failed", "completed", "preempted"]),
            st.integers(1, 4),
        ),
        max_size=6,
    ),
    st.lists(
        st.tuples(
            st.sampled_from(["cordoned", "xid", "thermal-throttle"]),
            st.integers(0, 22),
            st.integers(1, 20),
            st.integers(0, 3),
        ),
        max_size=6,
    ),
)
def test_whatever_breaks_at_once_the_kinds_sum_to_the_bill_and_nothing_counts_twice(ran, faults):
    rows = FleetRows(1).node("n", "p3.8xlarge")
    for turn, (start, hours, state, gpus) in enumerate(ran):
        rows.hold("lab/x", "n", range(gpus), start, start + hours, pod=f"x-{turn}", owner_kind="Job")
        rows.job("lab/x", start, start, start + hours, gpus, name=f"x-{turn}", state=state)
        rows.rows["jobs"][-1]["node"] = "n"
    for kind, start, hours, gpu in faults:
        device = None if kind == "cordoned" else f"n/{gpu}"
        fault(rows, "n", kind, start, start + hours, device=device, code=79, lost_frac=0.5)

    found, waste = found_in(rows)  # which asserts that the kinds sum to the bill

    assert all(amount >= 0 for amount in waste.values())
    named = sum(row.cost.micro_usd for row in found.broken)
    split = waste.get(WasteKind.FAILED_RUNS, 0.0) + waste.get(WasteKind.FAULTY_NODES, 0.0)
    assert named == pytest.approx(split * 1e6)
