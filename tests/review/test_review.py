"""Manifests against a history: what a change costs, which targets it breaks, what would stop its pods, what is not judged."""

from dataclasses import replace
from datetime import timedelta

import numpy as np
import pytest
import yaml
from tests.fleets import FleetRows

from trimtab.catalog import load_catalog
from trimtab.errors import InputError
from trimtab.fleet.build import build_fleet
from trimtab.fleet.market import Market
from trimtab.fleet.settings import Assumptions, Settings
from trimtab.pipeline import review
from trimtab.replay.outcomes.evaluate import cases_of
from trimtab.replay.outcomes.service_outcome import as_billed
from trimtab.replay.services import ServiceModel
from trimtab.review import read_objects, review_fleet
from trimtab.review.placing import Weight
from trimtab.sources.kubernetes.manifests import read_manifests
from trimtab.tables.arrow import table_from_rows
from trimtab.tables.workloads import Workloads
from trimtab.units import usd

DAYS, REPLICAS = 7, 8
NOT_LONG = {"metric": "queue_wait", "quantile": 0.9, "limit_s": 1800}
LE_S = (0.5, 1.0, 2.0, float("inf"))


def busy_days(hour):
    """Requests of an hour: one replica answers ten a second at full activity, and eight of them stand there."""
    return 3600 * (40 if 9 <= hour % 24 < 17 else 8)


@pytest.fixture(scope="module")
def bundle():
    rows = FleetRows(DAYS)
    for number in range(REPLICAS):
        rows.node(f"n{number}", "g5.xlarge").hold("prod/api", f"n{number}", [0], owner_kind="Deployment")
        rows.use("prod/api", f"n{number}", 0, range(DAYS * 24), sm=lambda hour: busy_days(hour) / 3600 / REPLICAS / 10)
    rows.demand("prod/api", busy_days, REPLICAS, LE_S, lambda hour: [busy_days(hour), 0, 0, 0])
    rows.workloads = {
        "prod/api": {"targets": [{"metric": "latency", "quantile": 0.95, "limit_s": 1.0}], "min_replicas": 1}
    }
    return rows.bundle()


def manifests(text):
    return read_objects(("change.yaml", one) for one in yaml.safe_load_all(text))


def reviewed(bundle, text, present=None):
    return review(bundle, manifests(text), None if present is None else manifests(present))


DEPLOYMENT = """
apiVersion: apps/v1
kind: Deployment
metadata: {{name: api, namespace: prod}}
spec:
  replicas: {replicas}
  template:
    spec:
      containers: [{{name: server, resources: {{limits: {{nvidia.com/gpu: {gpus}}}}}}}]
"""
POOL = """
---
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {{name: gpus}}
spec:
  template:
    spec:
      requirements:
      - {{key: node.kubernetes.io/instance-type, operator: In, values: [{types}]}}
      - {{key: karpenter.sh/capacity-type, operator: In, values: [{capacity}]}}
      taints: [{{key: nvidia.com/gpu, value: present, effect: NoSchedule}}]
  limits: {{nvidia.com/gpu: '{limit}'}}
"""
ON_POOL = """
apiVersion: apps/v1
kind: Deployment
metadata: {{name: api, namespace: prod}}
spec:
  {replicas}
  template:
    spec:
      nodeSelector: {{karpenter.sh/nodepool: gpus}}
      {tolerations}
      containers: [{{name: server, resources: {{limits: {{nvidia.com/gpu: 1}}}}}}]
"""
TOLERATES = "tolerations: [{key: nvidia.com/gpu, operator: Exists}]"


def on_pool(replicas="", types="g5.xlarge", capacity="on-demand", limit=40, tolerations=TOLERATES):
    return ON_POOL.format(replicas=replicas, tolerations=tolerations) + POOL.format(
        types=types, capacity=capacity, limit=limit
    )


def hpa(metric, low=2, high=16, name="api", target="api"):
    return f"""
---
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {{name: {name}, namespace: prod}}
spec:
  scaleTargetRef: {{apiVersion: apps/v1, kind: Deployment, name: {target}}}
  minReplicas: {low}
  maxReplicas: {high}
  metrics: [{metric}]
"""


