"""A fleet is the same however many rows of its tables are read at a time."""

from dataclasses import fields

import numpy as np
import pytest
from benchmarks.whole_audit import generated

from trimtab.fleet.activity import USAGE_COLUMNS, device_hours
from trimtab.fleet.arrivals import DEMAND_COLUMNS
from trimtab.fleet.build import build_fleet, bundle_window
from trimtab.fleet.columns import last_rows, rows_by_workload
from trimtab.fleet.settings import Settings
from trimtab.tables import bundle as bundle_module
from trimtab.tables.bundle import memory_bundle


def same(found, wanted):
    """Return whether two dataclasses of arrays and numbers are equal to the bit."""
    if found is None or wanted is None:
        return found is wanted
    return all(
        np.array_equal(one, other, equal_nan=True)
        if isinstance(one, np.ndarray) and one.dtype != object
        else one == other
        for one, other in ((getattr(found, field.name), getattr(wanted, field.name)) for field in fields(found))
    )


@pytest.mark.parametrize("rows", [1, 97])
@pytest.mark.parametrize("order", ["workload", "start"])
def test_histories_are_the_same_in_pieces_of_any_size_and_order(monkeypatch, rows, order):
    given = generated(5, 2)
    wanted = build_fleet(given, Settings())
    demand = given.tables["demand"].sort_by(order)
    bundle = memory_bundle({**given.tables, "demand": demand}, given.meta, given.workloads)

    monkeypatch.setattr(bundle_module, "PIECE_ROWS", rows)
    found = build_fleet(bundle, Settings())

    assert found.coverage == wanted.coverage
    assert sum(workload.service is not None for workload in wanted.workloads) == 2
    for one, other in zip(found.workloads, wanted.workloads, strict=True):
        assert same(one.activity, other.activity)
        assert same(one.service, other.service)


def test_a_workload_comes_as_soon_as_its_last_row_was_read(monkeypatch):
    bundle = generated(2, 2)
    monkeypatch.setattr(bundle_module, "PIECE_ROWS", 100)
    read = []

    def pieces():
        for piece in bundle.pieces("demand", DEMAND_COLUMNS):
            read.append(piece.num_rows)
            yield piece

    last_row = last_rows(bundle.pieces("demand", ["workload"]))
    came = [(name, rows.num_rows, sum(read)) for name, rows in rows_by_workload(pieces(), last_row)]

    assert last_row == {"team-0/api-0": 191, "team-1/api-1": 383}
    assert came == [("team-0/api-0", 192, 200), ("team-1/api-1", 192, 384)]


def test_what_was_never_measured_takes_no_memory_for_each_row():
    bundle = generated(1, 2)
    rows = device_hours(bundle.pieces("gpu_usage", USAGE_COLUMNS), bundle.table("devices"), {}, bundle_window(bundle))

    assert rows.cpu.strides == rows.means["dram_active"].strides == (0,)
    assert np.isnan(rows.cpu).all()
    assert len(rows.cpu) == len(rows.hour) > 0
    assert rows.means["sm_active"].strides == (8,)
