"""Another number of GPUs a replica, in one pool: offered, replayed, billed, written, read back, verified."""

import math
import re
from dataclasses import replace

import numpy as np
import pytest
import yaml
from benchmarks.disaggregated_plans import NAME, add_node, draw, query_of, requests_of, rows_of
from benchmarks.enact import proved_fleet, proved_without, row_of
from tests.emit.test_patches_in_a_cluster import built
from tests.fleets import FleetRows, few_machines
from tests.levers.written_plans import read, written

from trimtab.catalog.kinds import CapacityType
from trimtab.deployment.deployment import AS_IT_IS, Deployment
from trimtab.deployment.effects import SetReplicaPolicy, SetReplicas
from trimtab.deployment.placement import resolve
from trimtab.emit.manifests.cluster_facts import with_cluster
from trimtab.emit.manifests.facts import ContainerStart, NodeMaker, server_signals
from trimtab.emit.manifests.plan_files import emit_plan
from trimtab.fleet.build import build_fleet
from trimtab.fleet.market import Market
from trimtab.fleet.settings import Planning, Settings
from trimtab.levers import disaggregation, overflow, replica_count, replica_gpus, right_size
from trimtab.levers.lever import LeverRequest
from trimtab.levers.served_models import known_demand
from trimtab.physics.disaggregated import TIME_SHARES
from trimtab.physics.predict import coefficients_of
from trimtab.physics.serving import default_step_tokens, first_token_fit
from trimtab.physics.serving_query import serving_columns, serving_keys
from trimtab.plan.verify.baseline import baseline_of
from trimtab.plan.verify.verification import verify
from trimtab.replay.first_token import replay_deployment
from trimtab.replay.outcomes.evaluate import Evaluator, cases_of
from trimtab.replay.outcomes.replica_law import law_of_times
from trimtab.review import read_objects
from trimtab.sources.kubernetes.pods import gpu_containers_of
from trimtab.tables.workloads import TargetMetric

SETTINGS = Settings(planning=Planning(max_term_years=0, max_payback_mo=120, min_saving_usd_mo=1))
MACHINES = few_machines("g6e.12xlarge", "p5.48xlarge")
TWO_GPUS = draw(1)
"""A model of 32B parameters on two H100 a replica, with short answers."""


def ask_of(bundle, machines=MACHINES):
    (case,) = cases_of(build_fleet(bundle, SETTINGS), SETTINGS, seed=7).values()
    return LeverRequest(evaluator=Evaluator(case=case), market=Market.of(machines, None, SETTINGS))


@pytest.fixture(scope="module")
def rows():
    return rows_of(TWO_GPUS, 1)


@pytest.fixture(scope="module")
def fleet(rows):
    return proved_fleet("other-gpus", rows.bundle(), SETTINGS, MACHINES)


@pytest.fixture(scope="module")
def scaled(fleet):
    """The same service where a fixed number of replicas is no option: an autoscaler follows its demand."""
    return proved_without(fleet, replica_count.NAME)


@pytest.fixture(scope="module")
def ask(fleet):
    return LeverRequest(evaluator=Evaluator(case=fleet.planned.cases[NAME]), market=Market.of(MACHINES, None, SETTINGS))


@pytest.fixture(scope="module")
def offered(ask):
    found = replica_gpus.numbers(ask)
    assert not isinstance(found, str)
    return found


def planned(fleet):
    number = fleet.planned.deployments[NAME].replica_gpus
    assert number is not None
    return number


def test_a_plan_takes_another_number_where_that_is_cheapest_and_keeps_the_targets(fleet):
    proof, without = fleet.proven.proof, proved_without(fleet, replica_gpus.NAME).proven.proof

    assert planned(fleet).gpus != planned(fleet).before == TWO_GPUS.tensor
    assert proof.after_micro_usd < without.after_micro_usd
    assert [target.kept for target in proof.targets].count(False) == 0
    assert proof.clairvoyant_micro_usd <= proof.after_micro_usd


def test_an_autoscaler_follows_replicas_of_another_number_of_gpus(scaled):
    proof, scaling = scaled.proven.proof, scaled.planned.deployments[NAME].scaling

    assert planned(scaled).gpus != TWO_GPUS.tensor
    assert isinstance(scaling, SetReplicaPolicy)
    assert scaling.hpa.min_replicas < scaling.hpa.max_replicas
    assert [target.kept for target in proof.targets].count(False) == 0


@pytest.mark.parametrize("which", ["fleet", "scaled"])
def test_the_files_say_what_was_proved(which, request, tmp_path):
    """Those of an autoscaler are replayed by its own rule, as it is read of the ScaledObject and its recording rule."""
    row = row_of(request.getfixturevalue(which), NodeMaker.KARPENTER, tmp_path)

    assert row.off_frac == pytest.approx(0, abs=1e-6)
    assert row.targets_equal == row.targets
    assert not row.faults
    assert row.review_passes


