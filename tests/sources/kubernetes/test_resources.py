import json

import jsonschema
import pytest
import yaml

from trimtab.sources.kubernetes.api import RESOURCES, rbac_manifest
from trimtab.sources.kubernetes.objects import KINDS

DOCUMENTS = list(yaml.safe_load_all(rbac_manifest()))


@pytest.mark.parametrize("kind", ["ServiceAccount", "ClusterRole", "ClusterRoleBinding"])
def test_the_role_is_valid_against_the_strict_schemas(shared_dir, kind):
    schema = json.loads((shared_dir / f"data/k8s-schemas/core-v1.34-strict/{kind.lower()}.json").read_text())
    (document,) = [one for one in DOCUMENTS if one["kind"] == kind]

    jsonschema.validate(document, schema)


def test_the_role_may_read_what_is_asked_and_nothing_else():
    (role,) = [one for one in DOCUMENTS if one["kind"] == "ClusterRole"]
    granted = {(group, name) for rule in role["rules"] for group in rule["apiGroups"] for name in rule["resources"]}

    assert granted == {(resource.group, resource.plural) for resource in RESOURCES}
    assert {verb for rule in role["rules"] for verb in rule["verbs"]} == {"get", "list"}


def test_every_kind_that_is_read_is_asked_for_and_the_reverse():
    assert {(one.kind, one.group) for one in RESOURCES} == {
        (kind, group) for kind, groups in KINDS.items() for group in groups
    }


def test_the_manifest_is_as_recorded(golden):
    golden("rbac.yaml", rbac_manifest())
