from pathlib import Path

from trimtab.cli.reference import ROWS, tables_page
from trimtab.tables.schemas import TABLES

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "tables.md"


def test_the_reference_page_is_what_the_schemas_say():
    assert PAGE.read_text(encoding="utf-8") == tables_page(), (
        "run python -m trimtab.cli.reference tables > docs/reference/tables.md"
    )


def test_every_table_says_what_its_row_is():
    assert list(ROWS) == list(TABLES)