def pods_metric(name, value):
    return (
        f"{{type: Pods, pods: {{metric: {{name: {name}}}, target: {{type: AverageValue, averageValue: '{value}'}}}}}}"
    )


REQUESTS = pods_metric("http_requests_per_second", 4)


def stops(found):
    return [one.what for one in found.findings if one.weight is Weight.STOPS]


def test_the_same_replicas_change_nothing(bundle):
    found = reviewed(bundle, DEPLOYMENT.format(replicas=REPLICAS, gpus=1))

    assert found.change_usd_mo == 0
    assert found.passes
    assert not found.unjudged


def test_too_few_replicas_break_the_target_and_save_nothing_where_no_pool_gives_their_nodes_back(bundle):
    found = reviewed(bundle, DEPLOYMENT.format(replicas=2, gpus=1))

    assert [name for name, _ in found.broken] == ["prod/api", "prod/api"]
    assert not found.passes
    assert found.change_usd_mo == 0


def test_fewer_replicas_in_a_node_pool_give_their_nodes_back(bundle):
    found = reviewed(bundle, on_pool("replicas: 7"))

    assert found.passes, (found.broken, found.findings)
    assert found.after_micro_usd == pytest.approx(found.before_micro_usd * 7 / 8, rel=1e-3)


def test_a_node_that_its_holder_left_before_the_window_goes_with_it_where_that_is_known():
    rows = FleetRows(DAYS)
    for name in ("first", "second", "left"):
        rows.node(name, "g5.xlarge")
    for name in ("first", "second"):
        rows.hold("prod/api", name, [0], owner_kind="Deployment")
        rows.use("prod/api", name, 0, range(DAYS * 24), sm=0.3)
    fleet = build_fleet(rows.bundle(), Settings())
    market = Market.of(load_catalog(), None, Settings())
    cases = cases_of(fleet, Settings(), 1, market=market)
    asked = manifests(on_pool("replicas: 1"))

    blind = review_fleet(fleet, cases, market, asked)
    told = review_fleet(fleet, cases, market, asked, held_before={"left": frozenset({"prod/api"})})

    a_node = told.before_micro_usd / 3
    assert (blind.after_micro_usd, told.after_micro_usd) == (2 * a_node, a_node)


def test_an_autoscaler_on_requests_follows_demand(bundle):
    found = reviewed(bundle, on_pool() + hpa(REQUESTS))

    assert found.after_micro_usd < found.before_micro_usd
    assert found.workloads[0].changes == ("scale 2..16 replicas at 64% load each (HorizontalPodAutoscaler api)",)
    assert found.passes


COUNTS_ON = "{trimtab.dev/assumes: 'its model in fp8, not bf16'}"
RULE = """
---
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata: {{name: api, namespace: prod}}
spec:
  groups: [{{name: load, rules: [{{record: 'team:load', expr: 'sum(rate(http_requests_total[1m])) / {capacity}'}}]}}]
"""


@pytest.mark.parametrize(("capacity", "warned"), [(10, 1), (6.25, 0)])
def test_an_autoscaler_that_counts_on_what_no_object_does_is_told_as_the_cause(bundle, capacity, warned):
    counting = hpa(pods_metric("team_load", "0.8")).replace("{name: api,", f"{{annotations: {COUNTS_ON}, name: api,")

    found = reviewed(bundle, on_pool() + RULE.format(capacity=capacity) + counting)

    causes = [fault.what for fault in found.findings if "its model in fp8, not bf16" in fault.what]
    assert len(causes) == warned, found.findings
    assert not (warned and found.passes), "a replica serves 6.25, which is what makes the rule break"


def test_the_changes_of_workloads_add_up_to_the_change_of_the_bill(bundle):
    found = reviewed(bundle, on_pool() + hpa(REQUESTS))

    assert sum(one.change_micro_usd for one in found.workloads) == found.after_micro_usd - found.before_micro_usd


