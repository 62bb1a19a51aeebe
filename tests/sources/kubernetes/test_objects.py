import contextlib
import json

import pytest
from hypothesis import given, strategies as st
from tests.kube_cluster import cluster, dump, node, pod

from trimtab.errors import InputError
from trimtab.sources.kubernetes.cluster_objects import budget_rows, volume_rows
from trimtab.sources.kubernetes.objects import KINDS, Objects, json_documents, quantity, read_dumps, selects


@pytest.mark.parametrize(
    ("text", "number"),
    [("8", 8.0), (8, 8.0), ("250m", 0.25), ("64Gi", 64 * 2.0**30), ("1e3", 1000.0), ("1.5k", 1500.0), (".5", 0.5)],
)
def test_quantities_are_read_as_kubernetes_writes_them(text, number):
    assert quantity(text) == pytest.approx(number)


@pytest.mark.parametrize("text", ["", "lots", "8 GPUs", "-1", None, True, [], "1Zi", "1e999"])
def test_what_is_no_quantity_is_none_and_not_zero(text):
    assert quantity(text) is None


@given(st.text())
def test_no_text_breaks_the_reader_of_quantities(text):
    found = quantity(text)
    assert found is None or found >= 0


def test_a_list_and_single_objects_are_read_alike(tmp_path):
    one = tmp_path / "list"
    many = tmp_path / "many"
    for folder in (one, many):
        folder.mkdir()
    (one / "all.json").write_text(json.dumps(dump()))
    for number, item in enumerate(cluster()):
        (many / f"{number}.json").write_text(json.dumps(item))

    together, apart = read_dumps([one]), read_dumps([many])

    assert together.by_kind == apart.by_kind
    assert together.counts == apart.counts


def test_objects_one_after_another_in_a_file_are_all_read(tmp_path):
    file = tmp_path / "stream.json"
    file.write_text(json.dumps(node("a")) + "\n" + json.dumps(node("b")))

    assert [one["metadata"]["name"] for one in read_dumps([file]).of("Node")] == ["a", "b"]


def test_yaml_dumps_are_read_too(tmp_path):
    file = tmp_path / "nodes.yaml"
    file.write_text(
        "apiVersion: v1\nkind: Node\nmetadata:\n  name: a\n---\napiVersion: v1\nkind: Node\nmetadata: {name: b}\n"
    )

    assert len(list(read_dumps([file]).of("Node"))) == 2


def test_the_items_of_a_typed_list_may_leave_their_kind_out():
    objects = Objects()
    bare = {key: value for key, value in pod("p", "n").items() if key not in ("kind", "apiVersion")}
    objects.take({"kind": "PodList", "apiVersion": "v1", "items": [bare]})

    assert len(list(objects.of("Pod"))) == 1


@pytest.mark.parametrize(
    ("content", "part"),
    [
        ("", "is empty"),
        ('{"kind": "List", "items": [', "line 1: not JSON"),
        ("NAME READY\nchat 1/1", "is a table"),
        ('{"kind": "Pod"}\n{"kind": ', "line 2"),
    ],
)
def test_a_file_that_is_cut_short_names_itself_the_line_and_the_cure(tmp_path, content, part):
    file = tmp_path / "dump.json"
    file.write_text(content)

    with pytest.raises(InputError, match=r"dump\.json") as raised:
        read_dumps([file])

    assert part in str(raised.value)


def test_a_folder_without_dumps_says_how_to_write_one(tmp_path):
    with pytest.raises(InputError, match="kubectl get"):
        read_dumps([tmp_path])


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["kind", "items", "metadata", "name", "namespace", "apiVersion", "spec"])
            | st.text(max_size=4),
            inner,
            max_size=5,
        )
    ),
    max_leaves=20,
)


@given(st.lists(_json, max_size=5))
def test_no_object_is_lost_without_a_reason(documents):
    objects = Objects()
    for document in documents:
        objects.take(document)

    assert objects.kept + sum(objects.counts.values()) == objects.read


@given(st.text(max_size=60))
def test_no_text_breaks_the_json_reader(text):
    with contextlib.suppress(InputError):
        list(json_documents(text, "a text"))


def test_every_kind_of_the_small_cluster_is_known_but_one():
    kinds = {one["kind"] for one in cluster()}

    assert kinds - set(KINDS) == {"ConfigMap"}


def test_a_claim_made_with_its_pod_is_mounted_by_it(tmp_path):
    """Kubernetes names the claim of a generic ephemeral volume after pod and volume."""
    meta = {"namespace": "ml", "name": "train-0"}
    spec = {"volumes": [{"name": "scratch", "ephemeral": {"volumeClaimTemplate": {}}}]}
    mounting = {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}
    claims = [
        {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"namespace": "ml", "name": name}}
        for name in ("train-0-scratch", "other")
    ]
    file = tmp_path / "all.json"
    file.write_text(json.dumps({"kind": "List", "items": [mounting, *claims]}))

    rows = volume_rows(read_dumps([file]), {("ml", "train-0"): "ml/train"})

    assert {row["name"]: row["workload"] for row in rows} == {"train-0-scratch": "ml/train", "other": None}


@pytest.mark.parametrize(
    ("selector", "taken"),
    [
        (None, False),
        ({}, True),
        ({"matchLabels": {"app": "chat"}}, True),
        ({"matchLabels": {"app": "chat", "tier": "gpu"}}, False),
        ({"matchExpressions": [{"key": "app", "operator": "In", "values": ["chat", "embed"]}]}, True),
        ({"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["chat"]}]}, False),
        ({"matchExpressions": [{"key": "tier", "operator": "NotIn", "values": ["gpu"]}]}, True),
        ({"matchExpressions": [{"key": "app", "operator": "Exists"}]}, True),
        ({"matchExpressions": [{"key": "app", "operator": "DoesNotExist"}]}, False),
        ({"matchLabels": {"app": "chat"}, "matchExpressions": [{"key": "tier", "operator": "Exists"}]}, False),
    ],
)
def test_a_selector_takes_what_meets_its_labels_and_its_expressions(selector, taken):
    """kubernetes.io, "Labels and Selectors"; NotIn takes what lacks the label too."""
    assert selects(selector, {"app": "chat"}) is taken


def test_a_budget_that_selects_by_expressions_is_of_the_workload_that_it_selects(tmp_path):
    meta = {"namespace": "ml", "name": "chat-0", "labels": {"app": "chat"}}
    selector = {"matchExpressions": [{"key": "app", "operator": "In", "values": ["chat"]}]}
    items = [
        {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": {}},
        {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": {"namespace": "ml", "name": "keep"},
            "spec": {"selector": selector},
        },
    ]
    file = tmp_path / "all.json"
    file.write_text(json.dumps({"kind": "List", "items": items}))

    (row,) = budget_rows(read_dumps([file]), {("ml", "chat-0"): "ml/chat"})

    assert row["workload"] == "ml/chat"
