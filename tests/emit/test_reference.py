from pathlib import Path

from trimtab.cli.reference import audit_page

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "audit.md"


def test_the_reference_page_is_what_the_types_say():
    assert PAGE.read_text(encoding="utf-8") == audit_page(), (
        "run python -m trimtab.cli.reference audit > docs/reference/audit.md"
    )


def test_the_page_names_every_part_and_no_key_lacks_its_meaning():
    page = audit_page()

    assert "| None |" not in page
    for part in ("`Action`", "`Proof`", "`Target`", "`Evidence`", "`CoveragePart`".replace("Part", "")):
        assert f"## {part}" in page
