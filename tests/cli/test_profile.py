"""`trimtab profile`: runs a program, says what the GPUs did, what it cost and why; through a fake driver library."""

import json
import sys
from pathlib import Path

import pytest

from trimtab.cli import main

REAL = Path(__file__).parents[1] / "data" / "profile_of_an_h100.json"
"""What `trimtab-runtime profile -- python ...` wrote on a real H100: matrix products for 0.5 ms of every 5 ms."""

BUSY = "gpus 2\n" + "\n".join(f"set {g} util 97\nset {g} sm 22\nset {g} tensor 9\nset {g} dram 12" for g in (0, 1))


def run(*arguments):
    with pytest.raises(SystemExit) as ended:
        main(["profile", *arguments])
    return ended.value.code


def sleep(seconds, code=0):
    return ("--", sys.executable, "-c", f"import time; time.sleep({seconds}); raise SystemExit({code})")


def test_the_page_shows_devices_cost_phases_roofline_and_the_cause(nvml_script, capsys):
    nvml_script(BUSY)

    code = run("--every", "10ms", "--usd-hr", "36", "--expect", "1h", *sleep(0.5))

    shown = capsys.readouterr().out
    assert code == 0
    assert "batch too small: kernels run 97% of the time on 22% of the SMs" in shown
    assert "at $36.00 an hour" in shown
    assert "$36.0000 to the end" in shown
    assert "light work" in shown
    assert "Roofline\n  · at most" in shown


def test_the_record_of_a_real_board_is_a_page_with_its_activity_over_time(tmp_path):
    file = tmp_path / "profile.html"

    assert run("--read", str(REAL), "-o", "html", "--out", str(file)) == 0

    page = file.read_text()
    assert "<h1>Profile: NVIDIA H100 80GB HBM3</h1>" in page
    assert "In 7 steps of 1.6 s: busy 0% to 25%; SM 0% to 20%; tensor 0% to 19%; DRAM 0% to 7%" in page
    assert "3.2 s to 9.6 s: light work" in page
    assert "Not seen" not in page


def test_a_page_in_markdown_goes_beside_the_record(nvml_script, capsys, tmp_path):
    nvml_script(BUSY)
    record = tmp_path / "profile.json"

    run("--every", "10ms", "--out", str(record), "-o", "markdown", *sleep(0.3))

    assert capsys.readouterr().out.startswith("# Profile: NVIDIA H100")
    assert json.loads(record.read_text())["kind"] == "trimtab profile"


def test_what_ended_an_observation_early_is_shown(capsys, tmp_path):
    cut = json.loads(REAL.read_text()) | {"problem": "observed until 0.8 s, then: OSError()"}
    file = tmp_path / "cut.json"
    file.write_text(json.dumps(cut))

    run("--read", str(file))

    assert "observed until 0.8 s, then: OSError()" in capsys.readouterr().out


def test_the_exit_code_is_that_of_the_program(nvml_script, capsys):
    nvml_script(BUSY)

    assert run("--every", "10ms", *sleep(0.05, code=7)) == 7


def test_the_json_feeds_fit_and_is_read_again(nvml_script, capsys, tmp_path):
    nvml_script(BUSY)
    file = tmp_path / "profile.json"

    run("--every", "10ms", "--tokens", "1M", "--out", str(file), *sleep(0.4))
    written = json.loads(file.read_text())
    capsys.readouterr()
    run("--read", str(file), "-o", "json")
    again = json.loads(capsys.readouterr().out)

    assert written["tok_s"] == pytest.approx(1e6 / written["wall_s"])
    assert again["verdict"] == written["verdict"]
    assert again["cost"]["usd_hr"] > 0
    with pytest.raises(SystemExit) as ended:
        main(["fit", "llama-3.1-8b", "--finetune", "lora", "--tokens", "2M", "--gpu", "H100", "--calibrate", str(file)])
    assert ended.value.code in (0, 1)
    assert "calibrat" in capsys.readouterr().out


def test_without_a_driver_the_program_still_runs_and_the_page_says_why_nothing_was_seen(monkeypatch, capsys):
    monkeypatch.setenv("TRIMTAB_NVML", "/nonexistent.so")

    code = run(*sleep(0.01, code=4))

    assert code == 4
    assert "no NVIDIA driver here" in capsys.readouterr().out


