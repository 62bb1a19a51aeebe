"""The reference page of the emitters: `python -m trimtab.emit.emitters_reference > docs/reference/emitters.md`."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from types import MappingProxyType

from pydantic import BaseModel

from trimtab.deployment.effects import (
    BookBlocks,
    BuyCommitment,
    BuySpendPlan,
    DeferRuns,
    Effect,
    HedgeOnSpot,
    OverflowTo,
    ReleaseIdle,
    ReleaseNodes,
    Relocate,
    SetBatchPolicy,
    SetCapacityType,
    SetGpuCount,
    SetPrecision,
    SetReplicaGpus,
    SetReplicaPolicy,
    SetReplicas,
    SetSchedule,
    SetTrainingMemory,
    ShortenStart,
    SplitServing,
    StartBeforeRuns,
    UseOffering,
    UseSlots,
)
from trimtab.emit.manifests.cluster_file import (
    ClusterFile,
    DeclaredMetrics,
    DeclaredNodeClass,
    DeclaredToleration,
    DeclaredWorkload,
)
from trimtab.emit.manifests.demand_rules import CURRENT, DEMAND, LOAD, LOAD_WANTED, PER_REPLICA, READY, SCALING
from trimtab.emit.manifests.emission import STAGE_MEANING
from trimtab.emit.manifests.facts import SERVERS
from trimtab.emit.manifests.forecast_rules import (
    ERROR_SQUARED,
    FAST,
    HELD,
    LOAD_FORECAST,
    MARGIN,
    SLOW,
    SPREAD,
    STEADY,
)
from trimtab.emit.manifests.karpenter import NODE_CLASSES
from trimtab.emit.manifests.latency_guards import GUARD_ASKS, GUARD_LOAD, GUARD_TIMES

WRITTEN: Mapping[type[Effect], str] = MappingProxyType(
    {
        SetReplicaPolicy: "PrometheusRule, then a KEDA ScaledObject or an HPA v2, a PodDisruptionBudget, the NodePool "
        "under it; a Component that takes `replicas` out of the manifest afterwards",
        SetReplicas: "kustomize Component with `replicas`",
        SetBatchPolicy: "a page with the batcher's line or the engine's flags; kustomize Component with the replicas",
        ShortenStart: "a page with what fills nodes' disks or restores replicas, by provider, and how to measure a start",
        SetTrainingMemory: "a page with the trainer's settings; NodePool and kustomize Component as for a GPU count",
        SetPrecision: "a page with the evaluation to run first and the flags of `vllm serve`",
        UseOffering: "NodePool of the instance type; kustomize Component that points the workload at it",
        Relocate: "a page with the steps for a person: the nodes belong in a cluster there, which was not audited",
        OverflowTo: "two NodePools, the first of higher weight and limited to the nodes that may be held; kustomize Component "
        "that lets the workload on both",
        SplitServing: "two NodePools; for prefill and for decode each a LeaderWorkerSet with llm-d's role, PrometheusRule, "
        "ScaledObject or HPA on the half's own tokens, PodDisruptionBudget; a page with the steps, and with the same as a "
        "graph of NVIDIA Dynamo",
        UseSlots: "one NodePool for all that share, MIG layout or device plugin configuration by label; ConfigMap with those, "
        "NodeOverlay with the slots; kustomize Component that asks for them",
        SetReplicaGpus: "NodePool; kustomize Component that sets `nvidia.com/gpu`, appends `--tensor-parallel-size` and "
        "`--max-num-seqs`, and points the workload at it",
        SetGpuCount: "NodePool; kustomize Component that sets `nvidia.com/gpu` and points the workload at it",
        HedgeOnSpot: "NodePool with spot first and on-demand behind it, a second one on demand for the floor; kustomize "
        "Component that spreads the replicas over both and over zones",
        SetCapacityType: "NodePool with spot first and on-demand behind it, tainted; kustomize Component with the toleration, "
        "and for runs a failure policy under which a lost node is no failed try",
        SetSchedule: "KEDA ScaledObject with cron triggers (UTC), for a Notebook CronJobs; NodePool that gives back "
        "empty nodes; kustomize Component",
        StartBeforeRuns: "placeholders of priority -10 that cron starts ahead of each run and that are not tried again once "
        "the run has their place (CronJob, PriorityClass); NodePool; kustomize Component",
        DeferRuns: "Kueue LocalQueue that two CronJobs close ahead of the hour and open at it (with ServiceAccount, Role, "
        "RoleBinding), ClusterQueue and ResourceFlavor behind it; Component with the queue's label; NodePool "
        "that gives back empty nodes",
        BookBlocks: "an order with the blocks of a week and the commands that find and buy them; NodePool with reserved "
        "capacity first and on-demand behind it; kustomize Component",
        ReleaseIdle: "NodePool that gives back empty nodes; kustomize Component that points the runs at it",
        ReleaseNodes: "a page with the drain commands",
        BuyCommitment: "a purchase order; NodeOverlay with the committed rate, in `commitments/`",
        BuySpendPlan: "a purchase order with the rates that it rests on",
    }
)
"""What each effect is written as."""
SERIES: Mapping[str, str] = MappingProxyType(
    {
        PER_REPLICA: "by pod: requests that arrive and wait, divided by what a replica serves; read by an HPA",
        DEMAND: "the same summed over all pods: demand in full replicas",
        READY: "ready replicas",
        CURRENT: "replicas, ready or starting",
        SCALING: "demand to cover while new replicas start; read by KEDA, and by an HPA as the mean of a window",
        LOAD: "arrivals, without the queue; input of forecasts and guards",
        STEADY: "the averaged load; input of floors",
        FAST: "the load forecast one cold start ahead, from the last minutes",
        SLOW: "the same from a longer history, with its floors",
        ERROR_SQUARED: "squared share by which the load exceeded the slow forecast",
        SPREAD: "how far forecasts were off",
        MARGIN: "headroom in spreads of the forecast error, learned from how often load exceeded what was provided",
        LOAD_FORECAST: "the forecast with its headroom, or the current load if that is larger",
        HELD: "the load served by the replicas of an autoscaler that follows it",
        LOAD_WANTED: "load to provide replicas for, queue included; read by the autoscaler of a forecasting policy",
        GUARD_ASKS: "by guard, while its target is missed: the replicas needed to get back to the limit",
        GUARD_TIMES: "by guard: the same as a multiple of the load's replicas, decaying by halves; read by its trigger",
        GUARD_LOAD: "by guard: the load that it requests replicas for; read by an HPA",
    }
)
"""What each recorded series means."""

_HEAD = """# Emitters

