"""LimitRanges: what they let in and give, by Kubernetes' own cases, and what a plan has to change first.

Cases: kubernetes plugin/pkg/admission/limitranger/admission_test.go (TestPodLimitFunc, TestPodLimitFuncApplyDefault,
TestMergePodResourceRequirements), under their names there; pods of several containers are alike, as `validPod` makes them.
"""

import json
import shlex
import subprocess
from dataclasses import replace

import pytest
from hypothesis import given, strategies as st
from tests.emit.cluster_example import example_facts
from tests.emit.test_cluster_quotas import GPU, POD, SLICED, SLICES, moved, pods, said, scaled, standing

from trimtab.emit.manifests.cluster_quotas import with_preconditions
from trimtab.emit.manifests.limit_ranges import Container, LimitBound, containers_of, refusals, with_defaults
from trimtab.errors import InputError
from trimtab.sources.kubernetes.namespace_limits import limit_range_rows
from trimtab.sources.kubernetes.objects import Objects
from trimtab.sources.kubernetes.pods import resources_of_containers


def manifest(*items):
    return {
        "apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "abc", "namespace": "prod"},
        "spec": {"limits": [*items]},
    }  # fmt: skip


def rows_of(document):
    """The rows of a LimitRange, as an API server would complete it and a collect would read it."""
    objects = Objects()
    objects.take(document)
    return limit_range_rows(objects)


def limit_range(of_type, **stated):
    return rows_of(manifest({"type": of_type, **stated}))


def resources(cpu="", memory=""):
    return {name: amount for name, amount in (("cpu", cpu), ("memory", memory)) if amount}


def pod(count, requests, limits, *init, sidecars=()):
    def container(asked, allowed):
        return {"resources": {"requests": asked, "limits": allowed}}

    spec = {
        "containers": [container(requests, limits)] * count,
        "initContainers": [
            *(container(*pair) for pair in init),
            *({**container(*pair), "restartPolicy": "Always"} for pair in sidecars),
        ],
    }
    return containers_of(resources_of_containers(spec))


def refused(containers, rows):
    full = with_defaults(containers, rows)
    return [(refusal.bound, refusal.asked) for row in rows for refusal in refusals(full, row)]


