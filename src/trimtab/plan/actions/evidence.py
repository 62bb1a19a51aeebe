"""What an action rests on: the statistics of its workloads that made the lever apply, and what the replay attained."""

from __future__ import annotations

from trimtab.fleet.effects import (
    BookBlocks,
    Effect,
    Relocate,
    SetPrecision,
    SetTrainingMemory,
    UseOffering,
    UseSlots,
)
from trimtab.fleet.market import Market
from trimtab.fleet.model import Fleet, IntArray, Workload
from trimtab.fleet.settings import Bands, Lever
from trimtab.fleet.working import busiest_hour_frac, working_frac
from trimtab.ledger import Bill, Commitment, SpendPlan
from trimtab.physics.colocation import AS_MET, MET_BOTH_WAYS, met_frac
from trimtab.plan.actions.draft_actions import Draft
from trimtab.plan.commitments.commit_advice import advise
from trimtab.plan.commitments.commit_table import Offer
from trimtab.plan.options.batch_evidence import batching_facts
from trimtab.plan.outcomes.outcome import Attained, Effects
from trimtab.plan.program.fleet_problem import Enacted
from trimtab.provenance import Evidence
from trimtab.units import S_PER_HR, usd

_SHOWN = 3


def evidence_of(
    draft: Draft, fleet: Fleet, enacted: Enacted, effects: dict[int, Effects], left: Bill, bands: Bands
) -> tuple[Evidence, ...]:
    """Return the evidence of an action; of a class of workloads, that of the largest few.

    `left` is the bill of what the whole plan leaves: what commitments rest on.
    """
    window = str(fleet.window)
    if draft.discounts:
        nodes = [_node_lines(one, left, enacted) for one in draft.discounts.commitments]
        spend = [_spend_lines(one, left, enacted) for one in draft.discounts.spend_plans]
        return tuple(_commitment(line, window) for lines_of in (*nodes, *spend) for line in lines_of)
    if draft.released:
        return (
            Evidence(
                what="GPUs held", query="allocations by node", window=window, value="0 in every hour", threshold="> 0"
            ),
        )
    largest = sorted(draft.workloads, key=lambda index: -fleet.workloads[index].gpu_hours)[:_SHOWN]
    lines: list[Evidence] = []
    for index in largest:
        workload = fleet.workloads[index]
        lines.append(_activity(workload, window, bands))
        lines += _of_lever(draft.lever, workload, effects[index], window)
        if draft.lever is Lever.BATCHING:
            facts = batching_facts(enacted.evaluators[index], effects[index])
            lines += [_line(workload, fact.what, fact.query, fact.value, fact.threshold, window) for fact in facts]
        if draft.lever is Lever.CAPACITY_BLOCK:
            used_frac = enacted.outcome(index, effects[index]).booked_used_frac
            lines += _of_blocks(effects[index][draft.lever], used_frac, workload, enacted.market, window)
        lines += [_attained(workload, one, window) for one in enacted.outcome(index, effects[index]).attained]
    return tuple(lines)


def _activity(workload: Workload, window: str, bands: Bands) -> Evidence:
    activity = workload.activity
    mean = "not measured" if activity.mean_frac is None else f"{activity.mean_frac:.0%}"
    return Evidence(
        what=f"{workload.name}: mean {activity.signal}",
        query=f"gpu_usage.{activity.signal}_mean where workload = '{workload.name}'",
        window=window,
        value=mean,
        threshold=f"healthy {bands.find_cause_frac:.0%}-{bands.healthy_frac:.0%}",
    )


