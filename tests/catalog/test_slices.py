"""A board in slices: what each is, and that the board can hold so many."""

import pytest

from trimtab.catalog import load_catalog
from trimtab.catalog.kinds import Precision
from trimtab.catalog.mig import place, slices_of

CATALOG = load_catalog()
CUT = [gpu for gpu in CATALOG.gpus if slices_of(gpu, CATALOG.mig_table)]


def test_an_a100_is_cut_into_up_to_seven_and_4g_leaves_room_beside_it():
    cuts = slices_of(CATALOG.gpu("A100-SXM4-40GB"), CATALOG.mig_table)

    assert [(one.profile.name, one.per_gpu) for one in cuts] == [
        ("1g.5gb", 7), ("1g.10gb", 4), ("2g.10gb", 3), ("3g.20gb", 2), ("4g.20gb", 1),
    ]  # fmt: skip


def test_a_slice_has_its_visible_memory_an_eighth_of_bandwidth_and_14_of_108_processors():
    gpu = CATALOG.gpu("A100-SXM4-40GB")

    smallest = slices_of(gpu, CATALOG.mig_table)[0].slice

    assert smallest.memory_gib == pytest.approx(4.75)
    assert smallest.mem_bw_gb_s == pytest.approx(gpu.mem_bw_gb_s / 8)
    assert smallest.tflops(Precision.BF16) == pytest.approx(gpu.tflops(Precision.BF16) * 14 / 108)


@pytest.mark.parametrize("gpu", CUT, ids=lambda gpu: gpu.name)
def test_every_cut_is_a_layout_that_the_board_takes_and_no_slice_is_more_than_its_part(gpu):
    for cut in slices_of(gpu, CATALOG.mig_table):
        assert place([cut.profile] * cut.per_gpu) is not None
        assert cut.slice.memory_gib * cut.per_gpu <= gpu.memory_gib * 1.02
        assert cut.slice.fp32_tflops * cut.per_gpu <= gpu.fp32_tflops * 1.001


def test_a_board_without_mig_is_not_cut():
    assert slices_of(CATALOG.gpu("L4"), CATALOG.mig_table) == ()
