"""`trimtab prices compare` as a person types it."""

import json

import pytest


@pytest.fixture
def run(program, monkeypatch):
    """Compare; return exit code, standard output and standard error."""
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.delenv("TRIMTAB_PRICES", raising=False)

    return lambda *arguments: program("prices", "compare", *arguments, "--at", "2026-08-03")


def rows(text):
    return json.loads(text)["rows"]


def test_a_name_that_leaves_the_memory_open_compares_every_such_board(run):
    code, out, _ = run("A100", "--term", "3y", "-o", "json")

    assert code == 0
    assert {row["gpu"] for row in rows(out)} == {
        "A100-SXM4-40GB",
        "A100-SXM4-80GB",
        "A100-PCIe-40GB",
        "A100-PCIe-80GB",
    }


def test_the_year_is_of_whole_nodes_under_the_term(run):
    _, out, _ = run("A100-40GB", "--term", "3y", "--region", "us-central1", "--provider", "gcp", "-o", "json")

    (row,) = rows(out)
    assert row["usd_year"] == pytest.approx(8 * 1.2857 * 8760)
    assert row["reserved_3y_usd_gpu_hr"] == 1.2857
    assert row["saving_frac"] == pytest.approx(1 - 1.2857 / 3.673385, abs=1e-4)


def test_nodes_that_hold_more_than_is_wanted_are_paid_whole(run):
    _, out, _ = run("H100", "--provider", "azure", "--region", "eastus", "--count", "9", "-o", "json")

    row = next(row for row in rows(out) if row["gpu"] == "H100-SXM5-80GB")
    assert row["nodes"] == 2
    assert row["usd_year"] == pytest.approx(2 * 98.32 * 8760)


def test_a_rate_that_is_not_known_is_missing_and_comes_last(run):
    _, out, _ = run("H100", "--term", "3y", "--provider", "aws", "-o", "json")

    assert rows(out)
    assert all(row["usd_year"] is None and row["reserved_3y_usd_gpu_hr"] is None for row in rows(out))
    _, table, _ = run("A100", "--term", "3y", "--limit", "0")
    assert table.index("us-central1") < table.index("us-east-2")
    assert "5 of" in table
    assert "– is missing" in table


def test_derived_rates_are_marked_and_old_ones_told_of(run):
    _, out, _ = run("L4", "--term", "spot", "--provider", "aws")

    assert "~ derived from a published average saving" in out
    assert "older than 120 days" in out


def test_an_unknown_gpu_or_provider_is_named_with_what_is_near(run):
    code, _, err = run("H10O")
    assert (code, "H10O" in err) == (1, True)
    code, _, err = run("H100", "--provider", "amazon")
    assert (code, "amazon" in err) == (1, True)


def test_a_rate_is_told_by_compute_by_bandwidth_and_with_its_network(run):
    _, out, _ = run("H100-SXM5-80GB", "--provider", "aws", "--region", "us-east-1", "-o", "json")

    row = next(row for row in rows(out) if row["instance_type"] == "p5.48xlarge")
    # 55.04 USD an hour for 8 boards: 6.88 x 730 h over 989.4 dense TFLOPS and over 3,350 GB/s
    assert row["usd_mo_per_tflops"] == pytest.approx(5.08, abs=0.005)
    assert row["usd_mo_per_gb_s"] == pytest.approx(1.50, abs=0.005)
    assert row["network_gbit_s"] == 3200
    assert row["network_kind"] == "EFA x32"
    assert "karpenter" in row["network_source"]


def test_commitments_for_a3_are_known_in_every_place_that_sells_it(run):
    _, out, _ = run("H100-SXM5-80GB", "--provider", "gcp", "--term", "1y", "-o", "json")

    assert all(row["usd_year"] is not None for row in rows(out))
    # list of 2025-03-06: 44,810.08 USD a month on demand 64,597.70
    iowa = next(row for row in rows(out) if row["region"] == "us-central1")
    assert iowa["saving_frac"] == pytest.approx(1 - 44810.08 / 64597.70, abs=0.001)
