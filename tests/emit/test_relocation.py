"""What is emitted for a move: steps for a person, and no node pool that could not exist."""

from dataclasses import replace

from tests.emit.cluster_example import example_facts
from tests.emit.example import example_audit

from trimtab.catalog.kinds import CapacityType
from trimtab.catalog.pools import Pool
from trimtab.deployment.effects import Relocate, SetCapacityType, UseOffering
from trimtab.emit.manifests.facts import Autoscaler
from trimtab.emit.manifests.plan_files import emit_plan
from trimtab.emit.words import canary_steps
from trimtab.levers import relocation, right_size, spot
from trimtab.plan.actions.draft_actions import Risk
from trimtab.plan.model import Change
from trimtab.provenance import Basis, Estimate

FACTS = example_facts(Autoscaler.KEDA)
MOVED = FACTS.workloads[0].name
SAME = Estimate(value=1.0, low=1.0, high=1.0, basis=Basis.MEASURED, because="the same GPU")
HOME, THERE = Pool("aws", "g5.xlarge", "eu-central-1"), Pool("gcp", "g2-standard-8", "us-east4")


def move(there=THERE):
    return Relocate(
        to=UseOffering(pool=there, gpu="L4", gpus_per_node=1, speed=SAME),
        home=HOME,
        rtt_s=0.33,
        data_gib=200.0,
        traffic_gib_mo=1500.0,
        copy_usd=18.0,
        overlap_usd=640.5,
        traffic_usd_mo=135.0,
    )


def emitted(*effects):
    plan = example_audit().plan
    actions = tuple(
        replace(
            plan.actions[at],
            id=f"a{at + 1}",
            lever=lever,
            risk=Risk.HIGH,
            changes=(Change(subject=MOVED, effect=effect),),
            rollback="send callers back",
        )
        for at, (lever, effect) in enumerate(effects)
    )
    return actions, emit_plan(replace(plan, actions=actions), FACTS)


def test_a_move_is_a_page_of_steps_and_not_a_node_pool():
    _, emission = emitted((relocation.NAME, move()))

    assert {file.kind for file in emission.files} == {
        "the order",
        "index of decisions",
        "decision record",
        "steps for a person",
    }
    (page,) = [file for file in emission.files if file.path.startswith("orders/move-")]
    assert "move" in page.path
    for words in ("gcp us-east4", "200 GiB: $18.00", "$640.50", "1500 GiB a month: $135.00 a month", "0.33 s assumed"):
        assert words in page.text
    assert "No manifest does this" in page.text
    assert "in the plan's bill once, for all that goes to gcp" in " ".join(page.text.split())


def test_what_else_is_planned_for_its_nodes_is_left_to_the_cluster_there():
    on_spot = SetCapacityType(pool=THERE.held_as(CapacityType.SPOT), loss_per_hr=0.1)
    _, emission = emitted((relocation.NAME, move()), (spot.NAME, on_spot))

    assert not [file for file in emission.files if file.kind == "NodePool"]
    assert [one.reason for one in emission.withheld if one.action == "a2"] == [
        "relocation-prod-chat-api moves it to gcp us-east4: its nodes are made in a cluster there, by hand"
    ]
    (page,) = [file for file in emission.files if file.path.startswith("orders/move-")]
    assert "- run on spot g2-standard-8" in page.text


def test_an_action_emitted_alone_still_knows_that_its_workload_moves():
    plan = example_audit().plan
    actions, _ = emitted((relocation.NAME, move()), (right_size.NAME, move().to))

    alone = emit_plan(replace(plan, actions=actions), FACTS, only=["a2"])

    assert not [file for file in alone.files if file.kind == "NodePool"]
    assert alone.withheld


def test_a_move_is_tried_on_a_small_part_first():
    actions, _ = emitted((relocation.NAME, move()))

    assert canary_steps(actions[0])[0].startswith("Run one replica or one run in gcp us-east4")
