"""`trimtab compare`, as a user types it: files of several forms, bundles, and what is wrong with a file."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from tests.fleets import FleetRows

from trimtab.cli.compare import command
from trimtab.errors import InputError
from trimtab.tables.bundle import write_bundle


def requests(seed, scale=1.0, count=3_000):
    rng = np.random.default_rng(seed)
    return {
        "start_s": np.sort(rng.uniform(0, 600, count)),
        "latency_ms": rng.lognormal(6.0, 0.4, count) * scale,
        "status_code": np.full(count, 200),
    }


def csv(path, table):
    rows = zip(*table.values(), strict=True)
    path.write_text("\n".join([",".join(table), *(",".join(map(str, row)) for row in rows)]) + "\n")
    return str(path)


def told(*arguments):
    found = CliRunner().invoke(command, [*arguments, "-o", "json"], catch_exceptions=False, standalone_mode=False)
    assert found.exit_code == 0, found.output
    return {row["what"]: row for row in json.loads(found.output)["rows"]}


def test_two_files_of_requests_are_compared(tmp_path):
    one = csv(tmp_path / "a.csv", requests(1))
    other = tmp_path / "b.parquet"
    pq.write_table(pa.table(requests(2)), other)

    rows = told(one, str(other), "--usd-hr", "10", "5")

    assert {row["verdict"] for row in rows.values()} == {"promote"}
    assert rows["$/request"]["change_frac"] == pytest.approx(-0.5, abs=0.02)


def test_a_slower_canary_is_rolled_back_in_words(tmp_path):
    files = [csv(tmp_path / f"{seed}.csv", requests(seed, scale)) for seed, scale in ((1, 1.0), (2, 1.4))]

    found = CliRunner().invoke(command, files, catch_exceptions=False)

    assert "ROLL BACK: p99 latency, s: surely worse" in " ".join(found.output.split())


@pytest.mark.parametrize(
    ("scale", "count", "verdict", "code"),
    [(1.0, 20_000, "promote", 0), (1.4, 3_000, "roll back", 4), (1.09, 300, "hold", 5)],
)
def test_the_exit_code_tells_the_verdict(tmp_path, scale, count, verdict, code):
    files = [csv(tmp_path / f"{seed}.csv", requests(seed, part, count)) for seed, part in ((1, 1.0), (2, scale))]

    found = CliRunner().invoke(command, [*files, "-o", "json"], catch_exceptions=False, standalone_mode=False)

    assert ({row["verdict"] for row in json.loads(found.output)["rows"]}, found.return_value) == ({verdict}, code)


def bench(path, seed):
    rng = np.random.default_rng(seed)
    result = {
        "duration": 100.0,
        "ttfts": rng.uniform(0.1, 0.2, 400).tolist(),
        "itls": rng.uniform(0.01, 0.02, (400, 20)).tolist(),
        "errors": [""] * 400,
    }
    path.write_text(json.dumps(result))
    return str(path)


def test_results_of_vllm_bench_are_read(tmp_path):
    rows = told(bench(tmp_path / "a.json", 1), bench(tmp_path / "b.json", 2))

    assert 0.4 < rows["p99 latency, s"]["present"] < 0.6
    assert rows["requests/s"]["present"] == pytest.approx(4.0, rel=0.02)


def served(path, instance_type, slower):
    """Two days of a service with a histogram of latencies."""
    rows = FleetRows(2).node("n", instance_type).hold("chat/api", "n", [0], owner_kind="Deployment")
    rows.use("chat/api", "n", 0, range(48), sm=0.5)
    counts = [900.0, 95.0 - slower, 5.0 + slower, 0.0]
    rows.demand("chat/api", lambda hour: 1000, 1, le_s=(0.5, 1.0, 2.0, float("inf")), counts=lambda hour: counts)
    bundle = rows.bundle()
    write_bundle(path, bundle.tables, bundle.meta, bundle.workloads)
    return str(path)


def test_two_bundles_are_compared_with_their_bills(tmp_path):
    rows = told(served(tmp_path / "a", "g5.12xlarge", 0.0), served(tmp_path / "b", "g5.xlarge", 0.0))

    assert rows["$/request"]["change_frac"] < -0.5
    assert rows["p99 latency, s"]["verdict"] == "promote"


def test_a_bundle_whose_latencies_rose_is_rolled_back(tmp_path):
    rows = told(served(tmp_path / "a", "g5.12xlarge", 0.0), served(tmp_path / "b", "g5.xlarge", 60.0))

    assert rows["p99 latency, s"]["verdict"] == "roll back"


def test_each_figure_says_for_itself_whether_it_is_worse(tmp_path):
    files = [csv(tmp_path / f"{seed}.csv", requests(seed, scale)) for seed, scale in ((1, 1.0), (2, 1.4))]

    rows = told(*files, "--split")

    assert rows["p99 latency, s"]["standing"] == "worse"
    assert rows["failed, share"]["standing"] == "fine"
    assert rows["requests/s"]["standing"] == "not judged"
    assert {row["verdict"] for row in rows.values()} == {"roll back"}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a,b\n1,2\n", "no column of latencies"),
        ("latency_s\n1\n", "when a request began"),
        ("latency_s,start_s\nslow,2\n", "not a number"),
        ("latency_s,start_s\n" + "1.0,5\n" * 50, "at least 100"),
        ("latency_s,start_s\n" + "1.0,5\n" * 200, "same moment"),
        ("latency_s,start_s\n-1.0,5\n" + "".join(f"1.0,{at}\n" for at in range(200)), "not above 0"),
    ],
)
def test_a_file_that_cannot_be_compared_says_why(tmp_path, text, words):
    path = tmp_path / "a.csv"
    path.write_text(text)

    with pytest.raises(InputError, match=words):
        CliRunner().invoke(command, [str(path), str(path)], catch_exceptions=False)


@pytest.mark.parametrize(("text", "words"), [("{", "not JSON"), ("{}", "save-detailed")])
def test_a_result_without_single_requests_says_how_to_have_them(tmp_path, text, words):
    path = tmp_path / "a.json"
    path.write_text(text)

    with pytest.raises(InputError, match=words):
        CliRunner().invoke(command, [str(path), str(path)], catch_exceptions=False)
