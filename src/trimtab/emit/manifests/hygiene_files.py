"""Patches of what is untidy, in a folder of their own: each applied by itself; and a CronJob that stops idle notebooks.

It asks Prometheus for the most that a GPU of each pod did in the last hours, and stops what a pod belongs to: a Kubeflow
Notebook by its own annotation, else a StatefulSet or Deployment by `replicas: 0`. What has no reading is never stopped.
Source of the annotation: Kubeflow, notebook-controller, `kubeflow-resource-stopped`.

A pool's taint is a script, for it belongs where its nodes are made; workloads get kustomize Components; notebooks a CronJob.
What a file cannot decide (a pod that crashes, hangs or asks for too much) is on the page with the command that stops it.
"""

from __future__ import annotations

import json
import shlex
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from trimtab.emit.document import AuditDocument
from trimtab.emit.document.bill import BrokenPart, HygienePart
from trimtab.emit.manifests.emission import MANAGED_BY, ApplyStage, ManifestFile, Plain, dns_name, node_name, yaml_text
from trimtab.emit.manifests.facts import SCALABLE, EmitFacts, KueueFlavor, NodeFacts, WorkloadFacts
from trimtab.emit.manifests.give_back import GROUP_LABELS, KARPENTER
from trimtab.emit.manifests.karpenter import GPU_TAINT
from trimtab.emit.manifests.kubernetes import disruption_budget
from trimtab.emit.manifests.workload_patch import HOSTNAME, patchable, pod_component, tolerates_gpu_nodes
from trimtab.emit.money import dollars
from trimtab.fleet.owner_kinds import RAY_SERVICE
from trimtab.fleet.settings import Bands, Hygiene
from trimtab.tables.workloads import cluster_of

NAME = "trimtab-notebook-reaper"
_IMAGE = "python:3.13-slim"
"""It needs Python and nothing else."""
_METRIC = "DCGM_FI_DEV_GPU_UTIL"
"""Percent of the time that any kernel ran, which every dcgm-exporter has: who runs the smallest kernel is not stopped."""
_KINDS: Mapping[str, str] = {
    "Notebook": "kubeflow.org/v1/notebooks",
    "StatefulSet": "apps/v1/statefulsets",
    "Deployment": "apps/v1/deployments",
}
SCRIPT = '''\
"""Stop notebooks whose GPUs did nothing for HOURS hours; DRY_RUN=1 only says which."""
import datetime, json, os, pathlib, ssl, urllib.parse, urllib.request

ACCOUNT = pathlib.Path("/var/run/secrets/kubernetes.io/serviceaccount")
API = os.environ.get("API", "https://kubernetes.default.svc")
HOURS, ACTIVE = float(os.environ["HOURS"]), float(os.environ["ACTIVE_PERCENT"])
METRIC, POD, SPACE = os.environ["METRIC"], os.environ["POD_LABEL"], os.environ["NAMESPACE_LABEL"]


def read(url, **more):
    request = urllib.request.Request(url, **more)
    context = None
    if url.startswith("https") and (ACCOUNT / "ca.crt").is_file():
        request.add_header("Authorization", "Bearer " + (ACCOUNT / "token").read_text())
        context = ssl.create_default_context(cafile=ACCOUNT / "ca.crt")
    with urllib.request.urlopen(request, timeout=60, context=context) as answer:
        return json.load(answer)


def samples(query):
    url = os.environ["PROMETHEUS"] + "/api/v1/query?" + urllib.parse.urlencode({"query": query})
    found = read(url)["data"]["result"]
    return {row["metric"].get(POD, ""): float(row["value"][1]) for row in found}


def stop(target):
    kind, name = target["kind"], target["name"]
    if kind == "Notebook":
        now = datetime.datetime.now(datetime.timezone.utc).isoformat()
        body = {"metadata": {"annotations": {"kubeflow-resource-stopped": now}}}
    else:
        body = {"spec": {"replicas": 0}}
    group, _, plural = target["path"].rpartition("/")
    url = f"{API}/apis/{group}/namespaces/{target['namespace']}/{plural}/{name}"
    headers = {"Content-Type": "application/merge-patch+json"}
    read(url, data=json.dumps(body).encode(), method="PATCH", headers=headers)


for target in json.loads(os.environ["TARGETS"]):
    pods = f'{SPACE}="{target["namespace"]}",{POD}=~"{target["name"]}(-.*)?"'
    window = f"[{HOURS:g}h]"
    most = samples(f"max by ({POD}) (max_over_time({METRIC}{{{pods}}}{window}))")
    seen = samples(f"min by ({POD}) (count_over_time({METRIC}{{{pods}}}{window}))")
    before = samples(f"max by ({POD}) ({METRIC}{{{pods}}} offset {HOURS:g}h)")
    lasting = [pod for pod in most if pod in before and seen.get(pod, 0) > 1]
    if not lasting or max(most.values()) >= ACTIVE:
        continue
    stops = os.environ["DRY_RUN"] != "1"
    print("idle", target["kind"], f"{target['namespace']}/{target['name']}", "stopped" if stops else "left as it is")
    if stops:
        stop(target)
'''


