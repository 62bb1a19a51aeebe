import numpy as np

from trimtab.cli.commit.tables import LEGEND, picture, picture_points
from trimtab.plan.commitments.commit_report import load_duration

WIDTH = 30


def drawn(nodes, **layers):
    return picture(load_duration(np.array(nodes, dtype=float), points=picture_points(WIDTH), **layers))


def test_the_layers_are_stacked_from_the_bottom_busiest_hours_left():
    shown = drawn([10, 10, 5, 5], owned=2, first=3, later=2).splitlines()

    # 10 nodes in 10 rows: half of the hours 3 burst over 7 held; in the other half 2 of the 7 are paid and not used.
    assert [line[10:].strip() for line in shown[:10]] == [
        "░" * 10,
        "░" * 10,
        "░" * 10,
        "▒" * 10 + "·" * 10,
        "▒" * 10 + "·" * 10,
        *["▓" * 20] * 3,
        *["█" * 20] * 2,
    ]


def test_it_fits_its_width_and_says_what_the_marks_mean():
    shown = picture(load_duration(np.arange(9.0), owned=0, first=2, later=1, points=picture_points(80)))

    assert max(len(line) for line in shown.splitlines()) <= 80
    assert shown.endswith(LEGEND)
    assert "8.0 ┤" in shown


def test_a_pool_that_nobody_used_says_so():
    assert drawn([0, 0], owned=0, first=0, later=0) == "no node was in use"
