from datetime import timedelta

import pytest
from hypothesis import given, settings, strategies as st
from tests.tables.bundles import END, META, START, allocation, device, node, tables

from trimtab.diagnose.bill_split import CostSplit, SplitBasis, spent_at_list
from trimtab.diagnose.charges import DEMAND_COLUMNS, Rules, SharedRule, charges, served_in
from trimtab.diagnose.findings import UNALLOCATED
from trimtab.errors import UsageError
from trimtab.pipeline import priced_history
from trimtab.tables.bundle import memory_bundle
from trimtab.tables.workloads import Workloads, WorkloadSpec

HOUR = timedelta(hours=1)
HOURS = 48
"""Each hour is split in whole micro-dollars: the parts may be off by one in each."""


def demand(workload="prod/chat", hour=0, **changes):
    row = {"workload": workload, "start": START + hour * HOUR, "interval_s": 3600.0, "completed": 1000.0}
    return {**row, "input_tokens_mean": 300.0, "output_tokens_mean": 200.0, **changes}


def history(allocations, requests=()):
    rows = {"allocations": list(allocations), "devices": [device(f"GPU-{n}") for n in range(8)], "gpu_usage": []}
    bundle = memory_bundle(tables(nodes=[node()], demand=list(requests), **rows), META, WORKLOADS)
    fleet, split = priced_history(bundle)
    return fleet, split, served_in(bundle.table("demand", DEMAND_COLUMNS), fleet.window)


WORKLOADS = Workloads(
    workloads={"prod/chat": WorkloadSpec(team="assistants", model="llama", labels={"cost-center": "4711"})}
)
HALF = [allocation(gpus=4.0, device=None), allocation(workload="dev/nb", pod="nb-0", gpus=2.0, device=None)]


BY_WORKLOAD = CostSplit(by=SplitBasis.WORKLOAD)
SHOW, SPREAD = Rules(), Rules(idle=SharedRule.SPREAD, shared=SharedRule.SPREAD)


def charged(fleet, allocation, split, rules, served):
    return charges(fleet, spent_at_list(fleet, allocation, split), split, rules, served)


def test_who_held_half_a_node_pays_half_of_it_and_the_rest_is_nobodys():
    fleet, split, served = history(HALF)

    rows = {row.name: row for row in charged(fleet, split, BY_WORKLOAD, SHOW, served)}

    whole = sum(row.micro_usd for row in rows.values())
    assert rows["prod/chat"].micro_usd == pytest.approx(whole / 2, abs=HOURS)
    assert rows["dev/nb"].micro_usd == pytest.approx(whole / 4, abs=HOURS)
    assert rows[UNALLOCATED].micro_usd == pytest.approx(whole / 4, abs=HOURS)


def test_what_nobody_held_is_spread_by_what_was_held():
    fleet, split, served = history(HALF)

    rows = {row.name: row for row in charged(fleet, split, BY_WORKLOAD, SPREAD, served)}

    assert set(rows) == {"prod/chat", "dev/nb"}
    assert rows["prod/chat"].shared_micro_usd == pytest.approx(2 * rows["dev/nb"].shared_micro_usd, abs=HOURS)


@pytest.mark.parametrize(
    ("split", "names"),
    [
        ("team", {"assistants", "unassigned"}),
        ("namespace", {"prod", "dev"}),
        ("model", {"llama", "unnamed"}),
        ("label:cost-center", {"4711", "unnamed"}),
    ],
)
def test_the_bill_is_split_by_what_is_asked(split, names):
    fleet, shares, served = history(HALF)

    assert {row.name for row in charged(fleet, shares, CostSplit.parse(split), SPREAD, served)} == names


def test_an_unknown_way_of_splitting_is_refused_with_those_that_are_known():
    with pytest.raises(UsageError, match="label:KEY"):
        CostSplit.parse("cost-center")


def test_what_is_nobodys_can_be_laid_on_everyone_alike():
    fleet, split, served = history(HALF)

    rows = charged(fleet, split, BY_WORKLOAD, Rules(idle=SharedRule.EVEN), served)

    assert rows[0].shared_micro_usd == pytest.approx(rows[1].shared_micro_usd, abs=1)


def test_requests_and_tokens_of_the_window_give_unit_costs():
    requests = [demand(), demand(hour=1), demand(hour=24 * 30), demand(hour=2, completed=None)]
    fleet, split, served = history(HALF, requests)

    rows = {row.name: row for row in charged(fleet, split, CostSplit(by=SplitBasis.TEAM), SHOW, served)}

    assert rows["assistants"].requests == 2000.0
    assert rows["assistants"].tokens == 1_000_000.0
    assert rows["unassigned"].requests is None


holders = st.tuples(st.sampled_from(["a", "b", "c"]), st.integers(0, 40), st.integers(1, 8), st.floats(0.1, 2.0))


@settings(max_examples=25)
@given(st.lists(holders, max_size=6), st.sampled_from(SplitBasis), st.sampled_from(SharedRule))
def test_the_rows_sum_to_the_bill_whatever_was_held(held, by, rule):
    rows = [
        allocation(
            workload=f"{name}/{name}",
            namespace=name,
            pod=f"{name}-{number}",
            device=None,
            gpus=gpus,
            start=START + first * HOUR,
            end=min(END, START + (first + length) * HOUR),
        )
        for number, (name, first, length, gpus) in enumerate(held)
    ]
    fleet, split, served = history(rows)

    found = charged(fleet, split, CostSplit(by=by), Rules(idle=rule), served)

    assert sum(row.micro_usd for row in found) == int(split.cost.sum()) + split.unused_commitment