def reaper(
    targets: Sequence[tuple[str, str, str]],
    *,
    hours: float,
    active_frac: float,
    pod_label: str,
    namespace_label: str,
) -> str:
    """Return the manifests of the reaper in one namespace; `targets` are (namespace, name, kind) of notebooks there."""
    namespace = targets[0][0]
    meta: dict[str, Plain] = {"name": NAME, "namespace": namespace, "labels": dict(MANAGED_BY)}
    listed = [{"namespace": space, "name": name, "kind": kind, "path": _KINDS[kind]} for space, name, kind in targets]
    settings = {
        "DRY_RUN": "1",
        "PROMETHEUS": "http://prometheus-operated.monitoring:9090",
        "HOURS": f"{hours:g}",
        "ACTIVE_PERCENT": f"{active_frac * 100:g}",
        "METRIC": _METRIC,
        "POD_LABEL": pod_label,
        "NAMESPACE_LABEL": namespace_label,
        "TARGETS": json.dumps(listed),
    }
    return yaml_text(
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta},
        _role(meta, sorted({kind for _, _, kind in targets})),
        _binding(meta),
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"reap.py": SCRIPT}},
        _cron_job(meta, settings),
        comment="Says hourly which notebooks are left open. Read its log for a week, inform their owners, then set DRY_RUN\n"
        "to 0. PROMETHEUS is assumed to be that of kube-prometheus-stack: set your own.",
    )


def _role(meta: Mapping[str, Plain], kinds: Sequence[str]) -> dict[str, Plain]:
    rules = [
        {
            "apiGroups": [_KINDS[kind].partition("/")[0]],
            "resources": [_KINDS[kind].rpartition("/")[2]],
            "verbs": ["patch"],
        }
        for kind in kinds
    ]
    return {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": meta, "rules": rules}


def _binding(meta: Mapping[str, Plain]) -> dict[str, Plain]:
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": meta,
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": NAME},
        "subjects": [{"kind": "ServiceAccount", "name": NAME, "namespace": meta["namespace"]}],
    }


def _cron_job(meta: Mapping[str, Plain], settings: Mapping[str, str]) -> dict[str, Plain]:
    container: dict[str, Plain] = {
        "name": "reaper",
        "image": _IMAGE,
        "command": ["python", "/reaper/reap.py"],
        "env": [{"name": name, "value": value} for name, value in settings.items()],
        "resources": {"requests": {"cpu": "50m", "memory": "64Mi"}, "limits": {"memory": "128Mi"}},
        "volumeMounts": [{"name": "script", "mountPath": "/reaper"}],
    }
    pod: dict[str, Plain] = {
        "serviceAccountName": NAME,
        "restartPolicy": "Never",
        "containers": [container],
        "volumes": [{"name": "script", "configMap": {"name": NAME}}],
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": meta,
        "spec": {
            "schedule": "17 * * * *",
            "concurrencyPolicy": "Forbid",
            "jobTemplate": {"spec": {"backoffLimit": 0, "template": {"spec": pod}}},
        },
    }