C, M, NONE = resources, (lambda amount: resources(memory=amount)), {}
LET_IN = {
    "ctr-min-cpu-request": (pod(1, C("100m"), NONE), ("Container", {"min": C("50m")})),
    "ctr-min-cpu-request-limit": (pod(1, C("100m"), C("200m")), ("Container", {"min": C("50m")})),
    "ctr-min-memory-request": (pod(1, M("60Mi"), NONE), ("Container", {"min": M("50Mi")})),
    "ctr-max-cpu-request-limit": (pod(1, C("500m"), C("1")), ("Container", {"max": C("2")})),
    "ctr-max-cpu-limit": (pod(1, NONE, C("1")), ("Container", {"max": C("2")})),
    "ctr-max-cpu-ratio": (pod(1, C("500m"), C("750m")), ("Container", {"maxLimitRequestRatio": C("1.5")})),
    "ctr-max-mem-limit": (pod(1, NONE, M("500Mi")), ("Container", {"max": M("1Gi")})),
    "pod-min-cpu-request": (pod(2, C("75m"), NONE), ("Pod", {"min": C("100m")})),
    "pod-min-memory-request-limit": (pod(2, M("60Mi"), M("100Mi")), ("Pod", {"min": M("100Mi")})),
    "pod-init-min-memory-request": (pod(2, M("60Mi"), NONE, (M("100Mi"), NONE)), ("Pod", {"min": M("100Mi")})),
    "pod-max-cpu-request-limit": (pod(2, C("500m"), C("1")), ("Pod", {"max": C("2")})),
    "pod-init-max-cpu-request-limit": (
        pod(2, C("500m"), C("1"), (C("1"), C("2")), (C("1"), C("1"))), ("Pod", {"max": C("2")}),
    ),
    "pod-max-mem-ratio": (
        pod(3, M("300Mi"), M("450Mi")), ("Pod", {"max": M("2Gi"), "maxLimitRequestRatio": M("1.5")}),
    ),
}  # fmt: skip
REFUSED = {
    "ctr-min-cpu-request": (pod(1, C("40m"), NONE), ("Container", {"min": C("50m")}), LimitBound.MIN),
    "ctr-min-cpu-request-limit": (pod(1, C("40m"), C("200m")), ("Container", {"min": C("50m")}), LimitBound.MIN),
    "ctr-min-memory-request": (pod(1, M("40Mi"), NONE), ("Container", {"min": M("50Mi")}), LimitBound.MIN),
    "ctr-max-cpu-request-limit": (pod(1, C("500m"), C("2500m")), ("Container", {"max": C("2")}), LimitBound.MAX),
    "ctr-max-cpu-limit": (pod(1, NONE, C("2500m")), ("Container", {"max": C("2")}), LimitBound.MAX),
    "ctr-max-cpu-ratio": (
        pod(1, C("1250m"), C("2500m")), ("Container", {"maxLimitRequestRatio": C("1")}), LimitBound.RATIO,
    ),
    "ctr-max-mem-request-limit": (pod(1, M("250Mi"), M("2Gi")), ("Container", {"max": M("1Gi")}), LimitBound.MAX),
    "pod-min-cpu-request": (pod(1, C("75m"), NONE), ("Pod", {"min": C("100m")}), LimitBound.MIN),
    "pod-min-memory-request-limit": (pod(1, M("60Mi"), M("100Mi")), ("Pod", {"min": M("100Mi")}), LimitBound.MIN),
    "pod-max-cpu-request-limit": (pod(3, C("500m"), C("1")), ("Pod", {"max": C("2")}), LimitBound.MAX),
    "pod-max-mem-limit": (pod(3, NONE, M("500Mi")), ("Pod", {"max": M("1Gi")}), LimitBound.MAX),
    "pod-init-max-mem-limit": (
        pod(1, NONE, M("500Mi"), (NONE, M("1.5Gi"))), ("Pod", {"max": M("1Gi")}), LimitBound.MAX,
    ),
    "pod-max-mem-ratio": (
        pod(3, M("250Mi"), M("500Mi")), ("Pod", {"max": M("2Gi"), "maxLimitRequestRatio": M("1.5")}), LimitBound.RATIO,
    ),
    "ctr-max-cpu-limit-restartable-init-container": (
        pod(1, C("1000m"), C("1500m"), sidecars=[(C("1500m"), NONE)]), ("Pod", {"max": C("2")}), LimitBound.MAX,
    ),
}  # fmt: skip
STATES_NONE = {
    "ctr-min-cpu-no-request-limit": ("Container", {"min": C("50m")}, LimitBound.MIN),
    "ctr-max-cpu-no-request-limit": ("Container", {"max": C("2")}, LimitBound.MAX),
}


@pytest.mark.parametrize("case", LET_IN)
def test_what_kubernetes_lets_in_is_let_in(case):
    containers, (of_type, stated) = LET_IN[case]

    assert refused(containers, limit_range(of_type, **stated)) == []


@pytest.mark.parametrize("case", REFUSED)
def test_what_kubernetes_refuses_is_refused(case):
    containers, (of_type, stated), bound = REFUSED[case]

    assert {broken for broken, _ in refused(containers, limit_range(of_type, **stated))} == {bound}


@pytest.mark.parametrize("case", STATES_NONE)
def test_a_container_that_states_nothing_is_refused_unless_it_is_given_something(case):
    """Kubernetes' cases have ranges that no API server completed; a stored one gives its own minimum or maximum."""
    of_type, stated, bound = STATES_NONE[case]
    rows = limit_range(of_type, **stated)
    bare = [row | {"default_limit": None, "default_request": None} for row in rows]

    assert refused(pod(1, NONE, NONE), bare) == [(bound, None)]
    assert refused(pod(1, NONE, NONE), rows) == []


VALID = {
    "max": C("100m", "2Gi"), "min": C("25m", "1Mi"), "default": C("75m", "10Mi"), "defaultRequest": C("50m", "5Mi"),
}  # fmt: skip


def test_containers_and_init_containers_get_the_defaults_that_they_do_not_state():
    """TestPodLimitFuncApplyDefault, and the second case of TestMergePodResourceRequirements."""
    mib = 1 / 1024

    bare = with_defaults(pod(1, NONE, NONE, (NONE, NONE)), limit_range("Container", **VALID))
    assert [container.requests for container in bare] == [{"cpu": 0.05, "memory": 5 * mib}] * 2
    assert [container.limits for container in bare] == [{"cpu": 0.075, "memory": 10 * mib}] * 2

    (some,) = with_defaults(pod(1, M("512Mi"), NONE), limit_range("Container", **VALID))
    assert some.requests == {"cpu": 0.05, "memory": 0.5}
    assert some.limits == {"cpu": 0.075, "memory": 10 * mib}


