"""How to try an action on a small part first: the canary steps of each effect."""

from __future__ import annotations

from typing import assert_never

from trimtab.fleet.effects import (
    BookBlocks,
    BuyCommitment,
    BuySpendPlan,
    DeferRuns,
    Effect,
    HedgeOnSpot,
    ReleaseIdle,
    ReleaseNodes,
    Relocate,
    SetBatchPolicy,
    SetCapacityType,
    SetGpuCount,
    SetPrecision,
    SetReplicaPolicy,
    SetSchedule,
    SetTrainingMemory,
    StartBeforeRuns,
    UseOffering,
    UseSlots,
)
from trimtab.plan.model import Action


def canary_steps(action: Action) -> tuple[str, ...]:
    """Return the steps that try an action on a small part first, each once, in the order of its changes."""
    steps = [step for change in action.changes for step in effect_canary(change.effect)]
    return tuple(dict.fromkeys(steps))


def effect_canary(effect: Effect) -> tuple[str, ...]:
    """Return the steps for one effect."""
    match effect:
        case UseOffering():
            return (
                f"Run one replica or one run on {effect.pool.instance_type} beside the present ones for a day.",
                "Compare its speed and peak memory with the prediction; go on if it is within the interval.",
            )
        case Relocate():
            return (
                f"Run one replica or one run in {effect.place} beside the present ones for a day, on a copy of the data.",
                "Compare its speed, what crosses the border and, for a service, the p95 that callers see; go on if they are "
                "within the plan's.",
                "Send over a tenth of the requests or runs, then half, then all; keep the place before for a week.",
            )
        case UseSlots() if not effect.shared.is_isolated:
            return (
                f"Run one replica alone on a shared GPU of {effect.pool.instance_type}, beside the present ones, for a day.",
                "Cap its memory in its own settings (vLLM --gpu-memory-utilization, PyTorch set_per_process_memory_fraction).",
                "Add its neighbours one at a time through a peak each; go on while every one of them keeps its targets.",
                "Kill one of them by hand, and fill its memory: see what the others do before they carry traffic.",
            )
        case UseSlots():
            place = f"a {effect.shared.profile} slice" if effect.shared.profile else "a shared node"
            return (
                f"Run one replica in {place} of {effect.pool.instance_type} beside the present ones for a day.",
                "Compare its latency and peak memory with the prediction; go on if both are within the interval.",
                "Move one workload at a time; give a node back when nothing is left on it.",
            )
        case SetGpuCount():
            return (
                f"Start the next run with {effect.gpus} GPU{'s' if effect.gpus != 1 else ''}; leave the rest as they are.",
                "Compare steps per second with the last run; go on if it is within 10 %.",
            )
        case SetReplicaPolicy():
            return (
                "Apply the autoscaler with scale-down switched off for one day: it may only add.",
                "Then allow scale-down for the least busy service, and watch its p95 through one peak.",
            )
        case SetBatchPolicy():
            return (
                f"Batch up to {effect.max_batch} requests on one replica; leave the others and their number as they are.",
                "Compare its batch times and p95 with the plan through one peak; then lower the replicas one at a time.",
            )
        case SetTrainingMemory():
            return (
                "Run 200 steps with the new settings from the last checkpoint, and 200 with the present ones.",
                f"Compare loss, speed and peak memory ({effect.memory_gib:.0f} GiB expected); go on if the losses agree.",
            )
        case SetPrecision():
            return (
                f"Run the model's own evaluation on {effect.after.value} weights beside {effect.before.value}: stop if it "
                "loses more than the team allows.",
                "Send one request in a hundred to one replica with the new weights; compare answers and p95 for a week.",
            )
        case SetCapacityType():
            return (
                "Send one run in ten to spot nodes, with its checkpoints on.",
                "Kill one of them by hand: the run must resume and lose no more than one checkpoint interval.",
            )
        case HedgeOnSpot():
            return (
                "Let one replica run on spot first, spread over the zones, and watch its p95 through one peak.",
                "Take its node away by hand: it must be back, on spot or on demand, within the cold start.",
            )
        case SetSchedule() | StartBeforeRuns():
            return (
                "Start the nodes by timetable for one run, and keep the present nodes until it has finished.",
                "Check that the run began on time; then give the present nodes back.",
            )
        case DeferRuns():
            return (
                "Hold the queue for one night, with one team's runs in it.",
                "Check that they began at the hour and ended in time; then let the others' runs into it.",
            )
        case BookBlocks():
            return (
                "Buy the smallest block of the calendar for one day, and let a run begin on it and be taken off at its end.",
                "The run must resume elsewhere; then buy the coming week, and go on while the price is the plan's or lower.",
            )
        case ReleaseIdle():
            return (
                "Set the scale-down delay to one hour on one node first.",
                "Check for a day that nothing that was queued waited longer than its target.",
            )
        case ReleaseNodes():
            return ("Cordon the nodes for a day; if nothing asks for them, delete them.",)
        case BuyCommitment():
            return (
                "Put the other actions in place first, and let one billing week pass.",
                "Buy half the count, check that it is fully used for a week, then buy the rest.",
            )
        case BuySpendPlan():
            return (
                "Put the other actions and reservations in place first, and let one billing week pass.",
                "Buy half the spend, check that it is fully used for a week, then buy the rest.",
            )
    assert_never(effect)