def test_against_the_manifests_in_force_only_what_differs_counts(bundle):
    same = on_pool() + hpa(REQUESTS)

    found = reviewed(bundle, same, same)

    assert found.change_usd_mo == 0
    assert usd(found.before_micro_usd) < usd(reviewed(bundle, same).before_micro_usd)


@pytest.mark.parametrize(
    "metric",
    [
        "{type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 70}}}",
        pods_metric("DCGM_FI_DEV_GPU_UTIL", 70),
        pods_metric("some_queue_of_ours", 3),
    ],
)
def test_what_follows_a_metric_that_history_does_not_hold_is_not_judged(bundle, metric):
    found = reviewed(bundle, on_pool() + hpa(metric))

    assert found.unjudged == ("prod/api",)
    assert found.change_usd_mo == 0


def test_pods_that_do_not_tolerate_their_nodes_taint_stay_pending(bundle):
    found = reviewed(bundle, on_pool("replicas: 8", tolerations=""))

    assert not found.passes
    assert ["stay pending" in one for one in stops(found)] == [True]


def test_an_autoscaler_of_nothing_is_said(bundle):
    found = reviewed(bundle, hpa(REQUESTS, target="apii"))

    assert ["neither this history nor these objects" in one for one in stops(found)] == [True]


def test_two_autoscalers_of_one_workload_are_said(bundle):
    found = reviewed(bundle, on_pool() + hpa(REQUESTS) + hpa(REQUESTS, name="other"))

    assert any("fight each other" in one for one in stops(found))


def test_a_pools_limit_is_a_ceiling(bundle):
    found = reviewed(bundle, on_pool(limit=3) + hpa(REQUESTS))

    assert "2..3 replicas" in found.workloads[0].changes[0]
    assert found.broken


def test_a_limit_without_room_for_a_rollout_is_said(bundle):
    found = reviewed(bundle, on_pool("replicas: 1", limit=1))

    assert any("it never ends" in one for one in stops(found))


def test_pods_that_may_run_on_two_pools_alike_are_billed_as_on_one_of_them(bundle):
    labelled = POOL.format(types="g5.xlarge", capacity="on-demand", limit=40).replace(
        "  template:\n", "  template:\n    metadata: {labels: {team: api}}\n"
    )
    selects = on_pool("replicas: 7").partition("---")[0].replace("karpenter.sh/nodepool: gpus", "team: api")

    alone = reviewed(bundle, selects + labelled)
    found = reviewed(bundle, selects + labelled + labelled.replace("name: gpus", "name: spare"))
    assert found.unjudged == ()
    assert found.after_micro_usd == alone.after_micro_usd


def test_shares_of_gpus_are_not_guessed(bundle):
    found = reviewed(bundle, DEPLOYMENT.format(replicas=8, gpus=1).replace("nvidia.com/gpu", "nvidia.com/mig-1g.5gb"))

    assert found.unjudged == ("prod/api",)


def test_kinds_that_are_not_modelled_are_listed(bundle):
    found = reviewed(bundle, "apiVersion: v1\nkind: Deamon\nmetadata: {name: x, namespace: prod}\n")

    assert [one.what for one in found.unread] == ["Deamon prod/x"]


def test_a_kustomize_patch_is_read_for_what_it_sets(bundle):
    component = """
apiVersion: kustomize.config.k8s.io/v1alpha1
kind: Component
patches:
- target: {kind: Deployment, name: api, namespace: prod}
  patch: |
    - {op: replace, path: /spec/replicas, value: 2}
"""
    assert reviewed(bundle, component).workloads[0].changes == ("run 2 replicas at all times, not 8",)


COMPONENT = """
apiVersion: kustomize.config.k8s.io/v1alpha1
kind: Component
patches:
- target: {kind: Deployment, name: api}
  patch: |
    - {op: replace, path: /spec/replicas, value: 2}
"""


@pytest.mark.parametrize(
    ("known", "file", "replicas"),
    [
        (["prod/api"], "kustomization.yaml", {"prod/api": 2}),
        (["prod/api", "test/api", "prod/api-2"], "workloads/test/api/kustomization.yaml", {"test/api": 2}),
        (["prod/api", "test/api"], "kustomization.yaml", {}),
        (["prod/other"], "kustomization.yaml", {}),
    ],
)
def test_a_patch_without_a_namespace_goes_to_the_one_workload_of_its_name(known, file, replicas):
    found = read_objects([(file, yaml.safe_load(COMPONENT))]).laid_on(known)

    assert {name: pods.replicas for name, pods in found.pods.items()} == replicas
    assert len(found.unread) == (not replicas)


