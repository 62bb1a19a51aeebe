"""A plan with some of its actions switched off: chosen again without them, billed again, and proved again.

A switched action is forbidden, not subtracted: its lever is taken from the ways of its workloads, its purchase from the market,
its idle nodes from what may be given back, and the joint problem is solved again over what is left. So another action may take
its place, and commitments are sized again. The choice is among ways that were replayed for the plan; ways that no replay has
looked at stay out, so that an answer takes a second and not a minute. The rest of the plan, as it stands, is always one of the
answers: where choosing again finds nothing better, it is kept.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, replace

from trimtab.ledger import Commitment, CommitmentOffer
from trimtab.plan.actions.draft_actions import DraftAction
from trimtab.plan.actions.draft_plan import Actions, DraftPlan
from trimtab.plan.actions.staging import staged
from trimtab.plan.choosing import row_efforts
from trimtab.plan.effort import effort_micro_usd, with_effort
from trimtab.plan.model import TargetResult
from trimtab.plan.options.workload_options import WorkloadOptions
from trimtab.plan.planner import Planned, draft_of, worthwhile
from trimtab.plan.problem import Problem
from trimtab.plan.program.solve import solve_problem
from trimtab.plan.proof.proof_window import ProofResult, touched_targets, untouched_targets
from trimtab.plan.prospects import Prospects

MOST_SHARED = 512
"""Sets of actions that are billed at most to share a saving; beyond, each action stands with what is lost without it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SwitchedAction:
    """An action of the plan that was chosen again: what it is worth there."""

    draft: DraftAction
    saving_micro_usd: int
    was: str | None
    """The id of the plan's action that it is: the same lever on the same subject, a purchase of the same in whatever size;
    None where it is new."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Switched:
    """A plan without some actions. Amounts are micro-dollars over the fit window, those of the proof over the proof window."""

    off: tuple[str, ...]
    before_micro_usd: int
    after_micro_usd: int
    rest_micro_usd: int
    """What the rest of the plan as it stands would come to, nothing put in the place of what is off."""
    actions: tuple[SwitchedAction, ...]
    shared: bool
    """Whether the actions' savings are shares that sum to the joint one; else what is lost without each."""
    proof_before_micro_usd: int
    proof_after_micro_usd: int
    targets: tuple[TargetResult, ...]


def switched(planned: Planned, proven: ProofResult, off: Iterable[str]) -> Switched:
    """Return the plan without the actions of these ids, billed on the fit window and replayed on the proof window.

    Ids that the plan does not have are left aside. With nothing off it is the plan itself, to the micro-dollar.
    """
    ids = {action.id: number for action, number in zip(planned.plan.actions, planned.order, strict=True)}
    named = tuple(name for name in ids if name in set(off))
    dropped = frozenset(ids[name] for name in named)
    drafted = planned.drafted
    prospects = planned.prospects
    rest = chosen = drafted
    if dropped and prospects is not None:
        rest, _ = staged(drafted.without(dropped), prospects.settings)
        chosen = _chosen(prospects, drafted, dropped, rest)
    saved, shared = _savings(chosen, planned)
    known: dict[Hashable, list[str]] = {}
    for name in (name for name in ids if name not in named):
        known.setdefault(_same(drafted.actions[ids[name]]), []).append(name)
    actions = []
    for draft, saving in zip(chosen.actions, saved, strict=True):
        names = known.get(_same(draft), [])
        actions.append(SwitchedAction(draft=draft, saving_micro_usd=saving, was=names.pop(0) if names else None))
    before, after, targets = _proved(chosen, proven)
    return Switched(
        off=named,
        before_micro_usd=chosen.cost(frozenset()),
        after_micro_usd=chosen.cost(chosen.everything),
        rest_micro_usd=rest.cost(rest.everything),
        actions=tuple(sorted(actions, key=lambda action: -action.saving_micro_usd)),
        shared=shared,
        proof_before_micro_usd=before,
        proof_after_micro_usd=after,
        targets=targets,
    )


def _same(draft: DraftAction) -> Hashable:
    """Return what an action of another plan has in common with this one where the two are the same."""
    sold = tuple(_sold(commitment.offer) for commitment in draft.discounts)
    return (draft.lever, sold) if sold else (draft.lever, draft.subject)


def _chosen(prospects: Prospects, drafted: DraftPlan, dropped: Actions, rest: DraftPlan) -> DraftPlan:
    """Return the cheaper, by bill and work, of the plan chosen again without some actions and of the rest as it stands."""
    again = _solved_without(prospects, drafted, dropped)
    settings, hours = prospects.settings, drafted.fleet.window.hours

    def whole_cost(drafted: DraftPlan) -> int:
        return drafted.cost(drafted.everything) + effort_micro_usd(drafted.actions, settings, hours)

    return min(again, rest, key=whole_cost)


