"""What the script plays is what the profile says: values, faults, devices that go and come back."""

import random

import pytest

from trimtab_runtime.errors import ProfileError
from trimtab_runtime.profile.metrics import Metric
from trimtab_runtime.profile.nvml import Nvml
from trimtab_runtime.profile.sampler import Sampler
from trimtab_runtime.profile.sketch import MOST_BINS


def spreads(played, place=0):
    return played.sampler.devices[place].record.so_far()


def troubles(played):
    return {(one.what, one.answer) for one in played.sampler.troubles.values()}


def test_peak_and_p95_are_those_of_the_script_to_within_one_sample(player):
    rng = random.Random(3)
    utils = [rng.randrange(101) for _ in range(1000)]
    powers = [rng.randrange(70_000, 700_000) for _ in range(1000)]
    lines = [
        f"at {k + 1} 0 util {u}\nat {k + 1} 0 power {p}" for k, (u, p) in enumerate(zip(utils, powers, strict=True))
    ]
    played = player("gpus 1\n" + "\n".join(lines))

    played.play(1000)

    seen = spreads(played)
    for metric, truth in ((Metric.GPU_UTIL, [u / 100 for u in utils]), (Metric.POWER, [p / 1000 for p in powers])):
        ordered = sorted(truth)
        assert seen[metric].high == ordered[-1]
        assert ordered[948] <= seen[metric].p95 <= ordered[950]
        assert seen[metric].mean == pytest.approx(sum(truth) / 1000)


def test_profiling_metrics_are_read_where_the_board_has_them(player):
    played = player("gpus 1\nset 0 sm 42.5\nset 0 tensor 12.25\nset 0 dram 61\nset 0 pcie_rx 1000")

    played.play(10)

    seen = spreads(played)
    assert seen[Metric.SM_ACTIVE].mean == pytest.approx(0.425)
    assert seen[Metric.TENSOR_ACTIVE].mean == pytest.approx(0.1225, abs=0.0006)
    assert seen[Metric.DRAM_ACTIVE].mean == pytest.approx(0.61)
    assert seen[Metric.PCIE_RX].mean == pytest.approx(1.048576)


def test_a_reading_stands_for_the_time_since_the_one_before(player):
    played = player("gpus 1\nset 0 util 100\nat 2 0 util 0")
    sampler = played.sampler

    played._fake.fake_tick(1)
    sampler.round(1.0)
    played._fake.fake_tick(2)
    sampler.round(4.0)
    sampler.flush()

    assert spreads(played)[Metric.GPU_UTIL].mean == pytest.approx(0.25)


def test_time_that_nobody_saw_counts_as_unobserved_and_not_as_the_next_reading(player):
    played = player("gpus 1\nset 0 util 50")

    played.sampler.round(1.0)
    played.sampler.round(101.0)
    played.sampler.flush()

    assert played.sampler.unobserved_s == 96.0
    assert spreads(played)[Metric.GPU_UTIL].seconds == 5.0


def test_a_reading_that_the_board_does_not_support_is_absent_with_its_reason(player):
    played = player("gpus 1\nset 0 gpm 0\nfail 0 0 utilization 3\nfail 0 0 reasons 4")

    played.play(20)

    absent = played.sampler.devices[0].readings.absent
    assert Metric.GPU_UTIL not in spreads(played)
    assert Metric.SM_ACTIVE not in spreads(played)
    assert absent["utilization"] == "not supported"
    assert absent["throttle reasons"] == "no permission"
    assert "Hopper" in absent["SM, tensor and DRAM activity"]


