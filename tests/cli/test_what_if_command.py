"""`trimtab what-if`: two worlds side by side, from replays that are looked up where nothing but a price changed."""

import json
from dataclasses import fields, replace
from datetime import date
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from benchmarks.faster_start import MACHINES, drawn
from click.testing import CliRunner
from hypothesis import given, settings, strategies as st

from trimtab.catalog import load_catalog
from trimtab.catalog.registry import changed, price_change
from trimtab.cli import root
from trimtab.cli.made_plans import PlanOrigin, recall_made
from trimtab.cli.outcome_cache import decoded, encoded, outcome_cache
from trimtab.cli.settings import resolve
from trimtab.cli.what_if import run as what_if_run
from trimtab.fleet.model import Target
from trimtab.fleet.settings import Settings
from trimtab.fleet.targets import other_limit, with_other_limits
from trimtab.pipeline import PlanningInput, audit, open_demo, plan_and_prove, what_if
from trimtab.pipeline.auditing import what_if_beside
from trimtab.plan.proof.scenario import Scenario
from trimtab.replay.outcomes import evaluate
from trimtab.replay.outcomes.outcome import Attained, Outcome
from trimtab.tables.bundle import write_bundle
from trimtab.tables.workloads import TargetMetric

DEMO = "finetune-7b"


@pytest.fixture(autouse=True)
def state(tmp_path, monkeypatch):
    monkeypatch.setenv("TRIMTAB_STATE", str(tmp_path / "state"))
    return tmp_path / "state"


def rows(*arguments):
    result = CliRunner().invoke(root, ["what-if", *arguments, "-q", "-o", "json"])
    assert result.exit_code == 0, result.output
    return {(row["section"], row["what"]): row for row in json.loads(result.output)["rows"]}


def test_dearer_prices_raise_the_bill_of_today_in_proportion_and_that_of_a_plan_no_more():
    """More work pays where prices are higher, so that the plan's may rise less."""
    found = rows("--demo", DEMO, "--price", "all+100%")
    today, planned = (found["the plan", f"bill {what}"] for what in ("as the fleet runs today", "under the plan"))

    assert today["scenario"] == pytest.approx(2 * today["base"], rel=1e-3)
    assert planned["base"] < planned["scenario"] <= 2 * planned["base"] * 1.001


@pytest.mark.parametrize(("change", "is_said"), [(("--demand", "+20%"), True), (("--price", "all+100%"), False)])
def test_a_bill_that_grows_by_whole_nodes_is_said_to(change, is_said):
    result = CliRunner().invoke(root, ["what-if", "--demo", DEMO, *change, "-q"])

    assert ("1.2 times the demand is 2 times the bill" in " ".join(result.output.split())) == is_said


SERVICES = "three-small-models"


@pytest.fixture(scope="module")
def planned():
    return plan_and_prove(PlanningInput(bundle=open_demo(SERVICES)))


def whole_usd_mo(planned, limit):
    """The bill and the work that the plan asks for under another limit: what it minimises."""
    found = what_if_beside(planned, Scenario(limits=(other_limit(limit),)))
    assert found.other is not None
    return found.other.whole_usd_mo


def test_another_wait_for_nodes_is_planned_as_if_it_were_stated():
    bundle, chosen, *_ = drawn(547)
    at_once = replace(chosen, assumptions=replace(chosen.assumptions, node_startup_s=0.0))
    slow, quick = (
        plan_and_prove(PlanningInput(bundle=bundle, settings=one, catalog=MACHINES)) for one in (chosen, at_once)
    )
    found = what_if_beside(slow, Scenario(node_startup_s=0.0))

    assert found.other is not None
    assert found.other.after_usd_mo < found.base.after_usd_mo
    assert found.other.after_usd_mo == pytest.approx(quick.planned.plan.usd_mo(quick.planned.plan.after_micro_usd))


