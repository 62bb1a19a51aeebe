"""`trimtab prices` as a person types it."""

import csv
import io
import json
from functools import partial

import pytest

from trimtab.cli import COMMANDS


@pytest.fixture
def run(program, monkeypatch):
    """Run the command; return exit code, standard output and standard error."""
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.delenv("TRIMTAB_PRICES", raising=False)

    return partial(program, "prices")


def rows(text):
    return json.loads(text)["rows"]


def test_help_line_of_the_group_is_that_of_the_command(run):
    code, out, _ = run("--help")

    assert code == 0
    assert COMMANDS["prices"][1] in out
    assert "trimtab prices --gpu H100" in out


def test_list_is_cheapest_gpu_hour_first_and_fits_80_columns(run):
    code, out, _ = run("--gpu", "H100", "--provider", "aws", "--at", "2026-08-03")

    assert code == 0
    assert all(len(line) <= 80 for line in out.splitlines())
    assert "aws p5.48xlarge" in out
    assert "26.419~" in out, "derived spot is marked"
    assert out.index("p5.48xlarge") < out.index("p5.4xlarge")


def test_json_rows_are_complete_and_sorted(run):
    _, out, _ = run("--gpu", "Tesla T4", "--at", "2026-08-03", "-o", "json")

    found = rows(out)
    assert {row["gpu"] for row in found} == {"T4"}
    assert [row["usd_gpu_hr"] for row in found] == sorted(row["usd_gpu_hr"] for row in found)
    assert all(row["source"] and row["as_of"] and row["basis"] for row in found)


def test_price_of_a_past_day(run):
    arguments = (
        "--type",
        "p5.48xlarge",
        "--region",
        "us-east-1",
        "--option",
        "on-demand",
        "-o",
        "csv",
        "--fields",
        "usd_hr",
    )

    assert run(*arguments, "--at", "2025-05-01")[1].split() == ["usd_hr", "98.32"]
    assert run(*arguments, "--at", "2026-08-03")[1].split() == ["usd_hr", "55.04"]


def test_old_rates_warn_on_standard_error_and_fresh_ones_do_not(run):
    arguments = ("--provider", "gcp", "--gpu", "L4", "--option", "spot", "-o", "csv")

    assert run(*arguments, "--at", "2026-08-03")[2] == ""
    _, out, err = run(*arguments, "--at", "2027-01-01")
    assert "rates were last confirmed more than 120 days before 2027-01-01" in err
    assert "warning" not in out
    assert {row["stale"] for row in csv.DictReader(io.StringIO(out))} == {"True"}


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (("--gpu", "H10"), "did you mean H100"),
        (("--provider", "asw"), "did you mean aws"),
        (("--provider", "aws", "--type", "p5.48xlarg"), "did you mean p5.48xlarge"),
        (("--provider", "aws", "--region", "us-east"), "did you mean us-east-1"),
        (("--gpu", "T4", "-o", "csv", "--fields", "usd"), "did you mean usd_gpu_hr, usd_hr"),
        (("--at", "2019-01-01"), "the first known rate is of 2022-06-23"),
        (("--type", "p5.48xlarge", "--option", "reserved-1y"), "not known to be sold that way"),
    ],
)
def test_a_question_without_an_answer_says_why(run, arguments, hint):
    code, out, err = run(*arguments)

    assert code == 1
    assert out == ""
    assert hint in err


def test_a_date_that_is_none_is_a_usage_error(run):
    code, _, err = run("--at", "yesterday")

    assert code == 2
    assert "write 2026-07-20" in err


def test_shapes_that_nobody_can_buy_show_only_when_asked_for(run):
    arguments = ("--type", "a3-highgpu-1g", "--region", "us-central1", "-o", "json")

    assert [row["option"] for row in rows(run(*arguments)[1])] == ["spot"]
    both = {row["option"]: row["purchasable"] for row in rows(run(*arguments, "--all")[1])}
    assert both == {"spot": True, "on-demand": False}


def test_matrix_has_every_board_with_dense_rates_and_months(run):
    _, out, _ = run("--gpus", "-o", "json", "--at", "2026-08-03", "--provider", "aws", "--region", "us-east-1")

    boards = {row["gpu"]: row for row in rows(out)}
    assert len(boards) >= 39
    assert boards["H100-SXM5-80GB"]["fp16_tflops"] == 989.4
    assert boards["H100-SXM5-80GB"]["on_demand_usd_mo"] == pytest.approx(5022.4)
    # 989.4 TFLOPS and 3,350 GB/s
    assert boards["H100-SXM5-80GB"]["usd_mo_per_fp16_tflops"] == pytest.approx(5022.4 / 989.4, rel=1e-3)
    assert boards["H100-SXM5-80GB"]["usd_mo_per_gb_s"] == pytest.approx(5022.4 / 3350, rel=1e-2)
    assert boards["H100-SXM5-80GB"]["committed_usd_mo"] is None
    assert boards["A100-SXM4-80GB"]["committed_usd_mo"] == pytest.approx(1587.87, abs=0.01)
    assert boards["L40S"]["mig_instances"] == 0


def test_matrix_names_the_offering_behind_a_price(run):
    _, out, _ = run("--gpus", "--gpu", "H100", "-o", "json", "--at", "2026-08-03", "--provider", "gcp")

    assert rows(out)[0]["spot_offering"] == "gcp a3-highgpu-2g in europe-north1, spot, as of 2026-08-03"


def test_matrix_shows_a_board_that_nobody_sells(run):
    code, out, _ = run("--gpus", "--gpu", "MI250X")

    assert code == 0
    assert "MI250X" in out


def test_matrix_fits_80_columns_and_marks_doubt(run):
    _, out, _ = run("--gpus", "--at", "2026-08-03")

    assert all(len(line) <= 80 for line in out.splitlines())
    assert "150?" in out


def test_own_rates_go_over_the_list(run, tmp_path):
    own = tmp_path / "own.csv"
    own.write_text("provider,instance_type,option,usd_hr\naws,p5.48xlarge,on-demand,40\n", encoding="utf-8")

    _, out, _ = run(
        "--prices", str(own), "--type", "p5.48xlarge", "--region", "us-east-1", "--option", "on-demand", "-o", "json"
    )

    assert [(row["usd_hr"], row["basis"]) for row in rows(out)] == [(40.0, "negotiated")]


def test_answer_goes_to_a_file_when_asked(run, tmp_path):
    path = tmp_path / "prices.md"

    code, out, _ = run("--gpu", "A30", "-o", "markdown", "--out", str(path))

    assert (code, out) == (0, "")
    assert path.read_text(encoding="utf-8").startswith("| gpu | instance type |")


def test_table_says_how_many_shapes_it_left_out(run):
    _, out, _ = run("--limit", "5")

    assert "5 of " in out
