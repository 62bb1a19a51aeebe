"""What no controller does: buying a commitment and giving back nodes by hand, each as a page that a person follows."""

from __future__ import annotations

from trimtab.emit.money import dollars_and_cents, percent
from trimtab.fleet.effects import BuyCommitment, ReleaseNodes
from trimtab.plan.model import Action
from trimtab.units import HR_PER_MO, HR_PER_YEAR, usd

_PRODUCTS = {
    "aws": "an EC2 Instance Savings Plan or Reserved Instances for this instance family and region",
    "azure": "Reserved VM Instances for this size and region",
    "gcp": "a resource-based committed use discount for this machine type and region",
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

## Before you buy

1. Every other action of the plan is in place: a commitment sized before them pays for what they give back.
2. The rate on the provider's page is the rate above, or lower.
3. These nodes were in use in every week since the plan was made.

## What it rests on

{evidence}

Nobody can undo it before its term ends. Buy last and, where the quantity allows, in steps.
"""


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
