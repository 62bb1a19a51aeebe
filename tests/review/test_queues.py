"""Runs that wait in Kueue for quota: which are let in, when, and what a review says of them.

Orders and blocking are those of Kueue v0.19.2's own words (site/content/en/docs/concepts/cluster_queue.md, Queueing strategy),
and what exceeds a flavor's capacity that of pkg/scheduler/flavorassigner/flavorassigner_test.go ("> maximum capacity").
"""

import numpy as np
import pytest
import yaml
from hypothesis import given, strategies as st
from tests.emit.cluster_example import example_facts
from tests.fleets import FleetRows
from tests.review.test_emitted import of_effect
from tests.review.test_review import nightly_runs as nightly_runs, on_pool, reviewed, stops

from trimtab.deployment.effects import DeferRuns
from trimtab.emit.manifests.cron_files import cluster_queue_objects, deferral_objects
from trimtab.policies.deferral import DeferPolicy
from trimtab.review import read_objects
from trimtab.review.queues import Admission, QueuedRuns, admit, deferral_of


def runs(*each):
    return QueuedRuns(*(np.array(column, dtype=float) for column in zip(*each, strict=True)))


def alone(waiting, quotas, *, strict):
    """The waits in one queue of no cohort."""
    (found,) = admit([(waiting, Admission.of(quotas, strict=strict))])
    return found.waits_s


def test_older_runs_that_do_not_fit_block_newer_ones_in_strict_order_alone():
    waiting = runs((0, 10, 3), (1, 10, 3), (2, 4, 1))

    assert alone(waiting, [4.0], strict=True).tolist() == [0, 9, 8]
    assert alone(waiting, [4.0], strict=False).tolist() == [0, 9, 0]


def test_a_run_takes_the_first_flavor_that_has_room_and_never_two():
    waiting = runs((0, 10, 4), (0, 10, 4), (0, 10, 5))

    assert alone(waiting, [4.0, 4.0], strict=False).tolist() == [0, 0, np.inf]


def test_a_run_larger_than_the_capacity_is_never_let_in_and_blocks_a_strict_queue_for_good():
    waiting = runs((0, 10, 9), (1, 10, 1))

    assert alone(waiting, [4.0], strict=False).tolist() == [np.inf, 0]
    assert alone(waiting, [4.0], strict=True).tolist() == [np.inf, np.inf]


RUN = st.tuples(st.integers(0, 50), st.integers(1, 20), st.integers(1, 6))


@given(st.lists(RUN, min_size=1, max_size=25), st.integers(6, 12), st.booleans())
def test_never_more_than_the_quota_runs_at_once_and_all_are_let_in(each, quota, strict):
    waiting = runs(*each)

    starts = waiting.submit_s + alone(waiting, [float(quota)], strict=strict)

    assert np.isfinite(starts).all()
    for now in starts:
        at_work = (starts <= now) & (now < starts + waiting.run_s)
        assert waiting.gpus[at_work].sum() <= quota


@given(st.lists(RUN, min_size=1, max_size=20))
def test_no_run_waits_where_the_quota_is_all_that_is_ever_asked_for(each):
    waiting = runs(*each)

    assert not alone(waiting, [float(waiting.gpus.sum())], strict=True).any()


JOB = """
apiVersion: batch/v1
kind: Job
metadata: {name: nightly, namespace: lab, labels: {kueue.x-k8s.io/queue-name: nights}}
spec:
  template:
    spec:
      nodeSelector: {karpenter.sh/nodepool: gpus}
      tolerations: [{key: nvidia.com/gpu, operator: Exists}]
      containers: [{name: train, resources: {limits: {nvidia.com/gpu: 1}}}]
---
apiVersion: kueue.x-k8s.io/v1beta1
kind: LocalQueue
metadata: {name: nights, namespace: lab}
spec: {clusterQueue: team}
"""
QUEUE = """
---
apiVersion: kueue.x-k8s.io/v1beta1
kind: ClusterQueue
metadata: {name: team}
spec:
  %s
  resourceGroups:
  - coveredResources: ["cpu", "nvidia.com/gpu"]
    flavors:
    - name: any
      resources: [{name: cpu, nominalQuota: 64}, {name: nvidia.com/gpu, nominalQuota: %s}]
"""