@given(
    request=st.integers(1, 64), more=st.integers(0, 64), low=st.integers(1, 64), high=st.integers(1, 64),
    count=st.integers(1, 4),
)  # fmt: skip
def test_a_bound_that_is_moved_to_what_a_pod_asks_for_lets_it_in(request, more, low, high, count):
    asked, allowed = ({"cpu": str(amount)} for amount in (request, request + more))
    containers = pod(count, asked, allowed)
    for of_type in ("Container", "Pod"):
        (row,) = limit_range(of_type, min={"cpu": str(low)}, max={"cpu": str(high)})
        for refusal in refusals(containers, row):
            row[refusal.bound.value] = refusal.asked

        assert list(refusals(containers, row)) == []


# A plan's pods


def gpu_pods(workload, count=3, gpus="1", sidecar=None, **more):
    spec = {"containers": [{"resources": {"limits": {GPU: gpus, "cpu": "4", "memory": "16Gi"}}}]}
    if sidecar is not None:
        spec["containers"].append({"resources": {"limits": sidecar}})
    return pods(workload, count, containers=resources_of_containers(spec), **more)


def test_a_container_that_gets_a_slice_is_not_given_a_whole_gpu_by_default_as_well():
    """A maximum is the default limit where none is stated: every container without GPUs would get four of them."""
    ranges = limit_range("Container", max={GPU: "4"})

    (only,) = (
        with_preconditions(SLICED, example_facts(), standing(ranges=ranges, read=gpu_pods("prod/embed-api")))
        .actions[0]
        .preconditions
    )

    assert only.what == (
        f"set default and defaultRequest of {GPU} of a container in LimitRange abc of namespace prod to 0: it would give "
        f"containers of prod/embed-api, which ask for none of it, 4 {GPU}"
    )
    patch = json.loads(shlex.split(only.command)[-1])
    assert shlex.split(only.command)[:7] == ["kubectl", "patch", "limitrange", "abc", "-n", "prod", "--type=json"]
    assert patch == [
        {"op": "test", "path": "/spec/limits/0/type", "value": "Container"},
        {"op": "add", "path": "/spec/limits/0/default/nvidia.com~1gpu", "value": "0"},
        {"op": "add", "path": "/spec/limits/0/defaultRequest/nvidia.com~1gpu", "value": "0"},
    ]


def test_a_pod_of_a_slice_is_refused_where_each_pod_must_have_a_gpu():
    found = said(SLICED, read=gpu_pods("prod/embed-api"), ranges=limit_range("Pod", min={GPU: "1"}))

    assert found == [
        f"take min of {GPU} out of a pod in LimitRange abc of namespace prod: each new pod of prod/embed-api asks for none "
        "of it, and is refused"
    ]


@pytest.mark.parametrize(
    ("of_type", "most", "to"), [("Container", 1, None), ("Pod", 1, None), ("Pod", 0, "from 0 to 1")]
)
def test_a_maximum_of_slices_counts_slices(of_type, most, to):
    ranges = limit_range(of_type, max={SLICES: str(most)})

    found = said(SLICED, read=gpu_pods("prod/embed-api"), ranges=ranges)

    assert [to in words for words in found] == ([] if to is None else [True])


def test_an_autoscaler_makes_pods_anew_though_never_more_than_there_were():
    ranges = limit_range("Container", max={GPU: "0"})

    assert len(said(scaled(8), read=gpu_pods("prod/search-rank", 8), ranges=ranges)) == 1


def test_pods_that_are_made_anew_on_other_nodes_are_held_to_what_was_stated_after_them():
    plan, facts = moved(8)
    read = gpu_pods("prod/search-rank", 8)

    (cpu,) = said(plan, read=read, facts=facts, ranges=limit_range("Container", max={"cpu": "2"}))
    (memory,) = said(plan, read=read, facts=facts, ranges=limit_range("Container", max={"memory": "8Gi"}))

    assert cpu.startswith("raise max of cpu of a container in LimitRange abc of namespace prod from 2 cores to 4 cores")
    assert "from 8 GiB to 16 GiB: each new container of prod/search-rank asks for 16 GiB" in memory