FOLDER = "hygiene"
_NOTE = "hygiene"
_TYPE_LABEL = "node.kubernetes.io/instance-type"
_REAPED = frozenset({"Notebook", "StatefulSet", "Deployment"})
_TAINT = f"{GPU_TAINT['key']}={GPU_TAINT['value']}:{GPU_TAINT['effect']}"
_STRAY, _NO_TAINT = "pods without GPUs on GPU nodes", "GPU nodes without a taint"
_NOTEBOOK = "notebooks left open"
_SCATTERED = "nodes that moving pods would empty"
_QUEUED = "queues that wait beside free GPUs"
_OVER_ASKED, _BUDGET = "pods that ask for more GPUs than they use", "disruption budgets missing or too strict"
_STOPPED = frozenset({"pods that hold GPUs and do not start", "pods that hold GPUs and do nothing"})
_CRASH_LOOP = "container in a crash loop"
_NAMED = 3
PACKING_SCHEDULER = "gpu-packing"
_GPU_WEIGHT = 5
"""GPUs are what nodes are paid for; CPUs and memory only break ties."""
_SCHEDULER_COMMENT = """For a second kube-scheduler (kubernetes.io/docs/tasks/extend-kubernetes/configure-multiple-schedulers),
which runs with --config on this file, or for the one that you run yourself: give the profile the name default-scheduler then.
Pods with GPUs name it in schedulerName. On GKE the autoscaling profile optimize-utilization does the same without it."""
_TOPOLOGY_COMMENT = """Kueue 0.15 or later. Once the flavor names this topology, each run that comes is put on the nodes
with least room that have enough, so that the others stay whole for large runs:

  kubectl patch resourceflavor {flavor} --type=merge -p '{{"spec":{{"topologyName":"{name}"}}}}'

To take that back, delete the flavor and make it again. It holds for all runs of a ClusterQueue once each of its flavors names
a topology; Kueue then ignores their affinity to other pods. A run whose pods exchange much asks to have them close together:

  kueue.x-k8s.io/podset-preferred-topology: {level}"""
_STRAY_COMMENT = """List this folder under `components` beside the workload's manifest. Where it requires nodes by affinity
already, add the expression to each of its own terms instead: a merge would put this one in their place."""


def hygiene_files(document: AuditDocument, facts: EmitFacts) -> tuple[ManifestFile, ...]:
    """Return the files that tidy up what an audit found, and the page that says what each is for; none where all is tidy."""
    if not document.hygiene and not document.broken:
        return ()
    by_kind: dict[str, list[HygienePart]] = defaultdict(list)
    for part in document.hygiene:
        by_kind[part.kind].append(part)
    files = [
        *_strays(by_kind[_STRAY], facts),
        *_taints(by_kind[_NO_TAINT], facts),
        *_notebooks(by_kind[_NOTEBOOK], facts),
        *_disruption_budgets(by_kind[_BUDGET], facts),
        *_packing(by_kind[_SCATTERED], facts),
    ]
    paths = {subject: [file.path for file, about in files if about == subject] for _, subject in files}
    page = _file("README.md", _page(document, facts, paths), "what is untidy")
    return (page, *(file for file, _ in files))


def _file(path: str, text: str, kind: str) -> ManifestFile:
    return ManifestFile(path=f"{FOLDER}/{path}", text=text, kind=kind, actions=(), stage=ApplyStage.TIDY)


Made = tuple[ManifestFile, str]
"""A file and the offender that it is for."""


def _strays(parts: Sequence[HygienePart], facts: EmitFacts) -> Iterator[Made]:
    """Yield the Components that keep pods without GPUs off the types of nodes that have them."""
    types = sorted({node.pool.instance_type for node in facts.nodes})
    for part in parts:
        known = WorkloadFacts(name=part.subject, owner_kind=part.owner_kind)
        if not types or not patchable(known) or known.owner_kind == RAY_SERVICE:
            continue
        term = {"matchExpressions": [{"key": _TYPE_LABEL, "operator": "NotIn", "values": [*types]}]}
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
        body = pod_component(known, "off-gpu-nodes", {"affinity": {"nodeAffinity": required}}, _NOTE)
        yield _component_file("strays", known, body, _STRAY_COMMENT), part.subject


