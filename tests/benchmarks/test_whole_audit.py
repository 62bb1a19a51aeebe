"""The fleets of the whole audit's benchmark."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
from benchmarks.whole_audit import LARGE, generated, write_generated

from trimtab.tables.bundle import read_bundle, table_file
from trimtab.tables.schemas import TABLES


def test_a_fleet_written_by_workload_is_the_one_in_memory(tmp_path: Path) -> None:
    write_generated(10, 3, tmp_path)
    written, held = read_bundle(tmp_path), generated(10, 3)
    assert written.meta == held.meta
    assert written.workloads == held.workloads
    for name in TABLES:
        assert written.table(name).equals(held.table(name)), name
    for name in LARGE:
        file = pq.ParquetFile(table_file(tmp_path, name))
        for group in range(file.num_row_groups):
            assert len(set(file.read_row_group(group, ["workload"])["workload"].to_pylist())) == 1, name