<!-- Written by `python -m trimtab.emit.emitters_reference`; do not edit. -->

`trimtab emit` turns the plan of the last audit into files. It reads what `trimtab audit` kept in `.trimtab/`, takes values and
returns text: the same plan gives the same bytes, and no cluster is touched. Every object carries `trimtab.dev/action`,
`trimtab.dev/saving-usd-mo` and `trimtab.dev/saving-interval-usd-mo`; names are DNS-1123, and one that had to be changed ends in
a hash. A change that no file can carry is listed as left to a person, with its reason; nothing is dropped.

Objects are tested against the strict upstream schemas with their CEL rules (KEDA, Karpenter, prometheus-operator, Kubernetes
1.34), expressions against promtool, and the scaling rules against a real Prometheus: fed to the HPA rule they make the
decisions that were replayed.

How to use them: [Apply a plan](../how-to/apply-a-plan.md).
"""
_NODES = """## Folders

`monitoring/`, `nodes/`, `scaling/` and `commitments/` are one stage each: they hold objects and their kustomization and
nothing else, for `kubectl apply -k`, Argo CD (the objects carry sync waves) or Flux. `workloads/` holds Components, to be
listed beside a workload's own manifest, `rollback/` those that say again what was there before, `helm/` values without
which the objects do nothing, `orders/` and `decisions/` pages. Of several clusters each has these folders under
`clusters/NAME/`, but for decisions and purchases, which are the fleet's. Paths, annotations and labels name an action by
its lever and what it changes, so that they stay from audit to audit; ids are those of one plan.

The folder is written at once or not at all; a file in it that somebody else wrote, or that was changed by hand, is never
lost without `--force`.

`decisions/` has an index and, of a whole plan, `year.md`: what is done in each quarter, by whom, and what was saved by then.
A Component with the annotation `trimtab.dev/applies-once` waits for what that says: fewer replicas once the server batches.
An autoscaler and its rules with `trimtab.dev/assumes` rely on what it says and no object brings about: weights in fewer bits,
batches, shorter starts.

## Owners

Patches go to where an owner keeps its pods: the template of Deployments, StatefulSets, Rollouts, Jobs and CronJobs, the
worker template of a LeaderWorkerSet, the predictor of an InferenceService, the template of an LLMInferenceService (that under
`prefill` for its prefill pods), the first worker group of a RayService (by JSON patch: a merge would drop the other groups).
Ray Serve and KServe scale themselves: no autoscaler is written for those, and APPLY.md states the minimum and maximum replicas
to set. KEDA cannot scale a Notebook of Kubeflow: CronJobs set and take away the annotation by which its controller stops it.
For other owners APPLY.md says what to set.

