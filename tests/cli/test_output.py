"""Sheets as text: raw for programs, shaped for people, never wider than the screen."""

import csv
import io
import json

import pytest
import yaml
from hypothesis import given, strategies as st

from trimtab.cli.output import Format, Sheet, SheetColumn, fixed, render
from trimtab.emit.blocks import Tone
from trimtab.errors import UnknownName, UsageError

SHEET = Sheet(
    columns=[
        SheetColumn(key="name", title="name", repeat=True),
        SheetColumn(key="usd_hr", title="USD/h", right=True, show=fixed(2)),
        SheetColumn(key="tags", title="tags"),
    ],
    rows=[{"name": "p5", "usd_hr": 55.0431, "tags": ["a", "b"]}, {"name": "p4|d", "usd_hr": None, "tags": []}],
    notes=["A note."],
)


def test_json_carries_raw_values_and_a_version():
    document = json.loads(render(SHEET, Format.JSON))

    assert document["schema_version"] == 1
    assert document["rows"][0] == {"name": "p5", "usd_hr": 55.0431, "tags": ["a", "b"]}
    assert document["rows"][1]["usd_hr"] is None


def test_yaml_says_what_json_says():
    assert yaml.safe_load(render(SHEET, Format.YAML)) == json.loads(render(SHEET, Format.JSON))


def test_csv_has_keys_as_its_head_and_an_empty_cell_for_the_unknown():
    rows = list(csv.DictReader(io.StringIO(render(SHEET, Format.CSV))))

    assert rows == [{"name": "p5", "usd_hr": "55.0431", "tags": "a;b"}, {"name": "p4|d", "usd_hr": "", "tags": ""}]


def test_markdown_escapes_bars_and_shows_a_dash_for_the_unknown():
    assert "| p4\\|d | – |" in render(SHEET, Format.MARKDOWN)


def test_table_shows_formatted_values_and_the_notes():
    text = render(SHEET, Format.TABLE)

    assert "55.04" in text
    assert "55.0431" not in text
    assert text.endswith("A note.")


def test_table_has_no_escape_codes_unless_colour_is_wanted():
    styled = Sheet(columns=[SheetColumn(key="a", title="a", tone=Tone.ACCENT, strong=True)], rows=[{"a": "x"}])

    assert "\x1b" not in render(styled, Format.TABLE)
    assert "\x1b[36m" in render(styled, Format.TABLE, colour=True)


def test_sections_head_their_rows():
    sheet = Sheet(
        columns=[SheetColumn(key="name", title="name")],
        section="kind",
        rows=[{"kind": "big", "name": "a"}, {"kind": "big", "name": "b"}, {"kind": "small", "name": "c"}],
    )

    assert render(sheet, Format.TABLE).splitlines() == ["name", "", "big", "a", "b", "", "small", "c"]
    assert "| big | a |" in render(sheet, Format.MARKDOWN)


def test_a_table_too_wide_is_split_with_the_names_in_front_of_every_part():
    columns = [
        SheetColumn(key="name", title="name", repeat=True),
        *(SheetColumn(key=str(i), title="x" * 20) for i in range(6)),
    ]
    text = render(Sheet(columns=columns, rows=[{"name": "board"}]), Format.TABLE)

    assert text.count("board") == 2
    assert max(map(len, text.splitlines())) <= 80


@given(st.lists(st.text("ab -_", min_size=1, max_size=60), min_size=1, max_size=4), st.integers(40, 120))
def test_no_line_is_wider_than_the_screen_where_text_can_be_broken(texts, width):
    sheet = Sheet(
        columns=[SheetColumn(key=str(i), title="t") for i in range(len(texts))], rows=[dict(enumerate_keys(texts))]
    )

    assert all(len(line) <= width for line in render(sheet, Format.TABLE, width=width).splitlines())


def enumerate_keys(texts):
    return ((str(i), text) for i, text in enumerate(texts))


def test_fields_choose_and_order_the_columns():
    assert render(SHEET.only(["usd_hr", "name"]), Format.CSV).startswith("usd_hr,name\n")


def test_unknown_field_brings_near_matches():
    with pytest.raises(UnknownName, match="did you mean usd_hr"):
        SHEET.only(["usd"])


def test_a_form_that_rows_do_not_have_is_a_usage_error():
    with pytest.raises(UsageError, match="html"):
        render(SHEET, Format.HTML)


def test_an_empty_sheet_still_has_a_head():
    assert render(Sheet(columns=SHEET.columns, rows=[]), Format.TABLE).startswith("name")