def _component_file(folder: str, known: WorkloadFacts, body: Mapping[str, Plain], comment: str) -> ManifestFile:
    cluster = cluster_of(known.name)
    path = f"{folder}/{dns_name(known.namespace)}/{dns_name(known.short_name, cluster)}/kustomization.yaml"
    return _file(path, yaml_text(body, comment=comment), "kustomize Component")


def _taints(parts: Sequence[HygienePart], facts: EmitFacts) -> Iterator[Made]:
    """Yield the scripts that taint pools, and the tolerations of workloads that do not tolerate it yet."""
    nodes = {node.name: node for node in facts.nodes}
    done: set[str] = set()
    for part in parts:
        here = [nodes[name] for name in part.nodes if name in nodes]
        if here:
            script = taint_script(part, here)
            yield _file(f"taints/{node_name(part.subject)}.sh", script, "script that taints nodes"), part.subject
        for name in part.unschedulable:
            known = facts.workload(name)
            if known is None or name in done or not known.pods_were_read or not _takes_tolerations(known):
                continue
            done.add(name)
            body = pod_component(known, "tolerates-gpu-nodes", {"tolerations": tolerates_gpu_nodes(known)}, _NOTE)
            comment = f"Before the taint on {part.subject}: without it new pods of {name} find no node there."
            yield _component_file("tolerations", known, body, comment), part.subject


def _takes_tolerations(known: WorkloadFacts) -> bool:
    return patchable(known) and known.owner_kind != RAY_SERVICE


def taint_script(part: HygienePart, nodes: Sequence[NodeFacts]) -> str:
    """Return the script that taints a pool: where its nodes are made, then the nodes that stand."""
    first = nodes[0]
    if part.unschedulable:
        names = ", ".join(part.unschedulable)
        warning = f"# First: {names} must tolerate it (../tolerations), else their new pods stay pending."
    else:
        warning = "# Every workload that holds GPUs there tolerates it."
    standing = " ".join(shlex.quote(node.name) for node in nodes)
    lines = [
        "#!/usr/bin/env bash",
        f"# {part.subject}: keep pods without GPUs off its nodes. Made by trimtab; nothing here was run.",
        warning,
        "# Pods that run there stay: move those without GPUs with ../strays.",
        "set -euo pipefail",
        "",
        *_where_nodes_are_made(first),
        "",
        "# The nodes that stand:",
        f"kubectl taint nodes {standing} {_TAINT} --overwrite",
    ]
    return "\n".join(lines) + "\n"


def _where_nodes_are_made(node: NodeFacts) -> Iterator[str]:
    """Yield the command that gives new nodes of a pool the taint; sources: the clouds' own references of the command."""
    key, name = node.group or ("", "")
    quoted, region = shlex.quote(name), shlex.quote(node.pool.region)
    if key == KARPENTER:
        yield "# Karpenter takes a changed template as drift and replaces the nodes of the pool, within its budgets"
        step = f'[{{"op":"add","path":"/spec/template/spec/taints","value":[{_taint_json()}]}}]'
        yield f"kubectl patch nodepool {quoted} --type=json -p {shlex.quote(step)}"
    elif node.pool.provider == "aws" and key in GROUP_LABELS:
        yield ': "${CLUSTER:?name of the EKS cluster}"'
        taints = '{"addOrUpdateTaints":[{"key":"nvidia.com/gpu","value":"present","effect":"NO_SCHEDULE"}]}'
        yield f'aws eks update-nodegroup-config --region {region} --cluster-name "$CLUSTER" \\'
        yield f"  --nodegroup-name {quoted} --taints {shlex.quote(taints)}"
    elif node.pool.provider == "gcp" and key in GROUP_LABELS:
        yield ': "${CLUSTER:?name of the GKE cluster}"'
        yield f'gcloud container node-pools update {quoted} --cluster "$CLUSTER" --location {region} --node-taints={_TAINT}'
    elif node.pool.provider == "azure" and key in GROUP_LABELS:
        yield ': "${CLUSTER:?name of the AKS cluster}" "${RESOURCE_GROUP:?its resource group}"'
        yield f'az aks nodepool update --resource-group "$RESOURCE_GROUP" --cluster-name "$CLUSTER" --name {quoted} \\'
        yield f"  --node-taints {_TAINT}"
    else:
        yield "# What makes these nodes is not known: put the taint there too (kubelet --register-with-taints), for new ones"


