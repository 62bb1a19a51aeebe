"""Mistakes made in what `trimtab emit` writes, by a mutator that knows no check: which `trimtab emit --check` finds, by class.

Run: python -m benchmarks.mistakes [--count 500] [--seed 3] [--half design|held-out]
     python -m benchmarks.mistakes --alarms: every demonstration's own output
     python -m benchmarks.mistakes --plans N [--seed S] [--limit-s S]: what is emitted for plans drawn at random, any effects on
         any workloads of a cluster (`tests/emit/strategies.py`), beside a dump of it

The valid output is that of a demonstration's plan with KEDA and with HPAs, and of the same plan with runs deferred (Kueue) and
a service in MIG slices. Beside it stands a dump of the cluster (workloads, namespaces, a Service, a node class, Prometheus),
made from the facts that the plan was emitted with. Classes alternate by name into a half that the check was designed with
(seed 1) and a half that it first met when it was measured (seed 2). A mutation that leaves the folder's meaning as it was is no
mistake and is made again. A mistake counts as caught where there is an error that the unchanged folder does not have; every
error names its file and its cure. kustomize itself is not run here.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml
from hypothesis import HealthCheck, Phase, given, seed as seeded, settings
from tests.emit.test_any_plan import FACTS, plans

from benchmarks.mistake_classes import CLASSES
from benchmarks.mistake_mutations import Files, Mistake, meaning
from trimtab.catalog import load_catalog
from trimtab.catalog.pools import SharedPool
from trimtab.catalog.registry import Catalog
from trimtab.check import Cluster, ObjectFault, Severity, check_folder, read_cluster
from trimtab.check.cluster import cluster_of_bundle
from trimtab.deployment.effects import DeferRuns, UseSlots
from trimtab.emit.manifests.facts import Autoscaler, EmitFacts
from trimtab.emit.manifests.karpenter import NODE_CLASSES
from trimtab.emit.manifests.plan_files import emit_plan
from trimtab.errors import TrimtabError
from trimtab.pipeline import PlanningInput, open_demo, plan_and_prove
from trimtab.pipeline.afterwards import emit_facts
from trimtab.plan.model import Change, Plan
from trimtab.policies.deferral import DeferPolicy
from trimtab.provenance import Basis, Estimate
from trimtab.sources.demo import DEMO_FLEETS
from trimtab.units import S_PER_HR

DEMO = "two-hundred-k"
_TRIES = 40
_TOLD = 50
"""Random plans after which it is said how far it is."""
_TEMPLATED = frozenset({"Deployment", "StatefulSet"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Valid:
    """Valid output, and the cluster that it is for."""

    name: str
    files: Files
    cluster: Cluster
    errors: frozenset[ObjectFault]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One mistake and what was found of it."""

    kind: str
    folder: str
    said: str
    caught: tuple[str, ...]


def outputs() -> list[tuple[str, Files, EmitFacts]]:
    """Return valid output by name, with the facts that it was emitted with."""
    bundle = open_demo(DEMO)
    made = plan_and_prove(PlanningInput(bundle=bundle))
    planned, opened = made.planned, made.opened
    facts = emit_facts(planned.plan, bundle, planned.fleet, opened.market, opened.settings, later=opened.proof)
    facts = replace(facts, workloads=tuple(replace(one, pod_labels={"app": one.short_name}) for one in facts.workloads))
    keda, hpa = (replace(facts, autoscaler=each) for each in (Autoscaler.KEDA, Autoscaler.HPA))
    more = _more(planned.plan, keda)
    cases = [("KEDA", planned.plan, keda), ("HPA", planned.plan, hpa), ("Kueue and MIG", more, keda)]
    return [
        (name, {file.path: file.text for file in emit_plan(plan, known).files}, known) for name, plan, known in cases
    ]


def _more(plan: Plan, facts: EmitFacts) -> Plan:
    """Return a plan with runs that wait for the night, and a service in slices: what the demonstration's own has not."""
    one = Estimate(value=1.0, low=1.0, high=1.0, basis=Basis.MODELLED)
    home = next(known for known in facts.workloads if known.name == "prod/search-rank")
    assert home.pool is not None
    slots = UseSlots(
        shared=SharedPool(home.pool, 56, "1g.5gb"), gpu=str(home.gpu), gpus_per_node=8, slots=1, memory_gib=4.9, speed=one,
        work_speed=one,
    )  # fmt: skip
    defer = DeferRuns(policy=DeferPolicy(start_hour=2, within_s=8 * S_PER_HR), startup_s=300.0)
    first = plan.actions[0]
    actions = [
        replace(
            first,
            id="b1",
            lever="schedule",
            subject="ml/ranker-train",
            changes=(Change(subject="ml/ranker-train", effect=defer),),
        ),
        replace(
            first,
            id="b2",
            lever="sharing",
            subject="prod/search-rank",
            changes=(Change(subject="prod/search-rank", effect=slots),),
        ),
    ]
    kept = [
        action
        for action in plan.actions
        if not {change.subject for change in action.changes} & {"ml/ranker-train", "prod/search-rank"}
    ]
    return replace(plan, actions=(*kept, *actions))


