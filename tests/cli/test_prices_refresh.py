"""`trimtab prices refresh` as a person types it, against lists on loopback."""

import csv
import io
import json

import pytest
from tests.sources.answering_server import answering
from tests.sources.recorded_prices import AWS_CSV, GCP_SKUS, everything

from trimtab.catalog import BuyingOption, load_catalog

LISTS = ("aws-bulk", "aws-advisor", "gcp", "azure")


@pytest.fixture
def server():
    with answering(everything) as (script, url):
        script.url = url
        yield script


@pytest.fixture
def run(program, monkeypatch, server, tmp_path):
    """Refresh a file of the test's folder; return exit code, standard output and standard error."""
    for name in ("TRIMTAB_PRICES", "TRIMTAB_GCP_TOKEN", "TRIMTAB_GCP_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TRIMTAB_PRICE_ENDPOINTS", " ".join(f"{name}={server.url}" for name in LISTS))
    monkeypatch.chdir(tmp_path)

    return lambda *arguments: program("prices", "refresh", *arguments)


AWS = ("--provider", "aws", "--region", "us-east-1")


def test_all_three_lists_become_one_price_file(run, tmp_path):
    places = ("us-east-1", "us-central1", "eastus")
    wanted = [part for place in places for part in ("--region", place)]

    code, out, err = run("--provider", "aws", "--provider", "gcp", "--provider", "azure", *wanted, "-o", "json")

    assert code == 0, err
    changed = {(row["instance_type"], row["option"]): row for row in json.loads(out)["rows"]}
    assert changed["Standard_NC24ads_A100_v4", "spot"]["change"] == "new"
    assert "1 x aws: dedicated tenancy" in err
    book = load_catalog(tmp_path / "prices.csv").prices
    price = book.price("gcp", "a2-highgpu-1g", "us-central1", BuyingOption.RESERVED_3Y)
    assert price.usd_hr == pytest.approx(1.0269 + 12 * 0.011064 + 85 * 0.001483, abs=1e-6)
    assert (price.source, price.basis.value) == ("gcp-billing-catalog", "listed")
    spot = book.price("aws", "p4d.24xlarge", "us-east-1", BuyingOption.SPOT)
    assert (spot.basis.value, spot.interruption.value) == ("derived", ">20%")


def test_a_dry_run_shows_and_writes_nothing(run, tmp_path):
    code, out, _ = run(*AWS, "--dry-run")

    assert code == 0
    assert "p4d.24xlarge" in out
    assert "8.5000" in out, "what is new"
    assert "21.9576" not in out, "what is confirmed"
    assert list(tmp_path.iterdir()) == []


def test_the_second_refresh_says_what_changed_and_what_vanished(run, server, tmp_path):
    run(*AWS)

    def later(asked):
        if asked.path.startswith("/offers") and asked.path.endswith(".csv"):
            rows = [row for row in AWS_CSV.replace("21.9576", "20.5").splitlines() if "g6.xlarge" not in row]
            return 200, {}, "\n".join(rows).encode()
        return everything(asked)

    server.answer = later
    code, out, err = run(*AWS, "-o", "json")

    assert code == 0, err
    by_offer = {(row["instance_type"], row["option"]): row for row in json.loads(out)["rows"]}
    assert by_offer["p4d.24xlarge", "on-demand"]["change"] == "changed"
    assert by_offer["p4d.24xlarge", "on-demand"]["after_usd_hr"] == 20.5
    assert by_offer["g6.xlarge", "on-demand"]["change"] == "vanished"
    assert (
        not load_catalog(tmp_path / "prices.csv").prices.options(
            "aws", "g6.xlarge", "us-east-1", purchasable_only=True
        )[:1]
        or by_offer["g6.xlarge", "spot"]["change"] == "vanished"
    )