def _of_lever(lever: Lever, workload: Workload, effects: Effects, window: str) -> list[Evidence]:
    match lever:
        case Lever.GPU_COUNT:
            share = workload.activity.active_devices_frac
            return [
                _line(
                    workload,
                    "GPUs of a run that did anything",
                    "gpu_usage by node and hour",
                    "not measured" if share is None else f"{share:.0%}",
                    "100%",
                    window,
                )
            ]
        case Lever.IDLE_RELEASE | Lever.SCHEDULE:
            held = workload.held_node_seconds.sum() / S_PER_HR
            used = workload.gpu_seconds.sum() / S_PER_HR / workload.gpus_per_node
            return [
                _line(
                    workload, "node-hours held / used", "nodes, allocations", f"{held:,.0f} / {used:,.0f}", "", window
                )
            ]
        case Lever.RIGHT_SIZE:
            size = effects[lever]
            if not isinstance(size, UseOffering):
                return []
            peak = workload.activity.memory_peak_gib
            memory = "not measured" if peak is None else f"{peak:.1f} GiB"
            speed = f"x{size.speed.value:.2f} ({size.speed.low:.2f}-{size.speed.high:.2f})"
            return [
                _line(workload, "memory peak", "gpu_usage.memory_used_gib_max", memory, size.gpu, window),
                _line(workload, f"speed on {size.gpu}", size.speed.because, speed, "", window),
            ]
        case Lever.RELOCATION:
            move = effects[lever]
            return _of_move(move, workload, window) if isinstance(move, Relocate) else []
        case Lever.SHARING:
            slot = effects[lever]
            return _of_slot(slot, workload, window) if isinstance(slot, UseSlots) else []
        case Lever.QUANTIZATION:
            change = effects[lever]
            if not isinstance(change, SetPrecision):
                return []
            moved = Lever.RIGHT_SIZE in effects or Lever.RELOCATION in effects
            ratio = change.speed_there if moved else change.speed
            speed = f"x{ratio.value:.2f} ({ratio.low:.2f}-{ratio.high:.2f})"
            formats = f"{change.after.value} over {change.before.value}"
            return [
                _line(workload, f"speed in {formats}", ratio.because, speed, "", window),
                _line(workload, "memory that it frees", "physics", f"{change.saved_gib:.1f} GiB", "", window),
                _line(
                    workload,
                    "change of the model's answers",
                    "nobody measured it here",
                    "unknown",
                    "evaluation",
                    window,
                ),
            ]
        case Lever.TRAINING_MEMORY:
            plan = effects[lever]
            return _of_memory(plan, workload, window) if isinstance(plan, SetTrainingMemory) else []
        case Lever.SPOT | Lever.BATCHING | Lever.AUTOSCALING | Lever.CAPACITY_BLOCK | Lever.COMMITMENT:
            return []


def _of_move(move: Relocate, workload: Workload, window: str) -> list[Evidence]:
    speed = f"x{move.speed.value:.2f} ({move.speed.low:.2f}-{move.speed.high:.2f})"
    once = f"${move.copy_usd:,.2f} for {move.data_gib:g} GiB, ${move.overlap_usd:,.2f} for both places"
    traffic = f"${move.traffic_usd_mo:,.2f} a month for {move.traffic_gib_mo:g} GiB"
    way = [
        _line(
            workload,
            "a request's longer way",
            "assumptions.region_rtt_s, continent_rtt_s",
            f"{move.rtt_s:g} s",
            "",
            window,
        )
    ]
    return [
        _line(workload, f"speed on {move.to.gpu}", move.speed.because, speed, "", window),
        _line(
            workload,
            "what moving costs once",
            "workloads.yaml: data_gib; assumptions.move_overlap_hr",
            once,
            "",
            window,
        ),
        _line(workload, "what crosses the border", "workloads.yaml: traffic_gib_mo", traffic, "", window),
        *(way if move.rtt_s else []),
    ]


def _of_slot(slot: UseSlots, workload: Workload, window: str) -> list[Evidence]:
    peak = workload.activity.memory_peak_gib
    memory = "not measured" if peak is None else f"{peak:.1f} GiB"
    speed = f"x{slot.speed.value:.2f} ({slot.speed.low:.2f}-{slot.speed.high:.2f})"
    room = f"{slot.memory_gib * slot.slots:.1f} GiB seen of {slot.shared}"
    lines = [
        _line(workload, "memory peak", "gpu_usage.memory_used_gib_max", memory, room, window),
        _line(workload, "GPU at work", "demand.running_mean, gpu_usage", f"{working_frac(workload):.0%}", "", window),
        _line(workload, f"speed on {slot.shared}", slot.speed.because, speed, "", window),
    ]
    if slot.others:
        lines += _of_turns(slot, workload, window)
    if not slot.shared.is_isolated:
        lines.append(
            _line(workload, "kept apart from others by", "declared isolation", slot.shared.isolation, "", window)
        )
        lines.append(
            _line(workload, "may be stopped by a fault of", "no hardware isolation", "everybody on its GPU", "", window)
        )
    return lines


def _of_turns(slot: UseSlots, workload: Workload, window: str) -> list[Evidence]:
    """Say how often a request would meet others at work, and how long the workload itself keeps the GPU."""
    limit = f"<= {slot.shared.busy_frac:.0%}, as of everybody there"
    usual, careful = (1 - met_frac(slot.others, slot.shared.busy_frac, ways)[0] for ways in (AS_MET, MET_BOTH_WAYS))
    mine = f"{busiest_hour_frac(workload):.0%}"
    return [
        _line(workload, "at work in its busiest hour, on its GPU now", "gpu_usage by hour", mine, limit, window),
        _line(
            workload,
            f"requests that meet others, of {slot.others}",
            "physics",
            f"{usual:.0%}-{careful:.0%}",
            "",
            window,
        ),
    ]


