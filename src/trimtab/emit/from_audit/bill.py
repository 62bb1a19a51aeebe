"""What was seen, the bill, what it buys, and what each workload's activity says, as parts of the audit's document."""

from __future__ import annotations

from collections.abc import Sequence

from trimtab.diagnose.broken import Breakage
from trimtab.diagnose.findings import Offence, ProductForm, Spend, Unjudged, Verdict, Waste
from trimtab.diagnose.long_tail import TailCost
from trimtab.diagnose.token_cost import TokenCharge
from trimtab.diagnose.untidy import Cost, CostlyBreakage, CostlyOffence
from trimtab.emit.document.bill import (
    BrokenPart,
    CommittedRatesPart,
    CoveragePart,
    FoundPart,
    HygienePart,
    LongTailPart,
    OwnedPart,
    OwnedSpendPart,
    ProductFormPart,
    SpendPart,
    SpendTables,
    TokenCostPart,
    UnjudgedPart,
    VerdictPart,
    WastePart,
)
from trimtab.emit.from_audit.shared import evidence_parts, share, window_part
from trimtab.emit.money import month_usd, month_usd_parts, percent
from trimtab.emit.words import WASTE_MEANING
from trimtab.fleet.model import Window
from trimtab.plan.audit import Audit
from trimtab.plan.commitments.inventory import CommitmentUse, OwnedNodes, OwnedSpend
from trimtab.plan.commitments.known_rates import KnownRates
from trimtab.units import TOKENS_PER_MTOK, apportion, cents, micro_usd, per_month, usd_cents

_GPU_HOUR_DIGITS = 2
_PRICE_DIGITS = 4
"""Of dollars per million tokens: a hundredth of a cent."""


def coverage_part(audit: Audit) -> CoveragePart:
    """Say how much history was read: the fit window, which the coverage's shares are of, and the proof window."""
    coverage, fit, proof = audit.coverage, audit.plan.window, audit.proof.window
    whole = Window(start=fit.start, hours=fit.hours + proof.hours)
    return CoveragePart(
        summary=(
            f"{whole.days:.1f} of {coverage.asked_days:g} days ({fit.days:g} to plan on, {proof.days:g} to prove on), "
            f"{coverage.nodes} {'node' if coverage.nodes == 1 else 'nodes'} with {coverage.gpus} GPUs billed, "
            f"{percent(coverage.device_hours_seen_frac)} of GPU-hours "
            f"measured ({percent(coverage.sm_active_frac)} of them with SM activity)"
        ),
        window=window_part(whole),
        asked_days=coverage.asked_days,
        device_hours_seen_frac=coverage.device_hours_seen_frac,
        sm_active_frac=coverage.sm_active_frac,
        gpus=coverage.gpus,
        nodes=coverage.nodes,
        notes=coverage.notes,
        counts=dict(coverage.counts),
    )


def spend_tables(audit: Audit) -> SpendTables:
    """Return the bill split three ways; each table sums to it to the cent."""
    return SpendTables(
        by_kind=_spend(audit.spend_by_kind, audit),
        by_team=_spend(audit.spend_by_team, audit),
        by_workload=_spend(audit.spend_by_workload, audit),
    )


def _spend(rows: Sequence[Spend], audit: Audit) -> tuple[SpendPart, ...]:
    amounts = month_usd_parts([row.micro_usd for row in rows], audit.bill_micro_usd, audit.plan.window.hours)
    return tuple(
        SpendPart(
            name=row.name,
            usd_mo=amount,
            share_frac=share(row.micro_usd, audit.bill_micro_usd),
            gpu_hours=round(row.gpu_hours, _GPU_HOUR_DIGITS),
            activity_frac=row.activity_frac,
            team=row.team,
            kind=row.kind,
        )
        for row, amount in zip(rows, amounts, strict=True)
    )


def long_tail_part(row: TailCost, window_hr: int) -> LongTailPart:
    """Return a cost beside the GPUs, a month of it."""
    return LongTailPart(
        kind=row.kind.value,
        subject=row.subject,
        usd_mo=None if row.micro_usd is None else month_usd(row.micro_usd, window_hr),
        tied=row.tied,
        evidence=row.evidence,
        advice=row.advice,
    )


def token_cost_parts(audit: Audit) -> tuple[TokenCostPart, ...]:
    """Return what tokens cost; each service's dollars sum to its share of the bill as `spend_tables` shows it."""
    shares = {row.name: row.usd_mo for row in spend_tables(audit).by_workload}
    team = {row.name: row.team or "" for row in audit.spend_by_workload}
    return tuple(_token_cost(row, shares[row.name], team[row.name], audit) for row in audit.token_costs)


