"""What a notebook shows: the report's own tables, harmless whatever names hold."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.emit.example import example_audit
from tests.web.fleet import rows

from trimtab.emit.notebook import notebook_html
from trimtab.policies.scaling import StaticReplicas
from trimtab.replay.compare import PolicyRun, compare
from trimtab.replay.services import ServiceHistory, ServiceModel
from trimtab.tables.bundle import read_bundle, write_bundle


@pytest.fixture(scope="module")
def audit():
    return example_audit()


def test_a_plan_is_shown_with_a_row_an_action(audit):
    view = audit.plan._repr_html_()

    assert view.count("<tr>") == 1 + len(audit.plan.actions)
    assert all(f"<code>{action.id}</code>" in view for action in audit.plan.actions)


def test_a_proof_says_of_each_target_whether_it_is_kept(audit):
    view = audit.proof._repr_html_()

    assert view.count("<tr>") == 1 + len(audit.proof.targets)
    assert view.count(">kept<") == sum(target.kept for target in audit.proof.targets)


def test_an_audit_is_shown_by_its_headline_spending_plan_and_proof(audit):
    view = audit._repr_html_()

    assert "The bill is" in view
    assert all(f">{title}</h2>" in view for title in ("Where the money goes", "The plan", "The proof"))
    assert "Rollback" not in view


def test_a_fleet_is_shown_with_its_tables_alike_in_memory_and_on_disk(tmp_path: Path):
    bundle = rows().bundle()
    write_bundle(tmp_path / "fleet", bundle.tables, bundle.meta, bundle.workloads)

    view = bundle._repr_html_()

    assert f"{bundle.table('gpu_usage').num_rows:,}" in view
    assert read_bundle(tmp_path / "fleet")._repr_html_() == view


def test_a_replayed_policy_is_shown_with_what_it_costs_and_keeps():
    history = ServiceHistory(arrivals=np.full(240, 60.0), step_s=60)
    model = ServiceModel(
        capacity_req_s=1.0,
        load_grid=np.array([0.0, 1.0]),
        ok_frac=np.array([[1.0, 1.0]]),
        wait_limit_s=np.array([30.0]),
        cold_start_s=60.0,
    )

    (run,) = compare(history, model, {"two always": StaticReplicas(replicas=2)}, required_frac=np.array([0.95]))

    assert isinstance(run, PolicyRun)
    assert "two always" in run._repr_html_()


def test_names_that_hold_markup_are_shown_as_text(audit):
    action = replace(audit.plan.actions[0], subject="<script>alert(1)</script>\u202e")

    view = replace(audit.plan, actions=(action,))._repr_html_()

    assert "<script>" not in view
    assert "\u202e" not in view


def test_a_value_without_a_view_is_a_fault():
    with pytest.raises(TypeError, match="no view"):
        notebook_html(3)
