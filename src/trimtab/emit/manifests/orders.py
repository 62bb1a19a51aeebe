"""What no controller does: buying commitments and capacity blocks, giving back nodes by hand, moving to another region."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterator, Sequence

from trimtab.deployment.effects import (
    BookBlocks,
    BuyCommitment,
    BuySpendPlan,
    Effect,
    ReleaseNodes,
    Relocate,
    Tranche,
    stretch,
)
from trimtab.emit.manifests.emission import node_name
from trimtab.emit.money import dollars_and_cents, percent
from trimtab.plan.model import Action
from trimtab.policies.blocks import Block, purchases
from trimtab.units import HR_PER_DAY, HR_PER_MO, HR_PER_YEAR, usd


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
        return "none: no user waits for its requests"
    return f"{effect.rtt_s:g} s assumed, taken off its latency targets: measure it before the canary"


_PRODUCTS = {
    "aws": "an EC2 Instance Savings Plan or Reserved Instances for this instance family and region",
    "azure": "Reserved VM Instances for this size and region",
    "gcp": "a resource-based committed use discount for the GPUs, vCPUs and memory of this machine type in this region",
}
_SPEND_PRODUCTS = {
    "aws": "a Compute Savings Plan; an EC2 Instance Savings Plan where all of these are one family in one region",
    "azure": "an Azure savings plan for compute",
    "gcp": "a Compute flexible committed use discount, where it covers these machine types",
}
TAG = "trimtab.dev/blocks"
"""The tag by which an EC2NodeClass finds the blocks."""


def purchase_order(action: Action, effect: BuyCommitment) -> str:
    """Return the order for one commitment: what, how much money, from which use on it pays, and what speaks against it."""
    pool, rate, on_demand = effect.pool, effect.rate_micro_usd_hr, effect.on_demand_micro_usd_hr
    total_hr = usd(rate * effect.count)
    years = effect.option.term_years
    product = _PRODUCTS.get(pool.provider, "the provider's commitment for this instance type and region")
    evidence = "\n".join(f"- {row.what}: {row.value} ({row.window})" for row in action.evidence)
    return f"""# Purchase order {action.id}: {effect.count} x {pool.instance_type}, {years} year{"s" if years != 1 else ""}

| | |
|---|---|
| Provider, region | {pool.provider}, {pool.region} |
| Product | {product} |
| Quantity | {effect.count} x {pool.instance_type} |
| Term | {years} year{"s" if years != 1 else ""} |
| Rate assumed | {dollars_and_cents(usd(rate))} per node-hour |
| On demand | {dollars_and_cents(usd(on_demand))} per node-hour |
| Bound to pay | {dollars_and_cents(total_hr * HR_PER_MO)} a month, \
{dollars_and_cents(total_hr * HR_PER_YEAR * years)} in all |
| Pays from | {percent(rate / on_demand, 1)} of the hours in use |
| Saves, planned | {dollars_and_cents(action.saving_usd_mo.value)} a month \
({dollars_and_cents(action.saving_usd_mo.low)} to {dollars_and_cents(action.saving_usd_mo.high)}) |

{_tranches(effect.tranches, lambda quantity: f"{quantity} nodes" if quantity != 1 else "1 node")}\
## Before you buy

1. The actions that come before it in the roadmap are in place: a commitment sized before them pays for what they give back. \
One that the roadmap puts first stays used whichever of the others are done.
2. The rate on the provider's page is the rate above, or lower.
3. These nodes were in use in every week since the plan was made.
{_questions(action, 4)}
## What it rests on

{evidence}

It cannot be undone before its term ends.
"""


def spend_order(action: Action, effect: BuySpendPlan) -> str:
    """Return the order for one commitment to spend: how much an hour, at which rates, and what to look at first."""
    spend_hr, years = usd(effect.spend_micro_usd_hr), effect.option.term_years
    term = f"{years} year{'s' if years != 1 else ''}"
    product = _SPEND_PRODUCTS.get(effect.provider, "the provider's commitment to spend that covers these nodes")
    rates = "\n".join(
        f"| {rate.pool.instance_type} | {rate.pool.region} | {dollars_and_cents(usd(rate.rate_micro_usd_hr))} | "
        f"{dollars_and_cents(usd(rate.on_demand_micro_usd_hr))} | "
        f"{percent(1 - rate.rate_micro_usd_hr / rate.on_demand_micro_usd_hr, 1)} |"
        for rate in effect.rates
    )
    evidence = "\n".join(f"- {row.what}: {row.value} ({row.window})" for row in action.evidence)
    return f"""# Purchase order {action.id}: {dollars_and_cents(spend_hr)} an hour of spend with {effect.provider}, {term}

| | |
|---|---|
| Provider | {effect.provider} |
| Product | {product} |
| Commitment | {dollars_and_cents(spend_hr)} an hour, at the plan's rates |
| Term | {term} |
| Bound to pay | {dollars_and_cents(spend_hr * HR_PER_MO)} a month, \
{dollars_and_cents(spend_hr * HR_PER_YEAR * years)} in all |
| Saves, planned | {dollars_and_cents(action.saving_usd_mo.value)} a month \
({dollars_and_cents(action.saving_usd_mo.low)} to {dollars_and_cents(action.saving_usd_mo.high)}) |

