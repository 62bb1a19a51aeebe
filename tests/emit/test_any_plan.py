"""What holds of the manifests of any plan over any cluster."""

import subprocess
from dataclasses import replace

import pytest
import yaml
from hypothesis import given, settings, strategies as st
from tests.emit.cluster_example import WORKLOADS, example_facts
from tests.emit.example import P4D, example_audit
from tests.emit.strategies import EFFECTS
from tests.emit.validity import structural_faults

from trimtab.catalog.kinds import CapacityType
from trimtab.catalog.pools import Pool
from trimtab.deployment.deployment import dimension_of
from trimtab.deployment.effects import FleetEffect, SetCapacityType, UseOffering
from trimtab.emit.manifests.emission import ApplyStage
from trimtab.emit.manifests.facts import Autoscaler, NodeMaker, WorkloadFacts
from trimtab.emit.manifests.plan_files import emit_plan
from trimtab.plan.model import Change
from trimtab.provenance import Basis, Estimate

PLAN = example_audit().plan
SUBJECTS = st.sampled_from(
    [known.name for known in WORKLOADS]
    + ["dev/homeless", "lab/jobs", "aws/box", "nobody/knows", "slurm partition: gpu", "bare"]
)
CHANGES = st.builds(Change, subject=SUBJECTS, effect=st.one_of(*EFFECTS.values()))


def what_it_changes(change):
    """Return what no two changes of a plan have in common: a workload and its dimension; for the fleet, the kind of effect."""
    effect = change.effect
    return change.subject, type(effect) if isinstance(effect, FleetEffect) else dimension_of(effect)


@st.composite
def plans(draw):
    """A plan of up to three actions, no workload changed twice in one dimension."""
    changes = draw(st.lists(CHANGES, min_size=1, max_size=6, unique_by=what_it_changes))
    actions = [
        replace(PLAN.actions[number], changes=tuple(changes[number::3])) for number in range(3) if changes[number::3]
    ]
    return replace(PLAN, actions=tuple(actions))


def facts_of_all_kinds(autoscaler):
    facts = example_facts(autoscaler)
    others = (
        WorkloadFacts(name="dev/homeless", owner_kind="Job"),
        WorkloadFacts(name="lab/jobs", owner_kind="slurm", gpu="A100-SXM4-40GB", pool=P4D, gpus_per_node=8),
        WorkloadFacts(name="aws/box", owner_kind="machines", gpu="A100-SXM4-40GB", pool=P4D, gpus_per_node=8),
    )
    return replace(facts, workloads=(*facts.workloads, *others))


FACTS = st.builds(
    lambda autoscaler, maker: replace(facts_of_all_kinds(autoscaler), node_maker=maker),
    st.sampled_from(Autoscaler),
    st.sampled_from([None, *NodeMaker]),
)


@settings(max_examples=40)
@given(plan=plans(), facts=FACTS)
def test_every_file_has_its_own_path_and_every_object_its_name_and_action(plan, facts):
    emission = emit_plan(plan, facts)

    paths = [file.path for file in emission.files]
    assert len(set(paths)) == len(paths)
    for file in emission.files:
        if file.path.endswith(".yaml") and file.kind != "Helm values":
            for one in yaml.safe_load_all(file.text):
                assert structural_faults(one) == []


@settings(max_examples=40)
@given(plan=plans(), facts=FACTS)
def test_no_change_is_lost(plan, facts):
    emission = emit_plan(plan, facts)

    for action in plan.actions:
        written = [file for file in emission.of_action(action.id) if file.stage is not ApplyStage.DECIDE]
        assert written or any(one.action == action.id for one in emission.withheld)


@settings(max_examples=20)
@given(plan=plans(), facts=FACTS)
def test_the_same_plan_gives_the_same_bytes(plan, facts):
    assert emit_plan(plan, facts) == emit_plan(plan, facts)


@settings(max_examples=40)
@given(plan=plans(), facts=FACTS)
def test_every_script_is_one_that_bash_reads(plan, facts):
    scripts = [file.text for file in emit_plan(plan, facts).files if file.path.endswith(".sh")]

    checked = subprocess.run(["bash", "-n"], input="\n".join(scripts), capture_output=True, text=True)
    assert checked.returncode == 0, checked.stderr


def one_action(effect):
    return replace(PLAN, actions=(replace(PLAN.actions[0], changes=(Change(subject="prod/chat-api", effect=effect),)),))


TIGHT = UseOffering(
    pool=Pool("aws", "g6.xlarge", "us-east-1"),
    gpu="L4",
    gpus_per_node=1,
    speed=Estimate(value=0.5, low=0.4, high=0.6, basis=Basis.MODELLED),
    only_quantized=True,
)
ELSEWHERE = SetCapacityType(pool=Pool("aws", "p4d.24xlarge", "us-west-2").held_as(CapacityType.SPOT), loss_per_hr=0.05)


@pytest.mark.parametrize(("effect", "needs"), [(TIGHT, "change their format"), (ELSEWHERE, "move it there")])
def test_what_comes_to_nothing_without_another_action_says_what_it_waits_for(effect, needs):
    emission = emit_plan(one_action(effect), example_facts(Autoscaler.KEDA))

    assert [file.path for file in emission.files if file.stage is not ApplyStage.DECIDE] == []
    (left,) = emission.withheld
    assert needs in left.reason