def queued(quota, said="queueingStrategy: BestEffortFIFO"):
    return JOB + QUEUE % (said, quota) + "---" + on_pool().partition("---")[2]


def test_runs_within_their_quota_wait_for_nothing(nightly_runs):
    found = reviewed(nightly_runs, queued(1))

    assert stops(found) == []
    assert not any("quota" in fault.what for fault in found.findings)
    assert found.unread == ()


@pytest.fixture(scope="module")
def three_at_once():
    """Three runs of eight GPUs on the hour of every noon, each on one of three nodes that stay up."""
    rows = FleetRows(days=7)
    for node in range(3):
        name = f"n{node}"
        rows.node(name, "p4d.24xlarge").hold("lab/nightly", name, range(8), owner_kind="Job")
        for day in range(7):
            start = 24.0 * day + 12
            rows.use("lab/nightly", name, 0, range(24 * day + 12, 24 * day + 16), sm=0.9)
            rows.job("lab/nightly", start, start, start + 4, 8, name=f"{name}-{day}")
    rows.workloads = {
        "lab/nightly": {"kind": "batch", "targets": [{"metric": "queue_wait", "quantile": 0.9, "limit_s": 1800}]}
    }
    return rows.bundle()


@pytest.mark.parametrize(("gpus", "waiting", "kept_frac"), [(24, 0, 1.0), (23, 7, 2 / 3), (15, 14, 1 / 3)])
def test_runs_wait_for_the_limit_of_their_node_pool(three_at_once, gpus, waiting, kept_frac):
    job = JOB.partition("\n---")[0].replace("nvidia.com/gpu: 1}", "nvidia.com/gpu: 8}")
    text = job + "\n---" + on_pool(types="p4d.24xlarge", limit=gpus).partition("---")[2]

    found = reviewed(three_at_once, text.replace(", labels: {kueue.x-k8s.io/queue-name: nights}", ""))

    said = [fault.what for fault in found.findings if "wait for the limit of node pool gpus" in fault.what]
    assert [what.partition(" ")[0] for what in said] == ([str(waiting)] if waiting else [])
    (run,) = found.workloads
    assert run.targets[0].after_frac == pytest.approx(kept_frac)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (queued(0), "7 of 7 runs never get the quota"),
        (queued(1, "stopPolicy: Hold"), "is stopped"),
        (queued(1).replace("nvidia.com/gpu, nominal", "example.com/gpu, nominal"), "has no quota of nvidia.com/gpu"),
    ],
)
def test_runs_that_are_never_let_in_are_said(nightly_runs, text, said):
    assert any(said in what for what in stops(reviewed(nightly_runs, text)))


def test_the_runs_of_a_cron_job_wait_in_the_queue_that_its_template_names():
    """As in Kueue's own example: its site/static/examples/jobs/sample-cronjob.yaml labels `jobTemplate`, which Jobs inherit."""
    labels = {"labels": {"kueue.x-k8s.io/queue-name": "user-queue"}}
    pod = {"containers": [{"name": "one", "resources": {"limits": {"nvidia.com/gpu": "1"}}}]}
    spec = {"schedule": "* * * * *", "jobTemplate": {"metadata": labels, "spec": {"template": {"spec": pod}}}}
    body = {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": {"name": "nightly", "namespace": "lab"},
        "spec": spec,
    }
    outside = {**body, "metadata": {**body["metadata"], **labels}, "spec": {**spec, "jobTemplate": {"spec": {}}}}

    assert read_objects([("cron.yaml", body)]).pods["lab/nightly"].queue == "user-queue"
    assert read_objects([("cron.yaml", outside)]).pods["lab/nightly"].queue == ""