def _of_memory(plan: SetTrainingMemory, workload: Workload, window: str) -> list[Evidence]:
    peak = workload.activity.memory_peak_gib
    seen = "not measured" if peak is None else f"{peak:.1f} GiB"
    speed = f"x{plan.speed.value:.2f} ({plan.speed.low:.2f}-{plan.speed.high:.2f})"
    return [
        _line(workload, "memory peak of a GPU", "gpu_usage.memory_used_gib_max", seen, "", window),
        _line(
            workload,
            f"memory of {plan.gpu} it will take",
            "physics, fixed to that peak",
            f"{plan.memory_gib:.1f} GiB",
            "",
            window,
        ),
        _line(workload, "speed of a run", plan.speed.because, speed, "", window),
    ]


def _of_blocks(
    effect: Effect, used_frac: float | None, workload: Workload, market: Market, window: str
) -> list[Evidence]:
    if not isinstance(effect, BookBlocks):
        return []
    price = market.block_price(effect.pool)
    dated = "prices" if price is None else f"prices, {price.source} as of {price.as_of}"
    rate, on_demand = usd(effect.rate_micro_usd_hr), usd(effect.on_demand_micro_usd_hr)
    used = "none booked" if used_frac is None else f"{used_frac:.0%}"
    return [
        _line(workload, "booked node-hours in use", "replay in blocks", used, f"> {rate / on_demand:.0%}", window),
        _line(
            workload,
            "node-hour in a block (paid upfront; the price is offered anew for each block)",
            dated,
            f"${rate:,.2f}",
            f"${on_demand:,.2f} on demand",
            window,
        ),
    ]


def _line(workload: Workload, what: str, query: str, value: str, threshold: str, window: str) -> Evidence:
    return Evidence(what=f"{workload.name}: {what}", query=query, window=window, value=value, threshold=threshold)


def _attained(workload: Workload, attained: Attained, window: str) -> Evidence:
    return Evidence(
        what=f"{workload.name}: replayed {attained.target.describe()}",
        query=f"replay of {workload.name}",
        window=window,
        value=f"{attained.frac:.2%}",
        threshold=f">= {attained.target.required_frac:.0%} ({attained.target.because})",
    )


_Line = tuple[str, str, str]
"""What, its value, and what it is held against."""


def _node_lines(one: Commitment, left: Bill, enacted: Enacted) -> list[_Line]:
    used = left.use_of(one.pool)
    share = float((used >= one.count * S_PER_HR * 0.999).mean()) if one.count else 0.0
    rate = one.rate_micro_usd_hr / enacted.rates([one.pool])[one.pool]
    in_use = (f"hours in which all {one.count} x {one.pool.instance_type} are in use", f"{share:.0%}", f"> {rate:.0%}")
    return [_backed(one, used, enacted), in_use] if used.any() else [in_use]


def _spend_lines(plan: SpendPlan, left: Bill, enacted: Enacted) -> list[_Line]:
    """Say in how many hours the spend is used whole after what applies before it, and what it covers at which discount."""
    at = left.spend_plans.index(plan)
    whole = float((left.used_spend()[at].sum(axis=0) >= 0.999 * plan.spend_micro_usd_hr).mean())
    rates = enacted.rates(left.pools)
    replaced = {
        pool: rates[pool] * float(seconds.sum())
        for pool, seconds in zip(left.pools, left.plan_seconds[at], strict=True)
        if seconds.any()
    }
    lines = [("hours in which all of it is in use", f"{whole:.0%}", "")]
    for pool in sorted(replaced, key=lambda pool: -replaced[pool])[:_SHOWN]:
        off = 1 - plan.rates_micro_usd_hr[pool] / rates[pool]
        share = replaced[pool] / sum(replaced.values())
        lines.append((f"of what it replaces on demand, {pool.instance_type} at {off:.0%} off", f"{share:.0%}", ""))
    return lines


def _backed(one: Commitment, used: IntArray, enacted: Enacted) -> _Line:
    """Say what the layered rule, which asks for evidence before each purchase, would buy of the best count in hindsight."""
    offer = Offer(
        pool=one.pool,
        term_years=one.option.term_years,
        upfront_usd=0.0,
        usd_hr=usd(one.rate_micro_usd_hr),
        source="the plan",
    )
    owned = sum(held.count for held in enacted.owned.commitments if held.pool == one.pool)
    found = advise(one.pool, used, usd(enacted.rates([one.pool])[one.pool]), [offer], owned=owned)
    if found is None or not found.layers:
        value = "none of them yet"
    else:
        first, last = found.layers[0], found.layers[-1]
        rest = f", {found.buy} by day {last.day} if the use stays" if last.day > first.day else ""
        value = f"{first.buy} from day {first.day}{rest}"
    return (f"nodes that the layers of `trimtab commit` buy on this use, of {one.count}", value, "")


def _commitment(line: _Line, window: str) -> Evidence:
    what, value, threshold = line
    return Evidence(what=what, query="planned use per hour", window=window, value=value, threshold=threshold)
