"""An audit for finance readers: what a month costs and would cost, what is uncertain, and what the commitments would be.

Uses no technical terms except the names on the bill. Every figure comes from the audit, in dollars a month.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from types import MappingProxyType

from trimtab.catalog.kinds import BuyingOption
from trimtab.diagnose.findings import WasteKind
from trimtab.emit.blocks import (
    Amount,
    Block,
    Figure,
    Noted,
    Page,
    Paragraph,
    Section,
    Table,
    TableColumn,
    TableRow,
    Tone,
    Words,
    bullets,
    strong,
)
from trimtab.emit.document import AuditDocument
from trimtab.emit.document.plan import ActionPart, PlanPart
from trimtab.emit.money import bill_left, dollars, percent
from trimtab.emit.words import USEFUL, days
from trimtab.levers.registry import levers, title_of
from trimtab.units import HR_PER_MO, MO_PER_YEAR, usd

PLAIN_LEVERS: Mapping[str, str] = MappingProxyType(
    {
        "autoscaling": "Run as many copies of the service as its traffic needs, hour by hour",
        "batching": "Let the service answer several requests at once, so that it needs fewer machines",
        "capacity-block": "Book machines ahead for fixed days, at a lower price",
        "closed-hours": "Turn the service off in hours without users",
        "commitment": "Agree to pay for machines for a longer time, at a lower price",
        "disaggregation": "Read questions on one kind of machine and write answers on another, each as many as it takes",
        "faster-start": "Have copies of the service ready sooner, so that fewer stand by",
        "gpu-count": "Give each job fewer GPUs, because it does not use the others",
        "idle-release": "Give machines back when nothing runs on them",
        "overflow": "Use the cheaper machines as far as there are any, and others only for what is left over",
        "quantization": "Run the model in a smaller form that needs fewer machines",
        "relocation": "Move the work to where machines cost less",
        "replica-gpus": "Run each copy of a language model on another number of chips, where that costs less",
        "replica-count": "Run fewer copies of the service",
        "right-size": "Use a cheaper kind of machine that is good enough for the work",
        "scale-to-zero": "Turn the service off while it is not used",
        "schedule": "Pay for machines in working hours and for planned jobs only",
        "sharing": "Let several pieces of work share one machine",
        "spot": "Use spare machines at a discount; the provider may take them back at short notice",
        "training-memory": "Train with less memory, so that a cheaper machine is enough",
    }
)
"""What a lever does, for finance readers."""
PLAIN_WASTE: Mapping[str, str] = MappingProxyType(
    {
        WasteKind.USEFUL.value: "Work that was needed",
        WasteKind.FAILED_RUNS.value: "Work that failed and was done again",
        WasteKind.FAULTY_NODES.value: "Machines that were broken or slow",
        WasteKind.UNUSED_COMMITMENT.value: "Commitments that were not used",
        WasteKind.UNALLOCATED_NODES.value: "Machines that were not reserved",
        WasteKind.UNKNOWN_HOLDER.value: "Machines whose users are unknown",
        WasteKind.HOURS_NOT_USED.value: "Machines kept on between jobs, with nothing to do",
        WasteKind.NON_GPU_PODS.value: "GPU machines kept busy by work that needs no GPU",
        WasteKind.IDLE.value: "GPUs that somebody had reserved and did not use",
        WasteKind.OVER_PARALLEL.value: "More GPUs for a job than it could use",
        WasteKind.OVER_PROVISIONED.value: "More copies of a service than its traffic needed",
        WasteKind.OVER_SIZED.value: "Larger machines than the work needed",
        WasteKind.BUYING_OPTION.value: "The same machines bought at a higher price than necessary",
        WasteKind.UNMEASURED.value: "Machines whose use was not recorded",
    }
)
"""What a part of the bill paid for, for finance readers."""
_BASIS: Mapping[str, str] = MappingProxyType(
    {
        "measured": "were measured",
        "calibrated": "were computed from your own records of the past weeks",
        "modelled": "come from a formula and were not observed on your machines",
        "assumed": "depend on an assumption that somebody should confirm",
    }
)
_RISK: Mapping[str, str] = MappingProxyType(
    {
        "low": "users would notice nothing if it went wrong",
        "medium": "a service could be slow for a while until it is undone",
        "high": "it commits you for a term, or users would notice a mistake",
    }
)
_MOST_TEAMS = 25


def finance_page(document: AuditDocument) -> Page:
    """Return the page."""
    seen = document.coverage.window
    return Page(
        brand="trimtab audit",
        title="GPU costs, for finance",
        subject=document.fleet,
        seen=f"From the records of {days(seen.start, seen.end)}. All amounts are US dollars a month unless stated otherwise.",
        headline=finance_headline(document),
        figures=finance_figures(document),
        sections=finance_sections(document),
        foot=f"trimtab {document.trimtab_version}. Nothing has been changed; people decide and act.",
    )


def finance_headline(document: AuditDocument) -> Words:
    """Say what is paid today, and what could be paid."""
    plan = document.plan
    if not plan.actions:
        return (
            "GPUs cost ",
            strong(f"{dollars(document.bill_usd_mo)} a month"),
            ". Nothing worth changing was found.",
        )
    many = f"the {len(plan.actions)} changes" if len(plan.actions) > 1 else "the one change"
    return (
        "GPUs cost ",
        strong(f"{dollars(document.bill_usd_mo)} a month"),
        f". With {many} below they would cost about {dollars(plan.shown_bill_usd_mo())}: ",
        strong(f"{dollars(plan.joint_saving_usd_mo)} a month less", Tone.GOOD),
        f"{_likely(plan.joint_saving_low_usd_mo, plan.joint_saving_high_usd_mo)}.",
    )


def _likely(low_usd: float | None, high_usd: float | None) -> str:
    if low_usd is None or high_usd is None:
        return ""
    return f", in 8 of 10 cases between {dollars(low_usd)} and {dollars(high_usd)}"


def finance_figures(document: AuditDocument) -> tuple[Figure, ...]:
    """Return the figures that head the page."""
    plan = document.plan
    bound_usd_mo = sum(bought.usd_mo for bought in new_commitments(plan.actions))
    low, high = plan.joint_saving_low_usd_mo, plan.joint_saving_high_usd_mo
    certain = "a month" if low is None or high is None else f"a month; likely {dollars(low)} to {dollars(high)}"
    return (
        Figure(name="Paid today", value=dollars(document.bill_usd_mo), note="a month"),
        Figure(
            name="With the changes",
            value=dollars(plan.shown_bill_usd_mo()),
            note="a month, once all are made",
        ),
        Figure(name="Saved", value=dollars(plan.joint_saving_usd_mo), note=certain, tone=Tone.GOOD),
        Figure(
            name="New commitments",
            value=dollars(bound_usd_mo),
            note="a month, owed whether used or not" if bound_usd_mo else "none would be made",
        ),
    )


def finance_sections(document: AuditDocument) -> tuple[Section, ...]:
    """Return the sections that have something to say."""
    made: tuple[tuple[str, str, str, Sequence[Block]], ...] = (
        ("pays-for", "What the money buys", "together this is the bill", [_buys(document)]),
        ("who", "Who it is spent on", "", [_teams(document)]),
        ("months", "Month by month", "if the changes are made one after another", _months(document)),
        ("changes", "What would change", "each amount is that change's share of the total saving", _changes(document)),
        ("certain", "What is certain and what is not", "", [bullets(list(_certain(document)))]),
        ("committed", "What is committed", "owed whether it is used or not", _committed(document)),
    )
    return tuple(
        Section(name=name, title=title, gloss=gloss, blocks=tuple(blocks))
        for name, title, gloss, blocks in made
        if blocks
    )


def _buys(document: AuditDocument) -> Table:
    bought = sorted((row for row in document.waste if row.usd_mo > 0), key=lambda row: row.kind != USEFUL)
    rows = [
        TableRow(
            cells=(
                PLAIN_WASTE.get(row.kind, row.meaning),
                Amount(row.usd_mo),
                percent(row.share_frac),
            )
        )
        for row in bought
    ]
    return Table(
        columns=(
            TableColumn(title="what"),
            TableColumn(title="$ a month", right=True),
            TableColumn(title="of the bill", right=True),
        ),
        rows=tuple(rows),
        total=TableRow(cells=(strong("Together"), Amount(document.bill_usd_mo, strong=True), "100%")),
        whole_dollars=True,
    )


def _teams(document: AuditDocument) -> Table:
    rows = [TableRow(cells=(row.name, Amount(row.usd_mo), percent(row.share_frac))) for row in document.spend.by_team]
    return Table(
        columns=(
            TableColumn(title="team"),
            TableColumn(title="$ a month", right=True),
            TableColumn(title="of the bill", right=True),
        ),
        rows=tuple(rows),
        total=TableRow(cells=(strong("Together"), Amount(document.bill_usd_mo, strong=True), "100%")),
        page_rows=_MOST_TEAMS,
        of="teams",
        whole_dollars=True,
    )


def _months(document: AuditDocument) -> list[Block]:
    found = document.plan.roadmap
    if found is None:
        return []
    bills = found.course.bill_usd_mo
    months = len(bills) - 1
    year_usd = bill_left(bills[0] * months, found.course.year_usd)
    rows = []
    for bill_usd, same in groupby(range(1, months + 1), key=lambda month: bills[month]):
        first, *others = same
        done = [step.action for step in found.course.steps if first - 1 < step.done_mo <= first]
        when = f"month {first} to {others[-1]}" if others else f"month {first}"
        left_usd = bill_left(bills[0], bill_usd)
        less_usd = round(bills[0]) - left_usd
        rows.append(TableRow(cells=(when, Amount(left_usd), Amount(less_usd), ", ".join(done) or "–")))
    return [
        Table(
            columns=(
                TableColumn(title="at the end of"),
                TableColumn(title="bill, $ a month", right=True),
                TableColumn(title="less than today", right=True),
                TableColumn(title="changes made by then"),
            ),
            rows=tuple(rows),
            whole_dollars=True,
        ),
        Paragraph(
            words=f"Over these {months} months that is {dollars(year_usd)}; without changes it would "
            f"be {dollars(bills[0] * months)}. The work of your own engineers is not included: "
            f"{sum(action.effort_weeks for action in document.plan.actions):.1f} weeks of one engineer in total."
        ),
    ]


def _changes(document: AuditDocument) -> list[Block]:
    binding = {lever.name for lever in levers() if not lever.reversible}
    actions = document.plan.actions
    shown_usd = document.plan.shown_savings_usd_mo()
    rows = [
        TableRow(
            cells=(
                action.id,
                Noted(
                    words=(f"{PLAIN_LEVERS.get(action.lever, title_of(action.lever))}: ", strong(action.subject)),
                    beneath="cannot be undone: it is paid to the end of its term" if action.lever in binding else "",
                ),
                Noted(
                    words=f"{shown_usd[action.id]:,}",
                    beneath=f"{action.saving_low_usd_mo:,.0f} to {action.saving_high_usd_mo:,.0f}",
                ),
            )
        )
        for action in actions
    ]
    if not rows:
        return []
    columns = (
        TableColumn(title="", whole=True),
        TableColumn(title="what"),
        TableColumn(title="saves, $ a month", right=True, gloss="below each, its range in 8 of 10 cases"),
    )
    total = TableRow(cells=("", strong("Together"), Amount(document.plan.joint_saving_usd_mo, strong=True)))
    return [Table(columns=columns, rows=tuple(rows), total=total, whole_dollars=True)]


def _certain(document: AuditDocument) -> Iterator[Words]:
    plan, proof = document.plan, document.proof
    if plan.actions:
        likely = _likely(plan.joint_saving_low_usd_mo, plan.joint_saving_high_usd_mo)
        yield (strong("The saving"), f" is {dollars(plan.joint_saving_usd_mo)} a month{likely}.")
        yield (
            strong("It was tested"),
            f" on the weeks of {days(proof.window.start, proof.window.end)}, which were not used to make it. There it saved "
            f"{percent(proof.saving_frac)} of the bill ({percent(plan.saving_frac)} was expected), and "
            f"{proof.targets_kept} of {len(proof.targets)} promises of speed to users were kept.",
        )
        yield from _by_part(plan)
    if document.unjudged:
        left_usd = sum(row.usd_mo for row in document.unjudged)
        yield (
            strong("Not looked into"),
            f": {dollars(left_usd)} a month of work that too little is known about. It stays as it is.",
        )
    rates = document.committed_rates
    if rates is not None and rates.unjudged_usd_mo > 0:
        yield (
            strong("No committed rate known"),
            f": {dollars(rates.unjudged_usd_mo)} of the {dollars(rates.on_demand_usd_mo)} a month that machines on demand "
            "cost. Whether a commitment pays for them is not known; a quote from the provider would show it.",
        )
    yield (
        strong("Prices"),
        " are those of the price list on the day of the audit, or your own rates if you gave them. An invoice also has taxes, "
        "credits and services other than GPUs, which are not in these amounts.",
    )
    for note in document.degraded:
        yield (strong("Weaker than asked"), f": {note}.")


def _by_part(plan: PlanPart) -> Iterator[Words]:
    """Say what the saving is based on, and what could go wrong."""
    actions, shown_usd = plan.actions, plan.shown_savings_usd_mo()
    for basis, words in _BASIS.items():
        saved_usd = sum(shown_usd[action.id] for action in actions if action.saving_basis == basis)
        if saved_usd > 0:
            yield f"{dollars(saved_usd)} a month of the savings {words}."
    for risk, words in _RISK.items():
        some = [action for action in actions if action.risk == risk]
        if some:
            ids = ", ".join(action.id for action in some)
            yield f"{dollars(sum(shown_usd[action.id] for action in some))} a month has {risk} risk ({ids}): {words}."


@dataclass(frozen=True, slots=True, kw_only=True)
class NewCommitment:
    """A purchase of the plan: what, for how many years, and the dollars a month owed whether it is used or not."""

    action: ActionPart
    what: str
    term_years: int
    usd_mo: float

    @property
    def total_usd(self) -> float:
        """Return the total to pay over the term."""
        return self.usd_mo * MO_PER_YEAR * self.term_years


def new_commitments(actions: Sequence[ActionPart]) -> list[NewCommitment]:
    """Return what the plan would commit to."""
    found = []
    for action in actions:
        for change in action.changes:
            match change.kind, change.settings:
                case "BuyCommitment", {"count": int(count), "rate_micro_usd_hr": int(rate), "option": str(option)}:
                    usd_hr, what = count * usd(rate), f"{count} x {change.subject}"
                case "BuySpendPlan", {"spend_micro_usd_hr": int(spend), "provider": provider, "option": str(option)}:
                    usd_hr, what = usd(spend), f"spending with {provider}"
                case _:
                    continue
            years = BuyingOption(option).term_years
            found.append(NewCommitment(action=action, what=what, term_years=years, usd_mo=usd_hr * HR_PER_MO))
    return found


def _committed(document: AuditDocument) -> list[Block]:
    shown_usd = document.plan.shown_savings_usd_mo()
    held: list[Words] = [
        (
            strong(f"Held already: {row.count} x {row.pool}"),
            f" until {row.end}; {_used(row.used_frac, row.sunk_usd_mo)}.",
        )
        for row in document.owned
    ]
    held += [
        (
            strong(f"Held already: {dollars(row.usd_hr * HR_PER_MO)} a month with {row.provider}"),
            f" until {row.end}; {_used(row.used_frac, row.sunk_usd_mo)}.",
        )
        for row in document.owned_spend
    ]
    new: list[Words] = [
        (
            strong(f"New: {bought.what}"),
            f" for {bought.term_years} year{'' if bought.term_years == 1 else 's'}, "
            f"{dollars(bought.usd_mo)} a month, {dollars(bought.total_usd)} over the term. It is owed even if the machines "
            f"are no longer needed. Saves {dollars(shown_usd[bought.action.id])} a month ({bought.action.id}).",
        )
        for bought in new_commitments(document.plan.actions)
    ]
    if not held and not new:
        return [Paragraph(words="There are no commitments, and none is proposed: everything can be ended at any time.")]
    rest = [] if new else ["No new commitment is proposed: all other changes can be undone at any time."]
    return [bullets([*held, *new, *rest])]


def _used(used_frac: float, sunk_usd_mo: float) -> str:
    unused = f", {dollars(sunk_usd_mo)} a month is paid for nothing" if sunk_usd_mo >= 1 else ""
    return f"{percent(used_frac)} of it is used{unused}"
