"""What `trimtab what-if` does once its arguments are read: open the history, plan it twice, show both."""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from trimtab.catalog import load_catalog
from trimtab.cli.history import held_commitments
from trimtab.cli.kept_audits import recall
from trimtab.cli.outcome_cache import outcome_cache
from trimtab.cli.output import Cell, Column, Format, Sheet, write_sheet
from trimtab.cli.progress import progress_bar, set_verbosity
from trimtab.cli.settings import resolve
from trimtab.emit.comparison import Compared, Unit, compared, shown
from trimtab.errors import UsageError
from trimtab.fleet.limits import quotas_of
from trimtab.pipeline import open_demo, open_fleet, what_if
from trimtab.plan.proof.scenario import Scenario, WhatIf
from trimtab.tables.bundle import Bundle

DEMO_PREFIX = "demo "
_PEOPLE = (Format.TABLE, Format.MARKDOWN)


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIfRequest:
    """The arguments of `trimtab what-if`."""

    bundle: Path | None
    demo: str | None
    scenario: Scenario | None
    owned: Path | None
    prices: Path | None
    at: date | None
    flags: tuple[str, ...]
    quiet: bool
    verbose: int
    output_format: Format
    out: Path | None
    fields: tuple[str, ...]


def run_what_if(request: WhatIfRequest) -> None:
    """Run the command."""
    set_verbosity(request.verbose, request.quiet)
    if request.scenario is None:
        raise UsageError(
            "what is different? give --demand, --price, --no-spot, --quota, --spot-max, --budget or --deadline"
        )
    quotas_of(request.scenario.quotas or "")
    settings = resolve(file=None, environ=os.environ, flags=request.flags).settings
    with progress_bar(quiet=request.quiet) as tell, outcome_cache() as store:
        tell("opening the fleet", 0.0)
        bundle, catalog = _history(request), load_catalog(request.prices)
        found = what_if(
            bundle,
            request.scenario,
            settings,
            catalog,
            at=request.at,
            owned=held_commitments(request.owned, catalog, bundle),
            store=store,
            progress=tell,
        )
    sheet = what_if_sheet(found, people=request.output_format in _PEOPLE)
    write_sheet(sheet, request.output_format, out=request.out, fields=request.fields)


def _history(request: WhatIfRequest) -> Bundle:
    """Open the history that was named, else that of the last audit."""
    if request.bundle is not None and request.demo is not None:
        raise UsageError("BUNDLE and --demo name different histories: give one of them")
    if request.bundle is not None:
        return open_fleet(request.bundle)
    if request.demo is not None:
        return open_demo(request.demo)
    name = recall().fleet
    if name.startswith(DEMO_PREFIX):
        return open_demo(name.removeprefix(DEMO_PREFIX))
    if Path(name).is_dir():
        return open_fleet(name)
    raise UsageError(f"the last audit was of {name}, which is no folder here; name a bundle (trimtab what-if fleet/)")


def what_if_sheet(found: WhatIf, *, people: bool) -> Sheet:
    """Return a row a figure: formatted for people, raw with its unit for programs."""
    rows = compared(found)
    plain = (
        Column(key="what", title=""),
        Column(key="base", title="as it is", right=True),
        Column(key="scenario", title="what if", right=True),
        Column(key="change", title="change", right=True),
    )
    raw = (Column(key="section", title="section"), Column(key="unit", title="unit"))
    return Sheet(
        columns=plain if people else (*raw, *plain),
        rows=[_for_people(row) if people else _raw(row) for row in rows],
        section="section" if people else "",
        notes=_notes(found),
    )


def _notes(found: WhatIf) -> list[str]:
    notes = [f"What if: {'; '.join(found.scenario.words())}. Dollars a month; both plans are exact hourly re-bills."]
    if found.other is None:
        notes.append(f"There is no plan in that world: {found.refused}.")
    return notes


def _for_people(row: Compared) -> dict[str, Cell]:
    change = row.change
    return {
        "section": row.section,
        "what": row.what,
        "base": shown(row.base, row.unit),
        "scenario": shown(row.scenario, row.unit),
        "change": None if not change else _signed(change, row.unit),
    }


def _signed(change: float, unit: Unit) -> str:
    return ("+" if change > 0 else "-") + shown(abs(change), unit)


def _raw(row: Compared) -> dict[str, Cell]:
    return {
        "section": row.section,
        "what": row.what,
        "unit": row.unit.value,
        "base": row.base,
        "scenario": row.scenario,
        "change": row.change,
    }
