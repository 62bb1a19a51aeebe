"""Boards counted by measures, against a search that places every instance; on every board of the catalog."""

from functools import cache
from itertools import product

import pytest
from hypothesis import given, strategies as st

from trimtab.catalog import load_catalog
from trimtab.catalog.mig import boards_for, cut_boards, measures_of, place

MIG = load_catalog().mig_table


def sliced(board):
    """Profiles that leave room for another instance and differ in more than their engines."""
    plain = [one for one in MIG.of_board(board) if one.name.replace(".", "").isalnum()]
    most = max(one.compute_slices for one in plain)
    return tuple(one for one in plain if one.compute_slices < most)


@cache
def legal(board):
    """Every multiset of instances that finds placements, as counts."""
    profiles = sliced(board)
    return [
        counts
        for counts in product(*(range(one.max_instances + 1) for one in profiles))
        if any(counts)
        and place([one for one, count in zip(profiles, counts, strict=True) for _ in range(count)]) is not None
    ]


@cache
def full(board):
    """The legal layouts to which no instance can be added."""
    return [one for one in legal(board) if not any(_within(one, other) for other in legal(board))]


@cache
def fewest(board, counts):
    """The fewest boards, by trying every full layout as the first one."""
    if not any(counts):
        return 0
    rest = {tuple(max(0, a - b) for a, b in zip(counts, layout, strict=True)) for layout in full(board)}
    return 1 + min(fewest(board, one) for one in rest if one != counts)


def _within(one, other):
    return one != other and all(a <= b for a, b in zip(one, other, strict=True))


def measured(board):
    profiles = sliced(board)
    found = measures_of(profiles)
    return [found.takes[one.name] for one in profiles], found.room


def test_an_a100_is_measured_by_memory_compute_and_the_places_of_2g_and_4g():
    found = measures_of(sliced("A100-40GB"))

    assert found.room == (8, 7, 3, 1)
    assert found.takes["1g.5gb"] == (1, 1, 0, 0)
    assert found.takes["1g.10gb"] == (2, 1, 0, 0)
    assert found.takes["2g.10gb"] == (2, 2, 1, 0)
    assert found.takes["3g.20gb"] == (4, 3, 1, 0)
    assert found.takes["4g.20gb"] == (4, 4, 2, 1)


@pytest.mark.parametrize("board", MIG.boards)
def test_a_layout_is_legal_where_and_only_where_it_keeps_within_every_measure(board):
    takes, room = measured(board)
    profiles = sliced(board)

    found = {
        counts
        for counts in product(*(range(one.max_instances + 1) for one in profiles))
        if any(counts) and boards_for(counts, takes, room) == 1
    }

    assert found == set(legal(board))


@pytest.mark.parametrize("board", ["A100-40GB", "A30-24GB"])
def test_measures_count_the_boards_that_a_search_needs_for_up_to_two_boards_worth(board):
    takes, room = measured(board)
    box = [range(min(one.max_instances + 1, 4) + 1) for one in sliced(board)]

    wrong = [counts for counts in product(*box) if boards_for(counts, takes, room) != fewest(board, counts)]

    assert wrong == []


@given(st.sampled_from(MIG.boards), st.data())
def test_boards_are_cut_as_few_as_counted_each_legally_and_hold_everything(board, data):
    profiles = sliced(board)
    takes, room = measured(board)
    counts = tuple(data.draw(st.integers(0, 20)) for _ in profiles)

    boards = cut_boards(counts, takes, room)

    assert len(boards) == boards_for(counts, takes, room)
    assert tuple(sum(one[at] for one in boards) for at in range(len(profiles))) == counts
    assert set(boards) <= set(legal(board))
