"""What a review reads of pods that claim their GPUs: as many as those that ask for amounts."""

import pytest
import yaml
from tests.claimed_cluster import MIG_CLASS, claim, request, template
from tests.emit.test_claim_templates import claims, fewer_gpus, request as asked

from trimtab.review.manifests import read_objects


def deployment(**entry):
    spec = {"containers": [{"name": "a", "image": "b"}], "resourceClaims": [{"name": "gpu", **entry}]}
    return {
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "m", "namespace": "ml"},
        "spec": {"template": {"spec": spec}},
    }  # fmt: skip


def read(*bodies):
    return read_objects([("all.yaml", body) for body in bodies])


@pytest.mark.parametrize("first", [True, False])
def test_a_claim_counts_as_the_gpus_that_its_template_asks_for_wherever_that_stands(first):
    pods, made = deployment(resourceClaimTemplateName="two"), template("two", requests=[request(count=2)])

    found = read(*((made, pods) if first else (pods, made)))

    assert (found.pods["ml/m"].gpus, found.pods["ml/m"].parts) == (2, ())
    assert found.unread == []


def test_a_claim_of_an_instance_is_a_part_of_a_gpu():
    made = template("small", requests=[request(device_class=MIG_CLASS, profile="1g.5gb")])

    found = read(deployment(resourceClaimTemplateName="small"), made).pods["ml/m"]

    assert (found.gpus, found.parts) == (None, (("nvidia.com/mig-1g.5gb", 1),))


def test_a_claim_by_name_counts_and_one_that_is_not_there_says_nothing():
    assert read(deployment(resourceClaimName="one"), claim("one")).pods["ml/m"].gpus == 1
    assert read(deployment(resourceClaimName="other"), claim("one")).pods["ml/m"].gpus is None


def test_what_emit_writes_for_claims_is_read_back_as_so_many_gpus():
    emission = fewer_gpus(claims(asked(count=4)))
    files = [file for file in emission.files if file.path.startswith("workloads/")]

    found = read_objects([(file.path, body) for file in files for body in yaml.safe_load_all(file.text)])

    (pods,) = found.laid_on(["research/vision-exp"]).pods.values()
    assert pods.gpus == 1
