"""Workload kinds are told apart, and say why."""

from tests.fleets import FleetRows

from trimtab.fleet.build import build_fleet
from trimtab.fleet.settings import Settings
from trimtab.tables.workloads import WorkloadKind


def kind_of(rows, name):
    workload = build_fleet(rows.bundle(), Settings()).workload(name)
    return workload.kind, workload.kind_because


def held(name, **hold):
    return FleetRows(7).node("n", "p3.8xlarge").hold(name, "n", [0], **hold)


def test_what_is_declared_wins():
    rows = held("a/jupyter")
    rows.workloads = {"a/jupyter": {"kind": "batch"}}

    assert kind_of(rows, "a/jupyter") == (WorkloadKind.BATCH, "declared in workloads.yaml")


def test_request_metrics_make_a_service():
    rows = held("prod/api", owner_kind="Deployment").demand("prod/api", lambda hour: 10, 1)

    assert kind_of(rows, "prod/api")[0] is WorkloadKind.SERVING


def test_a_deployment_without_request_metrics_is_a_service_and_says_so():
    kind, because = kind_of(held("prod/api", owner_kind="Deployment"), "prod/api")

    assert kind is WorkloadKind.SERVING
    assert "no request metrics" in because


def test_a_stateful_set_without_request_metrics_may_train_and_is_named_until_its_kind_is_declared():
    rows = held("ml/finetune", owner_kind="StatefulSet")

    (note,) = build_fleet(rows.bundle(), Settings()).coverage.notes
    rows.workloads = {"ml/finetune": {"kind": "serving"}}

    assert "no request metrics were found: ml/finetune; declare `kind`" in note
    assert build_fleet(rows.bundle(), Settings()).coverage.notes == ()


def test_a_notebook_is_known_by_its_owner():
    assert kind_of(held("a/anna", owner_kind="Notebook"), "a/anna")[0] is WorkloadKind.NOTEBOOK


def test_an_evaluation_is_known_by_its_name():
    assert (
        kind_of(held("ml/weekly-eval").job("ml/weekly-eval", 1, 1, 2, 1), "ml/weekly-eval")[0]
        is WorkloadKind.EVALUATION
    )


def test_one_run_over_most_of_the_window_is_production_training():
    assert kind_of(held("ml/train").job("ml/train", 0, 0, 160, 4), "ml/train")[0] is WorkloadKind.TRAINING


def test_runs_at_the_same_time_of_day_are_batch():
    rows = held("etc/thing")
    for day in range(6):
        rows.job("etc/thing", day * 24 + 3, day * 24 + 3, day * 24 + 5, 1)

    assert kind_of(rows, "etc/thing")[0] is WorkloadKind.BATCH


def test_irregular_runs_are_experiments():
    rows = held("etc/thing")
    for submit in (1, 17, 29, 55, 80):
        rows.job("etc/thing", submit, submit + 1, submit + 4, 1)

    assert kind_of(rows, "etc/thing")[0] is WorkloadKind.EXPERIMENT
