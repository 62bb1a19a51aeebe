"""What the emitted files say is what was replayed: nodes, GPUs, capacity a replica, replicas a node, limits.

The files are read as a cluster reads them, by field; nothing here knows how they were made.
"""

import math
import re
from collections import defaultdict
from dataclasses import dataclass, field, replace

import pytest
import yaml
from hypothesis import HealthCheck, Phase, given, settings, strategies as st
from tests.contracts.random_fleets import DAYS, HOURS, LE_S, SHARES, nightly_idle, notebooks, runs, services
from tests.fleets import FleetRows, few_machines

from trimtab.catalog.kinds import CapacityType
from trimtab.catalog.pools import Pool, SharedPool
from trimtab.deployment.deployment import Deployment
from trimtab.deployment.effects import Relocate, SetReplicaPolicy, SetReplicas, UseOffering, UseSlots
from trimtab.deployment.placement import HomeNodes, resolve
from trimtab.emit.manifests.cluster_facts import facts_of_fleet
from trimtab.emit.manifests.emission import ApplyStage
from trimtab.emit.manifests.plan_files import emit_plan
from trimtab.fleet.build import build_fleet
from trimtab.fleet.market import Market
from trimtab.fleet.settings import Settings
from trimtab.levers.lever import LeverRequest, Risk
from trimtab.levers.registry import BUILT_IN
from trimtab.plan.model import Action, Change, Plan
from trimtab.plan.options.composition import bought, candidate_of, on_demand
from trimtab.provenance import Basis, Estimate
from trimtab.replay.outcomes.evaluate import Evaluator, cases_of
from trimtab.replay.outcomes.outcome import targets_at
from trimtab.replay.outcomes.service_model import JUDGED, service_model

SETTINGS = Settings()
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""libyaml's where there is one: thousands of files are read."""
FEW = settings(max_examples=4, suppress_health_check=list(HealthCheck), phases=(Phase.generate,))
"""Each draw plans a fleet: to shrink a failure would take longer than to read it."""
KARPENTER_NAME = {CapacityType.CAPACITY_BLOCK: "reserved", CapacityType.SPOT: "spot"}


@dataclass
class Read:
    """What a cluster would make of some files."""

    pools: list[dict] = field(default_factory=list)
    """NodePools: instance type, region, capacity types, limits."""
    slots: dict[str, dict] = field(default_factory=dict)
    """NodePool -> extended resources of a node, by NodeOverlay."""
    asks: dict[str, int] = field(default_factory=dict)
    """Resources that a container asks for, where a patch changes them."""
    replicas: int | None = None
    scaler: dict | None = None
    capacity_req_s: float | None = None
    selects: dict[str, str] = field(default_factory=dict)


def read(emission):
    found = Read()
    for file in emission.files:
        applied = file.stage not in (ApplyStage.COMMIT, ApplyStage.UNDO)
        if file.path.endswith(".yaml") and applied and file.kind != "Helm values":
            for one in yaml.load_all(file.text, Loader=LOADER):
                _read_object(one, found)
    return found


def _read_object(one, found):
    match one["kind"]:
        case "NodePool":
            template = one["spec"]["template"]
            needs = {need["key"]: need["values"] for need in template["spec"]["requirements"]}
            found.pools.append(
                {
                    "name": one["metadata"]["name"],
                    "type": needs["node.kubernetes.io/instance-type"][0],
                    "region": needs["topology.kubernetes.io/region"][0],
                    "capacity": needs["karpenter.sh/capacity-type"],
                    "limits": one["spec"].get("limits", {}),
                    "kept": one["spec"]["disruption"]["consolidateAfter"],
                    "labels": template["metadata"]["labels"],
                }
            )
        case "NodeOverlay":
            (pool,) = [need["values"][0] for need in one["spec"]["requirements"] if need["key"].endswith("nodepool")]
            found.slots[pool] = {name: int(count) for name, count in one["spec"]["capacity"].items()}
        case "Component":
            for patch in one["patches"]:
                _read_patch(yaml.load(patch["patch"], Loader=LOADER), found)
        case "ScaledObject":
            found.scaler = one["spec"]
        case "PrometheusRule":
            (rule,) = [
                rule
                for group in one["spec"]["groups"]
                for rule in group["rules"]
                if rule.get("record") == "trimtab:demand_per_replica"
            ]
            tail = re.search(r"\) / ([0-9.e+-]+)$", rule["expr"])
            found.capacity_req_s = float(tail.group(1)) if tail else None