KServe overwrites changes to its Deployments, so patches go to its own object: the workload
`chat-predictor` is patched in the InferenceService `chat`, `llm-kserve` and `llm-kserve-prefill` in the LLMInferenceService
`llm` (v1alpha1 or v1alpha2). Dumps and `--context` show who owns a Deployment, and so do kube-state-metrics from v2.18 on and
its labels of pods (`serving.kserve.io/inferenceservice`, `app.kubernetes.io/part-of` and `name`). Without any of these, say
`owner_kind` in the file for `--cluster`. KServe's other Deployments (transformers, explainers, canaries, groups of several
nodes, names of more than 63 characters) and Knative Services are left to a person; APPLY.md says what to set.

The groups of a LeaderWorkerSet and the clusters of a RayService or RayJob are one workload, whether they were read from a dump
or from Prometheus. There KubeRay's own metrics show who made a cluster.

## Claimed GPUs

Where pods claim their GPUs (dynamic resource allocation) no container is patched: the Component brings a new
ResourceClaimTemplate and names it in the pod template, because a template cannot be changed once it is made. Its name ends in
a hash of what it says. It is the former one, in the version that it was read in, but for the request of the GPUs: their
number; for MIG slices class `mig.nvidia.com` and the profile, without settings for whole boards; on boards of another type
class `gpu.nvidia.com` and their product, where the former class or its selectors might rule them out. Requests keep their
names, to which containers, constraints and settings refer. `rollback/` names the former template, which is left in the
cluster. Placeholders of runs that are started ahead claim as the runs will. Left to a person, with what to write: a
ResourceClaim that pods share, templates that were not read, a number or a profile where several requests ask for GPUs, MIG
instances on other boards, and sharing without isolation, which is a setting of one claim here. Kueue needs
`deviceClassMappings` to ration claimed GPUs.

## Nodes that workloads leave

Whoever goes to a new pool leaves nodes that are billed on. For each group that is emptied `orders/give-back-*.md` names
its nodes, those that stay and for whom, and the commands that make it smaller: an EKS node group, a GKE node pool, an AKS
agent pool or a NodePool, by the labels that were collected. Workloads whose nodes are not known by name are left to a
person.

## Node pools

Workloads that want the same instance type in the same region, held and released the same way, share a NodePool. Pools of
runs (`-runs`) give back nodes that have been empty for a minute and move nothing: their budget for drift is 0. Pools of
services consolidate within a budget of 10 %, ten minutes after a pod came or went; the plan's bill holds nodes for as
long. Runs that take GPUs beside services go to their pool; `karpenter.sh/do-not-disrupt` (with node groups
`safe-to-evict: "false"`) keeps their pods where they are, and no priority is written: nothing ends a run. No node
expires, since expiry knows no budget; new images come as drift. `limits` is the ceiling of the policies on it in whole
nodes and a quarter more, at least a node, for a rollout, within `quota_nodes`; where the quota leaves no room the rollout
takes a replica before it adds one. A workload without a ceiling has room for twice what it had at once, runs for
twice what they would have had at once in all of the history had none waited, and more on slower nodes. Every pool has
the one taint key `nvidia.com/gpu`, which NVIDIA's own daemonsets tolerate; its value is `spot` on spot pools, which
keeps out pods that tolerate `present`, and does not keep out those that tolerate any value. Karpenter runs on
{providers}; elsewhere the node group is left to a person. Where no node class is declared, `templates/` has one to
fill in, apart from what is applied.

## Node groups without Karpenter

Where the labels of nodes name groups of EKS, GKE or AKS and none is Karpenter's (or `node_maker: node-groups` says so),
`node-groups/*.sh` makes them, from 0 nodes to the pool's limit: a spot group has one on demand behind it. On EKS and AKS
the ConfigMap of Cluster Autoscaler's priority expander grows the spot group first, its times are those of the bill, and
runs carry `cluster-autoscaler.kubernetes.io/safe-to-evict: "false"`; on GKE a ComputeClass prefers one node pool to the
other. Group names are as long as the provider allows. A group on EKS takes nodes of one capacity block, so the script makes
one for each block that was bought, and one on demand behind them. Where one replica in N stays on demand, replicas are
spread evenly over N groups by a label of theirs, and the first of these has no spot. On GKE the node pool itself cuts and
shares GPUs (`gpu-partition-size`, `gpu-sharing-strategy`), and a part is `nvidia.com/gpu: 1` to a pod. Left to a person there:
several profiles on one node, several parts for one replica, parts that are claimed.

## Machines without Kubernetes