def test_where_a_list_fails_the_file_stays_as_it_was(run, server, tmp_path):
    run(*AWS)
    before = (tmp_path / "prices.csv").read_bytes()
    server.answer = lambda asked: (404, {}, b"gone") if asked.path.endswith(".csv") else everything(asked)

    code, _, err = run(*AWS)

    assert code == 1
    assert "stays unchanged" in err
    assert (tmp_path / "prices.csv").read_bytes() == before


def test_with_keep_going_the_other_lists_are_written(run, server, tmp_path):
    server.answer = lambda asked: (404, {}, b"gone") if asked.path.endswith(".csv") else everything(asked)

    code, _, err = run("--provider", "aws", "--provider", "azure", "--keep-going")

    assert code == 1, "it was not all that was asked for"
    assert "aws:" in err
    written = list(csv.DictReader(io.StringIO((tmp_path / "prices.csv").read_text(encoding="utf-8"))))
    assert {row["provider"] for row in written} == {"azure"}


def test_a_list_that_lost_most_of_its_rates_is_not_believed(run, server, tmp_path):
    gcp = ("--provider", "gcp", "--region", "us-central1")
    run(*gcp)
    before = (tmp_path / "prices.csv").read_bytes()
    ultra = ("A2 Instance", "Nvidia Tesla A100 80GB", "SSD backed")

    def emptied(_asked):
        return 200, {}, json.dumps({"skus": [sku for sku in GCP_SKUS if sku["description"].startswith(ultra)]}).encode()

    server.answer = emptied
    code, _, err = run(*gcp)
    assert (code, "looks broken" in err) == (1, True)
    assert (tmp_path / "prices.csv").read_bytes() == before

    code, _, err = run(*gcp, "--accept-vanished")
    assert code == 0, err


def test_rates_of_ones_own_stay_in_the_file_and_stand(run, tmp_path):
    (tmp_path / "prices.csv").write_text(
        "provider,instance_type,region,option,usd_hr,note\naws,p4d.24xlarge,any,on-demand,17.5,private offer\n",
        encoding="utf-8",
    )

    code, _, err = run(*AWS)

    assert code == 0, err
    assert "1 x list rate replaced by your own" in err
    book = load_catalog(tmp_path / "prices.csv").prices
    own = book.price("aws", "p4d.24xlarge", "us-east-1", BuyingOption.ON_DEMAND)
    assert (own.usd_hr, own.note) == (17.5, "private offer")
    assert book.price("aws", "g6.xlarge", "us-east-1", BuyingOption.ON_DEMAND).source == "aws-price-list"


def test_owned_nodes_of_a_yaml_file_stay(run, tmp_path):
    owned = (
        "owned:\n  - {instance_type: dgx, gpu: H100-SXM5-80GB, gpu_count: 8, capital_usd: 350000, years: 4, power_w: 8000,"
        " pue: 1.3, electricity_usd_kwh: 0.11}\n"
    )
    (tmp_path / "rates.yaml").write_text(owned, encoding="utf-8")

    code, _, err = run(*AWS, "--to", "rates.yaml")

    assert code == 0, err
    book = load_catalog(tmp_path / "rates.yaml").prices
    assert book.price("owned", "dgx", "any", BuyingOption.OWNED).usd_hr > 0
    assert book.price("aws", "p4d.24xlarge", "us-east-1", BuyingOption.ON_DEMAND).usd_hr == 21.9576


def test_googles_list_without_a_key_says_what_it_needs(run, monkeypatch):
    monkeypatch.delenv("TRIMTAB_PRICE_ENDPOINTS")

    code, _, err = run("--provider", "gcp")

    assert code == 2
    assert "TRIMTAB_GCP_API_KEY" in err


def test_the_file_that_the_environment_names_need_not_be_there_yet(run, monkeypatch, tmp_path):
    monkeypatch.setenv("TRIMTAB_PRICES", str(tmp_path / "prices.csv"))

    code, _, err = run(*AWS, "--to", str(tmp_path / "prices.csv"))

    assert code == 0, err
    assert (tmp_path / "prices.csv").exists()
