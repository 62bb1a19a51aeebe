"""Runs `trimtab what-if`: opens the history, plans it twice, shows both."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from trimtab.catalog import load_catalog
from trimtab.cli.kept_audits import recall_fleet
from trimtab.cli.made_plans import DEMO_PREFIX, PlanOrigin, recall_made
from trimtab.cli.outcome_cache import outcome_cache
from trimtab.cli.output import Cell, Format, Sheet, SheetColumn, write_answer
from trimtab.cli.progress import Tell, progress_bar, set_verbosity
from trimtab.cli.settings import resolve
from trimtab.cli.what_if import WhatIfOptions
from trimtab.emit.comparison import ComparedFigure, ShownValues, compared, compared_notes, values_shown
from trimtab.errors import UsageError
from trimtab.fleet.reach import quotas_of
from trimtab.pipeline import PlanningInput, open_demo, open_fleet, what_if
from trimtab.pipeline.auditing import what_if_beside
from trimtab.plan.proof.scenario import Scenario, WhatIf
from trimtab.tables.bundle import Bundle

_PEOPLE = (Format.TABLE, Format.MARKDOWN)


def run_what_if(options: WhatIfOptions) -> None:
    """Run the command."""
    scenario = asked_scenario(options)
    set_verbosity(options.verbose, options.quiet)
    with progress_bar(quiet=options.quiet) as tell:
        found = planned_otherwise(options, scenario, _fleet(options), _history, tell)
    sheet = what_if_sheet(found, people=options.answer.output_format in _PEOPLE)
    write_answer(sheet, options.answer)


def asked_scenario(options: WhatIfOptions) -> Scenario:
    """Return the scenario. Raises UsageError if nothing is changed, InputError for invalid values."""
    scenario = options.other.scenario(
        quotas=", ".join(options.quotas) or None,
        spot_max_frac=options.spot_max,
        clouds=options.clouds,
        regions=options.regions,
        node_startup_s=options.node_start_s,
    )
    if scenario is None:
        raise UsageError(
            "what should change? give --demand, --price, --target, --no-spot, --quota, --spot-max, --node-start, --budget or "
            "--deadline"
        )
    quotas_of(scenario.quotas or "")
    return scenario


def planned_otherwise(
    options: WhatIfOptions,
    scenario: Scenario,
    fleet: str,
    open_history: Callable[[str], Bundle],
    tell: Tell,
    *,
    keep_outcomes: bool = True,
) -> WhatIf:
    """Plan a fleet, by the name that its audit has, in the baseline and in the scenario. Raises TrimtabError.

    The baseline is that of the last audit, where it was made from the same; then the history is not opened.
    """
    settings = resolve(file=None, environ=os.environ, flags=options.flags).settings
    with outcome_cache(keep=keep_outcomes) as store:
        tell("opening the fleet", 0.0)
        source = PlanOrigin(fleet=fleet, settings=settings, prices=options.prices, at=options.at)
        made = None if options.owned is not None else recall_made(source, store)
        if made is not None:
            return what_if_beside(made, scenario, tell, store=store)
        from trimtab.cli.history import held_commitments  # heavy: readers of bills

        bundle, catalog = open_history(fleet), load_catalog(options.prices)
        return what_if(
            PlanningInput(
                bundle=bundle,
                scenario=scenario,
                settings=settings,
                catalog=catalog,
                at=options.at,
                owned=held_commitments(options.owned, catalog, bundle),
                store=store,
                progress=tell,
            )
        )


def _fleet(options: WhatIfOptions) -> str:
    """Return the fleet that was named, else that of the last audit."""
    if options.bundle is not None and options.demo is not None:
        raise UsageError("BUNDLE and --demo name different histories: give one of them")
    if options.bundle is not None:
        return str(options.bundle)
    return recall_fleet() if options.demo is None else f"{DEMO_PREFIX}{options.demo}"


def _history(fleet: str) -> Bundle:
    """Open the history of a fleet. Raises UsageError if it is not here."""
    if fleet.startswith(DEMO_PREFIX):
        return open_demo(fleet.removeprefix(DEMO_PREFIX))
    if Path(fleet).is_dir():
        return open_fleet(fleet)
    raise UsageError(
        f"the last audit was of {fleet}, which is not a folder here; name a bundle (trimtab what-if fleet/)"
    )


def what_if_sheet(found: WhatIf, *, people: bool) -> Sheet:
    """Return one row per figure: formatted for people, raw with its unit for programs."""
    rows = compared(found)
    plain = (
        SheetColumn(key="what", title=""),
        SheetColumn(key="base", title="as it is", right=True),
        SheetColumn(key="scenario", title="what if", right=True),
        SheetColumn(key="change", title="change", right=True),
    )
    raw = (SheetColumn(key="section", title="section"), SheetColumn(key="unit", title="unit"))
    return Sheet(
        columns=plain if people else (*raw, *plain),
        rows=[
            _for_people(row, value) if people else row.plain()
            for row, value in zip(rows, values_shown(rows), strict=True)
        ],
        section="section" if people else "",
        notes=compared_notes(found),
    )


def _for_people(row: ComparedFigure, value: ShownValues) -> dict[str, Cell]:
    return {
        "section": row.section,
        "what": row.what,
        "base": value.base,
        "scenario": value.scenario,
        "change": value.change or None,
    }