def _taint_json() -> str:
    return f'{{"key":"{GPU_TAINT["key"]}","value":"{GPU_TAINT["value"]}","effect":"{GPU_TAINT["effect"]}"}}'


def _notebooks(parts: Sequence[HygienePart], facts: EmitFacts) -> Iterator[Made]:
    """Yield one reaper for each namespace with notebooks left open."""
    spaces: dict[str, list[HygienePart]] = defaultdict(list)
    for part in parts:
        if part.owner_kind in _REAPED:
            spaces[WorkloadFacts(name=part.subject).namespace].append(part)
    for space, mine in spaces.items():
        text = reaper(
            [(space, WorkloadFacts(name=part.subject).short_name, part.owner_kind) for part in mine],
            hours=Hygiene().notebook_open_hr,
            active_frac=Bands().active_frac,
            pod_label=facts.pod_label,
            namespace_label=facts.namespace_label,
        )
        file = _file(f"notebooks/{dns_name(space)}.reaper.yaml", text, "CronJob, Role, RoleBinding, ServiceAccount")
        yield from ((file, part.subject) for part in mine[:1])


def _disruption_budgets(parts: Sequence[HygienePart], facts: EmitFacts) -> Iterator[Made]:
    """Yield a budget for each service that has none and whose pods' labels are known."""
    for part in parts:
        known = facts.workload(part.subject)
        if known is None or part.owner_kind not in SCALABLE or not known.pod_labels:
            continue
        path = f"budgets/{dns_name(known.namespace)}/{dns_name(known.short_name)}.pdb.yaml"
        text = yaml_text(disruption_budget(known), comment=f"{part.subject}: one replica goes at a time")
        yield _file(path, text, "PodDisruptionBudget"), part.subject


def _packing(parts: Sequence[HygienePart], facts: EmitFacts) -> Iterator[Made]:
    """Yield the script that empties nodes of each group, and once the scheduler that keeps pods together from then on."""
    nodes = {node.name: node for node in facts.nodes}
    for part in parts:
        here = [nodes[name] for name in part.nodes if name in nodes]
        if here:
            script = moves_script(part, here)
            yield _file(f"packing/{node_name(part.subject)}.sh", script, "script that empties nodes"), part.subject
    if any(name in nodes for part in parts for name in part.nodes):
        text = yaml_text(packing_scheduler(), comment=_SCHEDULER_COMMENT)
        yield _file("packing/scheduler.yaml", text, "ConfigMap"), parts[0].subject
    for flavor in facts.kueue_flavors:
        groups = {nodes[name].group for name in flavor.nodes if name in nodes}
        about = [part for part in parts if any(name in nodes and nodes[name].group in groups for name in part.nodes)]
        if about:
            yield (
                _file(f"packing/kueue-{node_name(flavor.name)}.yaml", _topology_text(flavor), "Topology"),
                about[0].subject,
            )


