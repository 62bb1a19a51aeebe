from datetime import timedelta

import pytest
from hypothesis import given, settings, strategies as st
from tests.tables.bundles import META, START, allocation, device, node, tables

from trimtab.diagnose.token_cost import UNATTRIBUTED, ConsumerUse, by_consumer, summed, token_charge, token_charges
from trimtab.fleet.token_work import TokenAmounts, TokenRule, TokenUse, token_use
from trimtab.pipeline import priced_history
from trimtab.tables.bundle import memory_bundle
from trimtab.tables.workloads import Workloads, WorkloadSpec

HOUR = timedelta(hours=1)
HOURS = 48
MEASURED = {"prefill_s": 12.1, "decode_s": 367.2}


def demand(hour, workload="prod/chat", **changes):
    row = {
        "workload": workload,
        "start": START + hour * HOUR,
        "interval_s": 3600.0,
        "completed": 100.0,
        "arrivals": 100.0,
    }
    return {
        **row,
        "input_tokens": 50_000.0,
        "output_tokens": 10_000.0,
        "running_mean": 4.0,
        "replicas_ready": 1.0,
        **changes,
    }


def history(rows, model=None):
    held = [allocation(gpus=4.0, device=None), allocation(workload="dev/nb", pod="nb-0", gpus=2.0, device=None)]
    spec = Workloads(workloads={"prod/chat": WorkloadSpec(team="assistants", model=model)})
    parts = {"allocations": held, "devices": [device(f"GPU-{n}") for n in range(8)], "gpu_usage": []}
    return priced_history(
        memory_bundle(tables(nodes=[node(gpu="A100-SXM4-40GB")], demand=list(rows), **parts), META, spec)
    )


def bills(fleet, allocation):
    costs = allocation.by_owner(len(fleet.workloads)).tolist()
    return {workload.name: cost for workload, cost in zip(fleet.workloads, costs, strict=True)}


def only_charge(rows, model=None):
    fleet, split = history(rows, model)
    (charge,) = token_charges(fleet, bills(fleet, split))
    return charge, bills(fleet, split)["prod/chat"]


def test_a_service_without_model_or_step_times_has_one_price_for_every_token():
    charge, bill = only_charge(demand(hour, cached_tokens=20_000.0) for hour in range(HOURS))

    assert charge.rules == (TokenRule.BLENDED,)
    assert (charge.tokens.input, charge.tokens.output, charge.tokens.cached) == (1_440_000, 480_000, 960_000)
    price = bill / 2_880_000
    assert charge.input_usd_per_mtok == pytest.approx(price)
    assert charge.output_usd_per_mtok == pytest.approx(price)
    assert charge.cached_usd_per_mtok == pytest.approx(price)


def test_step_times_that_an_engine_counts_divide_its_bill():
    charge, bill = only_charge(demand(hour, **MEASURED) for hour in range(HOURS))

    assert charge.rules == (TokenRule.MEASURED,)
    assert charge.input_micro_usd == pytest.approx(bill * 12.1 / 379.3, abs=1)
    assert charge.output_micro_usd == pytest.approx(bill * 367.2 / 379.3, abs=1)


def test_a_declared_model_divides_the_bill_by_its_step_times():
    charge, _ = only_charge((demand(hour, cached_tokens=20_000.0) for hour in range(HOURS)), "llama-3.1-8b")

    assert charge.rules == (TokenRule.MODELLED,)
    # a token of an answer reads the whole model, one of a prompt shares the reading, one in the cache is only attended to
    assert charge.output_usd_per_mtok > 5 * charge.input_usd_per_mtok > 25 * charge.cached_usd_per_mtok > 0


