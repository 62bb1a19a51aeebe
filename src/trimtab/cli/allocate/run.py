"""Runs `trimtab allocate`, and builds the charge-back as a page of sections."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, timedelta
from pathlib import Path

from trimtab.catalog import load_catalog
from trimtab.cli.allocate import AllocateOptions
from trimtab.cli.allocate.tables import (
    BUDGET,
    BUDGET_FIELDS,
    MONTH_FIELDS,
    MONTHS,
    TABLE_FIELDS,
    TOKEN_FIELDS,
    WHO,
    ChargeBack,
    months_sheet,
    tokens_sheet,
    who_sheet,
)
from trimtab.cli.history import History, HistoryChoice, open_history
from trimtab.cli.output import Cell, Format, Sheet, write_page, write_sheet, write_workbook
from trimtab.cli.progress import Tell, progress_bar, set_verbosity
from trimtab.diagnose.bill_split import ChargeBasis, CostSplit, DailySpend, SplitBasis
from trimtab.diagnose.charges import (
    DEMAND_COLUMNS,
    Charge,
    Month,
    MonthEnd,
    Rules,
    SharedRule,
    charges,
    month_end,
    months,
    served_in,
)
from trimtab.diagnose.token_cost import ConsumerUse, TokenCharge, by_consumer, summed, token_charges
from trimtab.emit.blocks import Block, Page, Section, Table, bullets
from trimtab.emit.words import days
from trimtab.errors import Fault, PriceFileError, UsageError
from trimtab.fleet.model import Fleet, Window
from trimtab.fleet.token_work import TokenAmounts
from trimtab.inputs.files import read_csv_rows
from trimtab.pipeline.spending import SpendingTerms, spending
from trimtab.sources.bills.focus import BILL_COUNTS
from trimtab.units import HR_PER_DAY, micro_usd, per_month, usd, usd_cents


@dataclass(frozen=True, slots=True, kw_only=True)
class _Split:
    """A fleet with its spend and what that is based on, and the bill's months if there is a bill."""

    fleet: Fleet
    spent: DailySpend
    by_workload: DailySpend
    basis: str
    months: tuple[Month, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _SplitTerms:
    """How to split a bill."""

    split: CostSplit
    charged: SpendingTerms
    rules: Rules
    invoices: Mapping[str, int]


def _terms(options: AllocateOptions) -> _SplitTerms:
    return _SplitTerms(
        split=CostSplit.parse(options.split),
        charged=SpendingTerms(basis=options.basis, usd_per=parse_rates(options.rates), at=options.at),
        rules=Rules(idle=SharedRule(options.idle), shared=SharedRule(options.shared)),
        invoices=parse_invoices(options.invoices),
    )


def run_allocate(options: AllocateOptions) -> None:
    """Split the bill and write the answer."""
    options.answer.check()
    set_verbosity(0, options.quiet)
    with progress_bar(quiet=options.quiet) as tell:
        title, answer = charged_back(options, tell)
    _write(options, title, answer)


def charged_back(options: AllocateOptions, tell: Tell) -> tuple[str, ChargeBack]:
    """Split the bill of the named history; return the history's name and the answer. Raises TrimtabError."""
    terms = _terms(options)
    budgets = read_budgets(options.budgets) if options.budgets else {}
    uses = read_token_use(options.token_use) if options.token_use else []
    if uses and not options.show_tokens:
        raise UsageError("--token-use divides what --tokens shows: add --tokens")
    choice = HistoryChoice(bundle=options.bundle, demo=options.demo, demo_trace=None, source=options.source)
    tell("opening the fleet", 0.0)
    history = open_history(choice, tell)
    tell("reading who held what, and what it cost", 0.3)
    found = _split(options, terms, history)
    tell("splitting the bill", 0.8)
    served = served_in(history.bundle.table("demand", DEMAND_COLUMNS), found.fleet.window)
    rows = charges(found.fleet, found.spent, terms.split, terms.rules, served)
    answer = replace(_answer(rows, found, budgets), tokens=_token_rows(found, terms, uses))
    left_out = _left_out_notes(history.bundle.meta.counts) if found.months else []
    return history.name, replace(answer, notes=[*answer.notes, *left_out])


def _split(options: AllocateOptions, terms: _SplitTerms, history: History) -> _Split:
    found = spending(history.bundle, terms.charged, load_catalog(options.prices))
    either = found.charges
    return _Split(
        fleet=found.fleet,
        spent=found.spent(terms.split),
        by_workload=found.spent(_BY_WORKLOAD),
        basis=found.basis,
        months=months(either[ChargeBasis.BILLED], either[ChargeBasis.EFFECTIVE], terms.invoices) if either else (),
    )


_HOUR = timedelta(hours=1)
_BY_WORKLOAD = CostSplit(by=SplitBasis.WORKLOAD)


def _token_rows(found: _Split, terms: _SplitTerms, uses: Sequence[ConsumerUse]) -> tuple[TokenCharge, ...]:
    """Divide each service's charge over its tokens, and group services by what the bill is split by, or by consumers."""
    each = charges(found.fleet, found.by_workload, _BY_WORKLOAD, terms.rules, {})
    bills = {row.name: row.micro_usd for row in each if not row.nobodys}
    rows = token_charges(found.fleet, bills)
    if uses:
        known = {row.name for row in rows}
        unknown = sorted({use.service for use in uses} - known)
        if unknown:
            raise UsageError(
                f"--token-use: no tokens were read of {', '.join(unknown)}; services with tokens: {', '.join(sorted(known))}"
            )
        return by_consumer(rows, uses)
    payer = {workload.name: terms.split.of(workload) for workload in found.fleet.workloads}
    return summed(rows, payer.__getitem__)


def _answer(rows: Sequence[Charge], found: _Split, budgets: Mapping[str, float]) -> ChargeBack:
    window = found.fleet.window
    n_days = max((len(costs) for costs in (*found.spent.held.values(), *found.spent.unheld.values())), default=0)
    at_list = not found.months
    whole_days = (window.start.hour + window.hours) // HR_PER_DAY if at_list else n_days
    window_hr = float(window.hours if at_list else n_days * HR_PER_DAY)
    total = sum(row.micro_usd for row in rows)
    first = found.spent.first_day
    last = (window.end - _HOUR).date() if at_list else first + timedelta(days=n_days - 1)
    notes = [
        f"Sum ${usd_cents(total):,.2f}, the bill of {first:%-d %b %Y} to {last:%-d %b %Y} "
        f"({found.basis}; ${per_month(usd_cents(total), window_hr):,.0f} a month)."
    ]
    return ChargeBack(
        charges=rows,
        window_hr=window_hr,
        month_ends={row.name: _month_end(row, found.spent, whole_days) for row in rows} if n_days else {},
        budgets_usd_mo=budgets,
        months=found.months,
        notes=[
            *notes,
            *([] if at_list else _outside_notes(found.spent, window)),
            *_carried_notes(found.fleet),
            *_month_notes(found.months),
            *_budget_notes(rows, budgets),
        ],
    )


def _outside_notes(spent: DailySpend, window: Window) -> list[str]:
    """Say what a bill charges for days of which there is no history, so that the holders of nodes are not known."""
    known_days = range(
        (window.start.date() - spent.first_day).days, ((window.end - _HOUR).date() - spent.first_day).days + 1
    )
    by_day = [costs for costs in (*spent.held.values(), *spent.unheld.values()) if len(costs)]
    outside = sum(int(cost) for costs in by_day for day, cost in enumerate(costs) if day not in known_days)
    if not usd_cents(outside):
        return []
    return [
        f"${usd_cents(outside):,.2f} of it was charged for days outside the history ({days(window.start, window.end)}): who "
        "held the nodes then is not known."
    ]


def _month_end(row: Charge, spent: DailySpend, whole_days: int) -> MonthEnd:
    """Forecast a payer's month: its own days, scaled to include its part of shared costs."""
    own_days = spent.unheld[row.name] if row.nobodys else spent.held[row.name]
    own = int(own_days.sum())
    scaled = (own_days * (row.micro_usd / own)).round().astype("int64") if own else own_days
    return month_end(spent.first_day, scaled, whole_days)


def _carried_notes(fleet: Fleet) -> list[str]:
    """Report which nodes have no listed price: charged at the bill's rate, or not at all."""
    lines = []
    for pool, micro_usd_hr in sorted(fleet.carried_micro_usd_hr.items()):
        what = f"{sum(node.pool == pool for node in fleet.nodes)} node(s) of {pool} have no"
        if micro_usd_hr:
            lines.append(
                f"{what} listed price and are charged at the bill's rate, ${usd(micro_usd_hr):,.2f} an hour each"
            )
        else:
            lines.append(f"{what} price and are not charged to anyone; give their price with --prices FILE")
    return lines


def _month_notes(found: Sequence[Month]) -> list[str]:
    lines = []
    for month in found:
        asked = f"{month.month}: the charges sum to ${usd_cents(month.billed):,.2f}"
        if month.invoice is None or month.difference is None:
            lines.append(f"{asked}; compare it with the invoice: --invoice {month.month}=AMOUNT.")
        elif usd_cents(month.difference) == 0:
            lines.append(f"{asked}, which equals the invoice.")
        else:
            lines.append(
                f"{asked}; the invoice says ${usd_cents(month.invoice):,.2f}: "
                f"{abs(usd_cents(month.difference)):,.2f} {'too much' if month.difference > 0 else 'is missing'} here."
            )
    return lines


def _left_out_notes(counts: Mapping[str, int]) -> list[str]:
    """Report which rows of the bill are not charged, and which cells were left empty."""
    return [f"{number:,} x {reason}." for reason, number in sorted(counts.items()) if reason.startswith(BILL_COUNTS)]


def _budget_notes(rows: Sequence[Charge], budgets: Mapping[str, float]) -> list[str]:
    unknown = sorted(budgets.keys() - {row.name for row in rows})
    return [f"Budgets for names without any charges: {', '.join(unknown)}."] if unknown else []


def _write(options: AllocateOptions, title: str, answer: ChargeBack) -> None:
    if options.answer.output_format is Format.HTML:
        write_page(charge_page(title, answer), Format.HTML, options.answer.out)
        return
    sheet, usual = _asked_sheet(options, answer)
    if options.answer.output_format is Format.XLSX:
        named = options.answer.fields
        write_workbook({"charges": sheet.only(named)} if named else _every_sheet(answer), options.answer.out)
        return
    for_people = usual if options.answer.output_format is Format.TABLE else ()
    fields = options.answer.fields or for_people
    write_sheet(sheet, options.answer.output_format, out=options.answer.out, fields=fields)


def _every_sheet(answer: ChargeBack) -> dict[str, Sheet]:
    """Return every table that there is, by its title."""
    found = {"charges": who_sheet(answer)}
    if answer.months:
        found["months"] = months_sheet(answer)
    if answer.tokens:
        found["tokens"] = tokens_sheet(answer)
    return found


def _asked_sheet(options: AllocateOptions, answer: ChargeBack) -> tuple[Sheet, tuple[str, ...]]:
    """Return the requested table, and its columns for people. Raises UsageError if there is nothing to show."""
    if options.show_tokens:
        if not answer.tokens:
            raise UsageError("--tokens needs tokens of a service (table demand: input_tokens, output_tokens)")
        return tokens_sheet(answer), TOKEN_FIELDS
    if options.show_months:
        if not answer.months:
            raise UsageError("--months needs a bill; give one with --focus FILE")
        return months_sheet(answer), MONTH_FIELDS
    return who_sheet(answer), BUDGET_FIELDS if answer.budgets_usd_mo else TABLE_FIELDS


def read_budgets(path: Path) -> dict[str, float]:
    """Read a CSV of `name,usd_mo`. Raises PriceFileError with every invalid row."""
    rows = read_csv_rows(path)
    found: dict[str, float] = {}
    faults = []
    for number, row in enumerate(rows, start=2):
        name, text = (row.get("name") or "").strip(), (row.get("usd_mo") or "").strip()
        try:
            amount = float(text)
        except ValueError:
            amount = -1.0
        if not name or not 0 <= amount < float("inf"):
            cure = "give name,usd_mo as in: research,12000"
            faults.append(Fault(what="no budget", where=f"row {number}", value=f"{name},{text}", cure=cure))
        elif name in found:
            faults.append(Fault(what="a second budget", where=f"row {number}", value=name, cure="keep one of them"))
        else:
            found[name] = amount
    if faults or not rows:
        nothing = Fault(what="no row", where=str(path), cure="give a CSV of name,usd_mo")
        raise PriceFileError(str(path), faults or [nothing])
    return found


_TOKEN_COLUMNS = ("input_tokens", "output_tokens", "cached_tokens")


def read_token_use(path: Path) -> list[ConsumerUse]:
    """Read a CSV of tokens by service and consumer; cached_tokens may be left out. Raises PriceFileError with every bad row."""
    rows = read_csv_rows(path)
    found: list[ConsumerUse] = []
    faults = []
    for number, row in enumerate(rows, start=2):
        service, consumer = (row.get("service") or "").strip(), (row.get("consumer") or "").strip()
        amounts = [_amount(row.get(name) or ("0" if name == "cached_tokens" else "")) for name in _TOKEN_COLUMNS]
        read = [amount for amount in amounts if amount is not None]
        if not service or not consumer or len(read) < len(amounts):
            cure = "give service,consumer,input_tokens,output_tokens[,cached_tokens] as in: apps/chat,acme,1200000,300000,0"
            value = ",".join(str(row.get(name) or "") for name in ("service", "consumer", *_TOKEN_COLUMNS))
            faults.append(Fault(what="no use of tokens", where=f"row {number}", value=value, cure=cure))
            continue
        tokens = TokenAmounts(input=read[0], output=read[1], cached=read[2])
        found.append(ConsumerUse(service=service, consumer=consumer, tokens=tokens))
    if faults or not rows:
        nothing = Fault(
            what="no row", where=str(path), cure="give a CSV of service,consumer,input_tokens,output_tokens"
        )
        raise PriceFileError(str(path), faults or [nothing])
    return found


def _amount(text: str) -> float | None:
    """Return a number of tokens, or None for what is none."""
    try:
        amount = float(text)
    except ValueError:
        return None
    return amount if 0 <= amount < float("inf") else None


def parse_rates(texts: Sequence[str]) -> dict[str, float]:
    """Read `EUR=1.08` texts: dollars per unit of a currency. Raises UsageError."""
    found = {}
    for text in texts:
        currency, _, rate = text.partition("=")
        found[currency.strip().upper()] = _positive(rate, text, "--fx CURRENCY=DOLLARS, as EUR=1.08")
    return found


def parse_invoices(texts: Sequence[str]) -> dict[str, int]:
    """Read `2026-09=12345.67` texts: a month's invoice in micro-dollars. Raises UsageError."""
    found: dict[str, int] = {}
    for text in texts:
        month, _, amount = text.partition("=")
        try:
            date.fromisoformat(f"{month.strip()}-01")
        except ValueError as error:
            raise UsageError(f"{text!r}: write --invoice MONTH=AMOUNT, as 2026-09=12345.67") from error
        found[month.strip()] = micro_usd(_positive(amount, text, "--invoice MONTH=AMOUNT, as 2026-09=12345.67"))
    return found


def _positive(number: str, text: str, form: str) -> float:
    try:
        value = float(number)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise UsageError(f"{text!r}: write {form}")
    return value


def charge_page(title: str, answer: ChargeBack) -> Page:
    """Return the page: who pays what, budgets if given, and each month's invoice."""
    who = who_sheet(answer)
    charged: list[Block] = [_with_bars(replace(who, columns=WHO)), bullets(answer.notes)]
    sections = [Section(name="who", title="Who pays", blocks=tuple(charged))]
    if answer.tokens:
        tokens = tokens_sheet(answer)
        priced = replace(tokens, columns=tokens.columns[:-2]).table()
        notes = bullets([str(note) for note in tokens.notes[1:]])
        sections.append(
            Section(
                name="tokens",
                title="What tokens cost",
                gloss="each service's charge over its tokens; input: prompt tokens that had to be computed",
                blocks=(priced, notes),
            )
        )
    if answer.budgets_usd_mo:
        sections.append(
            Section(
                name="budgets",
                title="Budgets",
                gloss="forecast: spend so far this month, plus the mean of the same past weekdays for each day left",
                blocks=(replace(who, columns=(WHO[0], *BUDGET)).table(),),
            )
        )
    if answer.months:
        months = months_sheet(answer)
        notes = bullets([str(note) for note in months.notes])
        table = replace(months, columns=MONTHS).table()
        sections.append(Section(name="months", title="Month close", blocks=(table, notes)))
    return Page(brand="trimtab allocate", title="GPU charge-back", subject=title, sections=tuple(sections))


def _with_bars(sheet: Sheet) -> Table:
    """Return the table with a bar per payer, the longest for the largest charge."""
    table = sheet.table()
    shares = [_share(row.get("share_frac")) for row in sheet.rows]
    most = max(shares, default=0.0)
    if most <= 0:
        return table
    rows = (replace(row, bar_frac=share / most) for row, share in zip(table.rows, shares, strict=True))
    return replace(table, rows=tuple(rows))


def _share(cell: Cell) -> float:
    return max(0.0, cell) if isinstance(cell, float) else 0.0