@pytest.mark.parametrize(("query", "window"), [("rate", "mean of 5 min"), ("irate", "")])
def test_an_autoscaler_averages_over_the_window_of_its_query(bundle, query, window):
    rule = """
---
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata: {name: load, namespace: prod}
spec:
  groups:
  - name: load
    rules: [{record: "team:load", expr: "QUERY(http_requests_total[5m]) + http_requests_waiting / 15"}]
""".replace("QUERY", query)

    found = reviewed(bundle, on_pool() + rule + hpa(pods_metric("team_load", 4)))

    assert window in found.workloads[0].changes[0]
    assert ("mean" in found.workloads[0].changes[0]) == bool(window)
    assert not found.workloads[0].notes


def test_what_never_ran_is_listed_and_not_counted(bundle):
    found = reviewed(bundle, DEPLOYMENT.format(replicas=2, gpus=1).replace("name: api,", "name: newcomer,"))

    assert [(one.what, "not counted" in one.why) for one in found.unread] == [("Deployment prod/newcomer", True)]
    assert found.change_usd_mo == 0


def test_helm_values_and_what_was_there_before_are_passed_over(tmp_path):
    for path in ("helm/karpenter.values.yaml", "rollback/prod/api/kustomization.yaml", "prod/api.yaml"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text("kind: Service\nmetadata: {name: api}\n")

    assert [file for file, _ in read_manifests(tmp_path)] == ["prod/api.yaml"]


def test_a_template_that_was_not_rendered_is_refused_with_its_cure(tmp_path):
    (tmp_path / "chat.yaml").write_text("kind: Deployment\nspec: {{- toYaml .Values }}\n")

    with pytest.raises(InputError, match="helm template"):
        list(read_manifests(tmp_path))


def test_a_folder_without_manifests_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"no \.yaml or \.json files"):
        list(read_manifests(tmp_path))


@pytest.mark.parametrize(
    ("name", "content"), [("plan.json", '{"schema_version": 1}'), ("values.yaml", "replicas: 2\n")]
)
def test_files_without_kubernetes_objects_are_refused_where_a_pipeline_named_the_wrong_ones(tmp_path, name, content):
    (tmp_path / name).write_text(content)

    with pytest.raises(InputError, match="no Kubernetes objects there"):
        list(read_manifests(tmp_path / name))


def test_a_number_of_gpus_that_is_none_is_refused_with_its_place(bundle):
    with pytest.raises(
        InputError, match=r"change\.yaml: Deployment prod/api, nvidia\.com/gpu: 'two' is not a whole number"
    ):
        manifests(DEPLOYMENT.format(replicas=8, gpus="two"))


def test_requirements_of_a_pool_that_are_not_modelled_are_listed(bundle):
    more = "- {key: karpenter.k8s.aws/instance-local-nvme, operator: Gt, values: ['300']}"
    found = reviewed(bundle, on_pool("replicas: 8").replace("      taints:", f"      {more}\n      taints:"))

    assert [one.what for one in found.unread] == ["NodePool gpus: karpenter.k8s.aws/instance-local-nvme Gt"]


def test_an_autoscaler_that_a_pools_limit_has_no_room_for_is_not_judged(bundle):
    found = reviewed(bundle, on_pool(limit=1) + hpa(REQUESTS, low=2))

    assert found.unjudged == ("prod/api",)


def test_what_is_applied_only_once_something_is_so_is_listed_and_not_judged(bundle):
    patch = "[{op: replace, path: /spec/replicas, value: 1}]"
    later = f"""
apiVersion: kustomize.config.k8s.io/v1alpha1
kind: Component
metadata: {{name: api, annotations: {{trimtab.dev/applies-once: its server batches}}}}
patches:
- target: {{kind: Deployment, name: api}}
  patch: '{patch}'
"""

    found = reviewed(bundle, later)

    assert found.workloads == ()
    assert [one.why for one in found.unread] == ["it is applied only once its server batches"]


