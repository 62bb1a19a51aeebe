"""MIG: the packer accepts exactly what the placement table allows."""

from itertools import product

import pytest
from hypothesis import given, strategies as st

from trimtab.catalog import load_catalog
from trimtab.catalog.mig import load_mig, place

TABLE = load_mig()
SEVENTHS = [board for board in TABLE.boards if TABLE.of_board(board)[0].total_memory_slices == 8]
QUARTERS = [board for board in TABLE.boards if TABLE.of_board(board)[0].total_memory_slices == 4]


def profile_named(board, name):
    return next(profile for profile in TABLE.of_board(board) if profile.name == name)


def named(board, compute, memory):
    """The plain profile of a board with so many slices, whatever its memory is called."""
    return next(
        profile
        for profile in TABLE.of_board(board)
        if (profile.compute_slices, profile.memory_slices) == (compute, memory) and "+" not in profile.name
    )


def brute_force(profiles):
    """Whether any choice of starts keeps all slices apart."""
    if sum("+me" in profile.name for profile in profiles) > 1:
        return False
    if any(sum(p.name == q.name for q in profiles) > p.max_instances for p in profiles):
        return False
    for starts in product(*(profile.starts for profile in profiles)):
        taken = [
            slice_
            for p, start in zip(profiles, starts, strict=True)
            for slice_ in range(start, start + p.memory_slices)
        ]
        if len(taken) == len(set(taken)):
            return True
    return False


layouts = st.sampled_from(TABLE.boards).flatmap(
    lambda board: st.lists(st.sampled_from(TABLE.of_board(board)), max_size=5)
)


@given(layouts)
def test_packer_agrees_with_trying_every_placement(profiles):
    assert (place(profiles) is not None) == brute_force(profiles)


@given(layouts)
def test_placements_are_of_the_table_and_do_not_overlap(profiles):
    starts = place(profiles)

    if starts is not None:
        taken = [slice_ for p, start in zip(profiles, starts, strict=True) for slice_ in p.slices_at(start)]
        assert len(taken) == len(set(taken))
        assert all(start in profile.starts for profile, start in zip(profiles, starts, strict=True))


@given(layouts, st.randoms(use_true_random=False))
def test_order_does_not_matter_and_a_part_of_a_legal_layout_is_legal(profiles, random):
    mixed = random.sample(profiles, len(profiles))

    assert (place(mixed) is None) == (place(profiles) is None)
    if profiles and place(profiles) is not None:
        assert place(profiles[1:]) is not None


@pytest.mark.parametrize("board", SEVENTHS)
def test_eight_slice_board_packs_as_hardware_does(board):
    small, double, two, three, four, whole = (
        named(board, *slices) for slices in ((1, 1), (1, 2), (2, 2), (3, 4), (4, 4), (7, 8))
    )

    assert place([small] * 7) is not None
    assert place([small] * 8) is None, "7 compute slices, though 8 of memory"
    assert place([three, three]) is not None
    assert place([three, three, small]) is None, "3g+3g takes all memory with 6 of 7 compute slices"
    assert place([four, three]) is not None
    assert place([four, four]) is None
    assert place([double] * 4) is not None
    assert place([two, two, two, small]) is not None
    assert place([two] * 4) is None
    assert place([whole]) == (0,)
    assert place([whole, small]) is None


@pytest.mark.parametrize("board", SEVENTHS)
def test_a_3g_at_slice_0_leaves_room_for_three_1g(board):
    three, small = named(board, 3, 4), named(board, 1, 1)

    left = [start for start in small.starts if not small.slices_at(start) & three.slices_at(0)]

    assert len(left) == 3


@pytest.mark.parametrize("board", SEVENTHS)
def test_beside_a_3g_at_most_four_1g_fit_and_only_where_it_stands_at_slice_4(board):
    three, small = named(board, 3, 4), named(board, 1, 1)

    assert place([three, *[small] * 4]) == (4, 0, 1, 2, 3)
    assert place([three, *[small] * 5]) is None


@pytest.mark.parametrize("board", QUARTERS)
def test_four_slice_board_packs_as_hardware_does(board):
    small, two, whole = (named(board, *slices) for slices in ((1, 1), (2, 2), (4, 4)))

    assert place([small] * 4) is not None
    assert place([small] * 5) is None
    assert place([two, small, small]) is not None
    assert place([two, two, small]) is None
    assert place([whole, small]) is None


@pytest.mark.parametrize("board", TABLE.boards)
def test_only_one_instance_holds_the_media_engines(board):
    media = [profile for profile in TABLE.of_board(board) if profile.holds_media_engines]

    assert place([media[0]]) is not None
    assert place([media[0], media[-1]]) is None


@pytest.mark.parametrize("board", TABLE.boards)
def test_as_many_of_one_profile_fit_as_the_table_says_and_no_more(board):
    for profile in TABLE.of_board(board):
        assert place([profile] * profile.max_instances) is not None, profile.name
        assert place([profile] * (profile.max_instances + 1)) is None, profile.name


def test_bandwidth_follows_memory_slices():
    """H200 3g.71gb measured at 2,407 GB/s of 4,800."""
    h200 = load_catalog().gpu("H200")

    assert profile_named(h200.mig_board, "3g.71gb").mem_bw_frac * h200.mem_bw_gb_s == pytest.approx(2407, rel=0.01)


def test_a_slice_of_a100_80_shows_9_6_gib():
    assert profile_named("A100-80GB", "1g.10gb").memory_gib(80.0) == pytest.approx(9.6, abs=0.03)


def test_instances_never_hold_more_than_their_share_of_visible_memory(catalog):
    for gpu in catalog.gpus:
        for profile in catalog.mig_profiles(gpu):
            assert (
                0.94 * profile.mem_bw_frac <= profile.memory_gib(gpu.memory_gib) / gpu.memory_gib <= profile.mem_bw_frac
            )


def test_streaming_multiprocessors_stay_within_the_board(catalog):
    for gpu in catalog.gpus:
        for profile in catalog.mig_profiles(gpu):
            if profile.sm_count and gpu.sm_count:
                assert profile.sm_count <= gpu.sm_count, (gpu.name, profile.name)


def test_catalog_answers_by_board_name(catalog):
    board = catalog.gpu("A100-40GB").mig_board

    assert place([profile_named(board, "3g.20gb")] * 2) == (0, 4)
    assert place([profile_named(board, "1g.5gb")] * 8) is None


def test_a_board_without_mig_has_no_profiles(catalog):
    assert catalog.mig_profiles(catalog.gpu("L40S")) == ()
