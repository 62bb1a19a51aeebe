"""Names of actions that stay from audit to audit: ids count the actions of one plan, and the next plan counts anew.

Paths, annotations and labels of alerts carry these names, so that a folder under version control changes where the plan does
and nowhere else.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from trimtab.deployment.effects import BuyCommitment, BuySpendPlan, ReleaseNodes
from trimtab.emit.manifests.objects import node_name
from trimtab.plan.model import Action


def action_names(actions: Iterable[Action]) -> dict[str, str]:
    """Return id -> name, a DNS-1123 label of the lever and what it changes; the second of a name is numbered."""
    seen: Counter[str] = Counter()
    names = {}
    for action in actions:
        name = node_name(action.lever, _about(action))
        seen[name] += 1
        names[action.id] = name if seen[name] == 1 else node_name(name, str(seen[name]))
    return names


def _about(action: Action) -> str:
    """Return what an action is about, without counts: the pool that is bought, or the first of the workloads it changes."""
    effects = [change.effect for change in action.changes]
    for effect in effects:
        match effect:
            case BuyCommitment():
                return "-".join(
                    (effect.pool.provider, effect.pool.instance_type, effect.pool.region, effect.option.value)
                )
            case BuySpendPlan():
                return f"{effect.provider}-{effect.option.value}"
            case ReleaseNodes():
                return "unheld-nodes"
            case _:
                pass
    subjects = sorted({change.subject for change in action.changes})
    others = "-and-others" if len(subjects) > 1 else ""
    return f"{subjects[0] if subjects else ''}{others}".replace("/", "-").replace("@", "-")