def test_watching_without_a_driver_is_an_error(monkeypatch, capsys):
    monkeypatch.setenv("TRIMTAB_NVML", "/nonexistent.so")

    assert run("--watch") == 1
    assert "no NVIDIA driver here" in capsys.readouterr().err


def test_watching_ends_after_the_asked_time_and_names_a_lost_gpu(nvml_script, capsys):
    nvml_script("gpus 2\nset 0 util 50\nfail 0 1 utilization 15")

    code = run("--watch", "--for", "300ms", "--every", "10ms")

    shown = capsys.readouterr().out
    assert code == 0
    assert "lost" in shown
    assert "GPU is lost" in shown


def test_a_process_that_is_not_there_is_an_error(nvml_script, capsys):
    nvml_script(BUSY)

    assert run("--pid", "4194304") == 1
    assert "there is no process" in capsys.readouterr().err


def test_exactly_one_thing_to_observe_must_be_given(capsys):
    assert run() == 2
    assert run("--watch", "--pid", "1") == 2


def test_a_trace_adds_what_counters_cannot_see(nvml_script, capsys, tmp_path):
    nvml_script("gpus 1\nset 0 util 40\nset 0 sm 20\nset 0 dram 5")
    trace = tmp_path / "trace.json"
    events = [
        {"ph": "X", "cat": "kernel", "name": "gemm", "ts": 0, "dur": 300_000},
        {"ph": "X", "cat": "user_annotation", "name": "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__",
         "ts": 300_000, "dur": 700_000},
    ]  # fmt: skip
    trace.write_text(json.dumps({"traceEvents": events}))

    run("--every", "10ms", "--trace", str(trace), *sleep(0.3))

    assert "CPU input: 70% of the trace waits for the data loader" in capsys.readouterr().out


def test_a_bundle_of_three_days_can_be_audited(tmp_path, nvml_script, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)  # what an audit keeps lies in the working folder
    hours = [
        {"start_epoch_s": 1_780_000_000 // 3600 * 3600 + 3600 * k, "samples": 3600, "power_mean_w": 300.0,
         "gpu_util_frac": spread(0.9), "sm_active_frac": spread(0.2), "dram_active_frac": spread(0.1),
         "memory_max_gib": 20.0, "memory_mean_gib": 20.0}
        for k in range(72)
    ]  # fmt: skip
    device = {"index": 0, "uuid": "GPU-0", "name": "NVIDIA H100 80GB HBM3", "memory_gib": 80.0, "hours": hours}
    profile = {
        "schema_version": 1, "gpu": "NVIDIA H100 80GB HBM3", "gpus": 1, "interval_s": 1.0, "wall_s": 72 * 3600.0,
        "started_epoch_s": 1_780_000_000 // 3600 * 3600, "devices": [device],
    }  # fmt: skip
    file, bundle = tmp_path / "profile.json", tmp_path / "fleet"
    file.write_text(json.dumps(profile))

    assert run("--read", str(file), "--out", str(bundle)) == 0
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        main(["audit", str(bundle), "-q", "-o", "markdown"])

    assert ended.value.code == 0
    assert "batch too small" in capsys.readouterr().out


def spread(value):
    return {"mean": value, "p50": value, "p95": value, "min": value, "max": value, "seen_s": 3600.0}


def test_the_live_view_has_a_row_a_device_and_the_dollars_to_the_end():
    from trimtab.cli.profile.run import live_table
    from trimtab.tables.profile_file import checked_profile

    device = {"index": 0, "uuid": "GPU-0", "name": "x", "metrics": {"gpu_util_frac": spread(0.5)}}
    seen = checked_profile(
        {"schema_version": 1, "started_epoch_s": 0, "wall_s": 1800, "interval_s": 1, "devices": [device]}
    )

    table = live_table(seen, 4.0, 7200.0)

    assert table.row_count == 1
    assert table.caption == "30.0 min at $4.00 an hour: $2.0000 so far, $8.0000 to the end"
