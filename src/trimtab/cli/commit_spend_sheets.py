"""The sheets of spend plans in `trimtab commit`: what to commit to spend, and the plans held."""

from __future__ import annotations

from collections.abc import Sequence

from trimtab.cli.commit_columns import money, number, share, text
from trimtab.cli.sheet import Cell, Sheet
from trimtab.emit.money import dollars
from trimtab.plan.commitments.commit_spend import SpendAdvice
from trimtab.plan.commitments.commit_spend_inventory import HeldSpend


def plans_sheet(advice: Sequence[SpendAdvice]) -> Sheet:
    """Return a row per provider, term and whether the reservations advised are bought as well."""
    rows: list[dict[str, Cell]] = [
        {
            "plan": _named(one),
            "beside_reservations": one.beside_reservations,
            "on_demand_usd_mo": one.on_demand_usd_mo,
            "discount_frac": one.discount_frac,
            "first_usd_hr": one.layers[0].hold_usd_hr if one.layers and one.layers[0].day == 0 else 0.0,
            "usd_hr": one.usd_hr,
            "best_usd_hr": one.best_usd_hr,
            "used_frac": one.used_frac if one.layers else None,
            "saving_usd_mo": one.saving_usd_mo,
            "break_even_mo": one.break_even_mo,
            "loses_below_frac": one.loses_below_frac,
            "term_usd": one.term_usd,
            "layers": [f"day {layer.day}: {layer.buy_usd_hr:.2f} USD an hour" for layer in one.layers],
        }
        for one in advice
    ]
    columns = [
        text("plan", "plan"),
        text("beside_reservations", "beside_reservations"),
        money("on_demand_usd_mo", "use $/mo"),
        share("discount_frac", "off"),
        number("first_usd_hr", "now $/h", 2),
        number("usd_hr", "all $/h", 2),
        number("best_usd_hr", "best $/h", 2),
        share("used_frac", "in use"),
        money("saving_usd_mo", "saves/mo"),
        number("break_even_mo", "even mo", 1),
        share("loses_below_frac", "loses below"),
        money("term_usd", "whole term"),
        text("layers", "layers"),
    ]
    return Sheet(columns=columns, rows=rows, section="plan", notes=_notes(advice))


def _named(one: SpendAdvice) -> str:
    what = "on what the reservations leave" if one.beside_reservations else "without new reservations"
    return f"{one.provider} {one.option.value}, {what}"


def _notes(advice: Sequence[SpendAdvice]) -> list[str]:
    if not advice:
        return []
    notes = [
        "$/h of spend, not of nodes: now, after all layers, and what would have been best over the last four weeks, known "
        "afterwards; saves: on their use"
    ]
    for one in advice:
        if len(one.layers) > 1:
            later = ", ".join(f"day {layer.day} to {layer.hold_usd_hr:.2f}" for layer in one.layers[1:])
            notes.append(f"{_named(one)}: {later} $/h, each only if the use still backs it")
    alone = {(one.provider, one.option): one for one in advice if not one.beside_reservations}
    notes += [
        f"{one.provider} {one.option.value}: without new reservations it saves {dollars(alone[key].saving_usd_mo)} a month; "
        f"beside them {dollars(one.saving_usd_mo)} more than they do"
        for one in advice
        if one.beside_reservations and (key := (one.provider, one.option)) in alone
    ]
    return notes


def held_plans_sheet(held: Sequence[HeldSpend]) -> Sheet:
    """Return a row per commitment to spend that runs and whose rates are known."""
    rows: list[dict[str, Cell]] = [
        {
            "name": one.spend.name,
            "usd_hr": one.spend.usd_hr,
            "used_frac": one.used_frac,
            "coverage_frac": one.coverage_frac,
            "unused_usd_mo": one.unused_usd_mo,
            "end": one.spend.end.isoformat(),
            "days_left": one.days_left,
        }
        for one in held
    ]
    columns = [
        text("name", "plan"),
        number("usd_hr", "$/h", 2),
        share("used_frac", "used"),
        share("coverage_frac", "covers"),
        money("unused_usd_mo", "sunk $/mo"),
        text("end", "ends", whole=True),
        number("days_left", "days left"),
    ]
    return Sheet(columns=columns, rows=rows)
