import csv
import io
import json

import pytest
import yaml
from tests.emit.example import example_audit

from trimtab.cli.audit.run import render_audit
from trimtab.cli.output import Format
from trimtab.emit.audit_document import audit_document


@pytest.fixture(scope="module")
def document():
    return audit_document(example_audit())


@pytest.mark.parametrize("form", [form for form in Format if form is not Format.XLSX])
def test_an_audit_has_every_form_of_text(document, form):
    assert "research/vision-exp" in render_audit(document, form, width=120, colour=False) or form in (
        Format.CSV,
        Format.TABLE,
    )


@pytest.mark.parametrize(("form", "read"), [(Format.JSON, json.loads), (Format.YAML, yaml.safe_load)])
def test_fields_choose_keys_and_the_version_stays(document, form, read):
    text = render_audit(document, form, width=80, colour=False, fields=["waste"])

    assert list(read(text)) == ["schema_version", "waste"]


def test_fields_choose_columns_in_their_order(document):
    text = render_audit(document, Format.CSV, width=80, colour=False, fields=["saving_usd_mo", "id"])

    assert next(csv.reader(io.StringIO(text))) == ["saving_usd_mo", "id"]
