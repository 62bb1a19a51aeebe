"""The check of a folder: emitted output passes, and each kind of fault is said with its place and its cure."""

import random
import tempfile
import time
from pathlib import Path

import celpy
import pyarrow as pa
import pytest
import yaml
from hypothesis import assume, given, settings
from tests.emit.cluster_example import example_facts
from tests.emit.example import example_audit
from tests.emit.test_any_plan import FACTS, plans
from tests.emit.test_node_groups import POOLS, on_spot

from trimtab.catalog import load_catalog
from trimtab.emit.manifests.facts import Autoscaler
from trimtab.emit.manifests.plan_files import emit_plan
from trimtab.errors import InputError

pytest.importorskip("promql_parser", reason="the extra `check` is not installed whole")

from trimtab.check import Cluster, Schemas, Severity, check_folder
from trimtab.check.cluster import cluster_of_bundle
from trimtab.check.promql import read_query
from trimtab.review.timetables import timetable

CATALOG = load_catalog()
celpy.Environment()  # raises the recursion limit once, which hypothesis would take for the test's doing
EMITTED = {
    autoscaler: {file.path: file.text for file in emit_plan(example_audit().plan, example_facts(autoscaler)).files}
    for autoscaler in Autoscaler
}
RULES, POOL = "monitoring/prod/chat-api.rules.yaml", "nodes/p4d-24xlarge-us-east-1-on-demand-services.nodepool.yaml"
SCALED, WARM = "scaling/prod/chat-api.scaledobject.yaml", "scaling/eval/weekly-eval.warm-nodes.yaml"
PATCH = "workloads/prod/chat-api/kustomization.yaml"


def cluster():
    """The cluster of the example: its workloads and what stands beside them."""
    there = Cluster(namespaces={"monitoring", "prod", "research", "eval", "notebooks", "data", "gpu-operator"})
    for known in example_facts().workloads:
        there.workloads[known.name] = known.owner_kind
        there.pod_labels[known.name] = {"app": known.short_name}
    there.add({"apiVersion": "karpenter.k8s.aws/v1", "kind": "EC2NodeClass", "metadata": {"name": "default"}})
    return there


def checked(folder, files, **more):
    for path, text in files.items():
        place = folder / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text, encoding="utf-8")
    return check_folder(folder, CATALOG, **{"cluster": cluster(), "build": False, **more})


@pytest.mark.parametrize("autoscaler", list(Autoscaler))
def test_what_emit_writes_has_no_error(autoscaler, tmp_path):
    assert checked(tmp_path, EMITTED[autoscaler]).errors == ()


def test_what_emit_writes_has_no_error_where_nothing_is_known_of_the_cluster(tmp_path):
    assert checked(tmp_path, EMITTED[Autoscaler.KEDA], cluster=None).errors == ()