def dump(facts: EmitFacts) -> list[dict[str, Any]]:
    """Return the objects of the cluster that facts are of, as `kubectl get` would."""
    namespaces = sorted({known.namespace for known in facts.workloads} | {"monitoring", "gpu-operator"})
    objects: list[dict[str, Any]] = [_object("v1", "Namespace", name) for name in namespaces]
    for known in facts.workloads:
        api = {"Deployment": "apps/v1", "StatefulSet": "apps/v1", "Job": "batch/v1", "CronJob": "batch/v1"}.get(
            known.owner_kind, "example.org/v1"
        )
        spec = (
            {"template": {"metadata": {"labels": {"app": known.short_name}}}} if known.owner_kind in _TEMPLATED else {}
        )
        objects.append(_object(api, known.owner_kind, known.short_name, known.namespace, spec))
    rules = {"ruleSelector": {"matchLabels": dict(facts.rule_labels)}}
    return [
        *objects,
        _object("v1", "Service", "prometheus-operated", "monitoring"),
        _object("monitoring.coreos.com/v1", "Prometheus", "kube-prometheus-stack", "monitoring", rules),
        *(_object(f"{one.group}/v1", one.kind, one.name) for one in NODE_CLASSES.values()),
    ]


def _object(
    api: str, kind: str, name: str, namespace: str = "", spec: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
    return {"apiVersion": api, "kind": kind, "metadata": metadata, "spec": dict(spec or {})}


def found(files: Files, cluster: Cluster, catalog: Catalog) -> frozenset[ObjectFault]:
    """Return the errors of a folder of these files."""
    return frozenset(fault for fault in _faults(files, cluster, catalog) if fault.severity is Severity.ERROR)


def _faults(files: Files, cluster: Cluster, catalog: Catalog) -> tuple[ObjectFault, ...]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for path, text in files.items():
            place = folder / path
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(text, encoding="utf-8")
        return check_folder(folder, catalog, cluster=cluster, build=False).faults


def valid_outputs(catalog: Catalog) -> list[Valid]:
    """Return the valid outputs with their clusters."""
    made = []
    for name, files, facts in outputs():
        cluster = _cluster(facts)
        made.append(Valid(name=name, files=files, cluster=cluster, errors=found(files, cluster, catalog)))
    return made


def _cluster(facts: EmitFacts) -> Cluster:
    with tempfile.TemporaryDirectory() as place:
        (Path(place) / "cluster.yaml").write_text(yaml.safe_dump_all(dump(facts)), encoding="utf-8")
        return read_cluster(Path(place) / "cluster.yaml")


def mistakes(valid: list[Valid], names: list[str], count: int, seed: int) -> Iterator[tuple[str, Valid, Mistake]]:
    """Yield so many mistakes, the classes in turn; those that mean what the valid output means are made again."""
    rng = random.Random(seed)
    for number in range(count):
        name = names[number % len(names)]
        for _ in range(_TRIES):
            one = rng.choice(valid)
            try:
                made = CLASSES[name](one.files, rng)
            except (IndexError, KeyError):
                continue  # this output has no place for it
            if made is not None and meaning(made.files) != meaning(one.files):
                yield name, one, made
                break


def halves() -> tuple[list[str], list[str]]:
    """Return the classes of the design and those held out: alternating by name."""
    names = sorted(CLASSES)
    return names[::2], names[1::2]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--seed", type=int, default=2)
    parser.add_argument("--half", choices=("design", "held-out"))
    parser.add_argument("--alarms", action="store_true", help="only check what is emitted for every demonstration")
    parser.add_argument("--plans", type=int, metavar="N", help="only check what is emitted for so many random plans")
    parser.add_argument(
        "--limit-s", type=float, default=600.0, help="with --plans: processor seconds after which no more"
    )
    arguments = parser.parse_args()
    if arguments.plans:
        _random_plans(load_catalog(), arguments.plans, arguments.seed, arguments.limit_s)
        return
    if arguments.alarms:
        _alarms(load_catalog())
        return
    design, held_out = halves()
    names = {"design": design, "held-out": held_out}.get(arguments.half, sorted(CLASSES))
    catalog = load_catalog()
    valid = valid_outputs(catalog)
    false = sum(len(one.errors) for one in valid)
    for one in valid:
        for fault in sorted(map(str, one.errors)):
            print(f"false alarm in {one.name}: {fault}", flush=True)
    rows = []
    for name, one, made in mistakes(valid, names, arguments.count, arguments.seed):
        try:
            caught = tuple(sorted(str(fault) for fault in found(made.files, one.cluster, catalog) - one.errors))
        except TrimtabError as error:
            caught = (str(error),)
        rows.append(Row(kind=name, folder=one.name, said=made.said, caught=caught))
    _report(rows, design, false, arguments.seed)


def _alarms(catalog: Catalog) -> None:
    """Check the emitted output of every demonstration, beside its own history: every error is a false alarm."""
    errors = warnings = folders = 0
    for demo in DEMO_FLEETS:
        bundle = open_demo(demo)
        made = plan_and_prove(PlanningInput(bundle=bundle))
        planned, opened = made.planned, made.opened
        facts = emit_facts(planned.plan, bundle, planned.fleet, opened.market, opened.settings, later=opened.proof)
        for autoscaler in Autoscaler:
            files = {
                file.path: file.text for file in emit_plan(planned.plan, replace(facts, autoscaler=autoscaler)).files
            }
            if not any(path.endswith(".yaml") for path in files):
                continue  # a plan of purchases alone: pages, and no object to check
            faults = _faults(files, cluster_of_bundle(bundle), catalog)
            wrong = [fault for fault in faults if fault.severity is Severity.ERROR]
            for fault in wrong:
                print(f"false alarm in {demo}, {autoscaler.value}: {fault}", flush=True)
            errors, warnings, folders = errors + len(wrong), warnings + len(faults) - len(wrong), folders + 1
        print(f"{demo}: checked", flush=True)
    print(json.dumps({"benchmark": "mistakes", "folders": folders, "false_alarms": errors, "warnings": warnings}))


def _random_plans(catalog: Catalog, count: int, seed: int, limit_s: float) -> None:
    """Check what is emitted for random plans: every error is an object that a server refuses, or that selects nothing."""
    folders = set[int]()
    objects = checked = 0
    said = Counter[str]()
    known: list[tuple[EmitFacts, Cluster]] = []

    @seeded(seed)
    @settings(
        max_examples=count,
        deadline=None,
        database=None,
        phases=(Phase.generate,),
        suppress_health_check=list(HealthCheck),
    )
    @given(plan=plans(), facts=FACTS)
    def check(plan: Plan, facts: EmitFacts) -> None:
        nonlocal objects, checked
        # no machine is called so, and its label would be a fault indeed
        if time.process_time() > limit_s or "h100 sxm" in repr(plan):
            return
        cluster = next((cluster for other, cluster in known if other == facts), None)
        if cluster is None:
            known.append((facts, cluster := _cluster(facts)))
        files = {file.path: file.text for file in emit_plan(plan, facts).files}
        manifests = [text for path, text in files.items() if path.endswith(".yaml")]
        checked += 1
        folders.add(hash(tuple(sorted(files.items()))))
        objects += sum(text.count("\napiVersion:") + text.startswith("apiVersion:") for text in manifests)
        if checked % _TOLD == 0:
            print(f"{checked} plans, {objects} objects, {said.total()} errors, {time.process_time():.0f} s", flush=True)
        for fault in found(files, cluster, catalog) if manifests else ():
            said[str(fault)[:200]] += 1
            print(f"error: {fault}", flush=True)

    check()
    print(
        json.dumps(
            {
                "benchmark": "mistakes",
                "seed": seed,
                "random_plans": checked,
                "different_folders": len(folders),
                "objects": objects,
                "errors": said.total(),
                "cpu_s": round(time.process_time()),
            }
        )
    )


def _report(rows: list[Row], design: list[str], false_alarms: int, seed: int) -> None:
    of_class = defaultdict(list)
    for row in rows:
        of_class[row.kind].append(row)
    for name in sorted(of_class):
        these = of_class[name]
        half = "design" if name in design else "held out"
        print(f"{name:40s} {half:9s} {sum(bool(row.caught) for row in these):3d} of {len(these):3d}")
        example = next((row for row in these if row.caught), None)
        if example is not None:
            print(f"    such as {example.said[:150]}\n    -> {example.caught[0][:300]}")
        for row in these:
            if not row.caught:
                print(f"    MISSED in {row.folder}: {row.said[:300]}")
    caught = Counter(row.kind in design for row in rows if row.caught)
    made = Counter(row.kind in design for row in rows)
    print(
        json.dumps(
            {
                "benchmark": "mistakes",
                "seed": seed,
                "mistakes": len(rows),
                "classes": len(of_class),
                "caught": sum(caught.values()),
                "caught_frac": sum(caught.values()) / max(len(rows), 1),
                "design_caught": caught[True],
                "design": made[True],
                "held_out_caught": caught[False],
                "held_out": made[False],
                "classes_caught_whole": sum(all(row.caught for row in these) for these in of_class.values()),
                "without_a_cure": sum(";" not in said for row in rows for said in row.caught),
                "false_alarms": false_alarms,
            }
        )
    )


if __name__ == "__main__":
    main()