def moves_script(part: HygienePart, nodes: Sequence[NodeFacts]) -> str:
    """Return the script that empties nodes in the order in which their pods were found room for."""
    names = [shlex.quote(node.name) for node in nodes]
    key, group = nodes[0].group or ("", "")
    lines = [
        "#!/usr/bin/env bash",
        f"# {part.subject}: empty {', '.join(names)}. Made by trimtab; nothing here was run.",
        f"# To move, in this order: {', '.join(part.items)}.",
        "# Room was found for them at the end of the history that was audited: look again if much has changed since.",
        "# Each pod starts again elsewhere; disruption budgets are kept, so that a drain may wait for them.",
        "set -euo pipefail",
        "",
        "# First none of them takes new pods, so that what leaves one does not go to another",
        f"kubectl cordon {' '.join(names)}",
        *(f"kubectl drain {name} --ignore-daemonsets --delete-emptydir-data --timeout=30m" for name in names),
        "",
        "# Nothing may wait for a node now:",
        "kubectl get pods --all-namespaces --field-selector status.phase=Pending",
        "",
    ]
    if key == KARPENTER:
        change = '{"spec":{"disruption":{"consolidationPolicy":"WhenEmptyOrUnderutilized"}}}'
        lines += [
            "# Karpenter gives empty nodes back by itself. It keeps pods together from then on with the line below, which",
            '# may stop runs: first annotate their pods with karpenter.sh/do-not-disrupt: "true".',
            f"# kubectl patch nodepool {shlex.quote(group)} --type=merge -p {shlex.quote(change)}",
        ]
    else:
        lines += [
            "# The cluster autoscaler gives empty nodes back by itself; without one, make the group smaller by",
            f"# {len(names)}, naming these nodes.",
        ]
    return "\n".join(lines) + "\n"


def packing_scheduler() -> Mapping[str, Plain]:
    """Return the configuration of a scheduler that fills nodes with GPUs before it opens others.

    MostAllocated of NodeResourcesFit (kubernetes.io/docs/concepts/scheduling-eviction/resource-bin-packing), GPUs before CPUs
    and memory, and none of the spreading over nodes that the scheduler adds by itself.
    """
    version = "kubescheduler.config.k8s.io/v1"
    fit: dict[str, Plain] = {
        "apiVersion": version,
        "kind": "NodeResourcesFitArgs",
        "scoringStrategy": {
            "type": "MostAllocated",
            "resources": [
                {"name": GPU_TAINT["key"], "weight": _GPU_WEIGHT},
                {"name": "cpu", "weight": 1},
                {"name": "memory", "weight": 1},
            ],
        },
    }
    spread: dict[str, Plain] = {
        "apiVersion": version,
        "kind": "PodTopologySpreadArgs",
        "defaultingType": "List",
        "defaultConstraints": [],
    }
    profile: dict[str, Plain] = {
        "schedulerName": PACKING_SCHEDULER,
        "plugins": {"score": {"disabled": [{"name": "NodeResourcesBalancedAllocation"}]}},
        "pluginConfig": [
            {"name": "NodeResourcesFit", "args": fit},
            {"name": "PodTopologySpread", "args": spread},
        ],
    }
    configuration: dict[str, Plain] = {
        "apiVersion": version,
        "kind": "KubeSchedulerConfiguration",
        "profiles": [profile],
    }
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": f"{PACKING_SCHEDULER}-scheduler", "namespace": "kube-system"},
        "data": {"config.yaml": yaml_text(configuration)},
    }


def _topology_text(flavor: KueueFlavor) -> str:
    """Return the Topology with which Kueue places the runs of a flavor itself.

    A run without an annotation goes to the nodes of least free capacity (kubernetes-sigs/kueue, keps/2724-topology-aware-
    scheduling: TASProfileMixed, on by default); fields and what is immutable: apis/kueue/v1beta2, topology_types.go and
    resourceflavor_types.go.
    """
    name = dns_name("trimtab", flavor.name)
    levels = (*flavor.levels, HOSTNAME)
    body: Mapping[str, Plain] = {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Topology",
        "metadata": {"name": name},
        "spec": {"levels": [{"nodeLabel": level} for level in levels]},
    }
    comment = _TOPOLOGY_COMMENT.format(flavor=shlex.quote(flavor.name), name=name, level=levels[0])
    return yaml_text(body, comment=comment)


# The page