def test_a_default_limit_that_is_younger_than_the_pods_is_told():
    """The sidecar states no memory: its next life would be held to half a GiB."""
    plan, facts = moved(8)
    read = gpu_pods("prod/search-rank", 8, sidecar={"cpu": "1"})

    (only,) = said(plan, read=read, facts=facts, ranges=limit_range("Container", default={"memory": "512Mi"}))

    assert only.startswith("state a limit of memory in the containers of prod/search-rank which have none")
    assert only.endswith("would hold each new one to 0.5 GiB")


def test_where_no_pod_was_read_gpus_are_judged_and_cpu_and_memory_are_not():
    plan, facts = moved(8)
    ranges = limit_range("Container", max={"cpu": "1", GPU: "0"}, min={"memory": "1Ti"})

    (only,) = said(plan, facts=facts, ranges=ranges)

    assert only.startswith(f"raise max of {GPU} of a container")


def test_after_the_commands_nothing_is_left_to_change(kubectl_bin, tmp_path):
    """kubectl applies each patch to the LimitRange, whose items of volumes come first."""
    volumes = {"type": "PersistentVolumeClaim", "max": {"storage": "1Ti"}}
    each = {"type": "Container", "max": {GPU: "4", SLICES: "0"}, "min": {GPU: "1"}, "default": {GPU: "1", SLICES: "0"},
            "defaultRequest": {GPU: "1", SLICES: "0"}}  # fmt: skip
    file = tmp_path / "range.json"
    file.write_text(json.dumps(manifest(volumes, each, {"type": "Pod", "min": {GPU: "1"}})))
    read = gpu_pods("prod/embed-api")

    def conditions():
        ranges = rows_of(json.loads(file.read_text()))
        plan = with_preconditions(SLICED, example_facts(), standing(ranges=ranges, read=read))
        return plan.actions[0].preconditions

    before = conditions()
    for condition in before:
        _, verb, *rest = shlex.split(condition.command)
        asked = [kubectl_bin, verb, "--local", "-f", str(file), "-o", "json", *rest[2:]]
        file.write_text(subprocess.run(asked, capture_output=True, text=True, check=True).stdout)

    assert len(before) == 4
    assert conditions() == ()


def test_part_of_a_board_is_not_taken_for_gpus_where_no_pod_was_read():
    """It asks by a name that is not known: nvidia.com/gpu.shared, a MIG slice, a claim."""
    plan, facts = moved(8)
    parts = replace(facts, workloads=tuple(replace(one, gpus_per_pod=0.25) for one in facts.workloads))

    assert said(plan, facts=parts, ranges=limit_range("Container", min={GPU: "1"})) == []
    assert said(plan, facts=parts, ranges=limit_range("Container", max={GPU: "0"})) == []


def test_what_kube_state_metrics_told_is_cured_by_an_edit_since_it_tells_no_place():
    ranges = [row | {"place": None} for row in limit_range("Pod", max={SLICES: "0"})]
    plan = with_preconditions(SLICED, example_facts(), standing(ranges=ranges))

    (only,) = plan.actions[0].preconditions

    assert only.command == "kubectl edit limitrange abc -n prod"


def test_a_limit_range_of_another_namespace_says_nothing():
    ranges = [row | {"namespace": "research"} for row in limit_range("Pod", max={SLICES: "0"})]

    assert said(SLICED, read=gpu_pods("prod/embed-api"), ranges=ranges) == []


def test_volumes_and_resources_that_no_plan_asks_for_are_left_out():
    assert limit_range("PersistentVolumeClaim", max={"storage": "1Gi"}) == []
    assert limit_range("Container", max={"ephemeral-storage": "1Gi"}) == []


def test_a_cell_that_no_collect_writes_is_refused():
    with pytest.raises(InputError, match="pods: containers holds"):
        containers_of('[{"limits": {"cpu": "much"}}]')


def test_a_limit_without_a_request_is_the_request_too():
    """An API server completes requests so before admission (pkg/apis/core/v1/defaults.go, SetDefaults_Pod)."""
    assert pod(1, NONE, C("1")) == (Container(requests={"cpu": 1.0}, limits={"cpu": 1.0}),)


def test_a_pod_row_without_containers_is_judged_by_its_gpus():
    read = pods("prod/embed-api", 3)

    assert "containers" not in POD
    assert len(said(SLICED, read=read, ranges=limit_range("Pod", min={GPU: "1"}))) == 1
