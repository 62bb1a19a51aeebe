"""What no controller does: buying a commitment and giving back nodes by hand, each as a page that a person follows."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from trimtab.deployment.effects import BuyCommitment, BuySpendPlan, ReleaseNodes, Tranche
from trimtab.emit.money import dollars_and_cents, percent
from trimtab.plan.model import Action
from trimtab.units import HR_PER_MO, HR_PER_YEAR, usd

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

## What it rests on

{evidence}

Nobody can undo it before its term ends.
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

Nobody can undo it before its term ends. Several plans of one term add up.
"""


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
    """Return the steps that give back nodes which nobody held."""
    nodes = "\n".join(f"kubectl drain {node} --ignore-daemonsets --delete-emptydir-data" for node in effect.nodes)
    return f"""# {action.id}: give back {len(effect.nodes)} node{"s" if len(effect.nodes) != 1 else ""}

No workload held a GPU of these nodes in the whole window. Drain them, then lower the node group's size (a node that is only \
drained is still billed):

```sh
{nodes}
```

Then remove each from its node group, or delete its NodeClaim where Karpenter runs: `kubectl delete nodeclaim NAME`.

Undo: {action.rollback}.
"""
