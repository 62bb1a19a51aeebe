"""Boards the physics knows besides the catalog's: workstation and consumer cards, older and other makes, without prices."""

from __future__ import annotations

import csv
from functools import lru_cache
from importlib.resources import files

from trimtab.catalog import Gpu, load_catalog
from trimtab.catalog.gpus import GpuTable, load_gpus


@lru_cache(maxsize=1)
def all_boards() -> GpuTable:
    """Return the catalog's boards and those of `data/boards.csv` as one table."""
    text = files("trimtab.physics").joinpath("data/boards.csv").read_text(encoding="utf-8")
    # the catalog's own reader, so that both tables are checked alike
    extra = load_gpus(csv.DictReader(text.splitlines()))
    return GpuTable((*load_catalog().gpus, *extra.gpus))


def board(name: str) -> Gpu:
    """Return a board under any of its names; raises UnknownName with near matches."""
    return all_boards().find(name)
