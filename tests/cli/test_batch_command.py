"""`trimtab batch tune` as a person types it."""

import json
import random

import pytest

from trimtab.cli import main

CURVE = "batch,ms\n1,5.1\n8,5.8\n32,8.2\n64,11.4\n"


@pytest.fixture
def run(program, monkeypatch, tmp_path):
    """Write a curve and Poisson arrivals, run the command; return exit code, standard output and standard error."""
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "curve.csv").write_text(CURVE)
    rng = random.Random(1)
    now, lines = 0.0, ["t_s"]
    for _ in range(4000):
        now += rng.expovariate(561)
        lines.append(f"{now:.6f}")
    (tmp_path / "arrivals.csv").write_text("\n".join(lines))

    return lambda *arguments: program("batch", "tune", "--curve", "curve.csv", "--arrivals", "arrivals.csv", *arguments)


def rows(text):
    return json.loads(text)["rows"]


def test_the_best_setting_keeps_the_target_and_spares_the_device(run):
    code, out, _ = run("--target-ms", "30", "-o", "json")

    best, greedy = rows(out)[0], rows(out)[-1]
    assert code == 0
    assert best["latency_s"] <= 0.030
    assert greedy["window_s"] == 0
    assert best["device_s_req"] < 0.5 * greedy["device_s_req"]


def test_windows_are_short_where_latency_is_what_counts(run):
    best = rows(run("--target-ms", "30", "--objective", "latency", "-o", "json")[1])[0]
    greedy = rows(run("--target-ms", "30", "-o", "json")[1])[-1]

    assert best["window_s"] < 0.0051
    assert 0.9 * greedy["latency_s"] < best["latency_s"] <= greedy["latency_s"]


def test_the_answer_is_a_line_to_write(run):
    _, out, _ = run("--target-ms", "30")

    assert "Write: @trimtab.batch(max_batch=64, min_batch=" in out
    assert "target_s=0.027)" in " ".join(out.split())


def test_the_settings_leave_the_stated_headroom(run):
    _, out, _ = run("--target-ms", "30")
    tight = rows(run("--target-ms", "30", "--headroom", "0.2", "-o", "json")[1])

    assert "within 27 ms in the replay: 10 % of the 30 ms" in " ".join(out.split())
    assert tight[0]["latency_s"] <= 0.024


def test_a_target_that_nothing_keeps_says_what_would_do(run):
    code, _, err = run("--target-ms", "6")

    assert code == 1
    assert "no setting keeps p95 within 6 ms" in err
    assert "561" in err or "requests a second" in err


def test_twice_the_rate_makes_larger_batches(run):
    single = rows(run("--target-ms", "30", "--objective", "latency", "-o", "json")[1])[0]
    double = rows(run("--target-ms", "30", "--objective", "latency", "--speedup", "2", "-o", "json")[1])[0]

    assert double["mean_batch"] > 1.5 * single["mean_batch"]


def test_replicas_share_the_arrivals(run):
    _, out, _ = run("--target-ms", "30", "--objective", "latency", "--replicas", "4", "-o", "json")

    assert rows(out)[0]["mean_batch"] < 1.6


def test_too_few_arrivals_are_an_error(run):
    code, _, err = run("--target-ms", "30", "--limit", "1")

    assert code == 2
    assert "fewer than two arrivals" in err


def test_the_group_shows_how_to_begin(capsys):
    with pytest.raises(SystemExit):
        main(["batch", "--help"])

    assert "trimtab batch tune --curve" in capsys.readouterr().out
