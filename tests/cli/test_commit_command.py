"""`trimtab commit` as a person types it, on a demonstration fleet."""

import csv
import io
import json

import pytest
from tests.fleets import FleetRows

from trimtab.pipeline import open_demo
from trimtab.tables.bundle import write_bundle

OWNED = """name,provider,instance_type,region,count,term_years,upfront_usd,usd_hr,start,end
ri-1,aws,p4d.24xlarge,us-east-1,3,1,0,13.9,2026-01-01,2027-01-01
"""


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    folder = tmp_path_factory.mktemp("fleet") / "fleet"
    shown = open_demo("two-hundred-k")
    write_bundle(folder, shown.tables, shown.meta, shown.workloads)
    return folder


@pytest.fixture(scope="module")
def small_bundle(tmp_path_factory):
    """Three nodes at work at all hours for six weeks, and one of the same type that nobody holds."""
    days, machine = 42, "p4d.24xlarge"
    rows = FleetRows(days).node("idle", machine)
    for number in range(3):
        rows.node(f"n{number}", machine).hold("web/api", f"n{number}", range(8), owner_kind="Deployment")
        for device in range(8):
            rows.use("web/api", f"n{number}", device, range(days * 24), sm=0.8, memory_gib=39.0)
    shown = rows.bundle()
    folder = tmp_path_factory.mktemp("small") / "fleet"
    write_bundle(folder, {name: shown.table(name) for name in shown.tables}, shown.meta, shown.workloads)
    return folder


@pytest.fixture
def run(program, monkeypatch, bundle):
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.delenv("TRIMTAB_PRICES", raising=False)

    def call(*arguments, fleet=bundle, plan=False):
        """Ask on the use as it was, which takes a second; with `plan`, what the plan buys."""
        named = [] if fleet is None else [str(fleet)]
        return program("commit", *named, *([] if plan else ["--as-it-was"]), *arguments)

    return call


def test_the_whole_answer_fits_80_columns_and_says_what_it_rests_on(run):
    code, out, _ = run()

    assert code == 0
    assert max(len(line) for line in out.splitlines()) <= 80
    assert "use as it was" in out
    for part in ("What to buy, and when", "newsvendor", "loses below", "busiest hour"):
        assert part in out


def test_rates_that_no_table_has_are_asked_for_and_none_is_assumed(run):
    _, out, _ = run("--section", "steps")

    asked = out.partition("No price is known")[2]
    assert "p3.8xlarge in us-east-1 (aws): 1 year, 3 years" in asked


def test_the_steps_are_layers_that_add_up(run):
    _, out, _ = run("--type", "p4d.24xlarge", "-o", "json")

    document = json.loads(out)
    steps = document["steps"]
    assert document["schema_version"] == 1
    assert {row["pool"] for row in steps} == {"p4d.24xlarge on-demand in us-east-1 (aws)"}
    assert steps[0]["day"] == 0
    assert sum(row["buy_nodes"] for row in steps) == steps[-1]["hold_nodes"] == 6
    assert all(row["source"] for row in steps)


def test_a_quote_is_compared_and_taken_where_it_is_cheaper(run):
    _, out, _ = run("--type", "p4d.24xlarge", "--offer", "p4d.24xlarge:1y:100000:0", "-o", "json")

    document = json.loads(out)
    assert {row["offer"] for row in document["returns"]} == {"1 y, monthly", "1 y, all upfront"}
    assert {row["payment"] for row in document["steps"]} == {"all upfront"}


def test_commitments_held_are_judged_and_not_bought_again(run, tmp_path):
    held = tmp_path / "held.csv"
    held.write_text(OWNED)

    _, out, _ = run("--type", "p4d.24xlarge", "--owned", str(held), "-o", "json")

    document = json.loads(out)
    assert document["inventory"][0]["used_frac"] == pytest.approx(1.0)
    assert document["inventory"][0]["end"] == "2027-01-01"
    assert sum(row["buy_nodes"] for row in document["steps"]) == 3


def test_all_faults_of_the_file_of_commitments_are_told_at_once(run, small_bundle, tmp_path):
    held = tmp_path / "held.csv"
    held.write_text(OWNED.replace(",3,1,0,", ",0,1,0,") + OWNED.splitlines()[1].replace("2027-01-01", "soon") + "\n")

    code, _, err = run("--owned", str(held), fleet=small_bundle)

    assert code == 1
    assert "2 faults" in err
    assert "row 2" in err
    assert "row 3" in err
    assert "end 'soon' is not a day" in err


def test_the_return_table_takes_stated_nodes_and_hours(run):
    _, out, _ = run("--section", "returns", "--type", "g5.xlarge", "--nodes", "2", "--hours-mo", "365", "-o", "csv")

    (row,) = csv.DictReader(io.StringIO(out))
    assert float(row["on_demand_usd"]) == pytest.approx(2 * 365 * 12 * 1.006)
    assert float(row["committed_usd"]) == pytest.approx(2 * 8760 * 0.63378)
    assert row["break_even_mo"] == ""