_POD = {
    "nodeSelector": {"karpenter.sh/nodepool": "gpus"},
    "containers": [{"resources": {"limits": {"nvidia.com/gpu": 2}}}],
}
_HEAD = {"template": {"spec": {"containers": [{}]}}}
_RAY = {"headGroupSpec": _HEAD, "workerGroupSpecs": [{"replicas": 3, "template": {"spec": _POD}}]}


@pytest.mark.parametrize(
    ("kind", "spec", "replicas"),
    [
        ("Deployment", {"replicas": 3, "template": {"spec": _POD}}, 3),
        ("LeaderWorkerSet", {"replicas": 3, "leaderWorkerTemplate": {"workerTemplate": {"spec": _POD}}}, 3),
        ("RayService", {"rayClusterConfig": _RAY}, 3),
    ],
)
def test_pods_are_read_where_their_owner_keeps_them(kind, spec, replicas):
    found = read_objects([("a.yaml", {"kind": kind, "metadata": {"name": "api", "namespace": "prod"}, "spec": spec})])

    pods = found.pods["prod/api"]
    assert (pods.gpus, pods.node_selector, pods.replicas) == (2, (("karpenter.sh/nodepool", "gpus"),), replicas)


def kserve(kind, spec):
    body = {"kind": kind, "metadata": {"name": "api", "namespace": "prod"}, "spec": spec}
    return read_objects([("a.yaml", body)])


def test_objects_of_kserve_are_the_workloads_that_their_deployments_are_called():
    predictor = kserve("InferenceService", {"predictor": _POD}).pods["prod/api-predictor"]
    llm = kserve("LLMInferenceService", {"replicas": 2, "template": _POD, "prefill": {"replicas": 5, "template": _POD}})

    assert (predictor.gpus, predictor.replicas) == (2, None)
    assert {name: (pods.gpus, pods.replicas) for name, pods in llm.pods.items()} == {
        "prod/api-kserve": (2, 2),
        "prod/api-kserve-prefill": (2, 5),
    }


@pytest.mark.parametrize(
    ("kind", "patch", "workload"),
    [
        ("InferenceService", {"spec": {"predictor": _POD}}, "prod/api-predictor"),
        ("LLMInferenceService", {"spec": {"template": _POD}}, "prod/api-kserve"),
        ("LLMInferenceService", {"spec": {"prefill": {"template": _POD}}}, "prod/api-kserve-prefill"),
    ],
)
def test_a_patch_of_an_object_of_kserve_is_for_the_workload_that_it_makes(kind, patch, workload):
    body = yaml.safe_dump({"kind": kind, "metadata": {"name": "api"}, **patch})
    component = {"kind": "Component", "patches": [{"target": {"kind": kind, "name": "api"}, "patch": body}]}
    known = ["prod/api-predictor", "prod/api-kserve", "prod/api-kserve-prefill", "prod/api"]

    found = read_objects([("kustomization.yaml", component)]).laid_on(known)

    assert set(found.pods) == {workload}
    assert found.pods[workload].gpus == 2
    assert found.unread == []


def test_a_ray_service_with_several_groups_of_gpus_is_listed():
    groups = [{"groupName": name, "template": {"spec": _POD}} for name in ("small", "large")]
    spec = {"rayClusterConfig": {"headGroupSpec": _HEAD, "workerGroupSpecs": groups}}

    found = read_objects([("a.yaml", {"kind": "RayService", "metadata": {"name": "api"}, "spec": spec})])

    assert found.pods == {}
    assert ["several worker groups with GPUs" in one.why for one in found.unread] == [True]


def test_an_emitted_folder_that_holds_nothing_but_pages_asks_for_nothing(tmp_path):
    (tmp_path / "orders").mkdir()
    (tmp_path / "orders" / "buy.md").write_text("# Buy", encoding="utf-8")
    with pytest.raises(InputError, match="give the folder of manifests"):
        list(read_manifests(tmp_path))

    (tmp_path / "APPLY.md").write_text("# Apply", encoding="utf-8")

    assert list(read_manifests(tmp_path)) == []