def test_what_is_read_back_is_what_was_planned(fleet):
    found = read(fleet, written(fleet))

    assert not found.refused
    assert found.deployment == fleet.planned.deployments[NAME]


def patches(documents):
    """The JSON patches of the Component of the service, each as a list of steps."""
    (body,) = [body for path, body in documents if path.startswith("workloads/") and body["kind"] == "Component"
               and not path.endswith("autoscaled/kustomization.yaml")]  # fmt: skip
    return body, [steps for patch in body["patches"] if isinstance(steps := yaml.safe_load(patch["patch"]), list)]


def test_the_server_is_told_how_many_gpus_it_has(fleet):
    number = planned(fleet)
    _, found = patches(written(fleet))
    steps = {(step["path"], step["value"]) for steps in found for step in steps}
    container = "/spec/template/spec/containers/0"

    assert (f"{container}/resources/limits/nvidia.com~1gpu", str(number.gpus)) in steps
    assert (f"{container}/args/-", f"--tensor-parallel-size={number.gpus}") in steps
    assert (f"{container}/args/-", f"--max-num-seqs={number.concurrency}") in steps


def test_a_rollback_says_the_former_number_again(fleet):
    (text,) = [
        file.text for file in emit_plan(fleet.planned.plan, fleet.facts).files if file.path.startswith("rollback/")
    ]

    assert f"--tensor-parallel-size={TWO_GPUS.tensor}" in text


def test_another_server_than_vllm_is_left_to_a_person(fleet):
    (known,) = fleet.facts.workloads
    other = replace(known, service=replace(known.service, signals=server_signals("sglang")))
    emission = emit_plan(fleet.planned.plan, replace(fleet.facts, workloads=(other,)))

    assert any(f"--tensor-parallel-size={planned(fleet).gpus}" in left.reason for left in emission.withheld)
    assert not any("containers" in file.text and file.path.startswith("workloads/") for file in emission.files)


SERVE = ["vllm", "serve", "Qwen/Qwen2.5-32B-Instruct", f"--tensor-parallel-size={TWO_GPUS.tensor}"]
STARTED = {
    ContainerStart.ARGS: {"args": SERVE[2:]},
    ContainerStart.COMMAND: {"command": SERVE},
    ContainerStart.SHELL: {"command": ["sh", "-c"], "args": [" ".join(SERVE)]},
    ContainerStart.PROGRAM: {"command": ["/app/start"]},
    ContainerStart.IMAGE: {},
}
"""The words of a container for each place where they can lie."""


def emitted_for(fleet, started_by):
    """What is written where the service's container is started so, as its pods tell."""
    container = {"name": "vllm", "image": "i", "resources": {"limits": {"nvidia.com/gpu": TWO_GPUS.tensor}}}
    container |= STARTED[started_by]
    (known,) = fleet.facts.workloads
    row = dict.fromkeys(["tolerations", "node_selector", "selector"]) | {
        "workload": NAME, "pod": "chat-0", "created": None, "gpu_containers": gpu_containers_of({"containers": [container]}),
    }  # fmt: skip
    facts = with_cluster(fleet.facts, fleet.bundle.meta.end, nodes=(), held=(), pods=[row], scalers=())
    assert facts.workloads[0].gpu_containers[0].started_by is started_by
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": known.short_name, "namespace": known.namespace},
        "spec": {"template": {"spec": {"containers": [container]}}},
    }
    return emit_plan(fleet.planned.plan, facts), deployment


def component_of(emission, root):
    (text,) = [
        file.text
        for file in emission.files
        if file.path.startswith(f"{root}/") and "autoscaled" not in file.path and file.kind == "Component"
    ]
    return text


def gpus_of_server(kubectl, folder, manifest, component):
    """What `kubectl kustomize` makes of a manifest, and on how many GPUs a review says that its server then runs."""
    built_manifest = built(kubectl, folder, manifest, component)
    pods = read_objects([("m.yaml", built_manifest)]).laid_on([NAME]).pods[NAME]
    return built_manifest, pods.tensor