def _solved_without(prospects: Prospects, drafted: DraftPlan, dropped: Actions) -> DraftPlan:
    """Solve the joint problem over the replayed ways that need none of some actions."""
    settings = prospects.settings
    rows = _rows_without(prospects, [drafted.actions[number] for number in dropped])
    problem = _problem_without(prospects.problem(rows), drafted, dropped, len(rows))
    paying = with_effort(problem, row_efforts(problem, rows, settings))
    chosen = solve_problem(paying, settings.planning, start=solve_problem(problem, settings.planning).choice)
    found, _ = worthwhile(draft_of(prospects.fleet, rows, chosen, prospects.market, problem.owned), rows, settings)
    return _within(found, drafted, dropped)


def _rows_without(prospects: Prospects, off: list[DraftAction]) -> list[WorkloadOptions | None]:
    """Return every workload's replayed ways, less those that owe anything to a lever that is off for it."""
    banned: dict[int, set[str]] = {}
    for draft in off:
        for index in draft.workloads:
            banned.setdefault(index, set()).add(draft.lever)
    return [
        judged
        and replace(
            judged,
            waiting=(),
            candidates=tuple(
                way for way in judged.candidates if not way.deployment.levers & banned.get(index, frozenset())
            ),
        )
        for index, judged in enumerate(prospects.options)
    ]


def _problem_without(problem: Problem, drafted: DraftPlan, dropped: Actions, workloads: int) -> Problem:
    """Return the problem without purchases that are wholly off, in which nodes that are to stay cannot be given back."""
    on, gone = _quantities(drafted, drafted.everything - dropped), _quantities(drafted, dropped)
    stay = {name for number in dropped for name in drafted.actions[number].released}
    rows = list(problem.options)
    for row, nodes in enumerate(nodes for _, nodes in sorted(drafted.enacted.groups.unheld.items())):
        if any(drafted.fleet.nodes[node].name in stay for node in nodes):
            rows[workloads + row] = ()
    return replace(
        problem,
        options=tuple(rows),
        offers=tuple(offer for offer in problem.offers if _sold(offer) not in gone.keys() - on.keys()),
    )


def _within(found: DraftPlan, drafted: DraftPlan, dropped: Actions) -> DraftPlan:
    """Return the draft that buys no more of an offer than the parts that are still on, where some part of it is off."""
    on, gone = _quantities(drafted, drafted.everything - dropped), _quantities(drafted, dropped)
    if not any(_sold(commitment.offer) in gone for commitment in found.discounts):
        return found
    capped = (
        replace(commitment, quantity=min(commitment.quantity, on[_sold(commitment.offer)]))
        if _sold(commitment.offer) in gone
        else commitment
        for commitment in found.discounts
    )
    return DraftPlan(
        fleet=found.fleet,
        enacted=found.enacted,
        deployments=found.deployments,
        released=found.released,
        discounts=tuple(commitment for commitment in capped if commitment.quantity),
    )


def _quantities(drafted: DraftPlan, some: Actions) -> Counter[Hashable]:
    """Return how much some actions buy, by what is sold."""
    found = Counter[Hashable]()
    for commitment in _purchases(drafted, some):
        found[_sold(commitment.offer)] += commitment.quantity
    return found


def _purchases(drafted: DraftPlan, some: Actions) -> list[Commitment]:
    return [commitment for number in sorted(some) for commitment in drafted.actions[number].discounts]


def _sold(offer: CommitmentOffer) -> Hashable:
    """Return what tells an offer from the others: its option and the pools that it covers."""
    return offer.option, tuple(sorted(offer.rates_micro_usd_hr))


def _savings(chosen: DraftPlan, planned: Planned) -> tuple[list[int], bool]:
    """Return what each action is worth: its share, or what is lost without it where sharing takes too many bills."""
    if chosen is planned.drafted:
        by_number = dict(zip(planned.order, planned.plan.actions, strict=True))
        return [by_number[number].saving_micro_usd for number in range(len(chosen.actions))], True
    if sum(2 ** len(group) for group in chosen.groups) <= MOST_SHARED:
        return list(chosen.shares(0).shapley), True
    return [chosen.last_in(number) for number in range(len(chosen.actions))], False


def _proved(chosen: DraftPlan, proven: ProofResult) -> tuple[int, int, tuple[TargetResult, ...]]:
    """Return the proof window's bill before and after, and what its targets attain."""
    enacted = proven.enacted
    planned = {chosen.fleet.workloads[index].name: deployment for index, deployment in chosen.deployments.items()}
    in_force = {
        index: planned[workload.name]
        for index, workload in enumerate(enacted.fleet.workloads)
        if workload.name in planned and index in enacted.evaluators
    }
    released = [chosen.fleet.nodes[index].name for index in chosen.released]
    after = enacted.bill(in_force, released, chosen.bought(chosen.everything)).total + enacted.moving(in_force)
    targets = (*touched_targets(enacted, in_force), *untouched_targets(enacted, in_force))
    return enacted.bill({}, (), ()).total, after, targets