def test_markdown_has_a_heading_for_each_part(run, small_bundle):
    _, out, _ = run("-o", "markdown", fleet=small_bundle)

    assert "## What to buy, and when" in out
    assert "| pool |" in out


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["--type", "p4d.24xlrge"], 1, "did you mean p4d.24xlarge"),
        (["--demo"], 2, "different histories"),
        (["-o", "csv"], 2, "--section"),
        (["--fields", "day"], 2, "--section"),
        (["--offer", "p4d.24xlarge:2y:1:1"], 1, "TYPE:TERM:UPFRONT_USD:USD_HR"),
        (["--offer", "h100:1y:1:1"], 1, "the fleet has no on-demand h100"),
        (["--offer", "p4d.24xlarge:1y:0:0"], 1, "above 0"),
    ],
)
def test_a_wrong_question_is_answered_with_the_cure(run, small_bundle, arguments, code, said):
    ended, _, err = run(*arguments, fleet=small_bundle)

    assert ended == code
    assert said in err


def test_no_fleet_is_a_question_back(run):
    ended, _, err = run(fleet=None)

    assert ended == 2
    assert "--demo" in err


def test_after_the_plan_less_is_left_to_commit_to(run, small_bundle):
    _, before, _ = run("--section", "steps", "-o", "json", fleet=small_bundle)
    _, after, _ = run("--section", "steps", "-o", "json", fleet=small_bundle, plan=True)

    def dearest(text):
        return sum(row["buy_nodes"] for row in json.loads(text)["rows"] if row["pool"].startswith("p4d"))

    assert 0 < dearest(after) < dearest(before)


def test_a_clouds_own_list_of_what_is_held_is_read_and_its_spend_named(tmp_path, run, small_bundle):
    plan = {"savingsPlanId": "sp-1", "savingsPlanType": "Compute", "commitment": "12.5", "state": "active"}
    path = tmp_path / "held.json"
    path.write_text(
        json.dumps({"savingsPlans": [{**plan, "start": "2026-01-01T00:00:00Z", "end": "2029-01-01T00:00:00Z"}]})
    )

    code, out, _ = run("-q", "--owned", str(path), fleet=small_bundle)

    assert code == 0
    assert "sp-1 (Compute): 12.5000 USD an hour of spend until 2029-01-01" in " ".join(out.split())


PLAN_RATES = """provider,instance_type,region,option,usd_hr
aws,p4d.24xlarge,us-east-1,savings-plan-1y,15.2
aws,g5.xlarge,us-east-1,savings-plan-1y,0.72
"""


@pytest.fixture
def plan_rates(tmp_path):
    path = tmp_path / "rates.csv"
    path.write_text(PLAN_RATES)
    return str(path)


def test_spend_is_advised_with_and_without_reservations_where_a_plans_rates_are_given(run, plan_rates):
    _, out, _ = run("--prices", plan_rates, "-o", "json")

    document = json.loads(out)
    alone, beside = sorted(document["plans"], key=lambda row: row["beside_reservations"])
    assert alone["best_usd_hr"] > beside["best_usd_hr"]
    assert 0 < alone["first_usd_hr"] <= alone["usd_hr"] <= alone["best_usd_hr"]
    assert len(alone["layers"]) > 1
    assert "g5.12xlarge" in " ".join(line for line in document["wanted_rates"] if "a savings plan" in line)


def test_the_part_of_the_use_for_which_no_rate_is_known_is_said_to_be_unjudged(run, tmp_path):
    # AWS lists no reservation of a p5.48xlarge
    rows = FleetRows(42).node("n0", "p4d.24xlarge").node("n1", "p5.48xlarge")
    shown = rows.bundle()
    write_bundle(tmp_path / "fleet", {name: shown.table(name) for name in shown.tables}, shown.meta, shown.workloads)

    document = json.loads(run("-o", "json", fleet=tmp_path / "fleet")[1])
    text = " ".join(run(fleet=tmp_path / "fleet")[1].split())

    assert 0 < document["unjudged_usd_mo"] < document["on_demand_usd_mo"]
    assert "a month, could not be judged: no committed rate is known for it" in text


def test_without_a_plans_rates_no_spend_is_advised(run, small_bundle):
    _, out, _ = run("-o", "json", fleet=small_bundle)

    assert json.loads(out)["plans"] == []


def test_a_held_plan_whose_rates_are_given_is_judged(tmp_path, run, small_bundle, plan_rates):
    held = {"savingsPlanId": "sp-1", "commitment": "12.5", "state": "active"}
    path = tmp_path / "held.json"
    path.write_text(
        json.dumps({"savingsPlans": [{**held, "start": "2026-01-01T00:00:00Z", "end": "2027-01-01T00:00:00Z"}]})
    )

    _, out, _ = run("--prices", plan_rates, "--owned", str(path), "-o", "json", fleet=small_bundle)

    (row,) = json.loads(out)["held_plans"]
    assert 0.9 < row["used_frac"] <= 1
    assert 0 < row["coverage_frac"] < 1


def test_the_answer_with_plans_fits_80_columns(run, plan_rates):
    _, out, _ = run("--prices", plan_rates)

    assert max(len(line) for line in out.splitlines()) <= 80
    assert "What to commit to spend with a savings plan" in out
