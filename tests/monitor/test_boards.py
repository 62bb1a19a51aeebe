"""Boards as Grafana and a stock kube-prometheus-stack see them: published types, selectors, the limit of a ConfigMap."""

import copy
import importlib
import json
import os
import subprocess
import typing

import pytest
import yaml
from pydantic import ConfigDict, TypeAdapter
from tests.monitor.fleet import WATCHED

from trimtab.monitor.boards import boards
from trimtab.monitor.folders import monitoring_files
from trimtab.monitor.watched import Thresholds

BOARDS = {board.uid: json.loads(board.text) for board in boards(WATCHED, "https://wiki.example/gpu")}
MOST_OF_A_CONFIG_MAP = 2**20
"""Bytes (kubernetes.io, ConfigMap)."""

STOCK_CHART = """\
prometheusSpec:
  {{- if .Values.prometheus.prometheusSpec.ruleSelector }}
  ruleSelector: {{ toYaml .Values.prometheus.prometheusSpec.ruleSelector | nindent 4 }}
  {{- else if .Values.prometheus.prometheusSpec.ruleSelectorNilUsesHelmValues }}
  ruleSelector:
    matchLabels:
      release: {{ $.Release.Name | quote }}
  {{- else }}
  ruleSelector: {}
  {{- end }}
  {{- if .Values.prometheus.prometheusSpec.ruleNamespaceSelector }}
  ruleNamespaceSelector: {{ toYaml .Values.prometheus.prometheusSpec.ruleNamespaceSelector | nindent 4 }}
  {{- else }}
  ruleNamespaceSelector: {}
  {{- end }}
sidecar: {{ toYaml .Values.grafana.sidecar.dashboards | nindent 2 }}
"""
"""What decides in kube-prometheus-stack: templates/prometheus/prometheus.yaml, and the settings that Grafana's chart gets."""
STOCK_VALUES = {
    "prometheus": {
        "prometheusSpec": {"ruleSelector": {}, "ruleSelectorNilUsesHelmValues": True, "ruleNamespaceSelector": {}}
    },
    "grafana": {"sidecar": {"dashboards": {"label": "grafana_dashboard", "labelValue": "1", "searchNamespace": "ALL"}}},
}
"""Its values.yaml, of these settings."""


@pytest.fixture
def sdk():
    """The dashboard types that Grafana publishes, as Python."""
    try:
        models = importlib.import_module("grafana_foundation_sdk.models.dashboard")
        plugins = importlib.import_module("grafana_foundation_sdk.cog.plugins")
    except ImportError:
        if os.environ.get("CI") == "true":
            pytest.fail("grafana-foundation-sdk is missing, and CI=true: it is in requirements/dev.txt")
        pytest.skip("grafana-foundation-sdk is missing: it is in requirements/dev.txt")
    plugins.register_default_plugins()
    return models


def encoded(value):
    """An object of the SDK as JSON has it."""
    return json.loads(json.dumps(value, default=lambda inner: inner.to_json()))


def lost(written, kept, path="$"):
    """The places whose value is not kept."""
    if isinstance(written, dict):
        found = kept if isinstance(kept, dict) else {}
        return [place for key in written for place in lost(written[key], found.get(key), f"{path}.{key}")]
    if isinstance(written, list):
        found = kept if isinstance(kept, list) else []
        found = [*found, *[None] * (len(written) - len(found))]
        return [
            place for number, item in enumerate(written) for place in lost(item, found[number], f"{path}[{number}]")
        ]
    return [] if written == kept else [path]


def mistyped(value, path="$"):
    """The fields of the SDK's objects whose values are not of the type that it states."""
    if isinstance(value, list):
        return [place for number, item in enumerate(value) for place in mistyped(item, f"{path}[{number}]")]
    if not type(value).__module__.startswith("grafana_foundation_sdk"):
        return []
    found = []
    for name, hint in typing.get_type_hints(type(value)).items():
        held = getattr(value, name, None)
        if held is None:
            continue
        try:
            TypeAdapter(hint, config=ConfigDict(arbitrary_types_allowed=True)).validate_python(held)
        except ValueError as error:
            found.append(f"{path}.{name}: {error}")
        found += mistyped(held, f"{path}.{name}")
    return found


