"""The answers of `trimtab allocate` as rows: who pays what, and what each month's invoice is made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from trimtab.cli.output import Cell, Sheet, SheetColumn, fixed, percent
from trimtab.units import MICRO_PER_CENT, TOKENS_PER_MTOK, cents, per_month, round_parts, usd, usd_cents

if TYPE_CHECKING:
    from trimtab.diagnose.charges import Charge, Month, MonthEnd
    from trimtab.diagnose.token_cost import TokenCharge


_K_REQUESTS = 1000

TABLE_FIELDS = ("name", "usd", "share_frac", "usd_mo", "gpu_hours", "usd_per_1k_requests", "usd_per_mtok")
"""The columns that fit into 80 characters; programs get every column."""
BUDGET_FIELDS = ("name", "usd", "month_so_far_usd", "month_forecast_usd", "budget_usd_mo", "over_budget_usd")
TOKEN_FIELDS = ("name", "usd", "usd_per_mtok_input", "usd_per_mtok_output", "usd_per_mtok_cached", "rule")
NOT_BY_TOKENS = "not by tokens"
_MOST_RULES = 12
MONTH_FIELDS = ("month", "usage_usd", "purchases_usd", "credits_usd", "tax_usd", "billed_usd", "difference_usd")
_MONTHS_NOTE = (
    "Billed = usage + purchases + credits + tax + other: the invoiced amount. Amortised: what the same month's use costs "
    "with commitments spread over the use that they cover. Corrections (of earlier invoices) and unused commitments are parts "
    "of these."
)


def _money(key: str, title: str, digits: int = 2) -> SheetColumn:
    return SheetColumn(key=key, title=title, show=fixed(digits), right=True, whole=True)


WHO = (
    SheetColumn(key="name", title="who", whole=True),
    _money("usd", "$"),
    SheetColumn(key="share_frac", title="share", show=percent(1), right=True, whole=True),
    _money("usd_mo", "$/month", 0),
    _money("shared_usd", "of it shared"),
    _money("gpu_hours", "GPU-hours", 0),
    _money("usd_per_gpu_hr", "$/GPU-hr"),
    _money("usd_per_1k_requests", "$/1k req", 3),
    _money("usd_per_mtok", "$/M tok", 3),
)
BUDGET = (
    _money("month_so_far_usd", "month so far", 0),
    _money("month_forecast_usd", "forecast", 0),
    _money("budget_usd_mo", "budget", 0),
    _money("over_budget_usd", "over", 0),
)
TOKENS = (
    SheetColumn(key="name", title="who", whole=True),
    _money("usd", "$"),
    _money("usd_per_mtok_input", "$/M input", 3),
    _money("usd_per_mtok_output", "$/M output", 3),
    _money("usd_per_mtok_cached", "$/M cached", 3),
    SheetColumn(key="rule", title="divided by", whole=True),
    _money("input_usd", "input $"),
    _money("output_usd", "output $"),
    _money("cached_usd", "cached $"),
    _money("unread_usd", "unread $"),
    _money("input_mtok", "M input", 1),
    _money("output_mtok", "M output", 1),
    _money("cached_mtok", "M cached", 1),
    SheetColumn(
        key="services", title="services", show=lambda cell: ", ".join(cell) if isinstance(cell, list) else str(cell)
    ),
    SheetColumn(key="because", title="because"),
)
MONTHS = (
    SheetColumn(key="month", title="month", whole=True),
    _money("usage_usd", "usage"),
    _money("purchases_usd", "purchases"),
    _money("credits_usd", "credits"),
    _money("tax_usd", "tax"),
    _money("other_usd", "other"),
    _money("billed_usd", "billed"),
    _money("invoice_usd", "invoice"),
    _money("difference_usd", "difference"),
    _money("corrections_usd", "corrections"),
    _money("amortised_usd", "amortised"),
    _money("unused_commitment_usd", "unused"),
    SheetColumn(key="rows", title="charges", right=True, whole=True),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChargeBack:
    """What was found: charges, each payer's month-end forecast, budgets in dollars a month, the bill's months, notes."""

    charges: Sequence[Charge]
    window_hr: float
    month_ends: Mapping[str, MonthEnd]
    budgets_usd_mo: Mapping[str, float]
    months: Sequence[Month]
    notes: Sequence[str]
    tokens: Sequence[TokenCharge] = ()
    """What the tokens of services cost."""

    @property
    def total_micro_usd(self) -> int:
        """Return the total."""
        return sum(charge.micro_usd for charge in self.charges)


def who_sheet(answer: ChargeBack) -> Sheet:
    """Return one row per payer. Cents are distributed so that the rows shown also sum to the cent."""
    shown = round_parts([charge.micro_usd for charge in answer.charges], MICRO_PER_CENT)
    rows = [_who(charge, part / 100, answer) for charge, part in zip(answer.charges, shown, strict=True)]
    columns = (*WHO, *BUDGET) if answer.month_ends else WHO
    return Sheet(columns=columns, rows=rows, notes=answer.notes)


def _who(charge: Charge, shown_usd: float, answer: ChargeBack) -> Mapping[str, Cell]:
    cost, total = usd(charge.micro_usd), answer.total_micro_usd
    row: dict[str, Cell] = {
        "name": charge.name,
        "usd": shown_usd,
        "share_frac": round(charge.micro_usd / total, 6) if total else None,
        "usd_mo": round(per_month(cost, answer.window_hr), 2),
        "shared_usd": usd_cents(charge.shared_micro_usd),
        "gpu_hours": round(charge.gpu_hours, 3),
        "usd_per_gpu_hr": round(cost / charge.gpu_hours, 4) if charge.gpu_hours else None,
        "usd_per_1k_requests": round(_K_REQUESTS * cost / charge.requests, 6) if charge.requests else None,
        "usd_per_mtok": round(TOKENS_PER_MTOK * cost / charge.tokens, 6) if charge.tokens else None,
    }
    end = answer.month_ends.get(charge.name)
    if end is not None:
        budget = answer.budgets_usd_mo.get(charge.name)
        forecast = usd_cents(round(end.forecast))
        row |= {
            "month_so_far_usd": usd_cents(round(end.so_far)),
            "month_forecast_usd": forecast,
            "budget_usd_mo": budget,
            "over_budget_usd": None if budget is None else round(forecast - budget, 2),
        }
    return row


def tokens_sheet(answer: ChargeBack) -> Sheet:
    """Return one row per payer of tokens, and one for costs without tokens; cents are distributed so that all sum to the
    bill."""
    parts = [
        part
        for row in answer.tokens
        for part in (row.input_micro_usd, row.output_micro_usd, row.cached_micro_usd, row.unread_micro_usd)
    ]
    shown = [part / 100 for part in round_parts([*parts, answer.total_micro_usd - sum(parts)], MICRO_PER_CENT)]
    rows = [_tokens(row, shown[4 * at : 4 * at + 4]) for at, row in enumerate(answer.tokens)]
    rest: Mapping[str, Cell] = {"name": NOT_BY_TOKENS, "usd": shown[-1]}
    return Sheet(columns=TOKENS, rows=[*rows, rest], notes=[*answer.notes[:1], *_rule_notes(answer.tokens)])


def _tokens(row: TokenCharge, shown_usd: Sequence[float]) -> Mapping[str, Cell]:
    input_usd, output_usd, cached_usd, unread_usd = shown_usd
    return {
        "name": row.name,
        "usd": round(sum(shown_usd), 2),
        "usd_per_mtok_input": _rounded(row.input_usd_per_mtok),
        "usd_per_mtok_output": _rounded(row.output_usd_per_mtok),
        "usd_per_mtok_cached": _rounded(row.cached_usd_per_mtok),
        "rule": ", ".join(rule.value for rule in row.rules),
        "input_usd": input_usd,
        "output_usd": output_usd,
        "cached_usd": cached_usd if row.cached_known else None,
        "unread_usd": unread_usd,
        "input_mtok": round(row.tokens.input / TOKENS_PER_MTOK, 6),
        "output_mtok": round(row.tokens.output / TOKENS_PER_MTOK, 6),
        "cached_mtok": round(row.tokens.cached / TOKENS_PER_MTOK, 6) if row.cached_known else None,
        "services": list(row.services),
        "because": row.because,
    }


def _rounded(price: float | None) -> float | None:
    return None if price is None else round(price, 6)


def _rule_notes(rows: Sequence[TokenCharge]) -> list[str]:
    """Say how each charge was divided between its tokens."""
    lines = [f"{row.name}: {', '.join(rule.value for rule in row.rules)}: {row.because}." for row in rows[:_MOST_RULES]]
    if len(rows) > _MOST_RULES:
        lines.append(f"{len(rows) - _MOST_RULES} more rules are in the JSON form.")
    return lines


def months_sheet(answer: ChargeBack) -> Sheet:
    """Return one row per billing month."""
    rows: list[Mapping[str, Cell]] = []
    for month in answer.months:
        parts = dict(month.by_category)
        named = [parts.pop(name, 0) for name in ("Usage", "Purchase", "Credit", "Tax")]
        in_cents = round_parts([*named, sum(parts.values())], MICRO_PER_CENT)
        usage, purchases, credit, tax, other = (part / 100 for part in in_cents)
        rows.append(
            {
                "month": month.month,
                "usage_usd": usage,
                "purchases_usd": purchases,
                "credits_usd": credit,
                "tax_usd": tax,
                "other_usd": other,
                "billed_usd": usd_cents(month.billed),
                "invoice_usd": None if month.invoice is None else usd_cents(month.invoice),
                "difference_usd": None if month.difference is None else cents(month.difference) / 100,
                "corrections_usd": usd_cents(month.corrections),
                "amortised_usd": usd_cents(month.amortised),
                "unused_commitment_usd": usd_cents(month.unused_commitment),
                "rows": month.rows,
            }
        )
    return Sheet(columns=MONTHS, rows=rows, notes=[_MONTHS_NOTE])