def test_hours_without_a_reading_keep_their_part_of_the_bill():
    gap = {"input_tokens": None, "output_tokens": None}

    charge, bill = only_charge(demand(hour, **(gap if hour < HOURS // 4 else {})) for hour in range(HOURS))

    assert charge.unread_micro_usd == pytest.approx(bill / 4, abs=1)
    assert charge.tokens.input == 50_000 * 36
    # the price is that of the hours that were read
    assert charge.input_usd_per_mtok == pytest.approx(bill * 0.75 / (60_000 * 36), rel=1e-6)


def test_cached_tokens_that_nobody_counts_are_not_zero_but_unknown():
    charge, _ = only_charge(demand(hour) for hour in range(HOURS))

    assert not charge.cached_known
    assert charge.cached_usd_per_mtok is None


def test_a_service_that_never_told_tokens_has_no_token_price():
    fleet, split = history(demand(hour, input_tokens=None, output_tokens=None) for hour in range(HOURS))

    assert token_charges(fleet, bills(fleet, split)) == ()


def test_lengths_of_requests_stand_for_tokens_that_a_server_does_not_count():
    means = {"input_tokens": None, "output_tokens": None, "input_tokens_mean": 300.0, "output_tokens_mean": 20.0}

    charge, _ = only_charge(demand(hour, **means) for hour in range(HOURS))

    assert (charge.tokens.input, charge.tokens.output) == (300.0 * 100 * HOURS, 20.0 * 100 * HOURS)


def test_an_embedding_service_pays_for_input_alone():
    charge, bill = only_charge(demand(hour, output_tokens=None) for hour in range(HOURS))

    assert (charge.input_micro_usd, charge.output_usd_per_mtok) == (bill, None)


def test_a_service_that_answered_nothing_has_a_bill_and_no_price():
    charge, bill = only_charge(
        demand(hour, completed=0.0, input_tokens=0.0, output_tokens=0.0) for hour in range(HOURS)
    )

    assert charge.unread_micro_usd == bill
    assert (charge.input_usd_per_mtok, charge.output_usd_per_mtok, charge.cached_usd_per_mtok) == (None, None, None)


def test_hits_counted_ahead_of_their_prompts_are_no_negative_input():
    charge, _ = only_charge(demand(hour, cached_tokens=60_000.0) for hour in range(HOURS))

    assert charge.tokens.input == 0
    assert charge.tokens.cached == 50_000 * HOURS


def test_the_use_of_a_workload_that_serves_nothing_is_none():
    fleet, _ = history([demand(0)])

    assert token_use(fleet.workload("dev/nb")) is None


AMOUNTS = st.builds(
    TokenAmounts,
    input=st.floats(0, 1e12),
    output=st.floats(0, 1e12),
    cached=st.floats(0, 1e12),
)
USES = st.builds(
    TokenUse,
    tokens=AMOUNTS,
    cached_known=st.booleans(),
    weights=AMOUNTS,
    rule=st.sampled_from(TokenRule),
    because=st.just("drawn"),
    read_frac=st.floats(0, 1),
)
BILLS = st.integers(-(10**6), 10**14)


@given(st.lists(st.tuples(BILLS, USES, st.sampled_from("abc")), min_size=1, max_size=8))
@settings(max_examples=200, deadline=None)
def test_token_dollars_add_up_to_the_bill_of_each_service_and_team(drawn):
    rows = [token_charge(f"{team}/{at}", bill, use) for at, (bill, use, team) in enumerate(drawn)]

    assert [row.micro_usd for row in rows] == [bill for bill, _, _ in drawn]
    for team in summed(rows, lambda name: name.split("/")[0]):
        assert team.micro_usd == sum(bill for bill, _, of in drawn if of == team.name)
    assert sum(row.micro_usd for row in summed(rows, lambda name: "all")) == sum(bill for bill, _, _ in drawn)


AMOUNT = st.floats(0, 1e9)


@given(
    micro_usd=st.integers(0, 10**12),
    counted=st.tuples(AMOUNT, AMOUNT, AMOUNT),
    reported=st.lists(st.tuples(st.sampled_from("abc"), AMOUNT, AMOUNT, AMOUNT), max_size=6),
    cached_known=st.booleans(),
)
@settings(max_examples=200, deadline=None)
def test_charges_by_consumer_sum_to_the_bill_whatever_is_reported(micro_usd, counted, reported, cached_known):
    tokens = TokenAmounts(input=counted[0], output=counted[1], cached=counted[2] if cached_known else 0.0)
    use = TokenUse(
        tokens=tokens, weights=tokens, read_frac=0.9, rule=TokenRule.BLENDED, because="one price", cached_known=cached_known
    )  # fmt: skip
    row = token_charge("prod/chat", micro_usd, use)
    uses = [
        ConsumerUse(service="prod/chat", consumer=name, tokens=TokenAmounts(input=a, output=b, cached=c))
        for name, a, b, c in reported
    ]

    parts = by_consumer([row], uses)

    assert sum(part.micro_usd for part in parts) == micro_usd
    assert {part.name for part in parts} == {UNATTRIBUTED, *(use.consumer for use in uses)}
    assert all(part.unread_micro_usd == 0 for part in parts if part.name != UNATTRIBUTED)


def test_consumers_that_report_more_than_the_server_counted_share_the_whole_charge():
    tokens = TokenAmounts(input=100.0, output=10.0, cached=0.0)
    use = TokenUse(
        tokens=tokens, weights=tokens, read_frac=1.0, rule=TokenRule.BLENDED, because="one price", cached_known=True
    )  # fmt: skip
    row = token_charge("prod/chat", 1_100, use)
    uses = [
        ConsumerUse(service="prod/chat", consumer=name, tokens=TokenAmounts(input=100.0, output=10.0, cached=0.0))
        for name in "ab"
    ]

    parts = {part.name: part for part in by_consumer([row], uses)}

    assert (parts["a"].micro_usd, parts["b"].micro_usd, parts[UNATTRIBUTED].micro_usd) == (550, 550, 0)
    assert "100% more tokens than the server counted" in parts["a"].because