{_tranches(effect.tranches, lambda quantity: f"{dollars_and_cents(usd(quantity))} an hour")}\
## The rates that it rests on

| Nodes | Region | Under the plan, an hour | On demand | Discount |
|---|---|---|---|---|
{rates}

The provider applies the spend hour by hour, after reservations, to the highest discount first. An hour that uses less of it \
loses the rest.

## Before you buy

1. Every other action of the plan is in place, reservations too: they apply first.
2. The rates on the provider's page are those above, or lower.
3. The spend would have been used in every week since the plan was made.

## What it rests on

{evidence}

It cannot be undone before its term ends. Several plans of one term add up.
"""


def _questions(action: Action, first: int) -> str:
    """Return further numbered points: what owners have answered by then."""
    points = (
        f"{number}. Its owners have said no to what would empty these nodes. {question}.\n"
        for number, question in enumerate(action.ask_first, start=first)
    )
    return "".join(points)


def _tranches(tranches: Sequence[Tranche], quantity: Callable[[int], str]) -> str:
    """Return the section that says when to buy how much; nothing for plans kept before purchases were staged."""
    if not tranches:
        return ""
    rows = "\n".join(
        f"| {tranche.on or f'{tranche.after_days} days after the first may be bought'} | {quantity(tranche.quantity)} |"
        for tranche in tranches
    )
    again = (
        "Ask `trimtab commit` again before each after the first: a fleet that has shrunk no longer backs it.\n\n"
        if len(tranches) > 1
        else ""
    )
    return f"## When to buy\n\n| From | Buy |\n|---|---|\n{rows}\n\n{again}"


def release_order(action: Action, effect: ReleaseNodes) -> str:
    """Return the steps that give back nodes that no workload held."""
    nodes = "\n".join(
        f"kubectl drain {shlex.quote(node)} --ignore-daemonsets --delete-emptydir-data" for node in effect.nodes
    )
    return f"""# {action.id}: give back {len(effect.nodes)} node{"s" if len(effect.nodes) != 1 else ""}

No workload held a GPU of these nodes in the whole window. A node that is only drained is still billed:

```sh
{nodes}
```

Then have its provider delete each by name, with its place in its node group (a group whose size is only lowered chooses \
itself which node goes), or delete its NodeClaim where Karpenter runs: `kubectl delete nodeclaim NAME`.

Undo: {action.rollback}.
"""


def tag_value(effect: BookBlocks) -> str:
    """Return the tag's value, one for each instance type and region."""
    return node_name(effect.pool.instance_type, effect.pool.region)


def block_order(
    action: Action, subject: str, effect: BookBlocks, node_class: str = "default", *, script: str = ""
) -> str:
    """Return the page: the blocks of a week with their price, the commands that find and buy them, what speaks against it.

    `script` makes the node group of a block; empty where Karpenter finds them.
    """
    pool, rate, on_demand = effect.pool, effect.rate_micro_usd_hr, effect.on_demand_micro_usd_hr
    hours = sum(block.nodes * block.days for block in effect.blocks) * HR_PER_DAY
    rows = "\n".join(
        f"| {stretch(block)} | {block.nodes} | {' + '.join(str(size) for size in purchases(block.nodes))} "
        f"| {dollars_and_cents(usd(rate * block.nodes * block.days * HR_PER_DAY))} |"
        for block in effect.blocks
    )
    commands = "\n".join(line for block in effect.blocks for line in _commands(effect, block))
    evidence = "\n".join(f"- {row.what}: {row.value} ({row.window})" for row in action.evidence)
    use = _with_groups(script) if script else _with_karpenter(effect, node_class)
    return f"""# Order {action.id}: capacity blocks of {pool.instance_type} for `{subject}`

Blocks begin and end at 11:30 UTC; nodes are reclaimed 30 minutes before. The same blocks are bought every week, before the \
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
`CapacityBlockOfferingId` that the first command finds. An offer is for one zone, up to 8 weeks ahead, and there is no promise \
that there is one.

```sh
{commands}
```

{use}
## What it rests on

{evidence}

A block cannot be cancelled, moved or paid back. Undo: {action.rollback}.
"""


def _with_karpenter(effect: BookBlocks, node_class: str) -> str:
    selector = json.dumps({"spec": {"capacityReservationSelectorTerms": [{"tags": {TAG: tag_value(effect)}}]}})
    return f"""## Let Karpenter use them (v1.6 or later, feature gate `ReservedCapacity`)

The NodePool of this plan asks for reserved capacity first and falls back to on demand. Its node class must find the blocks:

```sh
kubectl patch ec2nodeclass {node_class} --type merge -p '{selector}'
```

The patch replaces the terms that are there: add those to it. Karpenter may put a run on a shorter block while a longer one \
has room: where that matters, give each block its own node class and pool, the longest with the largest `weight`.
"""


def _with_groups(script: str) -> str:
    return f"""## Let Cluster Autoscaler use them

A managed node group takes nodes of one block. For each that was bought, once its purchase says the reservation's id:

```sh
RESERVATION=cr-0123456789abcdef0 NODES=4 SUBNETS=SUBNET-OF-ITS-ZONE bash {script}
```

The priority expander grows these groups before the one on demand. Delete the group of a block that has ended; one that was \
extended keeps its reservation and its group.
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
