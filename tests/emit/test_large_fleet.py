"""Pages stay small where fleets are large."""

from dataclasses import replace

import numpy as np
import pytest
from tests.emit.example import TARGETS, example_audit

from trimtab.diagnose.findings import Spend
from trimtab.emit.audit_document import audit_document
from trimtab.emit.sections.audit import audit_page
from trimtab.emit.writers import html
from trimtab.plan.audit import HeatMap

WORKLOADS = 600
DEAREST_MICRO_USD = 10**9


@pytest.fixture(scope="module")
def page():
    audit = example_audit()
    names = tuple(f"team-{i % 20}/workload-{i}" for i in range(WORKLOADS))
    each, rest = divmod(audit.bill_micro_usd - DEAREST_MICRO_USD, WORKLOADS - 1)
    spend = tuple(
        Spend(
            name=name,
            micro_usd=DEAREST_MICRO_USD + rest if name == names[-1] else each,
            gpu_hours=10.0,
            activity_frac=0.2,
        )
        for name in names
    )
    large = replace(
        audit,
        spend_by_workload=spend,
        token_costs=(),
        heat_map=HeatMap(rows=names, activity_frac=np.full((WORKLOADS, 168), 0.3)),
        capacity=audit.capacity * 50,
        proof=replace(audit.proof, targets=tuple(replace(TARGETS[1], workload=name) for name in names)),
    )
    return html.write_page(audit_page(audit_document(large)))


def test_a_page_of_hundreds_of_workloads_stays_below_two_megabytes(page):
    assert len(page) < 2_000_000


def test_what_is_not_shown_is_said(page):
    assert "570 more workloads are in the JSON form of this report" in page
    assert "94 more services are in the JSON form of this report" in page


def test_the_dearest_workload_heads_the_heat_map(page):
    heat_map = page.partition('class="chart heat-map"')[2].partition("</svg>")[0]

    assert heat_map.index(f"workload-{WORKLOADS - 1}<") < heat_map.index("workload-0<")
