"""Commitments that are held, as `--owned` names them."""

from __future__ import annotations

from pathlib import Path

from trimtab.catalog import Catalog
from trimtab.cli.screen import say
from trimtab.plan.commitments.inventory import Owned
from trimtab.sources.bills.commitments import Inventory, read_inventory, types_in_bill
from trimtab.tables.bundle import Bundle


def held_inventory(path: Path | None, catalog: Catalog, bundle: Bundle, *, region: str | None = None) -> Inventory:
    """Return what a file says is held; types that it does not name come from the bundle's bill."""
    if path is None:
        return Inventory()
    costs = bundle.table("costs", ["CommitmentDiscountId", "instance_type"])
    return read_inventory(path, catalog, region=region, type_of=types_in_bill(costs))


def held_commitments(path: Path | None, catalog: Catalog, bundle: Bundle) -> tuple[Owned, ...]:
    """Return the commitments to machines and to spend that a file names; say on stderr what of it is not taken."""
    held = held_inventory(path, catalog, bundle)
    for line in held.left_out:
        say(f"warning: left out: {line}", err=True)
    return held.owned