def test_a_lost_gpu_is_reported_and_its_neighbour_goes_on(player):
    played = player("gpus 2\nset 0 util 80\nset 1 util 40\nfail 10 0 * 15")

    played.play(30)

    lost, other = played.sampler.devices
    assert (lost.lost_at_s, lost.lost_times) == (10.0, 1)
    assert spreads(played, 0)[Metric.GPU_UTIL].mean == 0.8
    assert spreads(played, 0)[Metric.GPU_UTIL].seconds == 9.0
    assert spreads(played, 1)[Metric.GPU_UTIL].seconds == 30.0
    assert played.sampler.lost_s(lost, 30.0) == 20.0
    assert other.lost_at_s is None
    assert ("utilization", "GPU is lost") in troubles(played) or ("memory", "GPU is lost") in troubles(played)


def test_a_gpu_that_comes_back_is_read_again_and_its_absence_is_not_filled(player):
    played = player("gpus 1\nset 0 util 80\nset 0 energy 9000000\nfail 10 0 * 15\nheal 20 0 *\nat 20 0 energy 5")

    played.play(60)

    device = played.sampler.devices[0]
    assert device.lost_at_s is None
    assert 9 <= device.lost_s <= 16
    assert spreads(played)[Metric.GPU_UTIL].seconds == pytest.approx(60 - device.lost_s, abs=1)
    assert device.record.energy_mj == 0


def test_a_counter_that_falls_is_a_reset_and_adds_nothing(player):
    lines = "\n".join(f"at {k} 0 energy {k * 1000}" for k in range(1, 11))
    lines += "\n" + "\n".join(f"at {k} 0 energy {(k - 11) * 1000}" for k in range(11, 21))
    played = player(f"gpus 1\n{lines}")

    played.play(20)

    record = played.sampler.devices[0].record
    assert record.counter_resets == 1
    assert record.energy_mj == 9_000 + 9_000


def test_mig_instances_have_memory_and_activity_of_their_own_and_no_power(player):
    played = player("gpus 1\nset 0 mig 2\nset 0 sm 30\nset 0 used 16384")

    played.play(10)

    board, first, second = played.sampler.devices
    assert (board.has_instances, first.is_mig, second.is_mig) == (True, True, True)
    assert first.identity.mig_profile == "1g.10gb"
    assert first.identity.parent == "GPU-0"
    assert spreads(played, 1)[Metric.MEMORY_USED].high == 2.0
    assert spreads(played, 1)[Metric.SM_ACTIVE].mean == pytest.approx(0.3)
    assert Metric.POWER not in spreads(played, 1)
    assert Metric.GPU_UTIL not in spreads(played, 0)
    assert board.readings.absent["utilization"] == "not supported"


def test_a_call_that_fails_now_and_then_leaves_gaps_and_is_counted(player):
    played = player("gpus 1\nset 0 util 60\nfail 5 0 utilization 999\nheal 8 0 utilization")

    played.play(20)

    assert spreads(played)[Metric.GPU_UTIL].seconds == 17.0
    [trouble] = played.sampler.troubles.values()
    assert (trouble.answer, trouble.times, trouble.first_s, trouble.last_s) == ("unknown", 3, 5.0, 7.0)


def test_utilization_above_a_hundred_percent_is_clamped_and_counted(player):
    played = player("gpus 1\nset 0 util 140")

    played.play(4)

    assert spreads(played)[Metric.GPU_UTIL].high == 1.0
    assert played.sampler.devices[0].record.clamped == 4


def test_a_reading_that_is_no_number_is_absent_whatever_else_was_absent_beside_it(player):
    """An H200's driver gave such values with the answer "success" in the first second, where the first sample has none."""
    played = player("gpus 1\nset 0 sm 40\nset 0 dram 20\nat 2 0 sm nan\nat 2 0 dram inf\nat 3 0 sm 60\nat 3 0 dram 30")

    played.play(10)

    seen = spreads(played)
    assert (seen[Metric.SM_ACTIVE].low, seen[Metric.SM_ACTIVE].high) == (0.6, 0.6)
    assert (seen[Metric.DRAM_ACTIVE].low, seen[Metric.DRAM_ACTIVE].high) == (0.3, 0.3)


