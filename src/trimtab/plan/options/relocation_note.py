"""Why a workload that may move stays where it is: the rule that holds it, or what moving would save and cost."""

from __future__ import annotations

from collections.abc import Sequence

from trimtab.fleet.effects import Relocate
from trimtab.fleet.market import Market
from trimtab.fleet.reach import reach_of
from trimtab.fleet.settings import Lever
from trimtab.plan.options.candidate import Candidate
from trimtab.plan.options.precision_note import alone_cost
from trimtab.plan.outcomes.change_cost import entry_micro_usd, entry_usd
from trimtab.plan.outcomes.outcome import Case, held_usage, placement
from trimtab.units import per_month, usd


def relocation_note(case: Case, market: Market, kept: Sequence[Candidate], *, misses: bool) -> str | None:
    """Say what the best move would save on nodes and cost besides, each alone; None where nobody asked for a move.

    `kept` are the candidates that keep every target, `misses` whether some move missed one. Slots of shared nodes are left
    out: what they cost depends on who else is there.
    """
    reach = reach_of(case.workload, market)
    if isinstance(reach, str):
        return reach
    if not reach:
        return None
    whole = [one for one in kept if not one.slots]
    moves = [one for one in whole if Lever.RELOCATION in one.effects]
    if not moves:
        where = ", ".join(str(region) for region in reach)
        return f"every variant in {where} misses a target" if misses else f"no node on offer in {where} fits it"
    home = {case.workload.pool: held_usage(case.workload, placement(case.workload, {}))}
    stay = min([alone_cost(home, market), *(_nodes(one, market) for one in whole if one not in moves)])
    best = min(moves, key=lambda one: _nodes(one, market) + _besides(one, case))
    return _in_words(best, stay - _nodes(best, market), _besides(best, case), case)


def _nodes(one: Candidate, market: Market) -> int:
    return alone_cost(one.usage, market)


def _besides(one: Candidate, case: Case) -> int:
    return one.own_micro_usd + len(one.needs) * entry_micro_usd(case.settings, case.window.hours)


def _in_words(one: Candidate, saved_micro_usd: int, besides_micro_usd: int, case: Case) -> str:
    move = one.effects[Lever.RELOCATION]
    assert isinstance(move, Relocate)
    saved, besides = (per_month(usd(micro), case.window.hours) for micro in (saved_micro_usd, besides_micro_usd))
    once = move.once_usd + len(one.needs) * entry_usd(case.settings)
    less = f"${saved:,.0f} less" if saved >= 0 else f"${-saved:,.0f} more"
    outweighed = ", which the work of moving or the rest of the plan outweighs" if saved > besides else ""
    return (
        f"in {move.place} its nodes would cost {less} a month than here, moving and traffic ${besides:,.0f} "
        f"(${move.traffic_usd_mo:,.0f} a month of traffic; ${once:,.0f} once, over "
        f"{case.settings.planning.change_horizon_mo:g} months){outweighed}"
    )