def test_a_looser_limit_never_costs_more_and_a_tighter_one_never_less(planned):
    answers = [whole_usd_mo(planned, f"apps/handbook-answers={limit_s}") for limit_s in (60, 8, 3)]

    assert all(looser <= tighter * (1 + 1e-9) for looser, tighter in pairwise(answers)), answers
    assert answers[0] < answers[-1]


def test_only_what_has_another_limit_is_replayed_again(planned, monkeypatch):
    judged = []
    law_of = evaluate.law_of
    monkeypatch.setattr(
        evaluate, "law_of", lambda workload, settings: judged.append(workload.name) or law_of(workload, settings)
    )

    what_if_beside(planned, Scenario(limits=(other_limit("apps/image-draft=8000ms"),)))

    assert set(judged) <= {"apps/image-draft"}


def test_the_limits_that_a_workload_has_already_change_nothing(planned):
    seen = {target.required_frac: target.limit_s for target in planned.opened.fit.workload("apps/image-draft").targets}
    fleet = with_other_limits(planned.opened.fit, [other_limit("apps/image-draft:queue_wait=1")])

    assert fleet.workloads == planned.opened.fit.workloads, "nothing has that target here"
    kept = with_other_limits(planned.opened.fit, [other_limit(f"apps/image-draft={seen[0.95]:.12f}")])
    (limit,) = (target for target in kept.workload("apps/image-draft").targets if target.limit_s is not None)
    assert (limit.required_frac, limit.limit_s) == (0.95, pytest.approx(seen[0.95]))


def test_what_replicas_serve_is_not_learnt_again_for_other_demand(planned, monkeypatch):
    judged = []
    law_of = evaluate.law_of
    monkeypatch.setattr(
        evaluate, "law_of", lambda workload, settings: judged.append(workload.name) or law_of(workload, settings)
    )

    what_if_beside(planned, Scenario(demand=1.2))

    assert judged == []


def test_a_scenario_asked_beside_a_plan_is_planned_as_an_audit_there_plans_it_each_time(planned):
    prices = (price_change("all-10%"),)
    there = audit(open_demo(SERVICES), catalog=changed(load_catalog(), prices))

    first, second = (what_if_beside(planned, Scenario(prices=prices)).other for _ in range(2))

    assert first == second
    assert first.after_usd_mo == there.plan.usd_mo(there.plan.after_micro_usd)
    assert first.bound_usd_mo == there.plan.usd_mo(there.plan.bound_micro_usd)
    # an outlook does not price what was not declared, so its purchases name nobody to ask
    assert first.actions == tuple(replace(action, ask_first=()) for action in there.plan.actions)
    assert first.proof_saving_frac == there.proof.saving_frac


def test_what_a_plan_found_ways_to_use_at_least_is_not_worked_out_again_at_other_prices(planned, monkeypatch):
    asked = []
    least = evaluate.least_outcome
    monkeypatch.setattr(evaluate, "least_outcome", lambda *of: asked.append(of[1]) or least(*of))

    what_if_beside(planned, Scenario(prices=(price_change("all+20%"),)))

    assert not asked


@pytest.mark.parametrize(
    ("limit", "said"),
    [
        ("apps/image-drat=1", "apps/image-draft"),
        ("apps/image-draft:ttft=1", "has latency"),
        ("apps/image-draft:tftt=1", "ttft"),
        ("apps/image-draft=0", "above 0"),
        ("apps/image-draft=soon", "is not a target"),
        ("0.3", "is not a target"),
        ("apps/image-draft=1e9", "is not a target"),
        ("apps/image-draft=99999999", "above 0"),
    ],
)
def test_a_target_that_cannot_be_is_refused_with_its_cure(limit, said):
    result = CliRunner().invoke(root, ["what-if", "--demo", SERVICES, "--target", limit, "-q"])

    assert said in str(result.exception)


def test_without_arguments_there_is_nothing_to_compare():
    result = CliRunner().invoke(root, ["what-if", "--demo", DEMO])

    assert "what should change?" in str(result.exception)


