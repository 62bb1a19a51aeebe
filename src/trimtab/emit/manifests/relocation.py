"""The page that moves a workload to another region or cloud: trimtab sees one cluster, and the nodes belong in another."""

from __future__ import annotations

from collections.abc import Sequence

from trimtab.deployment.effects import Effect, Relocate
from trimtab.emit.money import dollars_and_cents
from trimtab.plan.model import Action


def relocation_page(action: Action, subject: str, effect: Relocate, others: Sequence[Effect]) -> str:
    """Return the page as Markdown: what the move costs, the steps, what else of the plan belongs there, the way back.

    `others` are the workload's other planned effects.
    """
    there = "\n".join(f"- {other.describe()}" for other in others)
    besides = (
        f"\n## What else belongs there\n\nIn the cluster there, not in the one here:\n\n{there}\n" if others else ""
    )
    cloud = (
        "\nAnother cloud also means its accounts, network, registry, secrets and monitoring. That work is in the plan's bill "
        f"once, for all that goes to {effect.cloud}.\n"
        if effect.cloud
        else ""
    )
    return f"""# {action.id}: move {subject} to {effect.place}

No manifest does this. The cluster that was audited is in {effect.home.region} ({effect.home.provider}), and a node pool for
{effect.place} belongs in a cluster there.
{cloud}
| what the move costs besides nodes | |
|---|---|
| data copied, once | {effect.data_gib:g} GiB: {dollars_and_cents(effect.copy_usd)} |
| both places up for a while, once | {dollars_and_cents(effect.overlap_usd)} |
| traffic across the border | {effect.traffic_gib_mo:g} GiB a month: {dollars_and_cents(effect.traffic_usd_mo)} a month |
| a request's longer way | {_way(effect)} |

## Steps

1. In {effect.place}: a cluster or node group with {effect.pool.instance_type} \
({effect.to.gpus_per_node}x {effect.to.gpu}), the quota for it, the image in a registry there, secrets and monitoring.
2. Copy the data, then keep the copy in step until the switch; check sizes and checksums.
3. Canary: one replica, or one run, there for a day. Compare speed, peak memory, what crosses the border, and for a \
service the p95 that callers see. Go on if all are within the plan's.
4. Switch callers over in parts (10 %, 50 %, all), or send new runs there; runs under way end here.
5. Keep the nodes and the data here until nothing asks for them, then give them back: the plan pays for both for that long.
{besides}
## The way back

{action.rollback[:1].upper()}{action.rollback[1:]}.
"""


def _way(effect: Relocate) -> str:
    if not effect.rtt_s:
        return "none: nobody waits for its requests"
    return f"{effect.rtt_s:g} s assumed, taken off its latency targets: measure it before the canary"
