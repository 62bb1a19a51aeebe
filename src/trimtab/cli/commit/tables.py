"""The tables of `trimtab commit`: what to buy when, rules compared, returns, inventory, load."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from enum import Enum
from typing import assert_never

from trimtab.cli.output import Cell, Sheet, SheetColumn, fixed, percent
from trimtab.emit.money import dollars
from trimtab.levers.commit_advice import Advice
from trimtab.plan.commitments.commit_report import CommitReport, LoadPoint, SpendAdvice, load_duration
from trimtab.plan.commitments.inventory import CommitmentUse, OwnedNodes, OwnedSpend
from trimtab.replay.commitments import SIMPLE_RULES, CommitRule

CURVE_POINTS = 20
PICTURE_POINTS = 200

_SHOWN_RULES = (
    CommitRule.NOTHING,
    CommitRule.AVERAGE_65,
    CommitRule.NEWSVENDOR,
    CommitRule.WEEKLY_TOP_UP,
    CommitRule.BREAK_EVEN,
    CommitRule.LAYERED,
    CommitRule.CHOSEN,
    CommitRule.HINDSIGHT,
)
HEIGHT = 10
_LABEL = 8
OWNED, FIRST, LATER, ON_DEMAND, UNUSED = "█", "▓", "▒", "░", "·"
LEGEND = f"{OWNED} held  {FIRST} first layer  {LATER} later layers  {ON_DEMAND} on demand  {UNUSED} paid, not used"


def _shown_dollars(cell: Cell) -> str:
    return dollars(cell) if isinstance(cell, int | float) else str(cell)


def text(key: str, title: str, *, whole: bool = False) -> SheetColumn:
    """Return a text column."""
    return SheetColumn(key=key, title=title, whole=whole)


def number(key: str, title: str, digits: int = 0, *, gloss: str = "") -> SheetColumn:
    """Return a numeric column."""
    return SheetColumn(key=key, title=title, show=fixed(digits), right=True, gloss=gloss)


def share(key: str, title: str, *, gloss: str = "") -> SheetColumn:
    """Return a column of shares, shown in percent."""
    return SheetColumn(key=key, title=title, show=percent(0), right=True, gloss=gloss)


def money(key: str, title: str, *, gloss: str = "") -> SheetColumn:
    """Return a column of dollars."""
    return SheetColumn(key=key, title=title, show=_shown_dollars, right=True, gloss=gloss)


class CommitPart(Enum):
    """The parts of the answer."""

    STEPS = "steps"
    RULES = "rules"
    RETURNS = "returns"
    PLANS = "plans"
    INVENTORY = "inventory"
    HELD_PLANS = "held-plans"
    LOAD = "load"

    @property
    def title(self) -> str:
        """Return its heading."""
        return {
            CommitPart.STEPS: "What to buy, and when",
            CommitPart.RULES: "Rules tested on this fleet's own use: learned on the first half, played on the second",
            CommitPart.RETURNS: "What each commitment returns",
            CommitPart.PLANS: "What to commit to spend with a savings plan",
            CommitPart.HELD_PLANS: "Savings plans held, in the order in which they apply",
            CommitPart.INVENTORY: "Commitments held, the first to end first",
            CommitPart.LOAD: "Load by share of the hours, busiest first (nodes)",
        }[self]


def sheet_of(section: CommitPart, report: CommitReport) -> Sheet:
    """Return a part of the answer as rows."""
    match section:
        case CommitPart.STEPS:
            return _steps(report)
        case CommitPart.RULES:
            return _rules(report)
        case CommitPart.RETURNS:
            return _returns(report)
        case CommitPart.PLANS:
            return _plans(report.spend)
        case CommitPart.INVENTORY:
            return _inventory(report)
        case CommitPart.HELD_PLANS:
            return _held_plans(report)
        case CommitPart.LOAD:
            return _load(report)
    assert_never(section)


def curve(advice: Advice, points: int) -> tuple[LoadPoint, ...]:
    """Return a pool's load-duration curve over the recommended layers."""
    first = advice.layers[0].buy if advice.layers and advice.layers[0].day == 0 else 0
    return load_duration(advice.nodes, owned=advice.owned, first=first, later=advice.buy - first, points=points)


