"""Text of others does no harm in a terminal or a spreadsheet, and shows no password or key."""

import csv
import io

import pytest
from hypothesis import given, strategies as st

from trimtab.safe_text import csv_text, for_terminal, secrets_in, spreadsheet_cell, without_secrets


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b]52;c;ZWNobw==\x07", r"\x1b]52;c;ZWNobw==\x07"),
        ("a\x1b[2Jb", r"a\x1b[2Jb"),
        ("\x9b31m", r"\x9b31m"),
        ("user\u202egnp.exe", r"user\u202egnp.exe"),
        ("line\r\nnext\tcell", "line\nnext\tcell"),
        ("Größe – 日本", "Größe – 日本"),
    ],
)
def test_a_terminal_only_shows_what_others_wrote(text, shown):
    assert for_terminal(text) == shown


def test_our_colours_stay_and_nothing_else_does():
    assert for_terminal("\x1b[1;31mred\x1b[0m\x1b[2J", colours=True) == "\x1b[1;31mred\x1b[0m" + r"\x1b[2J"
    assert "\x1b" not in for_terminal("\x1b[31mred")


@given(st.text())
def test_no_control_character_reaches_a_terminal(text):
    assert all(one in "\n\t" or (one.isprintable() or ord(one) > 0x9F) for one in for_terminal(text))


@pytest.mark.parametrize("text", ['=HYPERLINK("http://x")', "+cmd|' /C calc'!A0", "-2+3", "@SUM(A1)", "\t=1", "\n=1"])
def test_a_cell_that_begins_like_a_formula_is_text(text):
    assert spreadsheet_cell(text) == f"'{text}"


@pytest.mark.parametrize("value", [-5, -5.5, "-5.5", "+1e3", "team", None, "'=1"])
def test_numbers_and_plain_texts_stay_as_they_are(value):
    assert spreadsheet_cell(value) == value


@given(st.lists(st.lists(st.text(), min_size=2, max_size=2), max_size=4))
def test_no_cell_of_a_csv_begins_a_formula(rows):
    for row in csv.reader(io.StringIO(csv_text(["a", "b"], rows))):
        for cell in row:
            assert not cell.startswith(("=", "@", "\t", "\r")) or cell.startswith("'")


@pytest.mark.parametrize(
    "text",
    [
        "http://me:hunter22@prometheus:9090 cannot be reached",
        "https://host/x?api_key=hunter22&y=1",
        "https://host/x?X-Amz-Signature=hunter22",
        "HTTP 401 Authorization: Bearer hunter22hunter22",
        "{'X-Goog-Api-Key': 'hunter22'}",
    ],
)
def test_passwords_and_keys_of_known_forms_are_not_shown(text):
    assert "hunter22" not in without_secrets(text)
    assert "***" in without_secrets(text)


def test_what_was_sent_to_a_server_is_hidden_wherever_it_comes_back():
    secrets = secrets_in("http://me:p%40ss@host", {"Authorization": "Bearer opaque-token"})

    assert without_secrets("you sent opaque-token and p@ss", secrets) == "you sent *** and ***"


def test_a_plain_text_stays_as_it_is():
    text = "row 3: BilledCost is not a number (saw 'ten'); see https://host/docs?page=2"

    assert without_secrets(text) == text