WARMED = """
apiVersion: batch/v1
kind: Job
metadata: {{name: nightly, namespace: lab}}
spec:
  template:
    spec:
      nodeSelector: {{karpenter.sh/nodepool: gpus}}
      tolerations: [{{key: nvidia.com/gpu, operator: Exists}}]
      containers: [{{name: train, resources: {{limits: {{nvidia.com/gpu: 1}}}}}}]
---
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {{name: gives-way}}
value: -10
---
apiVersion: batch/v1
kind: CronJob
metadata: {{name: warm, namespace: lab}}
spec:
  schedule: 55 1 * * *
  jobTemplate:
    spec:
      template:
        spec:
          priorityClassName: gives-way
          nodeSelector: {{karpenter.sh/nodepool: gpus}}
          tolerations: [{{key: nvidia.com/gpu, operator: Exists}}]
          containers: [{{name: pause, resources: {{limits: {{nvidia.com/gpu: {gpus}}}}}}}]
"""


@pytest.fixture(scope="module")
def nightly_runs():
    """A run of four hours every night at two, on a node that stays up."""
    rows = FleetRows(DAYS).node("n0", "g5.xlarge").hold("lab/nightly", "n0", [0], owner_kind="Job")
    for day in range(DAYS):
        rows.use("lab/nightly", "n0", 0, range(24 * day + 2, 24 * day + 6), sm=0.9)
        rows.job("lab/nightly", 24 * day + 2.0, 24 * day + 2.0, 24 * day + 6.0, 1, name=f"night-{day}")
    rows.workloads = {"lab/nightly": {"kind": "batch"}}
    return rows.bundle()


@pytest.mark.parametrize(("took_s", "attained"), [(2_000, 0.0), (1_000, 1.0)])
def test_a_nodes_start_is_as_long_as_the_pods_of_the_history_waited_for_theirs(nightly_runs, took_s, attained):
    created = nightly_runs.start + timedelta(days=1)
    begun = [
        {**nightly_runs.table("nodes").to_pylist()[0], "node": f"m{at}", "start": created + timedelta(seconds=60)}
        for at in range(3)
    ]
    waited = [
        {
            "pod": f"other-{node['node']}", "namespace": "lab", "workload": "lab/other", "node": node["node"], "gpus": 1.0,
            "phase": "Running", "created": created, "scheduled": created + timedelta(seconds=took_s),
        }
        for node in begun
    ]  # fmt: skip
    nodes = nightly_runs.table("nodes").to_pylist() + begun
    told = {"pods": table_from_rows("pods", waited), "nodes": table_from_rows("nodes", nodes)}
    limits = Workloads.model_validate({"workloads": {"lab/nightly": {"kind": "batch", "targets": [NOT_LONG]}}})
    bundle = replace(nightly_runs, tables={**nightly_runs.tables, **told}, workloads=limits)
    job = WARMED.format(gpus=1).partition("---")[0] + POOL.format(types="g5.xlarge", capacity="on-demand", limit=40)

    found = reviewed(bundle, job)

    (run,) = [one for one in found.workloads if one.workload == "lab/nightly"]
    assert run.targets[0].after_frac == attained


def test_an_assumed_start_of_nodes_makes_no_bill_smaller_where_nothing_drains_them(bundle):
    fleet = build_fleet(bundle, Settings())
    assumed = cases_of(fleet, Settings(), 7)["prod/api"]
    stated = replace(assumed, settings=Settings(assumptions=Assumptions(node_startup_s=400.0)))
    model = ServiceModel(
        capacity_req_s=1.0, load_grid=np.array([0.0, 1.0]), ok_frac=np.ones((0, 2)), wait_limit_s=np.zeros(0),
        cold_start_s=480.0, warm_start_s=180.0,
    )  # fmt: skip

    assert as_billed(assumed, model, moves=False).cold_start_s == 180.0
    assert as_billed(assumed, model, moves=True) is as_billed(stated, model, moves=False) is model