def _read_patch(patch, found):
    if isinstance(patch, dict):
        spec = patch.get("spec", {})
        spec = spec.get("jobTemplate", {}).get("spec", spec)
        found.selects = spec.get("template", {}).get("spec", {}).get("nodeSelector", {})
        return
    for step in patch:
        resource = step["path"].rpartition("/limits/")[2].replace("~1", "/")
        if step["path"] == "/spec/replicas":
            found.replicas = step["value"]
        elif step["op"] != "remove":
            found.asks[resource] = int(step["value"])


def plan_of(name, deployment, window):
    """One action a lever."""
    estimate = Estimate(value=1.0, low=1.0, high=1.0, basis=Basis.MEASURED)
    actions = tuple(
        Action(
            id=f"a{number}",
            lever=lever,
            subject=name,
            changes=tuple(Change(subject=name, effect=effect) for effect in deployment.of_lever(lever)),
            saving_micro_usd=1,
            saving_usd_mo=estimate,
            standalone_usd_mo=1.0,
            last_in_usd_mo=1.0,
            effort_weeks=1.0,
            risk=Risk.LOW,
            quarter=1,
            evidence=(),
            rollback="undo it",
        )
        for number, lever in enumerate(sorted(deployment.levers), start=1)
    )
    return Plan(
        window=window,
        before_micro_usd=2,
        after_micro_usd=1,
        bound_micro_usd=1,
        actions=actions,
        not_worth_doing=(),
        options=1,
    )


def emitted(fleet, market, deployment):
    """Return what the files for a deployment of the fleet's one workload say."""
    (workload,) = fleet.workloads
    facts = facts_of_fleet(fleet, SETTINGS, market, owner_kinds={}, pools={workload.pool})
    emission = emit_plan(plan_of(workload.name, deployment, fleet.window), facts)
    return read(emission), emission


def ways_of(rows):
    """Return a fleet of one workload, as levers are asked about it, and every way to run it, whatever targets it keeps."""
    fleet = build_fleet(rows.bundle(), SETTINGS)
    (case,) = cases_of(fleet, SETTINGS, seed=7).values()
    ask = LeverRequest(evaluator=Evaluator(case=case), market=Market.of(few_machines(), None, SETTINGS))
    on_demand_ways = [way for way in on_demand(ask) if ask.evaluator.hopeless(way) is None]
    return fleet, ask, [*on_demand_ways, *(way for base in on_demand_ways for way in bought(base, ask))]


def candidate_at(ask, way):
    return candidate_of(ask.evaluator, way, ask.evaluator.outcome(way), ask.market)


def nodes_used(candidate, gpus_per_node):
    """Return the most nodes that a candidate uses in any hour."""
    held = [seconds / 3600 for seconds in candidate.usage.values()]
    held += [slots / shared.slots_per_node for shared, slots in candidate.slots.items()]
    return max((math.ceil(float(sum(hour)) - 1e-6) for hour in zip(*held, strict=True)), default=0)