@pytest.mark.parametrize("started_by", [ContainerStart.ARGS, ContainerStart.COMMAND])
def test_a_server_is_told_its_gpus_where_its_words_lie_and_the_former_ones_after_a_rollback(
    fleet, started_by, kubectl_bin, tmp_path
):
    emission, before = emitted_for(fleet, started_by)

    after, gpus = gpus_of_server(kubectl_bin, tmp_path / "on", before, component_of(emission, "workloads"))
    again, former = gpus_of_server(kubectl_bin, tmp_path / "off", after, component_of(emission, "rollback"))

    assert (gpus, former) == (planned(fleet).gpus, TWO_GPUS.tensor)
    (container,), (rolled_back,) = (one["spec"]["template"]["spec"]["containers"] for one in (after, again))
    assert container["resources"]["limits"]["nvidia.com/gpu"] == str(planned(fleet).gpus)
    assert rolled_back["resources"]["limits"]["nvidia.com/gpu"] == str(TWO_GPUS.tensor)
    assert container.keys() == before["spec"]["template"]["spec"]["containers"][0].keys()
    assert not any("args" in left.reason for left in emission.withheld)


@pytest.mark.parametrize("started_by", [ContainerStart.SHELL, ContainerStart.PROGRAM, ContainerStart.IMAGE])
def test_words_that_no_patch_reaches_are_left_to_a_person_with_their_place(fleet, started_by):
    emission, _ = emitted_for(fleet, started_by)

    # once for each action of the plan
    (left,) = {left.reason for left in emission.withheld if "--tensor-parallel-size" in left.reason}
    assert f"--tensor-parallel-size={planned(fleet).gpus}" in left
    assert {"shell": "line or script", "program": "its command starts", "image": "those of its image"}[
        started_by.value
    ] in left
    assert not [file for file in emission.files if file.path.startswith("workloads/") and "containers" in file.text]


def test_a_server_on_other_gpus_than_its_pods_ask_for_is_found(fleet):
    documents = written(fleet)
    body, _ = patches(documents)
    for patch in body["patches"]:
        patch["patch"] = patch["patch"].replace("--tensor-parallel-size=", "--tensor-parallel-size=3")

    found = read(fleet, documents)
    assert any("--tensor-parallel-size" in finding.what for finding in found.findings)


def test_a_number_that_does_not_hold_the_model_cannot_be_replayed(ask):
    assert "do not hold the model" in replica_gpus.stated_number(ask, "p5.48xlarge", 3, None)


def test_every_number_offered_is_another_one_and_holds_the_limits_somewhere(ask, offered):
    assert {number.before for number in offered} == {TWO_GPUS.tensor}
    assert TWO_GPUS.tensor not in {number.gpus for number in offered}
    for number in offered:
        assert ask.evaluator.hopeless(Deployment.of((replica_gpus.NAME, number))) is None


def test_a_replica_serves_what_its_scheduler_is_predicted_to(ask, offered):
    law = ask.case.law
    for number in offered:
        place = ask.evaluator.place(Deployment.of((replica_gpus.NAME, number)))

        assert place.replica_req_s(law.capacity_req_s) == pytest.approx(number.replica_req_s)
        assert place.replica_req_s(law.capacity_req_s, low=True) == pytest.approx(
            number.replica_req_s * number.speed.low
        )
        assert place.gpus_per_pod == number.gpus


def test_the_law_of_a_replica_has_the_predicted_times(offered):
    for number in offered:
        law = law_of_times(number)
        for metric, times in ((TargetMetric.TTFT, number.wait_s), (TargetMetric.LATENCY, number.answer_s)):
            at = TIME_SHARES.index(0.95)
            share = law.ok_frac(times[0][at] * 1.05, 1.0, metric)[round(100 * number.loads[0])]
            assert share >= 0.95 - 1e-6


def replicas_at(fleet, req_s):
    """How many replicas the files let run under a load: a number, or what KEDA's threshold makes of demand over capacity."""
    scaling = fleet.planned.deployments[NAME].scaling
    if isinstance(scaling, SetReplicas):
        return scaling.replicas
    documents = [body for _, body in written(fleet)]
    (scaler,) = [body["spec"] for body in documents if body["kind"] == "ScaledObject"]
    (demand,) = [trigger["metadata"] for trigger in scaler["triggers"] if trigger["name"] == "demand"]
    (rule,) = [
        rule["expr"]
        for body in documents
        if body["kind"] == "PrometheusRule"
        for group in body["spec"]["groups"]
        for rule in group["rules"]
        if rule.get("record") == "trimtab:demand_per_replica"
    ]
    capacity_req_s = float(re.search(r"\) / ([0-9.e+-]+)$", rule)[1])
    wanted = math.ceil(req_s / capacity_req_s / float(demand["threshold"]))
    return min(max(wanted, scaler["minReplicaCount"]), scaler["maxReplicaCount"])


