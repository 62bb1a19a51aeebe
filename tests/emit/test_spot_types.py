"""Spot pools of several instance types: which ones, what is emitted of them, and what a review bills of that."""

import subprocess
from dataclasses import replace

import pytest
import yaml
from tests.emit.cluster_example import example_facts
from tests.emit.example import example_audit
from tests.review.test_karpenter import cost, service, two
from tests.review.test_review import bundle, reviewed

from trimtab.catalog import load_catalog
from trimtab.catalog.kinds import CapacityType
from trimtab.catalog.pools import Pool
from trimtab.deployment.effects import HedgeOnSpot, SetCapacityType
from trimtab.emit.manifests.cluster_facts import spot_types
from trimtab.emit.manifests.facts import NodeMaker, PricedPool, SpotType
from trimtab.emit.manifests.plan_files import emit_plan
from trimtab.fleet.market import Market
from trimtab.fleet.settings import Limits, Settings
from trimtab.plan.model import Change
from trimtab.review import read_objects
from trimtab.review.placing import Proposed, pools_of
from trimtab.sources.kubernetes.manifests import node_groups_of

__all__ = ["bundle"]

CATALOG = load_catalog()
MARKET = Market.of(CATALOG, None, Settings())
PLAN = example_audit().plan
RUNS, CHAT = "research/vision-exp", "prod/chat-api"
A10G = ("g5.xlarge", "g5.2xlarge", "g5.4xlarge", "g5.8xlarge")
L4 = ("g2-standard-4", "g2-standard-8", "g2-standard-12", "g2-standard-16")
T4 = ("Standard_NC4as_T4_v3", "Standard_NC8as_T4_v3")
POOLS = {
    "aws": Pool("aws", A10G[0], "us-east-1"),
    "gcp": Pool("gcp", L4[0], "us-central1"),
    "azure": Pool("azure", T4[0], "eastus"),
}
CHOICES = {"aws": A10G, "gcp": L4, "azure": T4}


def named(provider, instance_type, region, market=MARKET):
    spot = Pool(provider, instance_type, region).held_as(CapacityType.SPOT)
    return tuple(known.instance_type for known in spot_types(spot, market))


@pytest.mark.parametrize(
    ("pool", "types"),
    [
        (("aws", "g5.xlarge", "us-east-1"), A10G),
        (("gcp", "g2-standard-4", "us-central1"), L4),
        # g6.24xlarge has the four GPUs of g6.12xlarge; 48xlarge has eight
        (("aws", "g6.12xlarge", "us-east-1"), ("g6.12xlarge", "g6.24xlarge")),
    ],
)
def test_other_types_have_the_same_gpus_and_as_many_and_come_by_price(pool, types):
    assert named(*pool) == types


@pytest.mark.parametrize(
    "pool",
    [
        ("aws", "p4d.24xlarge", "us-east-1"),  # p4de has other GPUs
        (
            "aws",
            "g6e.12xlarge",
            "us-east-1",
        ),  # g6e.24xlarge is cheaper on spot: what is billed would no longer be proved
        ("aws", "g5g.16xlarge", "us-east-1"),  # the other of its size is bare metal
    ],
)
def test_a_type_that_would_change_the_bill_or_the_speed_is_left_out(pool):
    assert named(*pool) == ()


def test_no_type_costs_more_on_spot_than_the_planned_one_on_demand():
    for instance in CATALOG.instance_types:
        for region in ("us-east-1", "us-central1"):
            spot = Pool(instance.provider, instance.name, region).held_as(CapacityType.SPOT)
            planned, *others = spot_types(spot, MARKET) or (None,)
            for other in others:
                assert planned.rate_micro_usd_hr <= other.rate_micro_usd_hr <= planned.on_demand_micro_usd_hr
                there, here = (
                    CATALOG.instance_type(spot.provider, name) for name in (other.instance_type, instance.name)
                )
                assert (there.gpu, there.gpu_count) == (here.gpu, here.gpu_count)
                assert there.vcpus >= here.vcpus
                assert there.memory_gib >= here.memory_gib


def test_a_type_without_quota_is_left_out_and_pools_on_demand_have_one_type():
    market = Market.of(CATALOG, None, Settings(limits=Limits(quotas="g5.2xlarge:spot=0, g5.4xlarge=0")))

    assert named("aws", "g5.xlarge", "us-east-1", market) == ("g5.xlarge", "g5.4xlarge", "g5.8xlarge")
    assert spot_types(POOLS["aws"], MARKET) == ()


def priced(provider):
    """Facts of a spot pool of several types."""
    spot = POOLS[provider].held_as(CapacityType.SPOT)
    made_up = (
        SpotType(instance_type=name, rate_micro_usd_hr=200_000 * size, on_demand_micro_usd_hr=500_000 * size)
        for size, name in enumerate(T4, start=1)
    )
    # the catalog has no spot prices of Azure in this region
    types = spot_types(spot, MARKET) or tuple(made_up)
    return PricedPool(pool=spot, gpus_per_node=1, rate_micro_usd_hr=types[0].rate_micro_usd_hr, spot_types=types)


def emitted(provider, effect, workload, maker):
    pool = POOLS[provider]
    action = next(action for action in PLAN.actions if action.id == "a6")
    plan = replace(PLAN, actions=(replace(action, changes=(Change(subject=workload, effect=effect),)),))
    home = replace(example_facts().workload(workload), pool=pool, gpus_per_node=1, gpus_per_pod=1.0, replicas=8)
    return emit_plan(
        plan, replace(example_facts(), node_maker=maker, workloads=(home,), pools=(priced(provider),), nodes=())
    )


def on_spot(provider, maker=NodeMaker.KARPENTER):
    spot = POOLS[provider].held_as(CapacityType.SPOT)
    return emitted(provider, SetCapacityType(pool=spot, loss_per_hr=0.05), RUNS, maker)