def test_a_queue_that_is_not_among_the_objects_is_named(nightly_runs):
    (run,) = reviewed(nightly_runs, queued(1).replace("clusterQueue: team", "clusterQueue: elsewhere")).workloads

    assert any("ClusterQueue elsewhere, which is not among these objects" in note for note in run.notes)


@pytest.mark.parametrize(
    ("preemption", "listed"),
    [
        ("{withinClusterQueue: LowerPriority, reclaimWithinCohort: Never}", []),
        ("{reclaimWithinCohort: Any}", ["ClusterQueue team: preemption.reclaimWithinCohort"]),
        ("{borrowWithinCohort: {policy: LowerPriority}}", ["ClusterQueue team: preemption.borrowWithinCohort"]),
    ],
)
def test_what_of_a_queue_is_not_modelled_is_listed(nightly_runs, preemption, listed):
    found = reviewed(nightly_runs, queued(1, f"preemption: {preemption}"))

    assert [one.what for one in found.unread] == listed


# name -> priorities and sizes at work, those of the run that comes, and who is taken back for it; the quota is 6
PREEMPTIONS = {
    "preempt lowest priority": ({"low": (-1, 2), "mid": (0, 2), "high": (1, 2)}, (1, 2), {"low"}),
    "preempt multiple": ({"low": (-1, 2), "mid": (0, 2), "high": (1, 2)}, (1, 3), {"low", "mid"}),
    "no preemption for low priority": ({"low": (-1, 3), "mid": (0, 3)}, (-1, 1), set()),
    "not enough low priority workloads": ({"low": (-1, 3), "mid": (0, 3)}, (0, 4), set()),
    "some free quota, preempt low priority": ({"low": (-1, 1), "mid": (0, 1), "high": (1, 3)}, (1, 2), {"low"}),
    "minimal set excludes low priority": ({"low": (-1, 1), "mid": (0, 2), "high": (1, 3)}, (1, 2), {"mid"}),
}


@pytest.mark.parametrize("case", PREEMPTIONS)
def test_runs_are_taken_back_for_those_of_higher_priority_as_in_kueue(case):
    """kubernetes-sigs/kueue v0.19.2, pkg/scheduler/preemption/preemption_test.go, `TestPreemption`."""
    at_work, (priority, gpus), taken_back = PREEMPTIONS[case]
    queue = Admission.of([6.0], strict=False, preempts="LowerPriority")
    lines = [(runs((0, 100, size))._replace(priority=each), queue) for each, size in at_work.values()]

    *old, new = admit([*lines, (runs((10, 100, gpus))._replace(priority=priority), queue)])

    assert {name for name, part in zip(at_work, old, strict=True) if part.lost_s[0]} == taken_back
    assert {part.lost_s[0] for part in old} <= {0.0, 10.0}
    assert (new.waits_s[0] == 0) == bool(taken_back)


@pytest.mark.parametrize(
    ("preempts", "waits", "lost"), [("LowerOrNewerEqualPriority", 10, 4), ("LowerPriority", 105, 0)]
)
def test_newer_runs_of_equal_priority_are_taken_back_where_the_queue_says_so(preempts, waits, lost):
    """The same file, "preempt newer workloads with the same priority": of two newer ones the one let in last."""
    queue = Admission.of([6.0], strict=False, preempts=preempts)
    high, older = runs((0, 20, 3))._replace(priority=2), runs((10, 50, 4))._replace(priority=1)
    newer = runs((15, 100, 1), (16, 100, 2))._replace(priority=1)

    _, first, later = admit([(high, queue), (older, queue), (newer, queue)])

    assert (first.waits_s.tolist(), later.lost_s.tolist()) == ([waits], [0, lost])