Jobs of Slurm: `slurm/*.conf` has the nodes (state CLOUD where a cloud has them, with `Gres`, `SuspendTime` of the
partition and `ResumeTimeout`), the partition and what its jobs ask for; `trimtab-resume.sh` and `trimtab-suspend.sh` start
and end machines by name. Owned nodes keep their lines and are never stopped. Machines of a group:
`terraform/trimtab-instance-groups.tf` is a variable with types and sizes. GPUs that are cut or shared: `hosts/*.sh` enables,
creates, verifies and restores a MIG layout, or starts and stops the MPS daemon, and says what systemd, Docker and Slurm
need to know; `orders/hosts-*.md` is the order from host to host, with what to look for in what says `cuda:0`. Scripts were
read by bash and shellcheck and run against a stand-in of `nvidia-smi`, not on a GPU.

## Patches

A patch goes to a workload by kind and name, in whatever namespace its kustomization sets, and to runs of a family
whatever their number. It replaces the list of tolerations, so it repeats those of the pods that were read; selectors of
other nodes are taken out; affinity that no new node meets is left to a person. What it cannot know is said in APPLY.md.
Replicas that come and go on nodes of several prefer the nodes that hold most of them (`podAffinity`), as they were replayed:
kube-scheduler by default takes the emptiest node, and hardly any becomes empty again. A preferred `podAffinity` that pods have
already is replaced by that one.
"""
_GUARDS = """## Triggers

The demand trigger is the policy that was replayed: its target, floor, ceiling and behaviours. KV cache and latency
triggers are guards, 0 until their limit is passed, so that they change nothing while limits are kept. `ignoreNullValues:
"false"` makes a lost metric a fault, after which KEDA holds today's replicas or more, and an `absent()` alert stands
beside every trigger.

Guards ask for 15 % more than the replicas that served while the value was measured, at least, and for twice as many at
most. Those on latency compare that with the replicas that the mean load of the same minutes asks for, and remember, as a
recorded series, how many times as many it was. They ask for so many times the load's replicas and drop half of what is
beyond once in a quarter of an hour, until 1.1 times are left; so they follow the load. They never ask for more than twice
the load's replicas: those that have half the load that they were planned for, and are still late, are not too few. The
audit's section on robustness shows what these guards are worth where replicas are slower than planned, and what they cost
where all goes as predicted: five minutes may be late in a month that is not. An HPA has the same guards as external
metrics, through prometheus-adapter.

Rates are taken over the last two scrapes, because the replayed rule saw every step as it ended; their window holds four,
so that a failed scrape never reads as 0: a replica that kube-state-metrics calls ready is still counted. How often a server
is scraped is read from what was collected. A history coarser than the scrapes hides their noise: the deployed rule will
then ask for somewhat more than
the replay did. Where a service exposes no requests, five minutes of GPU activity are used instead; that form follows no
replay step by step, its history being hourly.
"""


def emitters_page() -> str:
    """Return the page as Markdown."""
    providers = ", ".join(NODE_CLASSES)
    lines = [
        _HEAD,
        *_table("Effects", ("effect", "what is written"), {kind.__name__: text for kind, text in WRITTEN.items()}),
        *_table(
            "Stages", ("stage", "what it holds"), {str(stage.value): text for stage, text in STAGE_MEANING.items()}
        ),
        *_table("Recorded series", ("series", "meaning"), SERIES),
        _GUARDS,
        *_servers(),
        _NODES.format(providers=providers),
        *_keys("The cluster file (`--cluster`)", ClusterFile),
        *_keys("A workload in it", DeclaredWorkload),
        *_keys("A server of your own in it (`metrics`)", DeclaredMetrics),
        *_keys("A toleration in it", DeclaredToleration),
        *_keys("A node class in it", DeclaredNodeClass),
    ]
    return "\n".join(lines).rstrip() + "\n"


def _table(title: str, heads: tuple[str, str], rows: Mapping[str, str]) -> Iterator[str]:
    yield f"## {title}"
    yield ""
    yield f"| {heads[0]} | {heads[1]} |"
    yield "|---|---|"
    for key, text in rows.items():
        yield f"| `{key}` | {text} |"
    yield ""


def _servers() -> Iterator[str]:
    yield "## Model servers"
    yield ""
    yield "| server | answers | queue | KV cache | latency |"
    yield "|---|---|---|---|---|"
    for server in SERVERS.values():
        names = (server.arrived or server.completed, server.waiting, server.kv_cache, server.latency)
        yield f"| {server.server} | {' | '.join(f'`{name}`' if name else '–' for name in names)} |"
    yield ""


def _keys(title: str, part: type[BaseModel]) -> Iterator[str]:
    rows = {name: field.description or "" for name, field in part.model_fields.items()}
    yield from _table(title, ("key", "meaning"), rows)


if __name__ == "__main__":
    sys.stdout.write(emitters_page())
