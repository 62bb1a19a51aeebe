"""`with profile()`: a thread beside the program, a document after it, never an exception into it."""

import json
import signal
import subprocess
import sys
import time

import pytest

from trimtab_runtime.profile import Profile, profile
from trimtab_runtime.profile.sampler import Sampler


def test_a_profile_says_what_the_gpus_did_and_how_fast_the_program_went(nvml_script, tmp_path):
    nvml_script("gpus 2\nset 0 util 70\nset 1 util 10\nset 0 sm 33")
    file = tmp_path / "profile.json"

    with profile(out=file, interval_s=0.01) as seen:
        seen.count(tokens=1000)
        time.sleep(0.3)
        seen.count(tokens=500)

    document = json.loads(file.read_text())
    assert (document["gpu"], document["gpus"], document["problem"]) == ("NVIDIA H100 80GB HBM3", 2, None)
    assert document["tok_s"] == 1500 / document["wall_s"]
    assert document["devices"][0]["metrics"]["gpu_util_frac"]["mean"] == 0.7
    assert document["devices"][1]["metrics"]["gpu_util_frac"]["p95"] == 0.1
    assert document["devices"][0]["metrics"]["nvlink_rx_gb_s"] is None
    assert document["samples"] > 5


def test_without_a_driver_the_program_runs_on_and_the_profile_says_why_it_is_empty(monkeypatch, tmp_path):
    monkeypatch.setenv("TRIMTAB_NVML", "/nonexistent/libnvidia-ml.so.1")
    file = tmp_path / "profile.json"

    with Profile(file):
        pass

    document = json.loads(file.read_text())
    assert "no NVIDIA driver here" in document["problem"]
    assert (document["gpu"], document["gpus"], document["devices"]) == (None, None, [])


def test_a_slow_call_of_the_driver_costs_samples_that_are_counted(nvml_script):
    nvml_script("gpus 1\nset 0 util 50\nslow 0 0 utilization 0")
    seen = Profile(interval_s=0.01)
    seen.start()
    sampler = seen._sampler
    fake = sampler._nvml._library
    fake.fake_slow(0, b"utilization", 300)
    time.sleep(0.5)
    seen.stop()

    document = seen.document()
    assert document["longest_sample_s"] >= 0.3
    assert document["samples_missed"] >= 20
    assert document["unobserved_s"] >= 0.2


def test_an_observer_that_fails_says_until_when_it_saw_anything(nvml_script, monkeypatch):
    nvml_script("gpus 1\nset 0 util 50")
    taken = Sampler.round

    def fails_later(sampler, now_s):
        taken(sampler, now_s)
        if sampler.rounds + len(sampler._seconds) == 3:
            raise ZeroDivisionError("no such thing")

    monkeypatch.setattr(Sampler, "round", fails_later)
    with Profile(interval_s=0.02) as seen:
        time.sleep(0.5)

    document = seen.document()
    assert "then: ZeroDivisionError" in document["problem"]
    assert document["samples"] == 3
    assert document["unobserved_s"] > 0.2


def test_memory_of_pytorchs_allocator_is_taken_from_a_loaded_torch(monkeypatch):
    import sys
    import types

    cuda = types.SimpleNamespace(
        is_available=lambda: True,
        is_initialized=lambda: True,
        device_count=lambda: 1,
        memory_stats=lambda index: {"num_alloc_retries": 2, "num_ooms": 0},
        max_memory_allocated=lambda index: 3 * 2**30,
        max_memory_reserved=lambda index: 4 * 2**30,
    )
    monkeypatch.setitem(sys.modules, "torch", types.SimpleNamespace(cuda=cuda))

    from trimtab_runtime.profile.host import torch_peaks

    assert torch_peaks() == [
        {
            "device": 0,
            "allocated_peak_gib": 3.0,
            "reserved_peak_gib": 4.0,
            "allocator_retries": 2,
            "out_of_memory_errors": 0,
        }
    ]


def test_a_call_that_does_not_come_back_is_left_alone_and_named(nvml_script, monkeypatch):
    nvml_script("gpus 1")
    monkeypatch.setattr("trimtab_runtime.profile.observation.STOP_S", 0.1)
    seen = Profile(interval_s=0.01).start()
    seen._sampler._nvml._library.fake_slow(0, b"utilization", 1500)
    time.sleep(0.1)

    seen.stop()

    assert seen.document()["problem"] == "a call of the driver has not come back"
    seen._thread.join()


STOPPED = """
import pathlib, signal, sys, time
def stop(number, frame):
    pathlib.Path(sys.argv[2]).write_text(f"saved on {number}")
    sys.exit(5)
signal.signal(signal.SIGTERM, stop)
signal.signal(signal.SIGHUP, stop)
pathlib.Path(sys.argv[1]).write_text("ready")
time.sleep(30)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_is_passed_on_to_the_program_and_the_record_is_written(monkeypatch, tmp_path, number):
    monkeypatch.setenv("TRIMTAB_NVML", "/nonexistent/libnvidia-ml.so.1")
    out, ready, saved = tmp_path / "profile.json", tmp_path / "ready", tmp_path / "saved"
    command = [sys.executable, "-m", "trimtab_runtime", "profile", "--out", out, "--"]
    running = subprocess.Popen([*command, sys.executable, "-c", STOPPED, ready, saved], stdout=subprocess.DEVNULL)
    for _ in range(1500):
        if ready.exists() and ready.read_text():
            break
        time.sleep(0.02)

    running.send_signal(number)

    assert running.wait(30) == 5
    assert saved.read_text() == f"saved on {int(number)}"
    assert json.loads(out.read_text())["wall_s"] > 0