def test_a_higher_priority_stands_before_older_runs_in_its_queue():
    """Kueue v0.19.2, cluster_queue.md: "by priority first, and then by creation time"."""
    queue = Admission.of([2.0], strict=True)
    low, high = runs((0, 10, 2), (1, 10, 2)), runs((2, 10, 2))._replace(priority=5)

    first, second = admit([(low, queue), (high, queue)])

    assert (first.waits_s.tolist(), second.waits_s.tolist()) == ([0, 19], [8])


@pytest.fixture
def nights_and_urgent_runs():
    """A run of four hours every night at two, and another of one hour every night at three."""
    rows = FleetRows(7).node("n0", "g5.xlarge").node("n1", "g5.xlarge")
    for name, node, start, end in (("nightly", "n0", 2, 6), ("urgent", "n1", 3, 4)):
        rows.hold(f"lab/{name}", node, [0], owner_kind="Job")
        for day in range(7):
            rows.use(f"lab/{name}", node, 0, range(24 * day + start, 24 * day + end), sm=0.9)
            begins, ends = 24.0 * day + start, 24.0 * day + end
            rows.job(f"lab/{name}", begins, begins, ends, 1, name=f"{name}-{day}")
        rows.workloads |= {f"lab/{name}": {"kind": "batch"}}
    return rows.bundle()


PRIORITY = """
---
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {name: above}
value: 100
---
apiVersion: kueue.x-k8s.io/v1beta1
kind: WorkloadPriorityClass
metadata: {name: urgent}
value: 100
"""


@pytest.mark.parametrize(
    ("says", "policy", "taken_back"),
    [
        ("labels: {kueue.x-k8s.io/priority-class: urgent, ", "LowerPriority", True),
        ("labels: {kueue.x-k8s.io/priority-class: urgent, ", "Never", False),
        ("labels: {", "LowerPriority", False),
    ],
)
def test_what_is_taken_back_is_said_with_the_work_that_it_loses(nights_and_urgent_runs, says, policy, taken_back):
    urgent = JOB.partition("---")[0].replace("name: nightly,", "name: urgent,").replace("labels: {", says)
    said = queued(1, f"preemption: {{withinClusterQueue: {policy}}}") + "---" + urgent + PRIORITY

    found = reviewed(nights_and_urgent_runs, said)

    lines = [fault.what for fault in found.findings if "preempted" in fault.what]
    assert [line.partition(" for")[0] for line in lines] == (["7 of 7 runs are preempted"] if taken_back else [])
    assert all("after 7 h of work in all" in line for line in lines)


def test_a_priority_that_no_object_here_says_is_noted(nights_and_urgent_runs):
    said = queued(1, "preemption: {withinClusterQueue: LowerPriority}")
    found = reviewed(
        nights_and_urgent_runs, said.replace("labels: {", "labels: {kueue.x-k8s.io/priority-class: gone, ")
    )

    (run,) = [each for each in found.workloads if each.workload == "lab/nightly"]
    assert "priority class gone is not among these objects: taken as 0 in its queue" in run.notes


