import numpy as np
from hypothesis import given, settings, strategies as st

from trimtab.sources.hour_grid import Cube, HourGrid, UsageKey
from trimtab.sources.prometheus.dcgm import GpuLabels
from trimtab.sources.prometheus.gpu_series import Tally
from trimtab.sources.prometheus.journal import HourSpan, Journal, identity_of

GRID = HourGrid(start_s=7200, hours=3)
readings = st.lists(st.floats(0, 1) | st.just(float("nan")), min_size=3, max_size=3)
names = st.text(st.characters(codec="utf-8"), max_size=4)


def span(values, pod="chat-0", bins=None):
    key = UsageKey("GPU-0", "prod", pod)
    labels = GpuLabels(
        device="GPU-0", uuid="GPU-0", product="A100", node="n0", mig_profile="", namespace="prod", pod=pod
    )
    cube = Cube(grid=GRID, values={"samples": {key: np.array(values)}, "sm_active_mean": {key: np.array(values)}})
    tally = Tally(devices={"GPU-0": labels}, counts={"clamped": 2})
    return HourSpan(cube=cube, bins={key: bins} if bins else {}, tally=tally, basis="raw samples")


@settings(max_examples=30)
@given(readings, names)
def test_a_span_comes_back_from_disk_as_it_was(tmp_path_factory, values, pod):
    journal = Journal(folder=tmp_path_factory.mktemp("journal"))
    kept = span(values, pod, {1: [0] * 100 + [7]})

    journal.write(GRID, kept)
    found = journal.read(GRID)

    assert found.cube.keys("sm_active_mean") == kept.cube.keys("sm_active_mean")
    (key,) = found.cube.keys("samples")
    np.testing.assert_array_equal(found.cube.of("sm_active_mean", key), np.array(values))
    assert (found.bins, found.tally, found.basis) == (kept.bins, kept.tally, kept.basis)


def test_a_span_that_was_cut_off_while_it_was_written_is_not_there(tmp_path):
    journal = Journal(folder=tmp_path)
    journal.write(GRID, span([1.0, 2.0, 3.0]))
    (whole,) = tmp_path.iterdir()

    whole.rename(whole.with_suffix(".new"))

    assert journal.read(GRID) is None


def test_another_server_or_another_way_to_read_it_has_a_journal_of_its_own(tmp_path):
    journal = Journal(folder=tmp_path)

    journal.of(identity_of("http://a", "")).write(GRID, span([1.0, 2.0, 3.0]))

    assert journal.of(identity_of("http://a", "")).holds(GRID)
    assert not journal.of(identity_of("http://a", 'cluster="b"')).holds(GRID)


def test_what_is_done_is_forgotten(tmp_path):
    journal = Journal(folder=tmp_path / "fleet.collecting")
    journal.of("x").write(GRID, span([1.0, 2.0, 3.0]))

    journal.remove()

    assert not (tmp_path / "fleet.collecting").exists()


def test_without_a_folder_nothing_is_kept():
    journal = Journal(folder=None)

    journal.write(GRID, span([1.0, 2.0, 3.0]))

    assert not journal.of("x").holds(GRID)