def test_throttling_is_a_share_of_time_by_reason(player):
    played = player("gpus 1\nat 6 0 reasons 4\nat 9 0 reasons 68")

    played.play(10)

    record = played.sampler.devices[0].record
    assert {bit: held / record.reasons_s for bit, held in record.throttled_s.items()} == {0x4: 0.5, 0x40: 0.2}


def test_processes_keep_their_peak_and_an_unknown_amount_stays_unknown(player):
    played = player("gpus 1\nprocess 0 4242 2048\nprocess 0 4243 -1")

    played.play(6)

    assert played.sampler.devices[0].record.process_peak_bytes == {4242: 2 * 2**30, 4243: None}


def test_a_gpu_that_cannot_be_opened_is_named_with_its_reason(player):
    played = player("gpus 2\nfail 0 1 handle 15")

    assert len(played.sampler.devices) == 1
    assert [(one.index, one.reason) for one in played.sampler.unreadable] == [(1, "GPU is lost")]


def test_no_driver_behind_the_library_is_an_error_that_says_so(nvml_script):
    with pytest.raises(ProfileError, match="driver not loaded"):
        Nvml(nvml_script("gpus 0\ninit 9"))


def test_no_library_at_all_is_an_error_that_says_so():
    with pytest.raises(ProfileError, match="no NVIDIA driver here"):
        Nvml("/nonexistent/libnvidia-ml.so.1")


def test_no_gpu_is_no_device_and_no_crash(player):
    played = player("gpus 0")

    played.play(3)

    assert played.sampler.devices == []


CALLS = (
    "utilization",
    "memory",
    "clock",
    "reasons",
    "power",
    "fields",
    "gpm",
    "processes",
    "energy",
    "power_instant",
    "*",
)


@pytest.mark.parametrize("code", [1, 2, 3, 4, 6, 7, 9, 10, 13, 15, 16, 17, 18, 19, 20, 21, 23, 25, 28, 999, 4711])
@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("tick", [0, 10])
def test_no_failure_goes_unreported_and_none_reads_as_zero(player, call, code, tick):
    text = "gpus 2\n" + "\n".join(f"set {gpu} {key} 50" for gpu in (0, 1) for key in ("util", "sm", "dram", "tensor"))
    if call == "power":  # asked for only where there is no instantaneous power
        text += "\nfail 0 0 power_instant 3\nfail 0 1 power_instant 3"
    played = player(f"{text}\nfail {tick} 0 {call} {code}")

    played.play(40)

    broken, healthy = None, played.sampler.devices[-1]
    for device in played.sampler.devices:
        if device.identity.uuid != "GPU-1":
            broken = device
    reported = bool(
        played.sampler.unreadable
        or any(key[0] != "GPU-1" for key in played.sampler.troubles)
        or (broken is not None and set(broken.readings.absent) - set(healthy.readings.absent))
        or (broken is not None and broken.processes_absent)
    )
    assert reported, (call, code)
    for metric, one in (broken.record.so_far() if broken else {}).items():
        if metric in (Metric.GPU_UTIL, Metric.SM_ACTIVE, Metric.DRAM_ACTIVE, Metric.TENSOR_ACTIVE):
            assert one.low == 0.5, metric
    assert healthy.record.so_far()[Metric.GPU_UTIL].seconds == 40.0


def test_thirty_days_fit_into_bounded_memory_and_keep_a_row_an_hour(player):
    played = player("gpus 1\nset 0 util 50", interval_s=60.0)

    played.play(30 * 24 * 60 - 1)
    played.sampler.close_hour(30 * 24 * 3600.0)

    record = played.sampler.devices[0].record
    assert len(record.hours) == 30 * 24
    assert record.timeline.slots <= 512
    assert all(len(sketch.bins) <= MOST_BINS for sketch in record.whole.values())
    assert isinstance(played.sampler, Sampler)