# cohorts and queues as (name, cohort above, nominal, borrowing, lending), and what each queue can have
TREES = {
    "base cqs": ([], [("cq1", "", 0, None, None), ("cq2", "", 5, None, None)], {"cq1": 0, "cq2": 5}),
    "cqs with cohort": (
        [("cohort", "", 10, None, None)],
        [("cq1", "cohort", 10, None, None), ("cq2", "cohort", 10, None, 9)],
        {"cq1": 29, "cq2": 30},
    ),
    "cq borrows from cohort": ([("cohort", "", 10, None, None)], [("cq1", "cohort", 10, None, None)], {"cq1": 20}),
    "cq oversubscription spills into cohort": (
        [("cohort", "", 10, None, None)],
        [("cq1", "cohort", 10, None, None), ("cq2", "cohort", 10, 0, 0)],
        {"cq1": 20, "cq2": 10},
    ),
    "lending and borrowing limits respected": (
        [("cohort", "", 10, None, None)],
        [("cq1", "cohort", 10, None, None), ("cq2", "cohort", 10, 2, None), ("cq3", "cohort", 10, None, 5)],
        {"cq1": 35, "cq2": 12, "cq3": 40},
    ),
    "hierarchical cohort": (
        [("root", "", 0, None, None), ("left", "root", 10, None, None), ("right", "root", 10, None, None)],
        [("cq1", "left", 10, None, None), ("cq2", "right", 10, None, 0)],
        {"cq1": 30, "cq2": 40},
    ),
    "hierarchical cohort respects borrowing limit": (
        [("root", "", 0, None, None), ("left", "root", 10, 5, None), ("right", "root", 10, None, None)],
        [("left-cq1", "left", 10, None, None), ("left-cq2", "left", 10, 5, None), ("right-cq", "right", 10, None, None)],
        {"left-cq1": 35, "left-cq2": 15, "right-cq": 50},
    ),
    "hierarchical cohort respects lending limit": (
        [("root", "", 0, None, None), ("left", "root", 0, None, 5), ("right", "root", 0, None, None)],
        [
            ("left-cq1", "left", 10, None, 5), ("left-cq2", "left", 10, None, None),
            ("right-cq", "right", 0, None, None), ("root-cq", "root", 0, None, None),
        ],
        {"left-cq1": 20, "left-cq2": 15, "right-cq": 5, "root-cq": 5},
    ),
}  # fmt: skip
# the same trees with some of it in use, and what each then still has
USED = {
    "cqs with cohort": ({"cq1": 1, "cq2": 0.5}, {"cq1": 28, "cq2": 28.5}),
    "cq borrows from cohort": ({"cq1": 11}, {"cq1": 9}),
    "cq oversubscription spills into cohort": ({"cq1": 31}, {"cq1": 0, "cq2": 0}),
    "lending and borrowing limits respected": ({"cq1": 20, "cq2": 10, "cq3": 6}, {"cq1": 4, "cq2": 2, "cq3": 4}),
    "hierarchical cohort": ({"cq1": 10, "cq2": 5}, {"cq1": 20, "cq2": 25}),
}


def admissions_of(cohorts, queues):
    """Queues and cohorts of GPUs, read from their objects."""
    limits = ("nominalQuota", "borrowingLimit", "lendingLimit")
    found = []
    for kind, above, each in (("Cohort", "parentName", cohorts), ("ClusterQueue", "cohortName", queues)):
        for name, parent, *quota in each:
            resource = {
                "name": "nvidia.com/gpu",
                **{key: value for key, value in zip(limits, quota, strict=False) if value is not None},
            }
            groups = [{"flavors": [{"name": "red", "resources": [resource]}]}]
            spec = {above: parent, "resourceGroups": groups}
            found.append(("a.yaml", {"kind": kind, "metadata": {"name": name}, "spec": spec}))
    return read_objects(found).queues.admissions()


@pytest.mark.parametrize("case", TREES)
def test_a_tree_of_cohorts_lends_and_borrows_as_in_kueue(case):
    """`TestAvailable` of Kueue v0.19.2, pkg/cache/scheduler/resource_test.go: before, in and after use."""
    cohorts, queues, potential = TREES[case]
    found = admissions_of(cohorts, queues)

    def left():
        return {name: one.quotas[0].available() for name, one in found.items()}

    assert left() == potential
    in_use, expected = USED.get(case, ({}, potential))
    for name, gpus in in_use.items():
        found[name].quotas[0].take(gpus)
    # it never goes below none: Kueue's own numbers of a queue that uses more than there is
    assert {name: max(0, gpus) for name, gpus in left().items()} == expected
    for name, gpus in in_use.items():
        found[name].quotas[0].give_back(gpus)
    assert left() == potential


