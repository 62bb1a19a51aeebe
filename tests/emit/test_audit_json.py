import json
from importlib.resources import files
from pathlib import Path

import jsonschema
import pytest
from tests.emit.example import example_audit

from trimtab.emit.audit_document import audit_document
from trimtab.emit.document import AuditDocument, parse_document, published_schema, render_json, schema_text
from trimtab.errors import InputError

PROMISED = {
    "": ["schema_version", "coverage", "bill_usd_mo", "waste", "plan", "proof", "unjudged"],
    "waste.0": ["kind", "usd_mo"],
    "plan": [
        "objective_usd_mo",
        "bound_usd_mo",
        "gap_frac",
        "joint_saving_usd_mo",
        "actions",
        "not_worth_doing",
    ],
    "plan.actions.0": [
        "id",
        "lever",
        "subject",
        "effect",
        "saving_usd_mo",
        "saving_low_usd_mo",
        "saving_high_usd_mo",
        "standalone_usd_mo",
        "last_in_usd_mo",
        "effort_weeks",
        "risk",
        "quarter",
        "evidence",
    ],
    "proof": ["window", "before_usd", "after_usd", "saving_frac", "targets", "interruptions", "lost_gpu_hr"],
    "proof.window": ["start", "end"],
    "proof.targets.0": ["workload", "metric", "target", "required_frac", "attained_frac"],
    "unjudged.0": ["workload", "usd_mo", "reason"],
}


@pytest.fixture(scope="module")
def text():
    return render_json(audit_document(example_audit()))


@pytest.mark.parametrize(("place", "keys"), PROMISED.items())
def test_the_promised_keys_are_there(text, place, keys):
    part = json.loads(text)
    for step in place.split(".") if place else ():
        part = part[int(step)] if step.isdigit() else part[step]

    assert set(keys) <= set(part)


def test_the_version_stands_first(text):
    assert next(iter(json.loads(text))) == "schema_version"


def test_output_satisfies_the_published_schema(text):
    schema = json.loads(published_schema())

    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.Draft202012Validator(schema).validate(json.loads(text))


def test_the_published_schema_is_generated_from_the_types_in_the_code(request):
    file = Path(str(files("trimtab.emit"))) / "schemas" / "audit-1.json"
    if request.config.getoption("--update-golden"):
        file.write_text(schema_text(), encoding="utf-8")

    assert published_schema() == schema_text()


def test_every_key_is_described():
    schema = json.loads(published_schema())
    parts = {"AuditDocument": schema, **schema["$defs"]}

    missing = [
        f"{name}.{key}"
        for name, part in parts.items()
        for key, value in part.get("properties", {}).items()
        if not value.get("description")
    ]

    assert missing == []


def test_no_part_may_carry_a_key_that_the_schema_does_not_know():
    schema = json.loads(published_schema())

    loose = [name for name, part in schema["$defs"].items() if "properties" in part and part["additionalProperties"]]

    assert loose == []


def test_a_document_reads_back_as_it_was_written(text):
    assert render_json(parse_document(text, where="last-audit.json")) == text


@pytest.mark.parametrize("broken", ["", "{}", "[1]", '{"schema_version": 2}'])
def test_what_is_not_an_audit_is_refused_with_its_place_and_a_cure(broken):
    with pytest.raises(InputError, match=r"old\.json is not an audit of this version .* run `trimtab audit` again"):
        parse_document(broken, where="old.json")


def test_the_model_has_no_field_that_json_cannot_hold(text):
    assert AuditDocument.model_validate_json(text).model_dump(mode="json") == json.loads(text)