def check_nodes(seen, place, candidate, workload):
    """Nodes: of the type, in the region and held the way that was billed; at most as many as the limits allow."""
    billed = {*candidate.usage, *(shared.pool for shared in candidate.slots)}
    for pool in billed:
        wanted = KARPENTER_NAME.get(pool.capacity_type, "on-demand")
        fitting = [
            one
            for one in seen.pools
            if (one["type"], one["region"]) == (pool.instance_type, pool.region) and wanted in one["capacity"]
        ]
        assert fitting or (not seen.pools and pool == workload.pool), pool
    allowed = 0
    for one in seen.pools:
        a_node = seen.slots.get(one["name"]) or {"nvidia.com/gpu": place.gpus_per_node}
        nodes = [int(limit) // a_node[resource] for resource, limit in one["limits"].items()]
        allowed += min(nodes, default=10**6)  # a pool without limits may hold any number
    if (
        place.hedge is None
    ):  # on spot an hour's bill holds lost nodes and those in their stead, which never stand at once
        assert not seen.pools or allowed >= nodes_used(candidate, place.gpus_per_node), seen.pools


def check_replica(seen, place, workload):
    """GPUs of a replica, and replicas of a node, as the replay packed them."""
    if place.shared is not None and place.shared.shared.is_cut:
        (resource,) = seen.asks
        per_node = {sum(count for name, count in slots.items() if name == resource) for slots in seen.slots.values()}
        assert per_node
        assert all(held // seen.asks[resource] == place.pods_per_node for held in per_node if len(per_node) == 1)
        return
    gpus = seen.asks.get("nvidia.com/gpu", workload.gpus_per_pod)
    assert gpus == pytest.approx(place.gpus_per_pod)


def check_service(seen, evaluator, deployment):
    """Capacity of a replica and the rule that scales it: what the replay divided by, and what it decided by."""
    case, place = evaluator.case, evaluator.place(deployment)
    targets = targets_at([target for target in case.targets if target.metric in JUDGED], place)
    model = service_model(case, case.law, place.as_replayed(), targets)
    if isinstance(deployment.scaling, SetReplicaPolicy):
        assert seen.capacity_req_s == pytest.approx(model.capacity_req_s, rel=1e-5)
        assert seen.scaler["minReplicaCount"] == deployment.scaling.hpa.min_replicas
        assert seen.scaler["maxReplicaCount"] == deployment.scaling.hpa.max_replicas
        (demand,) = [one["metadata"] for one in seen.scaler["triggers"] if one["name"] == "demand"]
        assert float(demand["threshold"]) == pytest.approx(deployment.scaling.hpa.target_frac)
    for pool in seen.pools:
        assert pool["kept"] == f"{model.empty_node_kept_s / 60:.0f}m"
    if deployment.batching is not None and place.move is None:
        assert seen.replicas == deployment.batching.replicas
    if isinstance(deployment.scaling, SetReplicas) and place.move is None:
        assert seen.replicas == deployment.scaling.replicas


def check(rows, data):
    """Emit ways of a fleet, as many of each lever as another, from a drawn one on."""
    fleet, ask, ways = ways_of(rows)
    by_levers = defaultdict(list)
    for way in ways:
        by_levers[way.levers].append(way)
    for alike in by_levers.values():
        way = alike[data.draw(st.integers(0, len(alike) - 1))]
        candidate = candidate_at(ask, way)
        if candidate is not None and way.changes:
            check_candidate(fleet, ask, candidate)


def check_candidate(fleet, ask, candidate):
    (workload,) = fleet.workloads
    seen, emission = emitted(fleet, ask.market, candidate.deployment)
    place = ask.evaluator.place(candidate.deployment)
    if workload.service is not None:
        check_service(seen, ask.evaluator, candidate.deployment)
    if place.move is not None:
        # the nodes are another cluster's: a person makes them, and nothing of them is emitted here
        assert not seen.pools
        assert any(file.path.startswith("orders/") for file in emission.files)
        return
    check_nodes(seen, place, candidate, workload)
    check_replica(seen, place, workload)


@FEW
@given(services(), st.data())
def test_of_services(rows, data):
    check(rows, data)


@FEW
@given(nightly_idle(), st.data())
def test_of_services_that_go_to_zero(rows, data):
    check(rows, data)


@FEW
@given(runs(), st.data())
def test_of_runs(rows, data):
    check(rows, data)


@FEW
@given(notebooks(), st.data())
def test_of_notebooks(rows, data):
    check(rows, data)


def in_turns():
    """One service of a GPU of its own, at work a twelfth of the time, whose owner admits time slices."""
    rows = FleetRows(DAYS).node("n", "g5.xlarge")
    rows.hold("prod/api", "n", [0], owner_kind="Deployment")
    rows.use("prod/api", "n", 0, HOURS, sm=0.08, tensor=0.02, dram=0.05, memory_gib=3.0)
    counts = [200 * share for share in SHARES]
    rows.demand("prod/api", lambda hour: 200, 1, LE_S, lambda hour: counts, running=lambda hour: 0.05)
    rows.workloads["prod/api"] = {
        "isolation": "time-slicing",
        "targets": [{"metric": "latency", "quantile": 0.95, "limit_s": 20.0}],
    }
    return rows


def test_a_scaled_replica_in_time_slices_is_counted_on_for_the_time_that_others_leave_it():
    fleet, ask, ways = ways_of(in_turns())
    turns = [
        way for way in ways if isinstance(way.scaling, SetReplicaPolicy) and ask.evaluator.place(way).left_frac < 1
    ]
    assert turns, "no way is scaled in time slices"

    for way in turns[:: max(1, len(turns) // 10)]:
        seen, _ = emitted(fleet, ask.market, way)
        place = ask.evaluator.place(way)
        alone = ask.case.law.capacity_req_s * place.speed.value
        assert seen.capacity_req_s == pytest.approx(alone * place.left_frac, rel=1e-5)


def test_random_fleets_meet_every_lever_of_a_workload():
    """The properties above would say nothing of a lever that no fleet of theirs offers."""
    met = set()
    for strategy in (services(), nightly_idle(), runs(), notebooks()):

        @settings(max_examples=4, suppress_health_check=list(HealthCheck), phases=(Phase.generate,))
        @given(strategy)
        def offered(rows):
            for way in ways_of(rows)[2]:
                met.update(way.levers)

        offered()

    # blocks are sold for newer machines than these, overflow takes a quota that is too small, a faster start pulls that were
    # measured, and halves or other replicas of a service a model and its tokens: they are met in
    # tests/plan/test_block_options.py, tests/levers/test_overflow.py, test_faster_start.py, test_disaggregation.py and
    # test_replica_gpus.py
    assert {lever.name for lever in BUILT_IN if lever.kinds} - met - {
        "capacity-block",
        "disaggregation",
        "replica-gpus",
        "overflow",
        "faster-start",
    } == set()


def test_the_order_in_which_effects_are_stated_changes_nothing():
    fleet, ask, ways = ways_of(in_turns())
    facts = facts_of_fleet(fleet, SETTINGS, ask.market, owner_kinds={}, pools=())
    for way in ways[:: max(1, len(ways) // 10)]:
        assert Deployment.of(*reversed(way.changes)) == way
        plan = plan_of("prod/api", way, fleet.window)
        backwards = replace(plan, actions=tuple(reversed(plan.actions)))
        assert read(emit_plan(plan, facts)) == read(emit_plan(backwards, facts))


def test_a_move_and_slots_there_are_as_fast_in_either_order():
    """Reproduced before: 20.0 requests a second one way round, 3.0 the other."""
    estimate = Estimate(value=0.3, low=0.3, high=0.3, basis=Basis.MODELLED)
    there = Pool("aws", "p4d.24xlarge", "us-west-2")
    to = UseOffering(pool=there, gpu="A100-SXM4-40GB", gpus_per_node=8, speed=replace(estimate, value=2.0, high=2.0))
    move = Relocate(
        to=to, home=Pool("aws", "g5.xlarge", "us-east-1"), rtt_s=0.0, data_gib=0.0, traffic_gib_mo=0.0,
        copy_usd=0.0, overlap_usd=0.0, traffic_usd_mo=0.0,
    )  # fmt: skip
    slots = UseSlots(
        shared=SharedPool(there, 56, "1g.5gb"), gpu="A100-SXM4-40GB", gpus_per_node=8, slots=1, memory_gib=4.8,
        speed=estimate, work_speed=estimate,
    )  # fmt: skip
    home = HomeNodes(pool=move.home, gpu="A10G", gpus_per_node=1, gpus_per_pod=1.0)

    stated = [("relocation", move), ("sharing", slots)]
    both = [resolve(home, Deployment.of(*order)).replica_req_s(10.0) for order in (stated, stated[::-1])]
    assert both == [pytest.approx(3.0)] * 2