def load_layers(advice: Advice) -> tuple[list[float], ...]:
    """Return the same curve as series, stacked from the bottom: held, bought at once and later, on demand, unused."""
    points = curve(advice, PICTURE_POINTS)
    return (
        [point.owned for point in points],
        [point.first_layer for point in points],
        [point.later_layers for point in points],
        [point.on_demand for point in points],
        [point.unused for point in points],
    )


def _steps(report: CommitReport) -> Sheet:
    rows: list[dict[str, Cell]] = []
    for advice in report.advice:
        held = advice.owned
        for layer in advice.layers:
            rows.append(
                {
                    "pool": str(advice.pool),
                    "day": layer.day,
                    "buy_nodes": layer.buy,
                    "hold_nodes": layer.hold,
                    "term_years": advice.offer.term_years,
                    "payment": advice.offer.payment.value,
                    "usd_hr": advice.offer.effective_usd_hr,
                    "discount_frac": advice.discount_frac,
                    "used_frac": advice.used_frac(held, layer.hold),
                    "source": advice.offer.source,
                }
            )
            held = layer.hold
    columns = [
        number("day", "on day", gloss="0 is now"),
        number("buy_nodes", "buy nodes"),
        number("hold_nodes", "then held"),
        number("term_years", "years"),
        text("payment", "paid", whole=True),
        number("usd_hr", "$/h", 3),
        share("discount_frac", "discount"),
        share("used_frac", "in use"),
    ]
    on_phone = ("day", "buy_nodes", "discount_frac")
    shown = _with_pool(columns, "source", on_phone=on_phone)
    return Sheet(columns=shown, rows=rows, section="pool", notes=_steps_notes(report))


def _with_pool(columns: Sequence[SheetColumn], *more: str, on_phone: Collection[str] = ()) -> list[SheetColumn]:
    """Return columns with the pool first and keys for programs last; tables for people show the pool as a heading.

    A page on a phone has the columns `on_phone`, or all.
    """
    shown = [replace(column, wide_only=bool(on_phone) and column.key not in on_phone) for column in columns]
    return [text("pool", "pool"), *shown, *(text(key, key) for key in more)]


def _steps_notes(report: CommitReport) -> list[str]:
    notes = []
    for advice in report.advice:
        saved = (
            f"saves {dollars(advice.saving_usd_mo)} a month on the use of the last four weeks"
            if advice.buy
            else "buy nothing"
        )
        notes.append(
            f"{advice.pool.instance_type}: {saved}; the use supports {advice.backed_nodes:.1f} nodes, "
            f"{advice.owned} are held; in hindsight, {advice.best_nodes} would have been best; {_back_tested(advice)}"
        )
    return notes


def _back_tested(advice: Advice) -> str:
    choice = advice.choice
    if not choice.back_tests:
        return "no back-test: too little history"
    return (
        f"in {choice.back_tests} back-tests the chosen rules cost up to {choice.over_hindsight - 1:.1%} more than hindsight, "
        f"and the best simple rule ({choice.best_simple.value}) {choice.simple_over_hindsight - 1:.1%} more"
    )


def _rules(report: CommitReport) -> Sheet:
    rows: list[dict[str, Cell]] = [
        {
            "pool": str(advice.pool),
            "rule": rule.value,
            "cost_frac": advice.rule_costs[rule],
            "over_hindsight": advice.rule_costs[rule] / advice.rule_costs[CommitRule.HINDSIGHT],
            "over_best_simple": advice.rule_costs[rule] / min(advice.rule_costs[simple] for simple in SIMPLE_RULES),
        }
        for advice in report.advice
        if advice.rule_costs
        for rule in _SHOWN_RULES
    ]
    columns = [
        text("rule", "rule"),
        number("cost_frac", "cost, on demand = 1", 3),
        number("over_hindsight", "over hindsight", 3),
        number("over_best_simple", "over best simple", 3),
    ]
    return Sheet(columns=_with_pool(columns), rows=rows, section="pool")