def test_a_budget_that_the_plan_keeps_names_the_actions_that_are_enough():
    found = rows("--demo", DEMO, "--budget", "1M", "--deadline", "2030-01")

    assert found["budget", "$1,000,000 a month"]["base"] == "kept"
    assert found["budget", "least work that keeps it"]["base"] == "nothing"
    assert found["deadline", "its bill"]["base"] == pytest.approx(found["the plan", "bill under the plan"]["base"])


def test_a_budget_out_of_reach_is_told_with_the_shortfall():
    found = rows("--demo", DEMO, "--budget", "1")

    assert found["budget", "$1 a month"]["base"].endswith(" short")
    assert found["budget", "least work that comes nearest"]["unit"] == "actions"


def test_answers_fit_80_columns_without_breaking_words():
    result = CliRunner().invoke(
        root, ["what-if", "--demo", DEMO, "--budget", "1", "--deadline", "2030-01", "-q"], env={"COLUMNS": "80"}
    )

    lines = result.output.splitlines()
    assert max(map(len, lines)) <= 80
    assert any(line.startswith("commitments, paid whether used or not") for line in lines)


@pytest.mark.parametrize(
    ("option", "name"), [(("--quota", "p4d.24xlareg=2"), "p4d.24xlarge"), (("--price", "spto+10%"), "spot")]
)
def test_a_name_that_nothing_answers_to_is_told_before_any_work(monkeypatch, option, name):
    monkeypatch.setattr("trimtab.pipeline.auditing.build_fleet", None)

    result = CliRunner().invoke(root, ["what-if", "--demo", DEMO, *option, "-q"])

    assert f"did you mean {name}" in str(result.exception)


def test_a_world_without_a_plan_is_shown_as_such():
    result = CliRunner().invoke(root, ["what-if", "--demo", DEMO, "--quota", "p4d.24xlarge=0", "-q"])

    assert result.exit_code == 0, result.output
    assert "what if" in result.output


def test_another_price_that_changes_no_choice_replays_nothing(monkeypatch):
    bundle = open_demo(DEMO)
    with outcome_cache() as store:
        audit(bundle, store=store)
    replays = []
    monkeypatch.setattr(evaluate.Evaluator, "_replay", lambda self, effects: replays.append(effects))
    with outcome_cache() as store:
        found = what_if(PlanningInput(bundle=bundle, scenario=Scenario(prices=(price_change("all+5%"),)), store=store))

    assert replays == []
    assert found.base.before_usd_mo > 0


def test_a_budget_and_a_deadline_are_held_against_one_plan():
    stages = []
    scenario = Scenario(budget_usd_mo=1e6, deadline=date(2030, 1, 1))

    found = what_if(
        PlanningInput(bundle=open_demo(DEMO), scenario=scenario, progress=lambda stage, _: stages.append(stage))
    )

    assert stages.count("attributing savings") == 1
    assert found.other == found.base
    assert found.other.budget is not None


def test_another_world_is_planned_as_an_audit_there_plans_it():
    bundle = open_demo(DEMO)
    settings = Settings(limits=replace(Settings().limits, use_spot=False))

    found = what_if(PlanningInput(bundle=bundle, scenario=Scenario(use_spot=False))).other
    there = audit(bundle, settings)

    assert found.after_usd_mo == there.plan.usd_mo(there.plan.after_micro_usd)
    assert found.bound_usd_mo == there.plan.usd_mo(there.plan.bound_micro_usd)
    assert found.actions == there.plan.actions
    assert found.proof_saving_frac == there.proof.saving_frac


def test_an_outcome_comes_back_as_it_was_kept():
    target = Target(metric=TargetMetric.LATENCY, required_frac=0.95, limit_s=None, declared=True, because="so")
    outcome = Outcome(
        on_demand=np.arange(5),
        spot=np.zeros(5, dtype=np.int64),
        attained=(Attained(target=target, frac=0.99, safe_frac=0.97),),
        interruptions=3,
        gpus=None,
    )

    again = decoded(encoded(outcome))

    assert again.attained == outcome.attained
    for field in fields(Outcome):
        np.testing.assert_equal(getattr(again, field.name), getattr(outcome, field.name))
    with pytest.raises(TypeError, match="cannot be stored"):
        encoded(replace(outcome, interruptions={}))


