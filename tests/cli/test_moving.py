"""`trimtab audit` of a fleet that may move: the rules in workloads.yaml, what moving costs, another cloud on request."""

import json

import pytest
from tests.fleets import FleetRows

from trimtab.tables.bundle import write_bundle

DAYS = 14


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A bundle of runs in Frankfurt, in whose folder workloads.yaml is still to be written."""
    rows = FleetRows(DAYS)
    for n in range(4):
        rows.node(f"n{n}", "g5.12xlarge", region="eu-central-1")
        for day in range(DAYS):
            first, last = day * 24, day * 24 + 23
            rows.hold("lab/train", f"n{n}", range(4), first, last, pod=f"p{n}-{day}", owner_kind="Job")
            rows.job("lab/train", first, first, last, 4, name=f"j{n}-{day}")
            for gpu in range(4):
                rows.use("lab/train", f"n{n}", gpu, range(first, last), sm=0.7, tensor=0.5, dram=0.5, memory_gib=18.0)
    bundle = rows.bundle()
    write_bundle(tmp_path / "fleet", {name: bundle.table(name) for name in bundle.tables}, bundle.meta)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def audited(program, folder, rules, *arguments):
    text = "version: 1\nworkloads:\n" + "".join(f"  {line}\n" for line in rules)
    (folder / "fleet" / "workloads.yaml").write_text(text, encoding="utf-8")
    code, out, err = program("audit", "fleet", "-q", "-o", "json", *arguments)
    assert code == 0, err
    return json.loads(out)


def moves(document):
    return [action for action in document["plan"]["actions"] if action["lever"] == "relocation"]


def refusal(document):
    return next(row["reason"] for row in document["plan"]["not_worth_doing"] if row["lever"] == "relocation")


def test_a_cheaper_region_wins_only_where_data_and_traffic_are_small(folder, program):
    rules = ["lab/train:", "  kind: training", "  regions: [us-east-1]", "  traffic_gib_mo: {}"]

    small = audited(program, folder, [*(line.format(100) for line in rules), "  data_gib: 50"])
    plan = small["plan"]
    assert [one["effect"] for one in moves(small)] == ["move to us-east-1, on g5.12xlarge (4x A10G)"]
    assert plan["moving_usd_mo"] > 0
    assert moves(small)[0]["moving_usd_mo"] == pytest.approx(plan["moving_usd_mo"])
    assert small["proof"]["moving_usd"] > 0
    assert sum(round(100 * one["saving_usd_mo"]) for one in plan["actions"]) == round(100 * plan["joint_saving_usd_mo"])

    much = audited(program, folder, [*(line.format(1_000_000) for line in rules), "  data_gib: 50"])
    assert moves(much) == []
    assert "$20,000 a month of traffic" in refusal(much)
    assert much["plan"]["moving_usd_mo"] == 0.0


def test_every_face_names_moving_and_traffic(folder, program):
    audited(program, folder, ["lab/train:", "  kind: training", "  regions: [us-east-1]", "  data_gib: 50",
                             "  traffic_gib_mo: 100"])  # fmt: skip

    for form in ("table", "markdown", "html"):
        _, out, _ = program("audit", "fleet", "-q", "-o", form)
        assert "of it moving and traffic" in " ".join(out.split()), form
    _, out, _ = program("audit", "fleet", "-q", "-o", "csv", "--fields", "id,lever,moving_usd_mo")
    assert out.splitlines()[0] == "id,lever,moving_usd_mo"
    code, _, _ = program("emit", "--out", "manifests")
    assert code == 0
    orders = [path.read_text(encoding="utf-8") for path in (folder / "manifests" / "orders").glob("*move*")]
    assert len(orders) == 1
    assert "No manifest does this" in orders[0]
    _, out, _ = program("explain", "a1")
    assert "moving and traffic, paid within these sums" in out


def test_another_cloud_is_off_until_asked_for(folder, program):
    rules = ["'*': {data_gib: 0, traffic_gib_mo: 0}"]
    cheap = ("--set", "alternatives.migration_weeks=1", "--set", "planning.max_term_years=0")

    assert moves(audited(program, folder, rules, *cheap)) == []
    asked = audited(program, folder, rules, *cheap, "--cloud", "lambda")
    assert [one["risk"] for one in moves(asked)] == ["high"]
    assert moves(asked)[0]["effect"].startswith("move to lambda, on")


def test_a_misspelt_region_is_refused_with_its_place_and_near_matches(folder, program):
    text = "version: 1\nworkloads:\n  lab/train: {regions: [us-esat-1]}\n"
    (folder / "fleet" / "workloads.yaml").write_text(text, encoding="utf-8")

    code, _, err = program("audit", "fleet", "-q")

    assert code == 1
    assert "workloads.yaml: lab/train: regions: unknown region 'us-esat-1'; did you mean" in err


def test_what_if_shows_the_plan_with_another_cloud_beside_the_one_without(folder, program):
    rules = "version: 1\nworkloads:\n  '*': {data_gib: 0, traffic_gib_mo: 0}\n"
    (folder / "fleet" / "workloads.yaml").write_text(rules, encoding="utf-8")
    cheap = ("--set", "alternatives.migration_weeks=1", "--set", "planning.max_term_years=0")

    code, out, err = program("what-if", "fleet", "-q", "-o", "json", "--cloud", "lambda", *cheap)

    assert code == 0, err
    rows = {(row["section"], row["what"]): row for row in json.loads(out)["rows"]}
    bill = rows["the plan", "bill under the plan"]
    assert bill["scenario"] < bill["base"]
    assert program("what-if", "fleet", "-q", "--cloud", "lambdda")[0] == 1
