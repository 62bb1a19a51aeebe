import json
from datetime import date

import pytest
from openpyxl import load_workbook
from tests.tables.bundles import META, START, allocation, device, node, tables

from trimtab.catalog import BuyingOption, load_catalog
from trimtab.cli import COMMANDS, main
from trimtab.tables.bundle import write_bundle


@pytest.fixture
def fleet(tmp_path):
    held = [
        allocation(gpus=gpus, pod=f"p{n}", workload=f"ns/{n}", device=None) for n, gpus in enumerate((1.0, 2.0, 0.7))
    ]
    rows = {"nodes": [node()], "devices": [device()], "allocations": held, "gpu_usage": []}
    write_bundle(tmp_path / "fleet", tables(**rows), META)
    return str(tmp_path / "fleet")


def run(*arguments):
    with pytest.raises(SystemExit) as exit_:
        main(["allocate", *arguments])
    return exit_.value.code


def test_its_help_has_the_line_of_the_list_and_examples(capsys):
    assert run("--help") == 0

    out = capsys.readouterr().out
    assert COMMANDS["allocate"][1] in " ".join(out.split())
    assert "trimtab allocate --demo" in out


@pytest.mark.parametrize("rule", ["show", "spread"])
def test_the_cents_of_the_rows_sum_to_the_bill(fleet, capsys, rule):
    assert run(fleet, "-q", "--by", "workload", "--idle", rule, "-o", "json") == 0

    rows = json.loads(capsys.readouterr().out)["rows"]
    rate = load_catalog().prices.price("aws", "p4d.24xlarge", "us-east-1", BuyingOption.ON_DEMAND, at=date(2026, 9, 3))
    assert sum(round(row["usd"] * 100) for row in rows) == round(48 * rate.usd_hr * 100)
    assert len(rows) == (4 if rule == "show" else 3)


def test_a_workbook_has_every_table_with_dollars_as_numbers(token_fleet, tmp_path, capsys):
    assert run(token_fleet, "-q", "--by", "workload", "-o", "xlsx", "--out", str(tmp_path / "c.xlsx")) == 0
    assert run(token_fleet, "-q", "--by", "workload", "-o", "json") == 0

    rows = json.loads(capsys.readouterr().out)["rows"]
    book = load_workbook(tmp_path / "c.xlsx")
    shown = list(book["charges"].iter_rows(min_row=2, max_col=2))
    assert book.sheetnames == ["charges", "tokens"]
    assert [(name.value, usd.value) for name, usd in shown] == [(row["name"], row["usd"]) for row in rows]
    assert shown[0][1].number_format.startswith("[$$-409]")


@pytest.mark.parametrize(
    ("arguments", "said"), [((), "needs a file"), (("--out", "no/such/folder/c.xlsx"), "there is no folder")]
)
def test_a_workbook_without_a_place_is_refused_before_the_work(tmp_path, capsys, arguments, said):
    # an empty folder is no fleet either, which would be said first if it were read first
    assert run(str(tmp_path), "-q", "-o", "xlsx", *arguments) == 2

    assert said in capsys.readouterr().err


def test_a_table_states_the_sum_and_the_window(fleet, capsys):
    assert run(fleet, "-q") == 0

    out = capsys.readouterr().out
    assert "the bill of 1 Sep 2026 to 2 Sep 2026" in out
    assert max(len(line) for line in out.splitlines()) <= 80


@pytest.fixture
def token_fleet(tmp_path):
    """Two services of 0.7 and 1.1 GPUs, of which one counts cached tokens, and what serves nothing."""
    held = [
        allocation(gpus=gpus, pod=f"p{name}", workload=f"ns/{name}", team=team, device=None)
        for name, team, gpus in (("chat", "a", 0.7), ("rag", "b", 1.1), ("nb", "a", 1.0))
    ]
    common = {"start": START, "interval_s": 3600.0, "completed": 7.0, "output_tokens": 999.0}
    demand = [
        {"workload": f"ns/{name}", **common, "input_tokens": 50_021.0, "cached_tokens": cached}
        for name, cached in (("chat", 30_007.0), ("rag", None))
    ]
    rows = {"nodes": [node()], "devices": [device()], "allocations": held, "gpu_usage": [], "demand": demand}
    write_bundle(tmp_path / "tokens", tables(**rows), META)
    return str(tmp_path / "tokens")


