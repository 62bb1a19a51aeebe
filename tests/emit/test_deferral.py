"""Runs that wait for an hour: a queue and two timetables, as an API server takes them."""

from tests.emit.cluster_example import example_facts
from tests.emit.example import action, evidence
from tests.emit.validity import CRDS, schema_faults

from trimtab.deployment.effects import DeferRuns
from trimtab.emit.manifests.cron_files import deferral_objects
from trimtab.levers import schedule
from trimtab.plan.model import Risk
from trimtab.policies.deferral import DeferPolicy

SUBJECT = "eval/weekly-eval"


def objects(hour=22, within_s=8 * 3600):
    effect = DeferRuns(policy=DeferPolicy(start_hour=hour, within_s=within_s), startup_s=300.0)
    seen = (evidence("slack", "8 h", "declared"),)
    one = action(
        "a4", schedule.NAME, SUBJECT, 100.0, {SUBJECT: effect}, weeks=0.5, risk=Risk.LOW, quarter=1, seen=seen,
        rollback="open the queue",
    )  # fmt: skip
    return deferral_objects(one, effect, example_facts().workload(SUBJECT))


def turns(*arguments):
    return [(one["spec"]["schedule"], one["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"][0]["args"][-1])
            for one in objects(*arguments) if one["kind"] == "CronJob"]  # fmt: skip


def test_the_queue_closes_as_early_as_runs_may_wait_and_opens_at_the_hour():
    assert turns() == [
        ("0,10 14 * * *", '--patch={"spec":{"stopPolicy":"Hold"}}'),
        ("0,10 22 * * *", '--patch={"spec":{"stopPolicy":"None"}}'),
    ]


def test_a_queue_that_opens_after_midnight_closes_the_day_before():
    assert [when for when, _ in turns(2, 7 * 3600 + 1800)] == ["30,40 18 * * *", "0,10 2 * * *"]


def test_a_queue_that_holds_runs_all_day_opens_for_an_hour():
    """Closed and opened in the same minute, as it was written before, it would let in whatever came last."""
    assert [when for when, _ in turns(22, 24 * 3600)] == ["0,10 23 * * *", "0,10 22 * * *"]


def test_only_this_queue_may_be_changed():
    (role,) = [one for one in objects() if one["kind"] == "Role"]
    (queue,) = [one for one in objects() if one["kind"] == "LocalQueue"]
    assert role["rules"] == [
        {
            "apiGroups": ["kueue.x-k8s.io"],
            "resources": ["localqueues"],
            "resourceNames": [queue["metadata"]["name"]],
            "verbs": ["get", "patch"],
        }
    ]


def test_the_objects_are_valid(shared_dir):
    schemas = shared_dir / "data" / "k8s-schemas"
    for one in objects():
        if (one["apiVersion"], one["kind"]) in CRDS:
            assert schema_faults(one, schemas) == []