def test_gpus_that_one_queue_of_a_cohort_borrows_are_gone_for_the_other():
    queues = admissions_of([], [("team", "all", 4, None, None), ("other", "all", 4, None, None)])
    long, late = runs((0, 100, 8)), runs((1, 10, 4))

    found = admit([(long, queues["team"]), (late, queues["other"])])

    assert [part.waits_s.tolist() for part in found] == [[0], [99]]


def test_of_two_queues_the_run_that_borrows_nothing_is_let_in_first():
    queues = admissions_of([], [("team", "all", 2, None, None), ("other", "all", 4, None, None)])
    borrows, within = runs((0, 10, 4)), runs((0, 10, 4))

    found = admit([(borrows, queues["team"]), (within, queues["other"])])

    assert [part.waits_s.tolist() for part in found] == [[10], [0]]


def test_a_flavor_says_on_which_nodes_its_runs_go(nightly_runs):
    flavor = """
---
apiVersion: kueue.x-k8s.io/v1beta1
kind: ResourceFlavor
metadata: {name: any}
spec: {nodeLabels: {karpenter.sh/nodepool: gpus}, tolerations: [{key: nvidia.com/gpu, operator: Exists}]}
"""
    bare = (
        queued(1)
        .replace("      nodeSelector: {karpenter.sh/nodepool: gpus}\n", "")
        .replace("      tolerations: [{key: nvidia.com/gpu, operator: Exists}]\n", "", 1)
    )

    with_flavor, selected = reviewed(nightly_runs, bare + flavor), reviewed(nightly_runs, queued(1))

    assert stops(with_flavor) == []
    assert with_flavor.after_micro_usd == selected.after_micro_usd


@pytest.mark.parametrize("policy", [DeferPolicy(2, 6 * 3600), DeferPolicy(22, 21300), DeferPolicy(0, 23 * 3600)])
def test_an_emitted_deferral_is_read_as_the_policy_that_was_replayed(policy):
    effect, known = DeferRuns(policy=policy, startup_s=300.0), example_facts().workload("research/vision-exp")
    objects = (*deferral_objects(of_effect(effect), effect, known), *cluster_queue_objects([of_effect(effect)], 8))

    found = read_objects(("emitted.yaml", one) for one in yaml.safe_load_all(yaml.safe_dump_all(objects)))

    ((_, turns),) = found.queues.turns.items()
    assert deferral_of(turns) == policy
    assert found.unread == []
    assert not found.pods


def test_a_queue_that_opens_at_night_holds_its_runs_until_then(nightly_runs):
    # runs come at two in the morning, and the queue opens at four
    turn = """
---
apiVersion: batch/v1
kind: CronJob
metadata: {name: %s, namespace: lab}
spec:
  schedule: "%s"
  jobTemplate:
    spec:
      template:
        spec:
          containers:
          - args: [patch, localqueues.kueue.x-k8s.io, nights, --type=merge, '--patch={"spec":{"stopPolicy":"%s"}}']
"""
    turns = turn % ("open", "0,10 4 * * *", "None") + turn % ("close", "0 20 * * *", "Hold")

    found = reviewed(nightly_runs, queued(1) + turns)

    (run,) = found.workloads
    assert any("hold runs until 04:00" in change for change in run.changes)


def test_a_queue_that_opens_every_other_day_is_not_guessed():
    assert "not those of one hour of every day" in deferral_of({"None": -1, "Hold": 0})


@pytest.mark.parametrize(("default", "priority"), [("true", 100.0), ("false", 0.0)])
def test_runs_without_a_class_have_the_priority_of_the_default_one(default, priority):
    """Kueue v0.19.2, pkg/util/priority/priority.go, `getDefaultPriority`."""
    said = queued(1) + PRIORITY.replace("value: 100\n---", f"value: 100\nglobalDefault: {default}\n---")
    found = read_objects(("a.yaml", document) for document in yaml.safe_load_all(said) if document)

    assert found.queue_priority_of(found.pods["lab/nightly"]) == priority