@pytest.mark.parametrize("by", ["workload", "team"])
def test_token_dollars_sum_to_each_row_and_all_rows_to_the_bill(token_fleet, capsys, by):
    assert run(token_fleet, "-q", "--by", by, "--tokens", "-o", "json") == 0

    *rows, rest = json.loads(capsys.readouterr().out)["rows"]
    rate = load_catalog().prices.price("aws", "p4d.24xlarge", "us-east-1", BuyingOption.ON_DEMAND, at=date(2026, 9, 3))
    assert [row["name"] for row in (*rows, rest)] == [
        *(["ns/rag", "ns/chat"] if by == "workload" else ["b", "a"]),
        "not by tokens",
    ]
    assert round(sum(row["usd"] for row in (*rows, rest)), 2) == round(48 * rate.usd_hr, 2)
    for row in rows:
        parts = [row[f"{kind}_usd"] or 0.0 for kind in ("input", "output", "cached", "unread")]
        assert round(sum(parts), 2) == row["usd"]
    assert rows[0]["cached_usd"] is None
    assert rows[1]["cached_mtok"] == 0.030007


def test_a_table_of_tokens_says_by_which_rule_each_bill_was_divided(token_fleet, capsys):
    assert run(token_fleet, "-q", "--by", "workload", "--tokens") == 0

    out = capsys.readouterr().out
    assert "one price for every token" in " ".join(out.split())
    assert max(len(line) for line in out.splitlines()) <= 80


def test_a_page_of_charges_shows_what_tokens_cost(token_fleet, capsys):
    assert run(token_fleet, "-q", "-o", "html") == 0

    assert "What tokens cost" in capsys.readouterr().out


USES = """service,consumer,input_tokens,output_tokens,cached_tokens
ns/chat,acme,20000,400,30007
ns/rag,acme,25000,500,
ns/rag,lora-7,10000,499,0
"""


def test_consumers_of_tokens_and_what_they_did_not_report_sum_to_the_bill(token_fleet, tmp_path, capsys):
    (tmp_path / "uses.csv").write_text(USES)
    assert run(token_fleet, "-q", "--by", "workload", "--tokens", "-o", "json") == 0
    services = {row["name"]: row for row in json.loads(capsys.readouterr().out)["rows"]}

    assert run(token_fleet, "-q", "--tokens", "--token-use", str(tmp_path / "uses.csv"), "-o", "json") == 0

    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)["rows"]}
    assert set(rows) == {"acme", "lora-7", "unattributed", "not by tokens"}
    assert sum(row["usd"] for row in rows.values()) == pytest.approx(sum(row["usd"] for row in services.values()))
    assert sorted(rows["acme"]["services"]) == ["ns/chat", "ns/rag"]
    # 499 of the 999 tokens that ns/rag answered
    assert rows["lora-7"]["output_usd"] == pytest.approx(services["ns/rag"]["output_usd"] * 499 / 999, abs=0.02)


def test_uses_of_tokens_are_checked_row_by_row(token_fleet, tmp_path, capsys):
    (tmp_path / "bad.csv").write_text("service,consumer,input_tokens,output_tokens\nns/chat,,1,2\nns/chat,a,-1,2\n")
    (tmp_path / "other.csv").write_text("service,consumer,input_tokens,output_tokens\nns/nb,a,1,2\n")

    assert run(token_fleet, "-q", "--tokens", "--token-use", str(tmp_path / "bad.csv")) != 0
    bad = capsys.readouterr().err
    assert run(token_fleet, "-q", "--tokens", "--token-use", str(tmp_path / "other.csv")) == 2
    other = capsys.readouterr().err
    assert run(token_fleet, "-q", "--token-use", str(tmp_path / "other.csv")) == 2

    assert "row 2" in bad
    assert "row 3" in bad
    assert "no tokens were read of ns/nb" in " ".join(other.split())


def test_prices_of_tokens_nobody_read_are_refused(fleet, capsys):
    assert run(fleet, "-q", "--tokens") == 2

    assert "input_tokens" in capsys.readouterr().err


CHARGES = """ChargePeriodStart,ChargePeriodEnd,BilledCost,EffectiveCost,BillingCurrency,ChargeCategory,ResourceId,Tags
2026-09-01T00:00:00Z,2026-09-02T00:00:00Z,100.10,90.05,USD,Usage,n0,
2026-09-01T00:00:00Z,2026-09-02T00:00:00Z,7.005,7.005,EUR,Tax,,
2026-09-01T00:00:00Z,2026-09-02T00:00:00Z,3,3,USD,Usage,vol-1,"{""cost-center"": ""4711""}"
"""


@pytest.fixture
def bill(tmp_path):
    path = tmp_path / "bill.csv"
    path.write_text(CHARGES)
    return str(path)


def test_a_bill_is_split_as_it_is_and_its_currency_at_the_stated_rate(fleet, bill, capsys):
    assert run(fleet, "-q", "--focus", bill, "--fx", "EUR=2", "--cost", "billed", "--by", "workload", "-o", "json") == 0

    rows = {row["name"]: row["usd"] for row in json.loads(capsys.readouterr().out)["rows"]}
    assert round(sum(rows.values()), 2) == 117.11
    assert (rows["ns/0"], rows["shared (tax)"], rows["shared (untagged)"]) == (12.51, 14.01, 3.0)


