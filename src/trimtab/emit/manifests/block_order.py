"""The order for capacity blocks: which to buy each week, what they cost, how Karpenter finds them."""

from __future__ import annotations

import json
from collections.abc import Iterator

from trimtab.deployment.effects import BookBlocks, stretch
from trimtab.emit.manifests.objects import node_name
from trimtab.emit.money import dollars_and_cents, percent
from trimtab.plan.model import Action
from trimtab.policies.blocks import Block, purchases
from trimtab.units import HR_PER_DAY, usd

TAG = "trimtab.dev/blocks"
"""The tag by which an EC2NodeClass finds the blocks."""


def tag_value(effect: BookBlocks) -> str:
    """Return the tag's value, one for each instance type and region."""
    return node_name(effect.pool.instance_type, effect.pool.region)


def block_order(action: Action, subject: str, effect: BookBlocks, node_class: str = "default") -> str:
    """Return the page: the blocks of a week with their price, the commands that find and buy them, what speaks against it."""
    pool, rate, on_demand = effect.pool, effect.rate_micro_usd_hr, effect.on_demand_micro_usd_hr
    hours = sum(block.nodes * block.days for block in effect.blocks) * HR_PER_DAY
    rows = "\n".join(
        f"| {stretch(block)} | {block.nodes} | {' + '.join(str(size) for size in purchases(block.nodes))} "
        f"| {dollars_and_cents(usd(rate * block.nodes * block.days * HR_PER_DAY))} |"
        for block in effect.blocks
    )
    commands = "\n".join(line for block in effect.blocks for line in _commands(effect, block))
    evidence = "\n".join(f"- {row.what}: {row.value} ({row.window})" for row in action.evidence)
    selector = json.dumps({"spec": {"capacityReservationSelectorTerms": [{"tags": {TAG: tag_value(effect)}}]}})
    return f"""# Order {action.id}: capacity blocks of {pool.instance_type} for `{subject}`

Blocks begin and end at 11:30 UTC; nodes are taken back 30 minutes before. The same blocks are bought every week, before the \
week begins; one that stands throughout is bought once and extended by 7 days at a time (to 182 days in all), so that its \
nodes stay. Runs take booked nodes where enough are free, those of the longest block first, and on-demand nodes else.

| each week | nodes | bought as blocks of | price |
|---|---|---|---|
{rows}

| | |
|---|---|
| Provider, region | {pool.provider}, {pool.region} |
| Rate assumed | {dollars_and_cents(usd(rate))} per node-hour, paid upfront |
| On demand | {dollars_and_cents(usd(on_demand))} per node-hour |
| Bound to pay | {dollars_and_cents(usd(rate * hours))} a week, in advance |
| Pays from | {percent(rate / on_demand, 1)} of the booked hours in use |
| Saves, planned | {dollars_and_cents(action.saving_usd_mo.value)} a month \
({dollars_and_cents(action.saving_usd_mo.low)} to {dollars_and_cents(action.saving_usd_mo.high)}) |

## Find and buy

The price of a block is what its offer says on the day: buy where it is the rate above or lower, else let the runs go on \
demand as before. START and END are the first and last date on which the block may begin (2026-01-31), OFFER the \
`CapacityBlockOfferingId` that the first command finds. An offer is for one zone, up to 8 weeks ahead, and nobody promises \
that there is one.

```sh
{commands}
```

## Let Karpenter use them (v1.6 or later, feature gate `ReservedCapacity`)

The NodePool of this plan asks for reserved capacity first and falls back to on demand. Its node class must find the blocks:

```sh
kubectl patch ec2nodeclass {node_class} --type merge -p '{selector}'
```

The patch replaces the terms that are there: add those to it. Karpenter may put a run on a shorter block while a longer one \
has room: where that matters, give each block its own node class and pool, the longest with the largest `weight`.

## What it rests on

{evidence}

A block cannot be cancelled, moved or paid back. Undo: {action.rollback}.
"""


def _commands(effect: BookBlocks, block: Block) -> Iterator[str]:
    """Yield the commands for one block of the calendar; START is the date on which it is to begin."""
    for size in purchases(block.nodes):
        yield f"# {size} nodes {stretch(block)}"
        yield (
            f"aws ec2 describe-capacity-block-offerings --region {effect.pool.region} "
            f"--instance-type {effect.pool.instance_type} --instance-count {size} "
            f"--capacity-duration-hours {block.days * HR_PER_DAY} --start-date-range START --end-date-range END"
        )
        yield (
            f"aws ec2 purchase-capacity-block --region {effect.pool.region} --capacity-block-offering-id OFFER "
            f"--instance-platform Linux/UNIX --tag-specifications "
            f"'ResourceType=capacity-reservation,Tags=[{{Key={TAG},Value={tag_value(effect)}}}]'"
        )
