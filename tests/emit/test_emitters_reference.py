"""The reference page of the emitters is what the code says, and walks every effect and series."""

from itertools import product
from pathlib import Path
from typing import get_args

import yaml
from tests.emit.cluster_example import example_facts
from tests.emit.test_manifests import PLAN, forecasting

from trimtab.deployment.effects import Effect
from trimtab.emit.emitters_reference import SERIES, WRITTEN, emitters_page
from trimtab.emit.manifests.facts import Autoscaler
from trimtab.emit.manifests.plan_files import emit_plan

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "emitters.md"


def test_the_page_is_what_the_code_says():
    assert PAGE.read_text(encoding="utf-8") == emitters_page(), (
        "run python -m trimtab.emit.emitters_reference > docs/reference/emitters.md"
    )


def test_every_effect_says_what_it_becomes():
    assert set(WRITTEN) == set(get_args(Effect))


def test_every_recorded_series_has_its_meaning():
    recorded = set()
    for plan, autoscaler in product((PLAN, forecasting()), Autoscaler):
        for file in emit_plan(plan, example_facts(autoscaler)).files:
            if file.kind == "PrometheusRule":
                groups = yaml.safe_load(file.text)["spec"]["groups"]
                recorded |= {rule["record"] for rule in groups[0]["rules"]}

    assert recorded == set(SERIES)


def test_no_key_of_the_cluster_file_lacks_its_meaning():
    assert "|  |" not in emitters_page()