@pytest.mark.parametrize("name", BOARDS)
def test_a_board_is_of_the_types_that_grafana_publishes(name, sdk):
    board = sdk.Dashboard.from_json(BOARDS[name])

    assert lost(BOARDS[name], encoded(board)) == [], "fields that the types do not have"
    assert mistyped(board) == []
    assert len(board.panels or []) >= 5


@pytest.mark.parametrize(
    ("runbooks", "page", "links"),
    [
        ("https://wiki.example/gpu", "", ["other boards", "what to do"]),
        ("docs/page.md", "", ["other boards"]),
        ("docs/page.md", "https://gpu-costs.example.com/", ["other boards", "the plan, in trimtab"]),
    ],
)
def test_boards_link_to_one_another_and_to_pages_where_those_are_addresses(runbooks, page, links):
    for board in boards(WATCHED, runbooks, page):
        assert [link["title"] for link in json.loads(board.text)["links"]] == links


def misspelt_query(board):
    board["panels"][0]["targets"][0]["expresion"] = "up"


def misspelt_legend(board):
    board["panels"][0]["options"]["legend"]["displaymode"] = "list"


def width_in_words(board):
    board["panels"][0]["gridPos"]["w"] = "half"


def title_of_a_number(board):
    board["title"] = 7


@pytest.mark.parametrize("mistake", [misspelt_query, misspelt_legend, width_in_words, title_of_a_number])
def test_the_published_types_tell_a_mistake(mistake, sdk):
    board = copy.deepcopy(BOARDS["fleet"])
    mistake(board)

    read = sdk.Dashboard.from_json(board)

    assert len(lost(board, encoded(read)) + mistyped(read)) == 1


@pytest.fixture
def stock(helm_bin, tmp_path):
    """What a stock kube-prometheus-stack, installed under its own name, selects."""
    (tmp_path / "templates").mkdir()
    (tmp_path / "Chart.yaml").write_text("apiVersion: v2\nname: stock\nversion: 0.0.0\n")
    (tmp_path / "values.yaml").write_text(yaml.safe_dump(STOCK_VALUES))
    (tmp_path / "templates/selectors.yaml").write_text(STOCK_CHART)
    command = [helm_bin, "template", "kube-prometheus-stack", str(tmp_path)]
    return yaml.safe_load(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def is_selected(labels, selector):
    return all(labels.get(label) == value for label, value in selector.get("matchLabels", {}).items())


def test_a_stock_kube_prometheus_stack_selects_every_rule_and_board(stock, kubectl_bin, tmp_path):
    files = monitoring_files(WATCHED, Thresholds())
    for path, text in files.items():
        (tmp_path / path).write_text(text, encoding="utf-8")

    built = subprocess.run([kubectl_bin, "kustomize", str(tmp_path)], capture_output=True, text=True, check=True)
    objects = list(yaml.safe_load_all(built.stdout))
    rules = [found for found in objects if found["kind"] == "PrometheusRule"]
    maps = [found for found in objects if found["kind"] == "ConfigMap"]

    assert len(rules) + len(maps) == len(objects)
    assert stock["prometheusSpec"]["ruleNamespaceSelector"] == {}, "rules of every namespace"
    assert rules
    assert all(is_selected(rule["metadata"]["labels"], stock["prometheusSpec"]["ruleSelector"]) for rule in rules)
    sidecar = stock["sidecar"]
    assert all(board["metadata"]["labels"][sidecar["label"]] == sidecar["labelValue"] for board in maps)
    shown = {
        json.loads(text)["uid"] for board in maps for name, text in board["data"].items() if name.endswith(".json")
    }
    assert shown == {json.loads(text)["uid"] for path, text in files.items() if path.endswith(".json")}
    assert all(len(json.dumps(board).encode()) < MOST_OF_A_CONFIG_MAP for board in maps)