def test_what_a_bill_charges_for_days_without_history_is_told(fleet, tmp_path, capsys):
    of_2024 = CHARGES.replace("EUR", "USD").replace("2026-", "2024-")
    (tmp_path / "old.csv").write_text(of_2024)
    (tmp_path / "both.csv").write_text(CHARGES.replace("EUR", "USD"))

    assert run(fleet, "-q", "--focus", str(tmp_path / "old.csv"), "--cost", "billed") == 0
    old = " ".join(capsys.readouterr().out.split())
    assert run(fleet, "-q", "--focus", str(tmp_path / "both.csv"), "--cost", "billed") == 0
    both = " ".join(capsys.readouterr().out.split())

    assert "$110.10 of it was charged for days outside the history" in old
    assert "outside the history" not in both


def test_a_label_that_only_the_bill_knows_gets_its_row(fleet, bill, capsys):
    assert run(fleet, "-q", "--focus", bill, "--fx", "EUR=2", "--by", "label:cost-center", "-o", "json") == 0

    assert {row["name"]: row["usd"] for row in json.loads(capsys.readouterr().out)["rows"]}["4711"] == 3.0


def test_a_month_closes_against_its_invoice(fleet, bill, capsys):
    given = ("--focus", bill, "--fx", "EUR=2", "--invoice", "2026-09=117.11")
    assert run(fleet, "-q", *given, "--months", "-o", "json") == 0
    assert json.loads(capsys.readouterr().out)["rows"][0]["difference_usd"] == 0.0

    assert run(fleet, "-q", *given) == 0
    assert "which equals the invoice" in capsys.readouterr().out


def test_budgets_are_held_against_where_the_month_will_end(fleet, tmp_path, capsys):
    (tmp_path / "budgets.csv").write_text("name,usd_mo\nns/1,1000\nns/9,5\n")

    assert run(fleet, "-q", "--by", "workload", "--budgets", str(tmp_path / "budgets.csv"), "-o", "json") == 0

    row = next(row for row in json.loads(capsys.readouterr().out)["rows"] if row["name"] == "ns/1")
    assert row["month_forecast_usd"] == pytest.approx(15 * row["usd"], abs=0.2)
    assert row["over_budget_usd"] == pytest.approx(row["month_forecast_usd"] - 1000, abs=0.01)


def test_the_page_stands_alone_and_escapes_names(tmp_path, capsys):
    held = [allocation(workload="ns/<b>", device=None)]
    write_bundle(tmp_path / "fleet", tables(nodes=[node()], allocations=held, gpu_usage=[]), META)

    assert run(str(tmp_path / "fleet"), "-q", "--by", "workload", "-o", "html") == 0

    html = capsys.readouterr().out
    assert "ns/&lt;b&gt;" in html
    assert "http" not in html.replace("http-equiv", "")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--cost", "billed"), "--focus"),
        (("--months",), "--focus"),
        (("--by", "colour"), "label:KEY"),
        (("--fx", "EUR"), "EUR=1.08"),
        (("--invoice", "September=3"), "2026-09=12345.67"),
    ],
)
def test_what_cannot_be_is_refused_with_its_cure(fleet, capsys, arguments, said):
    assert run(fleet, "-q", *arguments) == 2

    assert said in capsys.readouterr().err


def test_a_currency_without_a_rate_is_refused(fleet, bill, capsys):
    assert run(fleet, "-q", "--focus", bill) == 1

    assert "--fx EUR=1.08" in capsys.readouterr().err


def test_every_wrong_budget_is_named(fleet, tmp_path, capsys):
    (tmp_path / "budgets.csv").write_text("name,usd_mo\na,-1\n,5\nb,1\nb,2\n")

    assert run(fleet, "-q", "--budgets", str(tmp_path / "budgets.csv")) == 1

    said = capsys.readouterr().err
    assert all(f"row {row}" in said for row in (2, 3, 5))


def test_rows_of_a_bill_without_a_cost_are_counted_in_the_answer(fleet, tmp_path, capsys):
    row = "2026-09-01T00:00:00Z,2026-09-02T00:00:00Z,NULL,NULL,USD,Usage,n0,\n"
    (tmp_path / "bill.csv").write_text(CHARGES.replace("EUR", "USD") + row)

    assert run(fleet, "-q", "--focus", str(tmp_path / "bill.csv")) == 0

    assert "1 x bills: rows without a billed cost dropped." in " ".join(capsys.readouterr().out.split())