@pytest.mark.parametrize("which", ["fleet", "scaled"])
def test_requests_one_by_one_keep_what_the_plan_says_at_the_busiest(which, ask, request):
    """Another way to the same: each request by itself on one replica, at the low end of speed, with lengths as drawn."""
    fleet = request.getfixturevalue(which)
    number, known = planned(fleet), ask.once(known_demand)
    query = replace(query_of(TWO_GPUS), gpu=ask.market.gpu(number.nodes.gpu), gpus=number.gpus, tensor=number.gpus)
    columns = serving_columns([query])
    requests, replicas = requests_of(TWO_GPUS), replicas_at(fleet, known.peak_req_s)
    replayed = replay_deployment(
        columns, coefficients_of([query], columns),
        requests._replace(arrival_s=requests.arrival_s * replicas / known.peak_req_s),
        max_num_seqs=number.concurrency, step_tokens=default_step_tokens(query.gpu), scale=known.scale / number.speed.low,
    )  # fmt: skip

    first_s = first_token_fit().of(serving_keys(query)).first_s(replayed.ttft_s, np.nan_to_num(replayed.tpot_s))
    limits = {target.metric: target for target in ask.case.targets if target.declared}
    kept = slice(len(first_s) // 10, None)
    for metric, times_s in ((TargetMetric.TTFT, first_s), (TargetMetric.TPOT, np.nan_to_num(replayed.tpot_s))):
        assert np.mean(times_s[kept] <= limits[metric].limit_s) >= limits[metric].required_frac


def test_it_is_not_offered_beside_another_place_or_another_form(ask, offered):
    number = Deployment.of((replica_gpus.NAME, offered[0]))

    for size in right_size.sizes(ask).fitting[:1]:
        assert not list(replica_gpus.LEVER.ways(Deployment.of((right_size.NAME, size)), ask))
    assert not list(disaggregation.LEVER.ways(number, ask))
    assert not list(overflow.LEVER.ways(number, replace(ask, owned_nodes={offered[0].pool: 1})))


def test_it_is_not_offered_without_a_model(rows):
    named = rows.workloads[NAME]
    rows.workloads[NAME] = {key: value for key, value in named.items() if key != "model"}
    unnamed = ask_of(rows.bundle())
    rows.workloads[NAME] = named

    assert not list(replica_gpus.LEVER.ways(AS_IT_IS, unnamed))
    assert replica_gpus.numbers(unnamed).startswith("its tokens are not known")


def test_it_is_not_offered_where_nodes_are_paid_anyway(ask):
    workload = replace(ask.workload, pool=ask.workload.pool.held_as(CapacityType.RESERVED))
    paid = LeverRequest(evaluator=Evaluator(case=replace(ask.case, workload=workload)), market=ask.market)

    assert replica_gpus.numbers(paid) == "its nodes are paid anyway"


def test_it_is_not_offered_where_no_other_number_keeps_the_limits():
    """A model of 70B parameters that keeps its limit on the time per token on eight H100 alone."""
    found = replica_gpus.numbers(ask_of(rows_of(draw(4), 4).bundle(), few_machines("p5en.48xlarge")))

    assert found == "no other number of GPUs holds the model and keeps the limits"


def test_it_is_not_offered_for_what_another_board_brings():
    found = replica_gpus.numbers(ask_of(rows_of(draw(2), 2).bundle(), few_machines("p5.48xlarge", "p4d.24xlarge")))

    assert found.startswith("with as many GPUs a replica as today it is predicted to cost no more: 1 x ")


def later(fleet, gpus):
    """Two days of one replica on so many GPUs of the planned type."""
    number, rows = planned(fleet), FleetRows(2)
    add_node(rows, "n", number.pool.instance_type)
    rows.hold(NAME, "n", range(gpus), owner_kind="Deployment")
    for device in range(gpus):
        rows.use(NAME, "n", device, range(48), sm=0.5)
    rows.demand(NAME, lambda hour: 1000.0, 1)
    return build_fleet(rows.bundle(), SETTINGS)


@pytest.mark.parametrize("former", [True, False])
def test_verification_goes_by_the_gpus_of_a_replica(fleet, former):
    number, market = planned(fleet), Market.of(MACHINES, None, SETTINGS)
    then = baseline_of(fleet.planned.fleet, market)
    seen = later(fleet, number.before if former else number.gpus)
    found = verify(fleet.planned.plan, then, seen, market, market, SETTINGS, {})

    (action,) = [action for action in found.actions if action.lever == replica_gpus.NAME]
    assert action.enacted_frac == (0.0 if former else 1.0)


def test_a_place_as_replayed_has_no_names(fleet, ask):
    place = ask.evaluator.place(fleet.planned.deployments[NAME]).as_replayed()

    assert (place.replica_gpus.nodes.pool.instance_type, place.replica_gpus.nodes.gpu) == ("", "")


def test_a_part_of_a_plan_without_it_is_as_today(fleet):
    case = fleet.planned.cases[NAME]
    place = resolve(case.workload, fleet.planned.deployments[NAME].without("replica_gpus"))

    assert (place.pool, place.gpus_per_pod) == (case.workload.pool, case.workload.gpus_per_pod)