@pytest.mark.parametrize(("gpus", "stays_pending"), [(1, False), (4, True)])
def test_a_placeholder_that_fits_no_node_of_its_run_warms_none(nightly_runs, gpus, stays_pending):
    pool = POOL.format(types="g5.xlarge", capacity="on-demand", limit=40)

    found = reviewed(nightly_runs, WARMED.format(gpus=gpus) + pool)

    said = [fault.what for fault in found.findings if "placeholder lab/warm" in fault.what]
    assert bool(said) == stays_pending
    (run,) = [one for one in found.workloads if one.workload == "lab/nightly"]
    assert any("before" in change for change in run.changes) != stays_pending


def test_an_autoscaler_of_another_kind_of_that_name_scales_nothing(bundle):
    scaled = on_pool() + hpa(REQUESTS)

    found = reviewed(bundle, scaled.replace("kind: Deployment, name: api", "kind: StatefulSet, name: api"))

    assert any("scales a StatefulSet of this name, and it is a Deployment" in what for what in stops(found))
    assert found.change_usd_mo == 0
    assert stops(reviewed(bundle, scaled)) == []


def test_an_autoscaler_without_metrics_follows_cpu_and_is_not_judged(bundle):
    (workload,) = reviewed(bundle, on_pool() + hpa("")).workloads

    assert "cpu of its pods" in workload.unjudged


@pytest.mark.parametrize(("limit", "ends"), [(8, False), (16, True)])
def test_a_rollout_that_cannot_end_is_said_of_replicas_that_stay_the_same(bundle, limit, ends):
    strategy = 'replicas: 8\n  strategy: {rollingUpdate: {maxSurge: "100%", maxUnavailable: 0}}'

    found = reviewed(bundle, on_pool(strategy, limit=limit))

    assert (not any("it never ends" in what for what in stops(found))) == ends


def test_a_limit_of_no_gpu_is_a_service_without_replicas(bundle):
    assert not reviewed(bundle, on_pool("replicas: 8", limit=0)).passes


def by_activity(frac, types="g5.xlarge"):
    """An autoscaler on GPU activity, on nodes of a type."""
    query = "avg by (namespace, pod) (avg_over_time(DCGM_FI_PROF_SM_ACTIVE[5m]))"
    rule = RULE.format(capacity=1).replace("sum(rate(http_requests_total[1m])) / 1", query)
    return on_pool(types=types) + rule + hpa(pods_metric("team_load", frac))


def test_activity_on_another_gpu_is_said_to_hang_on_an_estimated_speed(bundle):
    at_home, elsewhere = (
        reviewed(bundle, by_activity(0.3, types)).workloads[0] for types in ("g5.xlarge", "g6e.xlarge")
    )

    assert at_home.ends_micro_usd == ()
    low, high = elsewhere.ends_micro_usd
    assert low < elsewhere.change_micro_usd < high


def test_activity_that_no_replica_was_seen_to_reach_is_a_warning_where_none_was_seen_full(bundle):
    # 5 of the 10 requests/s of a fully active replica were seen: 6.25 are granted, and requests wait from 9.4 on
    beyond, within = reviewed(bundle, by_activity(0.97)), reviewed(bundle, by_activity(0.7))

    assert stops(beyond) == []
    assert [one.weight for one in beyond.findings if "as far as this history shows" in one.what] == [Weight.WARNS]
    assert within.findings == ()


@pytest.mark.parametrize(
    ("spec", "what"),
    [
        (
            "affinity: {podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: host}]}}",
            "podAnti",
        ),
        ("schedulerName: volcano", "schedulerName volcano"),
        (
            "affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: "
            "[{matchExpressions: [{key: zone, operator: NotIn, values: [a]}]}]}}}",
            "nodeAffinity zone NotIn",
        ),
    ],
)
def test_what_places_pods_and_is_not_modelled_is_listed(bundle, spec, what):
    text = DEPLOYMENT.format(replicas=8, gpus=1).replace("      containers", f"      {spec}\n      containers")

    assert [what in one.what for one in reviewed(bundle, text).unread] == [True]