def _returns(report: CommitReport) -> Sheet:
    rows: list[dict[str, Cell]] = [
        {
            "pool": str(row.offer.pool),
            "offer": f"{row.offer.term_years} y, {row.offer.payment.value}",
            "nodes": row.nodes,
            "hours_mo": row.hours_mo,
            "upfront_usd": row.offer.upfront_usd * row.nodes,
            "on_demand_usd": row.on_demand_usd,
            "committed_usd": row.committed_usd,
            "saving_usd": row.saving_usd,
            "saving_frac": row.saving_frac,
            "break_even_mo": row.break_even_mo,
            "on_demand_usd_year": row.on_demand_usd_year,
            "committed_usd_year": row.committed_usd_year,
            "loses_below_frac": row.loses_below_frac,
            "source": row.offer.source,
        }
        for row in report.returns
    ]
    columns = [
        SheetColumn(key="offer", title="offer", whole=True, repeat=True),
        number("nodes", "nodes"),
        number("hours_mo", "h/month"),
        money("upfront_usd", "upfront"),
        money("on_demand_usd", "on demand"),
        money("committed_usd", "committed"),
        money("saving_usd", "saves", gloss="over the whole term, as on demand and committed"),
        share("saving_frac", "saves, %"),
        number(
            "break_even_mo",
            "even at month",
            1,
            gloss="by then, on demand would have cost as much as the whole commitment",
        ),
        money(
            "on_demand_usd_year",
            "on demand/y",
            gloss="the average over three years, as committed/y; 1-year terms are renewed at the same price",
        ),
        money("committed_usd_year", "committed/y"),
        share(
            "loses_below_frac", "loses below", gloss="if in use for a smaller share of the hours, on demand costs less"
        ),
    ]
    on_phone = ("nodes", "saving_usd", "saving_frac")
    return Sheet(columns=_with_pool(columns, "source", on_phone=on_phone), rows=rows, section="pool")