def _page(document: AuditDocument, facts: EmitFacts, paths: Mapping[str, Sequence[str]]) -> str:
    return "\n".join([*_head(), *_offenders(document.hygiene, paths), *_broken(document.broken, facts)]) + "\n"


def _head() -> Iterator[str]:
    yield "# What is untidy"
    yield ""
    yield "Apart from the plan: apply each patch by itself, or none. Dollars are a month's and part of waste that the audit"
    yield "counts under the kind named beside them: what a patch frees is saved once, by it or by the plan."
    yield ""


def _offenders(parts: Sequence[HygienePart], paths: Mapping[str, Sequence[str]]) -> Iterator[str]:
    kinds: dict[str, list[HygienePart]] = defaultdict(list)
    for part in parts:
        kinds[part.kind].append(part)
    for kind, rows in kinds.items():
        yield f"## {kind[:1].upper()}{kind[1:]}"
        yield ""
        for row in rows:
            counted = f", counted in “{row.counted_in}”" if row.counted_in else ""
            yield f"- [ ] `{row.subject}` ({dollars(row.usd_mo)} a month{counted}; {row.call}): {row.evidence}"
            for line in (*_what_to_do(row, paths), *_leaves(row)):
                yield f"  - {line}"
        yield ""


def _what_to_do(row: HygienePart, paths: Mapping[str, Sequence[str]]) -> Iterator[str]:
    for path in paths.get(row.subject, ()):
        yield f"`{path}`"
    if row.kind in (_STRAY, _NO_TAINT, _NOTEBOOK):
        if not paths.get(row.subject) and row.kind == _STRAY:
            yield "no patch: the owner of its pods is not known; keep it off GPU nodes by node affinity in its own manifest"
    elif row.kind == _OVER_ASKED:
        yield "no patch here: fewer GPUs for its pods are an action of the plan, where its targets allow them"
    elif row.kind == _SCATTERED and paths.get(row.subject):
        yield "the script waits for each pod; `packing/scheduler.yaml` keeps new pods from scattering again"
        if any("/kueue-" in path for path in paths[row.subject]):
            yield "a Topology has Kueue put new runs on the nodes with least room"
    elif row.kind == _QUEUED:
        yield "no patch: let its ClusterQueue borrow (a cohort without `borrowingLimit`), raise its quota, or end `StrictFIFO`"
        yield "of Slurm: backfill, shorter time limits, or the limits of its partition and QOS"
    elif row.kind in _STOPPED:
        yield _stop(row.subject, row.owner_kind, row.items)


def _stop(subject: str, owner_kind: str, pods: Sequence[str]) -> str:
    """Return the command that stops a workload, or pods that nothing known makes again."""
    known = WorkloadFacts(name=subject)
    if owner_kind in SCALABLE:
        return f"to stop it: `kubectl scale {owner_kind.lower()}/{known.short_name} -n {known.namespace} --replicas=0`"
    return f"to stop it: `kubectl delete pod -n {known.namespace} {' '.join(pods[:_NAMED])}`"


def _leaves(row: HygienePart) -> Iterator[str]:
    if row.kind == _NO_TAINT:
        kept = ", ".join(f"`{name}`" for name in row.unschedulable)
        yield f"leaves unschedulable: {kept or 'nothing that holds GPUs there'}"
    if row.kind == _STRAY:
        yield "leaves unschedulable: these pods, unless a node without GPUs has room for them"
    if row.daemons:
        yield f"DaemonSets stay where they tolerate the taint: {', '.join(f'`{name}`' for name in row.daemons)}"


def _broken(parts: Sequence[BrokenPart], facts: EmitFacts) -> Iterator[str]:
    if parts:
        yield "## What was broken"
        yield ""
    for row in parts:
        retried = f" {row.retried}." if row.retried else ""
        yield f"- [ ] `{row.subject}` ({dollars(row.usd_mo)} a month; call: {row.call}): {row.what}. {row.evidence}.{retried}"
        if row.what == _CRASH_LOOP:
            owner = facts.workload(row.subject)
            yield f"  - {_stop(row.subject, owner.owner_kind if owner else '', row.items)}"
