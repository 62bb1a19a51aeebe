"""A service whose prompts and answers have pods of their own among the manifests: prefill and decode, read as one deployment.

They are known by their names, the service's with the role behind, and by the label `llm-d.ai/role`. Of each the objects say the
nodes, the GPUs of a replica, `--max-num-seqs` and the autoscaler; what a replica then serves is what the lever predicts of it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from trimtab.deployment.deployment import Deployment
from trimtab.deployment.effects import DECODE, PREFILL, ServingHalf, SetReplicaPolicy, part_of
from trimtab.fleet.market import Market, Offering
from trimtab.fleet.reach import offerings_at_home
from trimtab.levers import disaggregation
from trimtab.levers.lever import LeverRequest
from trimtab.replay.outcomes.evaluate import Evaluator
from trimtab.replay.outcomes.outcome import Case
from trimtab.replay.outcomes.replica_law import law_of_times
from trimtab.review.manifests import DeclaredPods, Manifests
from trimtab.review.placing import Proposed, pools_of, types_of
from trimtab.review.pools import INSTANCE_TYPE_LABELS, NodePool
from trimtab.review.replicas import scale_replicas


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """The pods of a role, and the nodes that they run on."""

    pods: DeclaredPods
    pool: NodePool | None
    offering: Offering


def halves_of(case: Case, market: Market, manifests: Manifests) -> Proposed | None:
    """Return what manifests make of a service whose two halves are both among them; None where they are not."""
    name = case.workload.name
    prefill, decode = manifests.half(name, PREFILL), manifests.half(name, DECODE)
    if prefill is None or decode is None or case.workload.service is None:
        return None
    found = Proposed()
    before = manifests.pods.get(name)
    if before is not None and before.replicas:
        found.refused = (
            f"has {before.replicas} replicas beside prefill and decode: how requests divide over both ways is not known"
        )
        return found
    parts = {role: _part(part, case, market, manifests, found) for role, part in ((PREFILL, prefill), (DECODE, decode))}
    first, second = parts[PREFILL], parts[DECODE]
    if first is None or second is None:
        return found
    ask = LeverRequest(evaluator=Evaluator(case=case), market=market)
    split = disaggregation.stated_pair(
        ask,
        *(
            disaggregation.StatedHalf(
                instance_type=part.offering.pool.instance_type,
                gpus=part.pods.gpus or 1,
                concurrency=part.pods.most_sequences,
            )
            for part in (first, second)
        ),
    )
    if isinstance(split, str):
        found.refused = f"computes prompts and answers apart, and that cannot be replayed: {split}"
        return found
    prefill_half = _scaled(split.prefill, first, PREFILL, case, manifests, found)
    decode_half = _scaled(split.decode, second, DECODE, case, manifests, found)
    if prefill_half is None or decode_half is None:
        return found
    split = replace(split, prefill=prefill_half, decode=decode_half)
    found.changes = [(disaggregation.NAME, split)]
    found.deployment = Deployment.of(*found.changes)
    return found


def _part(pods: DeclaredPods, case: Case, market: Market, manifests: Manifests, found: Proposed) -> _Part | None:
    """Return the nodes of a role's pods; None where nothing replayable says which, with the reason."""
    workload = case.workload
    there = Proposed()
    shares = pools_of(pods, workload, manifests, there)
    found.findings += there.findings
    found.notes += there.notes
    pool = shares[0].pool if len(shares) == 1 else None
    asked = pods.selected(*INSTANCE_TYPE_LABELS)
    types = (asked,) if asked else (() if pool is None else types_of(pool, workload, market))
    offered = [offering for offering in offerings_at_home(workload, market) if offering.pool.instance_type in types]
    if there.refused or len(offered) != 1:
        found.refused = (
            there.refused or f"{pods.workload} may run on {len(offered)} types of node that are priced: name one"
        )
        return None
    found.gives_nodes_back = pool is not None and pool.elastic
    found.kept_s = None if pool is None else pool.kept_s
    return _Part(pods=pods, pool=pool, offering=offered[0])


def _scaled(
    half: ServingHalf, part: _Part, role: str, case: Case, manifests: Manifests, found: Proposed
) -> ServingHalf | None:
    """Return a half with the autoscaler that the manifests give it; None where they give none that can be replayed."""
    nodes = half.nodes
    workload = replace(
        case.workload,
        name=part_of(case.workload.name, role),
        pool=nodes.pool,
        gpu=nodes.gpu,
        gpus_per_node=nodes.gpus_per_node,
        gpus_per_pod=float(half.gpus),
    )
    law, there = law_of_times(half), Proposed()
    alone = replace(case, workload=workload, law=law)
    scale_replicas(part.pods, manifests.scalers.get(workload.name, []), part.pool, alone, law, manifests, there)
    found.findings += there.findings
    found.notes += there.notes
    found.moved = found.moved and there.moved
    rules = [effect for _, effect in there.changes if isinstance(effect, SetReplicaPolicy)]
    if there.refused or not rules:
        found.refused = (
            there.refused or f"{workload.name} has no autoscaler, and a fixed number of {role} replicas is not replayed"
        )
        return None
    if not part.pods.fills_nodes and nodes.gpus_per_node // half.gpus >= 2:
        found.spreads = True
    return replace(half, scaling=rules[0])