def _token_cost(row: TokenCharge, usd_mo: float, team: str, audit: Audit) -> TokenCostPart:
    kinds = (row.input_micro_usd, row.output_micro_usd, row.cached_micro_usd, row.unread_micro_usd)
    whole_cents = cents(micro_usd(usd_mo))
    input_usd, output_usd, cached_usd, unread_usd = (part / 100 for part in apportion(whole_cents, kinds))
    hours = audit.plan.window.hours

    def mtok_mo(tokens: float) -> float:
        return round(per_month(tokens / TOKENS_PER_MTOK, hours), 3)

    return TokenCostPart(
        service=row.name,
        team=team,
        usd_mo=usd_mo,
        input_usd_mo=input_usd,
        output_usd_mo=output_usd,
        cached_usd_mo=cached_usd,
        unread_usd_mo=unread_usd,
        input_mtok_mo=mtok_mo(row.tokens.input),
        output_mtok_mo=mtok_mo(row.tokens.output),
        cached_mtok_mo=mtok_mo(row.tokens.cached) if row.cached_known else None,
        input_usd_per_mtok=_price(row.input_usd_per_mtok),
        output_usd_per_mtok=_price(row.output_usd_per_mtok),
        cached_usd_per_mtok=_price(row.cached_usd_per_mtok),
        rule=", ".join(rule.value for rule in row.rules),
        because=row.because,
    )


def _price(usd_per_mtok: float | None) -> float | None:
    return None if usd_per_mtok is None else round(usd_per_mtok, _PRICE_DIGITS)


def product_form_part(form: ProductForm) -> ProductFormPart:
    """Return the part of the GPU-hours that did work."""
    return ProductFormPart(
        allocation_frac=form.allocation_frac,
        busy_frac=form.busy_frac,
        efficiency_frac=form.efficiency_frac,
        product_frac=form.product_frac,
    )


def waste_parts(rows: Sequence[Waste], audit: Audit) -> tuple[WastePart, ...]:
    """Return what the bill buys, kind by kind; they sum to it to the cent."""
    amounts = month_usd_parts([row.micro_usd for row in rows], audit.bill_micro_usd, audit.plan.window.hours)
    return tuple(
        WastePart(
            kind=row.kind.value,
            usd_mo=amount,
            share_frac=share(row.micro_usd, audit.bill_micro_usd),
            meaning=WASTE_MEANING[row.kind],
            where=row.where,
        )
        for row, amount in zip(rows, amounts, strict=True)
    )


def broken_part(row: CostlyBreakage, history_hr: int) -> BrokenPart:
    """Return the part of a broken thing; `history_hr` are the hours that its cost is of."""
    shared = _found_part(row.breakage, row.cost, history_hr).model_dump()
    return BrokenPart(**shared, what=row.breakage.what, retried=row.retried)


def hygiene_part(row: CostlyOffence, history_hr: int) -> HygienePart:
    """Return the part of an offender; `history_hr` are the hours that its cost is of."""
    offence = row.offence
    return HygienePart(
        **_found_part(offence, row.cost, history_hr).model_dump(),
        owner_kind=offence.owner_kind,
        counted_in=offence.counted_in.value if offence.counted_in is not None and row.cost.micro_usd else "",
        unschedulable=offence.unschedulable,
        daemons=offence.daemons,
    )


def _found_part(found: Breakage | Offence, cost: Cost, history_hr: int) -> FoundPart:
    return FoundPart(
        kind=found.kind.value,
        subject=found.subject,
        nodes=found.nodes,
        items=found.items,
        usd=usd_cents(cost.micro_usd),
        usd_mo=month_usd(cost.micro_usd, history_hr),
        gpu_hours=round(cost.gpu_hours, _GPU_HOUR_DIGITS),
        usd_hr=None if cost.usd_hr is None else round(cost.usd_hr, 2),
        call=found.call.value,
        evidence=found.evidence,
    )


def verdict_part(verdict: Verdict) -> VerdictPart:
    """Return a verdict's part."""
    return VerdictPart(workload=verdict.workload, headline=verdict.headline, evidence=evidence_parts(verdict.evidence))


def unjudged_part(row: Unjudged, window_hr: int) -> UnjudgedPart:
    """Return the part of a workload that no plan was made for; `window_hr` are the hours that its cost is of."""
    return UnjudgedPart(workload=row.workload, usd_mo=month_usd(row.micro_usd, window_hr), reason=row.reason)


def committed_rates_part(known: KnownRates) -> CommittedRatesPart:
    """Return the part of what could not be judged for lack of a committed rate."""
    return CommittedRatesPart(
        on_demand_usd_mo=round(known.on_demand_usd_mo, 2),
        unjudged_usd_mo=round(known.unjudged_usd_mo, 2),
        unjudged_pools=tuple(str(pool) for pool in known.unjudged_pools),
    )


def owned_parts(held: Sequence[CommitmentUse]) -> tuple[OwnedPart, ...]:
    """Return the parts of the commitments to nodes that run already."""
    return tuple(
        OwnedPart(
            name=use.owned.name,
            pool=str(scope.offer.pool),
            count=scope.count,
            end=use.owned.end.isoformat(),
            used_frac=use.used_frac,
            sunk_usd_mo=round(use.unused_usd_mo, 2),
        )
        for use in held
        if isinstance(scope := use.owned.scope, OwnedNodes)
    )


def owned_spend_parts(held: Sequence[CommitmentUse]) -> tuple[OwnedSpendPart, ...]:
    """Return the parts of the commitments to spend that run already."""
    return tuple(
        OwnedSpendPart(
            name=use.owned.name,
            provider=scope.provider,
            usd_hr=scope.usd_hr,
            end=use.owned.end.isoformat(),
            used_frac=use.used_frac,
            sunk_usd_mo=round(use.unused_usd_mo, 2),
        )
        for use in held
        if isinstance(scope := use.owned.scope, OwnedSpend)
    )
