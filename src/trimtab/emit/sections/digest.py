"""The weekly digest as a page of sections: cost, changes, open actions, realised savings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from trimtab.emit.blocks import (
    Amount,
    Block,
    Bullets,
    Cell,
    Figure,
    ListItem,
    Page,
    Paragraph,
    Section,
    StyledText,
    Table,
    TableColumn,
    TableRow,
    Tone,
    Words,
    code,
    strong,
)
from trimtab.emit.digest_document import CausePart, DigestPart, PayerPart, RealisedPart, TodoPart, TodosPart
from trimtab.emit.money import dollars, dollars_and_cents, percent, whole_dollars
from trimtab.emit.words import days
from trimtab.units import HR_PER_WEEK

_BRIEF_PAYERS = 12
_BRIEF_ACTIONS = 8
_STEADY_FRAC = 0.005
"""Weeks that differ by less than half a percent are called about the same."""
_STATUS_TONE = {"on track": Tone.GOOD, "short": Tone.BAD, "not enacted": Tone.WARN}


def digest_page(digest: DigestPart, version: str) -> Page:
    """Return the page of one digest."""
    return Page(
        brand="trimtab digest",
        title=f"GPU cost of week {digest.week}",
        subject=digest.fleet if digest.team is None else f"team {digest.team}",
        seen=_seen(digest),
        notes=tuple(_notes(digest)),
        headline=_headline(digest),
        figures=tuple(_figures(digest)),
        sections=(
            Section(name="cost", title="What it costs", gloss=_cost_gloss(digest), blocks=(_payers(digest),)),
            Section(name="change", title="What changed", gloss=_change_gloss(digest), blocks=(_changes(digest),)),
            Section(name="todo", title="What to do", gloss=_todo_gloss(digest), blocks=tuple(_todos(digest))),
            Section(
                name="realised", title="What was realised", gloss=_realised_gloss(digest), blocks=(_realised(digest),)
            ),
        ),
        foot=f"trimtab {version}. Read-only: nothing was changed; people apply what it writes.",
    )


def _seen(digest: DigestPart) -> str:
    covered = "" if digest.whole else f", part of the week only: {digest.window.hours} of {HR_PER_WEEK} h"
    return f"Week {digest.week}, {days(digest.window.start, digest.window.end)} (UTC){covered}; {digest.basis}; {digest.fleet}."


def _notes(digest: DigestPart) -> Iterator[str]:
    former = digest.former
    if former is not None and not (former.whole and digest.whole):
        part = "" if former.whole else f" ({former.window.hours} of {HR_PER_WEEK} h of it are known)"
        yield (
            f"Compared by cost per covered hour: {former.week}{part}, scaled to {digest.window.hours} h. Days of the week "
            "differ, so part of a week may cost more or less per hour than the whole."
        )
    if digest.measured_frac is not None and digest.measured_frac < 1 - _STEADY_FRAC:
        yield f"{percent(digest.measured_frac)} of the GPU-hours held have readings; idle shares refer to those."


def _headline(digest: DigestPart) -> Words:
    share = "" if digest.share_frac is None else f", {percent(digest.share_frac, 1)} of the fleet's bill"
    return (strong(dollars(digest.usd)), share, f": {_change_words(digest)}.")


def _change_words(digest: DigestPart) -> str:
    former, change = digest.former, digest.change_usd
    if former is None or change is None:
        return digest.no_former
    frac = change / former.usd if former.usd else None
    if frac is not None and abs(frac) < _STEADY_FRAC:
        return f"about the same as the week before ({_signed(change)})"
    much = "" if frac is None else f" ({abs(frac) * 100:.1f}%)"
    word = "more" if change > 0 else "less"
    causes = digest.causes
    mostly = f", mostly {causes[0].cause} ({_signed(_cause_dollars(causes)[0])})" if causes else ""
    return f"{dollars(abs(change))}{much} {word} than the week before{mostly}"


def _figures(digest: DigestPart) -> Iterator[Figure]:
    hours = f"{digest.gpu_hours:,.0f} GPU-hours held"
    yield Figure(name="This week", value=dollars(digest.usd), note=hours)
    change = digest.change_usd
    if change is None:
        yield Figure(name="Change", value="–", note="no former week")
    else:
        steady = abs(change) < _STEADY_FRAC * abs(digest.usd)
        tone = Tone.PLAIN if steady else Tone.BAD if change > 0 else Tone.GOOD
        yield Figure(name="Change", value=_signed(change), note="compared with the week before", tone=tone)
    yield _idle(digest)
    todos = digest.todos
    if todos is not None:
        yield Figure(name="Left to save", value=dollars(todos.saving_usd_mo), note="a month", tone=Tone.GOOD)


def _idle(digest: DigestPart) -> Figure:
    """Return the idle share. Fleet: nodes held by no workload and held GPUs that did nothing. Team: the latter only."""
    held = "not measured" if digest.idle_frac is None else f"{percent(digest.idle_frac)} of GPU-hours held did nothing"
    if digest.idle_nodes_usd is None:
        return Figure(name="Idle while held", value=percent(digest.idle_frac), note="of the GPU-hours held")
    share = digest.idle_nodes_usd / digest.usd if digest.usd else None
    return Figure(name="Idle nodes", value=percent(share), note=f"{dollars(digest.idle_nodes_usd)}; {held}")


def _commands(text: str) -> Words:
    """Return a text with the parts between backticks marked as code."""
    return tuple(code(part) if index % 2 else part for index, part in enumerate(text.split("`")))


# Cost, and changes


def _cost_gloss(digest: DigestPart) -> str:
    return "dollars; the rows sum to the bill of the week" if digest.team is None else "dollars; by workload"


def _payers(digest: DigestPart) -> Table:
    payers, rest = digest.payers, digest.payers[_BRIEF_PAYERS:]
    changes: Sequence[int | None] = [None] * len(payers)
    # either all rows have a previous week or none has
    former_usd = [payer.former_usd for payer in payers if payer.former_usd is not None]
    if len(former_usd) == len(payers):
        changes = whole_dollars([payer.usd - former for payer, former in zip(payers, former_usd, strict=True)])
    who = "team" if digest.team is None else "workload"
    compared = digest.former is not None
    columns = (
        TableColumn(title=who, repeat=True),
        TableColumn(title="$", right=True),
        TableColumn(title="share", right=True, optional=2),
        *([TableColumn(title="change", right=True)] if compared else []),
        TableColumn(title="GPU-hours", right=True, optional=1),
        TableColumn(title="idle", right=True, gloss="share of its measured GPU-hours in which its GPUs did nothing"),
    )
    return Table(
        columns=columns,
        rows=tuple(TableRow(cells=_payer(*row)) for row in zip(payers, changes, strict=True)),
        total=TableRow(cells=_total(digest)),
        brief_rows=_BRIEF_PAYERS,
        rest=TableRow(cells=_rest(rest, changes[_BRIEF_PAYERS:], digest)) if rest else None,
        of=f"{who}s",
    )


def _payer(payer: PayerPart, change_usd: int | None) -> tuple[Cell, ...]:
    hours = "" if payer.shared else f"{payer.gpu_hours:,.0f}"
    idle = "" if payer.shared else percent(payer.idle_frac)
    change = [] if change_usd is None else [_change_cell(change_usd)]
    return (payer.name, Amount(payer.usd), percent(payer.share_frac, 1), *change, hours, idle)


def _rest(rest: Sequence[PayerPart], changes: Sequence[int | None], digest: DigestPart) -> tuple[Cell, ...]:
    usd = sum(payer.usd for payer in rest)
    share = usd / digest.usd if digest.usd else None
    known = [change_usd for change_usd in changes if change_usd is not None]
    change: list[Cell] = [_change_cell(sum(known))] if known else []
    hours = sum(payer.gpu_hours for payer in rest)
    return (f"{len(rest)} more", Amount(usd), percent(share, 1), *change, f"{hours:,.0f}", "")


def _total(digest: DigestPart) -> tuple[Cell, ...]:
    change: list[Cell] = [] if digest.change_usd is None else [_change_cell(digest.change_usd)]
    whole = "100.0%" if digest.usd else "–"
    return (
        strong("together"),
        Amount(digest.usd, strong=True),
        whole,
        *change,
        f"{digest.gpu_hours:,.0f}",
        percent(digest.idle_frac),
    )


def _change_cell(usd: float) -> StyledText:
    tone = Tone.PLAIN if round(usd) == 0 else Tone.BAD if usd > 0 else Tone.GOOD
    return StyledText(_signed(usd), tone)


def _signed(usd: float) -> str:
    """Format a change in whole dollars: `+$519`, `-$861`, `$0`."""
    return f"+{dollars(usd)}" if round(usd) > 0 else dollars(usd)


def _change_gloss(digest: DigestPart) -> str:
    former = digest.former
    if former is None:
        return ""
    scaled = "" if former.whole and digest.whole else f", scaled to {digest.window.hours} h"
    return f"{dollars_and_cents(former.usd)} in {former.week}{scaled}; dollars, by cause; they sum to the change"


def _changes(digest: DigestPart) -> Block:
    if digest.former is None or digest.change_usd is None:
        return Paragraph(words=f"{digest.no_former[:1].upper()}{digest.no_former[1:]}.")
    if not digest.causes:
        return Paragraph(words=f"None: {digest.former.week} cost the same, to the cent.")
    total = TableRow(cells=(strong("change"), _change_cell(digest.change_usd), ""))
    return Table(
        columns=(
            TableColumn(title="cause"),
            TableColumn(title="$", right=True),
            TableColumn(title="mostly", readable=28),
        ),
        rows=tuple(
            TableRow(cells=(cause.cause, _change_cell(usd), _mostly(cause)))
            for cause, usd in zip(digest.causes, _cause_dollars(digest.causes), strict=True)
        ),
        total=total,
    )


def _cause_dollars(causes: Sequence[CausePart]) -> list[int]:
    """Return what causes added in whole dollars that sum to the change as shown."""
    return whole_dollars([cause.usd for cause in causes])


def _mostly(cause: CausePart) -> str:
    """Name who contributed to a cause, with amounts if there are several, because they may have opposite signs."""
    if len(cause.mostly) == 1:
        return cause.mostly[0].name
    return ", ".join(f"{moved.name} {_signed(moved.usd)}" for moved in cause.mostly)


# Open actions, and realised savings


def _todo_gloss(digest: DigestPart) -> str:
    todos = digest.todos
    return "" if todos is None else f"the plan's first steps, from the audit of {todos.fleet} up to {todos.until}"


def _todos(digest: DigestPart) -> Iterator[Block]:
    todos = digest.todos
    if todos is None:
        yield Paragraph(words=_commands(digest.no_todos))
        return
    savings_usd_mo = [action.saving_usd_mo for action in todos.actions]
    # with more actions than are listed, the sum of those listed is not shown
    shown = savings_usd_mo if todos.left else whole_dollars(savings_usd_mo)
    items = tuple(ListItem(words=_todo(*row)) for row in zip(todos.actions, shown, strict=True))
    yield Bullets(numbered=True, items=items)
    yield Paragraph(words=_after(todos))


def _todo(action: TodoPart, saving_usd_mo: float) -> Words:
    weeks = f"{action.effort_weeks:g} engineer-week{'' if action.effort_weeks == 1 else 's'}"
    others = ", with other teams" if action.others else ""
    return (
        strong(action.subject),
        f": {action.effect}. Saves ",
        strong(f"{dollars(saving_usd_mo)} a month", Tone.GOOD),
        f"{others}; {weeks}, risk {action.risk} (",
        code(f"trimtab explain {action.id}"),
        ")",
    )


def _after(todos: TodosPart) -> str:
    if not todos.left:
        return f"Together {dollars(todos.saving_usd_mo)} a month."
    more = f"{todos.left} more action{'' if todos.left == 1 else 's'}"
    return f"{more}; all of them together save {dollars(todos.saving_usd_mo)} a month."


def _realised_gloss(digest: DigestPart) -> str:
    found = digest.realised
    if found is None:
        return ""
    return f"over {days(found.window.start, found.window.end)}, at the plan's rates and today's demand; dollars a month"


def _realised(digest: DigestPart) -> Block:
    found = digest.realised
    if found is None:
        return Paragraph(words=_commands(digest.no_realised))
    rest = found.actions[_BRIEF_ACTIONS:]
    return Table(
        columns=(
            TableColumn(title="action"),
            TableColumn(title="", whole=True),
            TableColumn(title="predicted", right=True),
            TableColumn(title="realised", right=True),
        ),
        rows=tuple(
            TableRow(
                cells=(
                    f"{action.subject}: {action.cause}" if action.cause else action.subject,
                    StyledText(action.status, _STATUS_TONE[action.status]),
                    Amount(action.predicted_usd_mo),
                    Amount(action.realised_usd_mo),
                )
            )
            for action in found.actions
        ),
        total=_realised_total(found),
        brief_rows=_BRIEF_ACTIONS,
        rest=TableRow(cells=(f"{len(rest)} more", "", "", "")) if rest else None,
        of="actions",
    )


def _realised_total(found: RealisedPart) -> TableRow:
    on_track = f"{found.on_track} of {len(found.actions)} on track"
    return TableRow(
        cells=(
            strong("together"),
            on_track,
            Amount(found.predicted_usd_mo, strong=True),
            Amount(found.realised_usd_mo, strong=True),
        )
    )
