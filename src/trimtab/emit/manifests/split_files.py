"""The files of a service whose prompts and answers get nodes of their own: two sets of pods, each with rules and autoscaler.

The sets are LeaderWorkerSets with llm-d's roles, which a gateway has to route to; the page says so, holds the same as a graph
of NVIDIA Dynamo, and says when the former replicas go. Their names are the service's own with the role behind, by which
`trimtab review` knows whom they serve.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from trimtab.deployment.effects import ServingHalf, SplitServing, part_of
from trimtab.emit.manifests.disaggregated import ReplicaForm, dynamo_graph, leader_worker_set
from trimtab.emit.manifests.emission import (
    ApplyStage,
    ManifestFile,
    Piece,
    Plain,
    Withheld,
    metadata,
    node_name,
    yaml_text,
)
from trimtab.emit.manifests.facts import SERVERS, EmitFacts, ServiceFacts, WorkloadFacts
from trimtab.emit.manifests.pool_specs import PoolSpec
from trimtab.emit.manifests.scaling_files import object_file, scaling_files
from trimtab.emit.manifests.workload_patch import beside_own_pods, pool_selector, pool_tolerations
from trimtab.plan.model import Action


def split_files(
    action: Action, effect: SplitServing, known: WorkloadFacts, nodes: Mapping[str, PoolSpec], facts: EmitFacts
) -> Iterator[Piece]:
    """Yield both sets of pods with what scales them, and the page; `nodes` are the pools by role that could be written."""
    forms = {role: _form(effect, role, half) for role, half in effect.halves.items()}
    for role, form in forms.items():
        half = effect.halves[role]
        there = half_facts(known, half, form)
        if role not in nodes:
            where = half.nodes.pool.instance_type
            reason = (
                f"nodes of {where} for {role} are made by no controller that is known here: make them, then its set"
            )
            yield Withheld(action=action.id, subject=known.name, reason=reason)
            continue
        about = metadata(there.short_name, [action], namespace=known.namespace)
        about = {**about, "labels": {**form.labels, **dict(_mapping(about["labels"]))}}
        yield object_file(
            action,
            there,
            "workloads",
            "leaderworkerset",
            ApplyStage.WORKLOADS,
            leader_worker_set(
                form,
                about,
                replicas=None,
                selector=pool_selector(nodes[role]),
                tolerations=pool_tolerations(nodes[role]),
                together=beside_own_pods(there) if half.nodes.gpus_per_node // half.gpus >= 2 else None,
                own_labels=there.pod_labels,
            ),
        )
        # what would patch a manifest of its own is in the set already
        yield from (
            piece
            for piece in scaling_files(action, half.scaling, there, facts)
            if not (isinstance(piece, ManifestFile) and piece.kind == "Component")
        )
    yield ManifestFile(
        path=f"orders/{node_name('serve-apart-' + known.name.replace('/', '-'))}.md",
        text=_page(action, effect, known, list(forms.values())),
        kind="steps for a person",
        actions=(action.id,),
        stage=ApplyStage.WORKLOADS,
    )


def _form(effect: SplitServing, role: str, half: ServingHalf) -> ReplicaForm:
    """Return what a replica of a role runs."""
    return ReplicaForm(
        role=role,
        model=effect.model,
        gpus=half.gpus,
        concurrency=half.concurrency,
        stored=effect.stored,
        context=effect.context,
    )


def half_facts(known: WorkloadFacts, half: ServingHalf, form: ReplicaForm) -> WorkloadFacts:
    """Return a half as a workload of its own, as it will be; limits on latency span both, so that neither is guarded."""
    return replace(
        known,
        name=part_of(known.name, form.role),
        owner_kind="LeaderWorkerSet",
        replicas=half.scaling.least,
        gpus_per_pod=float(half.gpus),
        pod_gpus=(),
        gpu=half.nodes.gpu,
        pool=half.nodes.pool,
        gpus_per_node=half.nodes.gpus_per_node,
        pod_labels={"app.kubernetes.io/name": f"{known.short_name}-{form.role}"},
        tolerations=(),
        node_selector={},
        gpu_containers=(),
        gpu_claims=(),
        affinity_keys=(),
        keeps_apart=(),
        pods_were_read=True,
        ceiling=None,
        scalers=(),
        service=ServiceFacts(
            capacity_req_s=half.replica_req_s,
            signals=SERVERS["vllm"],
            server_is_known=True,
            scrape_interval_s=None if known.service is None else known.service.scrape_interval_s,
        ),
    )


def _mapping(value: Plain) -> Mapping[str, Plain]:
    return value if isinstance(value, Mapping) else {}


def _page(action: Action, effect: SplitServing, known: WorkloadFacts, forms: list[ReplicaForm]) -> str:
    """Return the page as Markdown: what is expected, the steps, Dynamo instead, the way back."""
    halves = effect.halves
    rows = "\n".join(
        f"| {role} | {half.gpus} x {half.nodes.gpu} of {half.nodes.pool.instance_type} | {half.replica_req_s:.3g} | "
        f"{half.scaling.hpa.target_frac:.0%} | {half.scaling.hpa.min_replicas} to {half.scaling.hpa.max_replicas} | "
        f"x{half.nodes.speed.low:.2f} to x{half.nodes.speed.high:.2f} |"
        for role, half in halves.items()
    )
    notes = "".join(f"0. {note}.\n" for note in forms[1].notes)
    graph = dynamo_graph(
        forms,
        {role: half.nodes.pool.instance_type for role, half in halves.items()},
        {role: half.scaling.least for role, half in halves.items()},
    )
    return f"""# {action.id}: {known.name} serves prompts and answers apart

| role | a replica | mean requests a second of it | its rule aims at | replicas | doubt of its speed |
|---|---|---|---|---|---|
{rows}

A mean prompt hands over {effect.prompt_mb:,.0f} MB in {effect.prompt_ms:,.3g} ms over {effect.link}. Times are predicted, and \
scaled so that today's requests take what was measured; targets are kept in the replay at the low end of that doubt. No run of \
this service apart was measured: that is what the canary is for.

## Steps

{notes}1. Set the images of both LeaderWorkerSets, and a gateway that sends prompts to prefill first (llm-d: an inference pool \
and its endpoint picker with the profile handler for prefill and decode). The sidecar on decode hands the cache over.
2. Apply nodes, rules, sets and autoscalers. Send one request in a hundred there for a day.
3. Compare time to first token and time per token with today's, and the tokens a second of a busy replica with the table. \
Go on if they are within the doubt.
4. Send 10 %, 50 %, all. Then set the replicas of {known.owner_kind} {known.short_name} to 0, and delete its autoscaler if it \
has one. Keep its manifest for a week.

## With NVIDIA Dynamo instead

In place of both LeaderWorkerSets and the gateway. Its replicas are those to begin with; let its planner, or the two \
autoscalers here, change them.

```yaml
{yaml_text(graph).strip()}
```

## The way back

{action.rollback[:1].upper()}{action.rollback[1:]}.
"""