def hedged(provider, maker=NodeMaker.KARPENTER):
    spot = POOLS[provider].held_as(CapacityType.SPOT)
    return emitted(provider, HedgeOnSpot(pool=spot, one_in=4, zones=3, loss_per_hr=0.05, outage_s=600.0), CHAT, maker)


def types_of(pool):
    needs = pool["spec"]["template"]["spec"]["requirements"]
    return next(tuple(need["values"]) for need in needs if need["key"] == "node.kubernetes.io/instance-type")


def pools_in(emission):
    return [yaml.safe_load(file.text) for file in emission.files if file.kind == "NodePool"]


def test_a_spot_pool_lists_every_type_and_its_floor_on_demand_the_planned_one():
    (runs,) = pools_in(on_spot("aws"))
    held = {pool["metadata"]["name"].endswith("-floor"): types_of(pool) for pool in pools_in(hedged("aws"))}

    assert types_of(runs) == A10G
    assert held == {False: A10G, True: A10G[:1]}


@pytest.mark.parametrize("maker", list(NodeMaker))
def test_the_record_says_which_types_at_what_price_and_the_order_asks_for_quota(maker):
    files = {file.path: file.text for file in on_spot("aws", maker).files}
    (record,) = (text for path, text in files.items() if path.startswith("decisions/") and "README" not in path)

    assert "`g5.xlarge` at $0.4125 an hour" in record
    assert "`g5.2xlarge` $0.5090 an hour, `g5.4xlarge` $0.6496 an hour, `g5.8xlarge` $1.0037 an hour" in record
    assert "on demand ($1.0060 an hour)" in record
    assert "quota for spot nodes of g5.2xlarge, g5.4xlarge, g5.8xlarge" in files["APPLY.md"]


@pytest.mark.parametrize("provider", POOLS)
def test_node_groups_on_spot_are_of_every_type_and_those_behind_them_of_the_planned_one(provider, golden, tmp_path):
    emission = on_spot(provider, NodeMaker.NODE_GROUPS)

    mine = [file for file in emission.files if file.path.startswith(("node-groups/", "nodes/"))]
    for file in mine:
        golden(f"node-groups/types-{provider}/{file.path}", file.text)
    (script,) = (file.text for file in mine if file.path.endswith(".sh"))
    (tmp_path / "group.sh").write_text(script, encoding="utf-8")
    subprocess.run(["bash", "-n", str(tmp_path / "group.sh")], check=True)
    pools = read_objects(("group.sh", one) for one in node_groups_of(script)).pools.values()
    spot = [name for pool in pools if "spot" in pool.capacity_types for name in pool.instance_types]
    behind = [pool.instance_types for pool in pools if "spot" not in pool.capacity_types]
    assert tuple(spot) == CHOICES[provider]
    assert behind == [CHOICES[provider][:1]]


@pytest.mark.parametrize("provider", POOLS)
@pytest.mark.parametrize("maker", list(NodeMaker))
def test_pools_of_several_types_are_read_as_one_with_the_planned_type_behind(provider, maker):
    emission = hedged(provider, maker)
    objects = [
        (file.path, document)
        for file in emission.files
        if file.path.endswith((".yaml", ".sh")) and not file.path.startswith("rollback/")
        for document in (node_groups_of(file.text) if file.path.endswith(".sh") else yaml.safe_load_all(file.text))
    ]
    manifests = read_objects(objects).laid_on([CHAT])
    (workload,) = (known for known in example_facts().workloads if known.name == CHAT)
    found = Proposed()

    (share,) = pools_of(manifests.pods[CHAT], workload, manifests, found)

    assert (found.refused, found.findings) == ("", [])
    assert (share.pool.one_in, share.pool.instance_types) == (4, CHOICES[provider])
    assert share.pool.on_demand_types == CHOICES[provider][:1]


def test_a_pool_of_several_types_is_billed_at_the_cheapest_and_names_the_others(bundle):
    several, one = (
        reviewed(bundle, service(8) + two("spot", types, capacity="spot, on-demand"))
        for types in (", ".join(A10G), A10G[0])
    )

    assert cost(several) == cost(one)
    (said,) = (note for note in several.workloads[0].notes if "billed as" in note)
    assert "g5.xlarge ($0.4125 an hour)" in said
    assert "g5.2xlarge ($0.509 an hour)" in said
    assert not any("billed as" in note for note in one.workloads[0].notes)


def test_a_dearer_type_than_on_demand_is_said_to_be_one(bundle):
    found = reviewed(bundle, service(8) + two("spot", "g5.xlarge, g5.16xlarge", capacity="spot, on-demand"))

    (said,) = (note for note in found.workloads[0].notes if "billed as" in note)
    assert "more than g5.xlarge on demand" in said


def test_a_hedge_on_several_types_is_billed_as_on_the_planned_one(bundle):
    floor = two("floor", values="['1']")
    several, one = (
        reviewed(
            bundle,
            service(8, spread=True) + two("spot", types, capacity="spot, on-demand", values="['2', '3', '4']") + floor,
        )
        for types in (", ".join(A10G), A10G[0])
    )

    assert cost(several) == cost(one)


def test_other_nodes_behind_spot_than_it_starts_are_not_guessed(bundle):
    """The cheaper type on spot is not the one on demand: what the share on demand costs is no part of the first's bill."""
    pools = two("spot", "g5.xlarge, g5.2xlarge", capacity="spot", values="['2', '3', '4']")
    floor = two("floor", "g5.2xlarge", values="['1']")

    found = reviewed(bundle, service(8, spread=True) + pools + floor)

    assert "other nodes behind spot" in found.workloads[0].unjudged