@pytest.mark.parametrize(
    "wrong", [["--demand", "many"], ["--demand", "0x"], ["--budget", "cheap"], ["--deadline", "soon"]]
)
def test_what_makes_no_sense_is_a_usage_error(wrong):
    assert CliRunner().invoke(root, ["what-if", "--demo", DEMO, *wrong]).exit_code == 2


def audited_cli(*arguments):
    result = CliRunner().invoke(root, ["audit", *arguments, "-q", "--no-report", "-o", "json"])
    assert result.exit_code == 0, result.output


CHANGES = {
    "demand": st.sampled_from([("--demand", "1.3x"), ("--demand", "0.8x")]),
    "price": st.sampled_from([("--price", "spot+30%"), ("--price", "A100-20%"), ("--price", "all+5%")]),
    "limit": st.sampled_from(
        [("--no-spot",), ("--spot-max", "0.2"), ("--quota", "p4d.24xlarge=1"), ("--cloud", "gcp"), ("--budget", "9k")]
    ),
}
"""Options of what-if, of which a scenario takes one of each kind or none."""


@pytest.fixture(scope="module")
def audited_state(tmp_path_factory):
    """The state folder of an audit."""
    folder = tmp_path_factory.mktemp("state")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRIMTAB_STATE", str(folder))
        audited_cli("--demo", DEMO)
    return folder


@settings(max_examples=8, deadline=None, derandomize=True, database=None)
@given(changes=st.fixed_dictionaries({}, optional=CHANGES).filter(bool))
def test_beside_the_kept_plan_of_an_audit_each_scenario_gets_the_answer_of_a_fleet_planned_again(
    audited_state, changes
):
    asked = ["--demo", DEMO, *(word for options in changes.values() for word in options)]
    kept = audited_state / "made.plan"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRIMTAB_STATE", str(audited_state))
        planned_again = kept.rename(audited_state / "aside") and rows(*asked)
        (audited_state / "aside").rename(kept)
        patch.setattr(what_if_run, "_history", None)  # the history is not opened

        assert rows(*asked) == planned_again


@pytest.fixture
def source(tmp_path, state):
    """A kept plan of a bundle."""
    bundle = open_demo(DEMO)
    write_bundle(tmp_path / "fleet", bundle.tables, bundle.meta, bundle.workloads)
    audited_cli(str(tmp_path / "fleet"))
    found = PlanOrigin(fleet=str(tmp_path / "fleet"), settings=resolve(file=None, environ={}, flags=()).settings)
    assert recall_made(found, None) is not None
    return found


def test_a_kept_plan_is_not_taken_for_other_settings_days_rates_or_history(source, tmp_path):
    rates = tmp_path / "rates.csv"
    rates.write_text("a file of rates")
    planning = replace(source.settings.planning, engineers=source.settings.planning.engineers + 1)

    for other in (
        replace(source, settings=replace(source.settings, planning=planning)),
        replace(source, at=date(2026, 1, 1)),
        replace(source, prices=rates),
        replace(source, fleet=f"demo {DEMO}"),
    ):
        assert recall_made(other, None) is None
    with (Path(source.fleet) / "workloads.yaml").open("a") as stream:
        stream.write("\n")
    assert recall_made(source, None) is None


def test_a_kept_plan_without_the_users_seal_is_never_opened(source, state, monkeypatch):
    monkeypatch.setenv("TRIMTAB_TRUST_STATE", "1")
    file = state / "made.plan"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)

    assert recall_made(source, None) is None


def test_a_plan_with_additions_that_what_if_cannot_read_again_is_not_kept(state, tmp_path):
    owned = tmp_path / "owned.csv"
    owned.write_text("instance_type,region,count,end,start,rate_usd_hr\n")

    CliRunner().invoke(root, ["audit", "--demo", DEMO, "-q", "--no-report", "--owned", str(owned)])

    assert not (state / "made.plan").exists()
