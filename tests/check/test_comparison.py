"""What applying a folder would change, against objects as a cluster gives them back."""

import yaml

from trimtab.check import Cluster, ObjectChange, differences
from trimtab.check.documents import read_folder

POOL = {
    "apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "gpus", "labels": {"a": "b"}},
    "spec": {"limits": {"cpu": "1000m"}, "template": {"spec": {"taints": [{"key": "x", "effect": "NoSchedule"}]}}},
}  # fmt: skip


def held(tmp_path, *objects):
    (tmp_path / "all.yaml").write_text(yaml.safe_dump_all(objects), encoding="utf-8")
    return read_folder(tmp_path)


def there(*objects):
    cluster = Cluster()
    for one in objects:
        cluster.add(one)
    return cluster


def changed(**spec):
    return {**POOL, "spec": {**POOL["spec"], **spec}}


def test_what_is_not_there_is_new(tmp_path):
    (one,) = differences(held(tmp_path, POOL), there())

    assert (one.change, one.object, one.file) == (ObjectChange.NEW, "NodePool gpus", "all.yaml")


def test_what_a_server_fills_in_is_no_difference(tmp_path):
    answered = {
        **POOL,
        "metadata": {**POOL["metadata"], "uid": "1", "resourceVersion": "7"},
        "spec": {**POOL["spec"], "limits": {"cpu": "1"}, "weight": 10},
        "status": {"nodes": 3},
    }

    (one,) = differences(held(tmp_path, POOL), there(answered))

    assert one.change is ObjectChange.SAME


def test_a_changed_field_is_said_with_both_values(tmp_path):
    (one,) = differences(held(tmp_path, POOL), there(changed(limits={"cpu": "8"})))

    ((field),) = one.fields
    assert (one.change, field.field, field.before, field.after) == (
        ObjectChange.CHANGED,
        "spec.limits.cpu",
        "8",
        "1000m",
    )


def test_items_of_a_list_are_known_by_their_key_and_not_by_their_place(tmp_path):
    other = {"key": "y", "effect": "NoExecute"}
    mine = changed(template={"spec": {"taints": [{"key": "x", "effect": "NoSchedule"}, other]}})
    theirs = changed(template={"spec": {"taints": [other, {"key": "x", "effect": "NoExecute"}]}})

    (one,) = differences(held(tmp_path, mine), there(theirs))

    assert [field.field for field in one.fields] == ["spec.template.spec.taints[key=x].effect"]


def test_objects_of_ours_that_left_the_folder_are_only_there_and_others_are_not_listed(tmp_path):
    ours = {**POOL, "metadata": {"name": "old", "labels": {"app.kubernetes.io/managed-by": "trimtab"}}}
    theirs = {**POOL, "metadata": {"name": "theirs"}}

    found = differences(held(tmp_path, POOL), there(POOL, ours, theirs))

    assert [(one.change, one.object) for one in found] == [
        (ObjectChange.SAME, "NodePool gpus"),
        (ObjectChange.ONLY_THERE, "NodePool old"),
    ]