@pytest.mark.parametrize(
    ("resource", "errors"), [("gpu", 1), ("nvidia.com/gpus", 1), ("nvidia.com/gpu", 0), ("hugepages-2Mi", 0)]
)
def test_an_overlay_gives_nodes_only_what_a_pod_may_ask_for(resource, errors, tmp_path):
    overlay = {
        "apiVersion": "karpenter.sh/v1alpha1",
        "kind": "NodeOverlay",
        "metadata": {"name": "slices"},
        "spec": {
            "requirements": [{"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["p4d.24xlarge"]}],
            "capacity": {resource: "8"},
        },
    }

    assert len(checked(tmp_path, {"overlay.yaml": yaml.safe_dump(overlay)}).errors) == errors


@pytest.mark.parametrize("provider", POOLS)
def test_what_emit_writes_without_karpenter_has_no_error(provider, tmp_path):
    files = {file.path: file.text for file in on_spot(provider).files}

    assert checked(tmp_path, files).errors == ()


SLIPS = [
    (SCALED, "maxReplicaCount", "maxReplicacount", "write maxReplicaCount"),
    (SCALED, "name: chat-api\n  pollingInterval", "name: chat-apy\n  pollingInterval", "write prod/chat-api"),
    (SCALED, "minReplicaCount: 4", "minReplicaCount: 400", "or less"),
    (SCALED, "stabilizationWindowSeconds: 300", "stabilizationWindowSeconds: 7200", "0 to 3600"),
    (SCALED, "namespace: prod", "namespace: prdo", "write prod"),
    (SCALED, "metricType: AverageValue", "metricType: averagevalue", "write AverageValue"),
    (SCALED, 'workload="chat-api"', 'workload="chat"', 'write workload="chat-api"'),
    (RULES, "trimtab:replicas_ready{", "trimtab:replica_ready{", "write trimtab:replicas_ready"),
    (RULES, "clamp_min(sum", "clamp_min((sum", "correct it"),
    (RULES, "interval: 15s", "interval: 15 seconds", "match"),
    (POOL, "key: nvidia.com/gpu", "key: nvidia.com/gpus", "write nvidia.com/gpu"),
    (POOL, "p4d.24xlarge", "p4d.24xlarg", "write p4d.24xlarge"),
    (POOL, "kind: EC2NodeClass", "kind: EC2NodeclasS", "write EC2NodeClass"),
    (POOL, "nvidia.com/gpu: '", "nvidia.com/gpu: 'x", "write one such as"),
    (WARM, "schedule: ", "schedule: 61 ", "five fields"),
    (WARM, "timeZone: Etc/UTC", "timeZone: Etc/UCT+1", "Etc/UTC"),
    (WARM, "memory: 16Mi", "memory: 16MiB", "16Gi"),
    (WARM, "priorityClassName: trimtab-placeholder", "priorityClassName: placeholder", "write trimtab-placeholder"),
    (PATCH, "    name: chat-api\n  patch", "    name: chat-apy\n  patch", "the same in both"),
    (PATCH, "nodeSelector:", "nodeselector:", "write nodeSelector"),
    ("nodes/kustomization.yaml", "- p4d", "- p4e", "p4d"),
    (RULES, 'kube_pod_status_ready{namespace="prod"', 'kube_pod_status_ready{namespce="prod"', "write namespace"),
    (RULES, ',deployment="chat-api"', ',deploymennt="chat-api"', "write deployment"),
    (RULES, "(0 * (sum by (namespace, pod)", "(0 * (sum by (namepace, pod)", "write namespace"),
    (
        RULES,
        "sum by (namespace) (kube_pod_status_ready",
        "sum by (namespaec) (kube_pod_status_ready",
        "write namespace",
    ),
]


@pytest.mark.parametrize(("file", "right", "wrong", "cure"), SLIPS, ids=[wrong for _, _, wrong, _ in SLIPS])
def test_a_slip_is_an_error_that_names_its_file_and_its_cure(file, right, wrong, cure, tmp_path):
    text = EMITTED[Autoscaler.KEDA][file]
    assert right in text

    found = checked(tmp_path, {**EMITTED[Autoscaler.KEDA], file: text.replace(right, wrong, 1)}).errors

    assert any(cure in one.cure for one in found if one.file == file), list(map(str, found))


@pytest.mark.parametrize("kind", ["NodePool", "Gadget"])
def test_an_unknown_field_of_metadata_is_refused_in_every_kind(kind, tmp_path):
    """Servers know metadata whatever a CRD says of it (apiextensions-apiserver, objectmeta/coerce.go)."""
    pool = yaml.safe_load(EMITTED[Autoscaler.KEDA][POOL])
    body = pool if kind == "NodePool" else {"apiVersion": "example.org/v1", "kind": kind, "metadata": {"name": "a"}}
    body["metadata"]["anotations"] = {"a": "b"}

    found = checked(tmp_path, {"one.yaml": yaml.safe_dump(body)}, cluster=None).errors

    assert [(one.field, one.cure) for one in found] == [("metadata.anotations", "write annotations")]


def test_short_labels_of_different_series_that_are_a_letter_apart_are_two_labels(tmp_path):
    """`mode` of node-exporter, and `node` of kube-state-metrics."""
    queries = ['rate(node_cpu_seconds_total{mode="user"}[5m])', 'kube_pod_info{node="a"}', 'kube_pod_info{node="b"}']
    rules = [{"record": f"a:{number}", "expr": query} for number, query in enumerate(queries)]
    body = {
        "apiVersion": "monitoring.coreos.com/v1", "kind": "PrometheusRule", "metadata": {"name": "a"},
        "spec": {"groups": [{"name": "a", "rules": rules}]},
    }  # fmt: skip

    found = checked(tmp_path, {"rules.yaml": yaml.safe_dump(body)}, cluster=None).errors

    assert [str(one) for one in found if one.value in ("mode", "node")] == []


def rules_of(*queries):
    rules = [{"record": f"a:{number}", "expr": query} for number, query in enumerate(queries)]
    return yaml.safe_dump({
        "apiVersion": "monitoring.coreos.com/v1", "kind": "PrometheusRule", "metadata": {"name": "a"},
        "spec": {"groups": [{"name": "a", "rules": rules}]},
    })  # fmt: skip


@pytest.mark.parametrize(("label", "known"), [("yod", False), ("poq", False), ("pid", True)])
def test_a_short_label_that_no_series_has_is_a_slip_of_the_one_that_the_others_read_by(label, known, tmp_path):
    others = ['kube_pod_info{pod=~"a-.+"}', 'kube_pod_status_ready{pod=~"b-.+"}']

    found = checked(tmp_path, {"rules.yaml": rules_of(*others, f"sum by ({label}) (kube_pod_labels)")}, cluster=None)

    assert [(one.value, one.cure) for one in found.errors] == ([] if known else [(label, "write pod")])


@pytest.mark.parametrize(
    ("query", "label", "cure"),
    [
        ('sum(kube_deployment_status_replicas{deploqment="a"})', "deploqment", "write deployment"),
        ('a:0{gurad="x"}', "gurad", "write guard"),
    ],
)
def test_a_label_is_judged_by_what_its_series_have_where_nothing_else_names_it(query, label, cure, tmp_path):
    rules = yaml.safe_load(rules_of("sum(up)", query))
    rules["spec"]["groups"][0]["rules"][0]["labels"] = {"guard": "x"}

    found = checked(tmp_path, {"rules.yaml": yaml.safe_dump(rules)}, cluster=None).errors

    assert (label, cure) in [(one.value, one.cure) for one in found]


def test_a_rule_that_reads_its_own_past_gives_its_series_no_label_by_a_slip_there(tmp_path):
    rules = yaml.safe_load(rules_of("sum(up)", 'last_over_time(a:1{suard="x"}[1h]) or sum(a:0{guard="x"})'))
    for rule in rules["spec"]["groups"][0]["rules"]:
        rule["labels"] = {"guard": "x"}

    found = checked(tmp_path, {"rules.yaml": yaml.safe_dump(rules)}, cluster=None).errors

    assert ("suard", "write guard") in [(one.value, one.cure) for one in found]


def test_a_short_label_of_ones_own_that_is_used_twice_is_no_slip(tmp_path):
    queries = ['kube_pod_info{pod="a"}', 'kube_pod_info{pod="b"}', "kube_pod_info{pod='c'}"]
    own = ['max by (pop) (team:load{pop="x"})', 'team:load{pop="y"}']

    found = checked(tmp_path, {"rules.yaml": rules_of(*queries, *own)}, cluster=None).errors

    assert [one.value for one in found if one.value == "pop"] == []


def patched(kind, body):
    patch = {"target": {"kind": kind, "name": "vision-exp([-.].*)?"}, "patch": yaml.safe_dump(body)}
    return yaml.safe_dump({"apiVersion": "kustomize.config.k8s.io/v1alpha1", "kind": "Component", "patches": [patch]})


OPERATIONS = [{"op": "add", "path": "/spec/suspend", "value": True}]


def test_pods_of_kinds_without_a_schema_are_held_to_what_pods_are(tmp_path):
    body = {"apiVersion": "kubeflow.org/v1", "kind": "Notebook", "metadata": {"name": "ana", "namespace": "notebooks"}}
    wrong = {**body, "spec": {"template": {"spec": [1]}}}
    bad = {
        **body,
        "spec": {"template": {"spec": {"containers": [{"name": "a", "restartPolicy": "x"}], "restartPolicy": "Ever"}}},
    }

    for place, one in (("spec.template.spec", wrong), ("spec.template.spec.restartPolicy", bad)):
        found = checked(tmp_path / place, {"one.yaml": yaml.safe_dump(one)}, cluster=None).errors
        assert place in [fault.field for fault in found]


@pytest.mark.parametrize("kind", ["Notebook", "Rollout"])
def test_unknown_fields_of_pods_are_refused_in_patches_of_kinds_without_a_schema(kind, tmp_path):
    pods = {"owner": "x", "tolerations": [{"key": "a", "operator": "Exists", "notes": "x"}]}
    body = {
        "apiVersion": "example.org/v1",
        "kind": kind,
        "metadata": {"name": "ana"},
        "spec": {"template": {"spec": pods}},
    }

    found = checked(tmp_path, {"kustomization.yaml": patched(kind, body)}, cluster=None).errors

    assert {fault.field.rpartition(":")[2] for fault in found} == {
        "spec.template.spec.owner",
        "spec.template.spec.tolerations[0].notes",
    }


RBAC = """
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: hours, namespace: notebooks}
rules: [{apiGroups: [kubeflow.org], resources: [notebooks], resourceNames: [NAME], verbs: [get, patch]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: hours, namespace: notebooks}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: hours}
subjects: [{kind: ServiceAccount, name: hours, namespace: notebooks}]
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: hours, namespace: notebooks}
---
apiVersion: batch/v1
kind: CronJob
metadata: {name: stop, namespace: notebooks}
spec:
  schedule: "0 20 * * *"
  jobTemplate:
    spec:
      template:
        spec:
          serviceAccountName: hours
          restartPolicy: OnFailure
          containers: [{name: kubectl, image: r/kubectl, args: [patch, notebooks.kubeflow.org, grace]}]
"""


@pytest.mark.parametrize(("name", "errors"), [("Ärger", 0), ("a" * 300, 0), ("..", 1), ("a/b", 1), ("a%", 1)])
def test_names_of_roles_are_parts_of_a_path(name, errors, tmp_path):
    role = yaml.safe_load(RBAC.partition("---")[0])
    role["metadata"]["name"] = name

    found = checked(tmp_path, {"role.yaml": yaml.safe_dump(role)}, cluster=None).errors

    assert [fault.field for fault in found] == ["metadata.name"] * errors


@pytest.mark.parametrize(("name", "errors"), [("grace", 0), ("garce", 1), ("gracie, grace", 0)])
def test_a_role_that_does_not_name_what_its_timetable_patches_is_an_error(name, errors, tmp_path):
    found = checked(tmp_path, {"hours.yaml": RBAC.replace("NAME", name)}, cluster=None).errors

    assert [fault.field for fault in found] == ["rules[0].resourceNames"] * errors


def test_a_patch_for_no_kind_that_there_is_is_told_by_the_workload_that_it_names(tmp_path):
    there = Cluster(workloads={"research/vision-exp": "Job"})

    (found,) = checked(tmp_path, {"kustomization.yaml": patched("xb", OPERATIONS)}, cluster=there).errors
    unseen = checked(tmp_path, {"kustomization.yaml": patched("xb", OPERATIONS)}, cluster=None)

    assert (found.field, found.cure) == ("patches[0].target.kind", "write Job")
    assert [one.severity for one in unseen.faults] == [Severity.WARNING]


@pytest.mark.parametrize("kind", ["Job", "Service", "Job|CronJob", "Role", ".*"])
def test_a_patch_for_a_kind_that_there_is_or_a_pattern_of_kinds_is_no_error(kind, tmp_path):
    there = Cluster(workloads={"research/vision-exp": "Job"})

    assert checked(tmp_path, {"kustomization.yaml": patched(kind, OPERATIONS)}, cluster=there).errors == ()


def test_a_key_that_stands_twice_is_refused(tmp_path):
    text = EMITTED[Autoscaler.KEDA][SCALED].replace(
        "  pollingInterval: 15\n", "  pollingInterval: 15\n  pollingInterval: 30\n"
    )

    (found,) = [
        one for one in checked(tmp_path, {**EMITTED[Autoscaler.KEDA], SCALED: text}).errors if one.file == SCALED
    ]

    assert "stands twice" in found.value


def test_two_autoscalers_of_one_workload_are_told(tmp_path):
    both = {
        **EMITTED[Autoscaler.KEDA],
        "scaling/prod/chat-api.hpa.yaml": EMITTED[Autoscaler.HPA]["scaling/prod/chat-api.hpa.yaml"],
    }

    said = [one.what for one in checked(tmp_path, both).errors]

    assert any("they fight each other" in one for one in said)
    assert any("never applied" in one for one in said)


def test_a_kind_without_a_schema_is_a_warning_until_its_definition_is_given(tmp_path):
    definition = {
        "kind": "CustomResourceDefinition",
        "spec": {
            "group": "example.org", "names": {"kind": "Gadget"},
            "versions": [{"name": "v1", "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                "spec": {"type": "object", "properties": {"size": {"type": "integer"}}}}}}}],
        },
    }  # fmt: skip
    gadget = {"apiVersion": "example.org/v1", "kind": "Gadget", "metadata": {"name": "a"}, "spec": {"sise": 3}}
    files = {"gadget.yaml": yaml.safe_dump(gadget)}

    (blind,) = checked(tmp_path, files, cluster=None).faults
    (seen,) = checked(tmp_path, files, cluster=None, schemas=Schemas.of_crds([definition])).faults

    assert blind.severity is Severity.WARNING
    assert (seen.severity, seen.field, seen.cure) == (Severity.ERROR, "spec.sise", "write size")


def test_every_fault_of_a_folder_is_said_at_once(tmp_path):
    files = dict(EMITTED[Autoscaler.KEDA])
    for file, right, wrong, _ in SLIPS[:1] + SLIPS[10:12]:
        files[file] = files[file].replace(right, wrong, 1)

    assert {one.file for one in checked(tmp_path, files).errors} >= {SCALED, POOL}


@pytest.mark.parametrize(
    "text", ["5 4 * * sun", "*/5 * * * *", "0 0 1,15 * 3", "@daily", "0 22 * * 1-5", "0-10/2 * * jan-mar *"]
)
def test_timetables_that_cron_takes_are_taken(text):
    """Examples of robfig/cron's documentation and of crontab(5)."""
    assert timetable(text) is None


@pytest.mark.parametrize(
    "text",
    ["* * * *", "60 * * * *", "* 24 * * *", "* * 0 * *", "5-1 * * * *", "*/0 * * * *", "a b c d e", "0 0 31 4 *"],
)
def test_timetables_that_never_come_are_refused(text):
    assert timetable(text) is not None


def test_a_root_that_kustomize_cannot_build_is_told(tmp_path, kubectl_bin, monkeypatch):
    import shutil

    monkeypatch.setattr(shutil, "which", lambda name: kubectl_bin if name == "kubectl" else None)
    root = "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources: [a.yaml]\n"
    files = {"nodes/kustomization.yaml": root, "nodes/b.yaml": EMITTED[Autoscaler.KEDA][POOL]}

    found = checked(tmp_path, files, cluster=None, build=True).errors

    assert any(one.what == "does not build" or "kustomize cannot build" in one.what for one in found)


def test_the_order_of_files_does_not_matter(tmp_path):
    files = list(EMITTED[Autoscaler.KEDA].items())
    random.Random(1).shuffle(files)

    assert checked(tmp_path, dict(files)).errors == ()


@settings(max_examples=12)
@given(plan=plans(), facts=FACTS)
def test_no_plan_is_emitted_with_an_error(plan, facts):
    """Whatever the effects, the names and the autoscaler; what collides is the plan's own change of one thing twice."""
    assume("h100 sxm" not in repr(plan))  # no machine is called so, and its label would be a fault indeed
    files = {file.path: file.text for file in emit_plan(plan, facts).files}

    with tempfile.TemporaryDirectory() as folder:
        found = checked(Path(folder), files, cluster=None).errors if any(one.endswith(".yaml") for one in files) else ()

    assert list(map(str, found)) == []


ALIASES = "a0: &a0 [x, x]\n" + "".join(f"a{n}: &a{n} [{','.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 15))


@pytest.mark.parametrize("text", [ALIASES, "a: 2026-13-45\n", "[" * 20_000, "{a: &x [*x]}"])
def test_yaml_that_stands_for_too_much_or_for_nothing_is_a_fault_and_not_a_crash(text, tmp_path):
    inline = {"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization", "resources": [["a"], ["a"]],
              "patches": [{"target": {"kind": "Deployment", "name": "x"}, "patch": text}]}  # fmt: skip
    held = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "c", "namespace": "prod"},
        "data": {"c.yaml": text},
    }
    files = {"a.yaml": text, "k/kustomization.yaml": yaml.safe_dump(inline), "held.yaml": yaml.safe_dump(held)}

    found = checked(tmp_path, files).errors

    assert {"a.yaml", "k/kustomization.yaml", "held.yaml"} <= {one.file for one in found}


def definition(schema):
    """Return a definition of Gadgets whose spec has a schema."""
    whole = {"type": "object", "properties": {"spec": schema}}
    return {"kind": "CustomResourceDefinition",
            "spec": {"group": "example.org", "names": {"kind": "Gadget"},
                     "versions": [{"name": "v1", "schema": {"openAPIV3Schema": whole}}]}}  # fmt: skip


GADGET = {
    "apiVersion": "example.org/v1",
    "kind": "Gadget",
    "metadata": {"name": "a"},
    "spec": {"size": 3, "name": "Abort"},
}


@pytest.mark.parametrize(
    "schema", ["text", {"type": "-1e308"}, {"properties": {"size": 5}}, {"properties": {"size": {"minimum": "9"}}}]
)
def test_a_definition_whose_schema_is_none_is_refused_by_name(schema, tmp_path):
    with pytest.raises(InputError, match="kubectl get crd"):
        checked(tmp_path, {"g.yaml": yaml.safe_dump(GADGET)}, schemas=Schemas.of_crds([definition(schema)]))


def test_a_rule_of_a_part_of_a_schema_is_kept(tmp_path):
    size = {"type": "integer", "x-kubernetes-validations": [{"rule": "self < 3", "message": "small ones"}]}
    schema = {"type": "object", "properties": {"size": size, "name": {}}}

    found = checked(tmp_path, {"g.yaml": yaml.safe_dump(GADGET)}, schemas=Schemas.of_crds([definition(schema)]))

    assert [(one.field, one.cure) for one in found.errors] == [("spec.size", "keep: small ones")]


@pytest.mark.parametrize("rules", [5, [5], [{}], [{"rule": "self.size <"}], [{"rule": "self.nothing > 1"}]])
def test_a_rule_of_a_schema_that_is_none_is_at_most_a_warning(rules, tmp_path):
    schema = {"type": "object", "x-kubernetes-validations": rules, "properties": {"size": {}, "name": {}}}

    found = checked(tmp_path, {"g.yaml": yaml.safe_dump(GADGET)}, schemas=Schemas.of_crds([definition(schema)]))

    assert found.errors == ()


@pytest.mark.parametrize(
    ("pattern", "faults"), [("^(?i)(abort|warn)?$", 0), ("^(?i)warn$", 1), (r"^\p{Lu}", 0), ("(", 0), ("^[a-z]+$", 1)]
)
def test_a_pattern_is_read_as_go_means_it_or_left_to_the_server(pattern, faults, tmp_path):
    schema = {"type": "object", "properties": {"size": {}, "name": {"type": "string", "pattern": pattern}}}

    found = checked(tmp_path, {"g.yaml": yaml.safe_dump(GADGET)}, schemas=Schemas.of_crds([definition(schema)]))

    assert len(found.errors) == faults


def test_a_rule_over_a_value_of_another_type_is_left_alone(tmp_path):
    each = {
        "rule": "self.all(x, x.key != 'a' && (x.operator == 'In' ? x.values.size() > 0 : true))",
        "message": "values",
    }
    entry = {"type": "object", "properties": {name: {"type": "string"} for name in ("key", "operator")}}
    name = {"type": "array", "items": entry, "x-kubernetes-validations": [each]}
    schema = {"type": "object", "properties": {"size": {}, "name": name}}
    text = yaml.safe_dump(GADGET | {"spec": {"size": 3, "name": "\u00e9" * 50}}, allow_unicode=True)
    began = time.process_time()

    found = checked(tmp_path, {"g.yaml": text}, schemas=Schemas.of_crds([definition(schema)]))

    # evaluated without its types, the messages of fifty faults hold one another and double fifty times
    assert time.process_time() - began < 5
    assert [one.field for one in found.errors] == ["spec.name"]


def test_a_value_with_keys_of_several_kinds_is_judged(tmp_path):
    size = {"type": "object", "x-kubernetes-validations": [{"rule": "self.a > 3", "message": "large ones"}]}
    schema = {"type": "object", "properties": {"size": size, "name": {}}}
    text = yaml.safe_dump(GADGET | {"spec": {"size": {1: "x", "a": 2}, "name": "b"}})

    found = checked(tmp_path, {"g.yaml": text}, schemas=Schemas.of_crds([definition(schema)]))

    assert "keep: large ones" in [one.cure for one in found.errors]


LONG = "1" * 300
"""No file system takes a name that long."""


@pytest.mark.parametrize(
    "body",
    [
        {"resources": [LONG]},
        {"components": [LONG]},
        {"patches": [{"path": LONG, "target": {"kind": "Deployment"}}]},
        {"configMapGenerator": [{"name": "x", "files": [LONG]}]},
    ],
)
def test_a_name_too_long_for_the_system_is_a_file_that_is_not_there(body, tmp_path):
    found = checked(tmp_path, {"kustomization.yaml": yaml.safe_dump(body)}).errors
    assert any("is not there" in one.what for one in found)


@pytest.mark.parametrize(
    "query", ["rate(x[1e40])", "x offset 1e400", "x offset -1e40", "rate(x[5m:99999999999999999999])"]
)
def test_a_time_beyond_prometheus_own_is_told_and_not_parsed(query):
    assert "292 years" in read_query(query).wrong


@pytest.mark.parametrize("query", ['rate(job:x:1e40{le="[1e40]"}[5m])', "x offset 52w", "rate(x[100y])", "x > 1e40"])
def test_large_numbers_that_are_no_times_are_fine(query):
    assert read_query(query).wrong == ""


class Allocations:
    """A bundle that says of which kind the owners of some workloads are."""

    def __init__(self, **kinds):
        self.kinds = kinds

    def table(self, _name, _columns):
        return pa.table({"workload": [f"prod/{name}" for name in self.kinds], "owner_kind": [*self.kinds.values()]})

    def has(self, _name):
        return False


def of_objects(*bodies):
    cluster = Cluster()
    for body in bodies:
        cluster.add(body)
    return cluster


def llm(version="v1alpha2"):
    meta = {"name": "llm", "namespace": "prod"}
    return {"apiVersion": f"serving.kserve.io/{version}", "kind": "LLMInferenceService", "metadata": meta, "spec": {}}


@pytest.mark.parametrize(
    "there",
    [of_objects(llm()), cluster_of_bundle(Allocations(**{"llm-kserve-prefill": "LLMInferenceService"}))],
    ids=["dump", "history"],
)
@pytest.mark.parametrize(("name", "errors"), [("llm", 0), ("llm-kserve-prefill", 1)])
def test_a_patch_for_what_kserve_makes_has_to_name_the_object(name, errors, there, tmp_path):
    """KServe makes the Deployment `llm-kserve-prefill` of the object `llm`: no object is called as the Deployment is."""
    merge = {"kind": "LLMInferenceService", "metadata": {"name": name}, "spec": {"prefill": {"template": {}}}}
    merge = {"apiVersion": "serving.kserve.io/v1alpha1", **merge}
    target = {"kind": "LLMInferenceService", "name": name}
    component = {
        "apiVersion": "kustomize.config.k8s.io/v1alpha1",
        "kind": "Component",
        "patches": [{"target": target, "patch": yaml.safe_dump(merge)}],
    }

    found = checked(tmp_path, {"kustomization.yaml": yaml.safe_dump(component)}, cluster=there).errors

    assert [fault.field for fault in found] == ["patches[0].target.name"] * errors
    assert ("prod/llm-kserve-prefill", "Deployment") in there.workloads.items()


@pytest.mark.parametrize(("version", "errors"), [("v1alpha1", 0), ("v1alpha2", 0), ("v1beta1", 1)])
def test_versions_of_an_llm_inference_service_that_kserve_serves_are_no_error(version, errors, tmp_path):
    found = checked(tmp_path, {"llm.yaml": yaml.safe_dump(llm(version))}, cluster=None).errors

    assert len(found) == errors