def _plans(advice: Sequence[SpendAdvice]) -> Sheet:
    """Return one row per provider, term and whether the recommended reservations are bought as well."""
    rows: list[dict[str, Cell]] = [
        {
            "plan": _named(plan),
            "beside_reservations": plan.beside_reservations,
            "on_demand_usd_mo": plan.on_demand_usd_mo,
            "discount_frac": plan.discount_frac,
            "first_usd_hr": plan.layers[0].hold_usd_hr if plan.layers and plan.layers[0].day == 0 else 0.0,
            "usd_hr": plan.usd_hr,
            "best_usd_hr": plan.best_usd_hr,
            "used_frac": plan.used_frac if plan.layers else None,
            "saving_usd_mo": plan.saving_usd_mo,
            "break_even_mo": plan.break_even_mo,
            "loses_below_frac": plan.loses_below_frac,
            "term_usd": plan.term_usd,
            "layers": [f"day {layer.day}: {layer.buy_usd_hr:.2f} USD an hour" for layer in plan.layers],
        }
        for plan in advice
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
    return Sheet(columns=columns, rows=rows, section="plan", notes=_plans_notes(advice))


def _named(plan: SpendAdvice) -> str:
    what = "on what the reservations leave" if plan.beside_reservations else "without new reservations"
    return f"{plan.provider} {plan.option.value}, {what}"


def _plans_notes(advice: Sequence[SpendAdvice]) -> list[str]:
    if not advice:
        return []
    notes = [
        "$/h of spend, not of nodes: now, after all layers, and the best in hindsight over the last four weeks; saves: on "
        "their use"
    ]
    for plan in advice:
        if len(plan.layers) > 1:
            later = ", ".join(f"day {layer.day} to {layer.hold_usd_hr:.2f}" for layer in plan.layers[1:])
            notes.append(f"{_named(plan)}: {later} $/h, each only if usage still supports it")
    alone = {(plan.provider, plan.option): plan for plan in advice if not plan.beside_reservations}
    notes += [
        f"{plan.provider} {plan.option.value}: without new reservations it saves {dollars(alone[key].saving_usd_mo)} a month; "
        f"with them, {dollars(plan.saving_usd_mo)} in addition"
        for plan in advice
        if plan.beside_reservations and (key := (plan.provider, plan.option)) in alone
    ]
    return notes


_USE = (
    share("used_frac", "used"),
    share("coverage_frac", "covers"),
    money("unused_usd_mo", "sunk $/mo"),
    text("end", "ends", whole=True),
    number("days_left", "days left"),
)
"""Columns common to both kinds of commitments held."""


def _use(use: CommitmentUse) -> dict[str, Cell]:
    return {
        "used_frac": use.used_frac,
        "coverage_frac": use.coverage_frac,
        "unused_usd_mo": use.unused_usd_mo,
        "end": use.owned.end.isoformat(),
        "days_left": use.days_left,
    }


def _inventory(report: CommitReport) -> Sheet:
    """Return one row per active commitment to nodes."""
    rows: list[dict[str, Cell]] = [
        {
            "pool": str(scope.offer.pool),
            "name": use.owned.name,
            "count": scope.count,
            **_use(use),
            "held_after_nodes": use.held_after,
        }
        for use in report.held
        if isinstance(scope := use.owned.scope, OwnedNodes)
    ]
    columns = [text("name", "commitment"), number("count", "nodes"), *_USE, number("held_after_nodes", "held after")]
    return Sheet(columns=_with_pool(columns), rows=rows, section="pool")


def _held_plans(report: CommitReport) -> Sheet:
    """Return one row per active commitment to spend with known rates."""
    rows: list[dict[str, Cell]] = [
        {"name": use.owned.name, "usd_hr": scope.usd_hr, **_use(use)}
        for use in report.held
        if isinstance(scope := use.owned.scope, OwnedSpend)
    ]
    return Sheet(columns=[text("name", "plan"), number("usd_hr", "$/h", 2), *_USE], rows=rows)


def _load(report: CommitReport) -> Sheet:
    rows: list[dict[str, Cell]] = [
        {
            "pool": str(advice.pool),
            "hours_frac": point.hours_frac,
            "load_nodes": point.load,
            "owned_nodes": point.owned,
            "first_layer_nodes": point.first_layer,
            "later_layers_nodes": point.later_layers,
            "on_demand_nodes": point.on_demand,
            "unused_nodes": point.unused,
        }
        for advice in report.advice
        for point in curve(advice, CURVE_POINTS)
    ]
    columns = [
        share("hours_frac", "hours"),
        number("load_nodes", "load", 1),
        number("owned_nodes", "held", 1),
        number("first_layer_nodes", "first layer", 1),
        number("later_layers_nodes", "later", 1),
        number("on_demand_nodes", "on demand", 1),
        number("unused_nodes", "unused", 1),
    ]
    return Sheet(columns=_with_pool(columns), rows=rows, section="pool")


def picture_points(width: int) -> int:
    """Return how many points of the curve fit into a picture of this width."""
    return width - _LABEL - 2


def picture(points: Sequence[LoadPoint]) -> str:
    """Draw a curve, one column per point; a cell shows what covers the middle of its band of nodes."""
    top = max(point.load + point.unused for point in points)
    if top <= 0:
        return "no node was in use"
    lines = []
    for row in range(HEIGHT, 0, -1):
        nodes = (row - 0.5) * top / HEIGHT
        label = f"{row * top / HEIGHT:.1f}" if row in (HEIGHT, HEIGHT // 2) else ""
        lines.append(f"{label:>{_LABEL}} ┤" + "".join(_cell(point, nodes) for point in points).rstrip())
    half = len(points) // 2
    lines.append(f"{'0':>{_LABEL}} └" + "─" * len(points))
    lines.append(
        " " * (_LABEL + 2) + "busiest hour".ljust(half - 2) + "50 %" + "quietest".rjust(len(points) - half - 2)
    )
    return "\n".join([*lines, LEGEND])


def _cell(point: LoadPoint, nodes: float) -> str:
    """Return the mark at one height of one point. The layers are stacked from the bottom."""
    floor = 0.0
    for mark, part in (
        (OWNED, point.owned),
        (FIRST, point.first_layer),
        (LATER, point.later_layers),
        (ON_DEMAND, point.on_demand),
        (UNUSED, point.unused),
    ):
        floor += part
        if nodes < floor:
            return mark
    return " "
