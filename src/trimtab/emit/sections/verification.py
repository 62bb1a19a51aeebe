"""A verification as a page of sections: what the plan has saved since, what no longer holds, and current buying options."""

from __future__ import annotations

from trimtab.emit.blocks import (
    Block,
    Chart,
    Figure,
    Page,
    Paragraph,
    Section,
    StyledText,
    Table,
    TableColumn,
    TableRow,
    Tone,
    Words,
    bullets,
    code,
    strong,
)
from trimtab.emit.html.charts import bill_bridge, phone_bridge
from trimtab.emit.money import dollars, percent
from trimtab.emit.words import days
from trimtab.levers.registry import title_of
from trimtab.plan.verify.enactment import Drift
from trimtab.plan.verify.verification import ActionStatus, ActionVerdict, NodePurchase, PurchaseOption, Verification

_STATUS = {
    ActionStatus.ON_TRACK: ("✓ on track", Tone.GOOD),
    ActionStatus.SHORT: ("✗ short", Tone.BAD),
    ActionStatus.NOT_ENACTED: ("✗ not enacted", Tone.BAD),
}
_ROUNDING_USD = 2.0
"""Amounts below are differences of sums that were rounded."""


def verification_page(found: Verification, fleet: str) -> Page:
    """Return the page."""
    steps = ", ".join(f"{name} {amount:+,.0f}" for name, amount in _bridge(found))
    return Page(
        brand="trimtab verify",
        title="Plan afterwards",
        subject=fleet,
        seen=f"History of {days(found.window.start, found.window.end)}; changes in rates are shown separately.",
        headline=(
            f"$/month: the bill then {found.then_usd_mo:,.0f}, {steps} = ",
            strong(f"{found.now_usd_mo:,.0f} now"),
            f". Predicted saving {found.predicted_usd_mo:,.0f}{_outside(found)}.",
        ),
        figures=_figures(found),
        sections=(
            Section(
                name="bridge",
                title="From the bill then to the bill now",
                gloss=f"dollars a month; the plan was to save {dollars(found.predicted_usd_mo)}",
                blocks=(
                    Chart(
                        draw=lambda: bill_bridge(found.then_usd_mo, _bridge(found), found.now_usd_mo),
                        on_phone=lambda: phone_bridge(found.then_usd_mo, _bridge(found), found.now_usd_mo),
                    ),
                    *_notes(found),
                ),
            ),
            Section(
                name="actions",
                title="Action by action",
                gloss="realised: at today's demand and the plan's rates",
                blocks=(_actions(found),),
            ),
            Section(name="drift", title="What no longer holds", blocks=(_drifts(found),)),
            Section(
                name="buying",
                title="How it is bought",
                gloss="the nodes in use, at today's rates under every buying option; spot nodes may be reclaimed",
                blocks=(bullets([_purchase(purchase) for purchase in found.purchases]),),
            ),
        ),
    )


def _outside(found: Verification) -> str:
    """Say how much of the saving no action explains; empty if that is less than a dollar or two of rounding."""
    if abs(found.outside_usd_mo) < _ROUNDING_USD:
        return ""
    return f"; {found.outside_usd_mo:,.0f} of the saving did not come from any action of the plan"


def _figures(found: Verification) -> tuple[Figure, ...]:
    share = found.saved_usd_mo / found.predicted_usd_mo if found.predicted_usd_mo else 0.0
    kept = sum(action.status is ActionStatus.ON_TRACK for action in found.actions)
    on_track = Tone.GOOD if kept == len(found.actions) else Tone.BAD
    drifted = Tone.BAD if found.drifts else Tone.GOOD
    saved = f"a month, at the plan's rates; {percent(share)} of the prediction"
    return (
        Figure(name="The bill now", value=dollars(found.now_usd_mo), note="a month"),
        Figure(name="Saved", value=dollars(found.saved_usd_mo), note=saved, tone=Tone.GOOD),
        Figure(name="Actions on track", value=f"{kept} of {len(found.actions)}", note=_enacted(found), tone=on_track),
        Figure(name="Drift alerts", value=str(len(found.drifts)), note="what no longer holds", tone=drifted),
    )


def _enacted(found: Verification) -> str:
    left = sum(action.status is ActionStatus.NOT_ENACTED for action in found.actions)
    if not left:
        return "all enacted"
    return "none enacted" if left == len(found.actions) else f"{left} not enacted"


def _bridge(found: Verification) -> tuple[tuple[str, float], ...]:
    return (
        ("demand since then", found.demand_usd_mo),
        ("saved", -found.saved_usd_mo),
        ("new rates", found.rates_usd_mo),
    )


def _notes(found: Verification) -> list[Block]:
    return [bullets(found.notes)] if found.notes else []


def _actions(found: Verification) -> Table:
    return Table(
        columns=(
            TableColumn(title="id", whole=True),
            TableColumn(title="what"),
            TableColumn(title="", whole=True),
            TableColumn(title="enacted", right=True, optional=1),
            TableColumn(title="predicted $/month", right=True),
            TableColumn(title="80% interval", right=True, optional=2),
            TableColumn(title="realised", right=True),
            TableColumn(title="why", readable=24),
        ),
        rows=tuple(map(_action_row, found.actions)),
    )


def _action_row(action: ActionVerdict) -> TableRow:
    status, tone = _STATUS[action.status]
    predicted = action.predicted_usd_mo
    return TableRow(
        cells=(
            code(action.id),
            (f"{title_of(action.lever)}: ", strong(action.subject)),
            StyledText(status, tone),
            percent(action.enacted_frac),
            f"{predicted.value:,.0f}",
            f"{predicted.low:,.0f}–{predicted.high:,.0f}",
            f"{action.realised_usd_mo:,.0f}",
            action.cause,
        )
    )


def _drifts(found: Verification) -> Block:
    if not found.drifts:
        return Paragraph(words="Nothing: relocated workloads still fit, and commitments are used enough to pay off.")
    return bullets([StyledText(drift_line(drift), Tone.WARN) for drift in found.drifts])


def drift_line(drift: Drift) -> str:
    """Describe an alert in one line."""
    action = f" ({drift.action})" if drift.action else ""
    side = "below" if drift.seen_frac < drift.limit_frac else "above"
    seen, limit = percent(drift.seen_frac), percent(drift.limit_frac)
    return f"{drift.subject}{action}: {drift.kind.value} {seen}, {side} {limit}; {drift.advice}"


def _purchase(purchase: NodePurchase) -> Words:
    """Describe a pool's usage and each buying option."""
    ways = ", ".join(map(_option_words, sorted(purchase.options, key=lambda option: option.usd_mo)))
    return (
        strong(purchase.instance_type),
        f" {purchase.region}, {purchase.mean_nodes:.1f} nodes, {purchase.now}, {dollars(purchase.now_usd_mo)} a month; every "
        f"way: {ways}. {purchase.advice[:1].upper()}{purchase.advice[1:]}.",
    )


def _option_words(option: PurchaseOption) -> str:
    commit = f", {option.commit} committed" if option.option.term_years else ""
    return f"{option.option.value} {dollars(option.usd_mo)}{commit}"
