from pathlib import Path

from trimtab.cli.settings import defaults
from trimtab.cli.settings_reference import settings_page

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "settings.md"


def test_the_reference_page_is_what_the_settings_say():
    assert PAGE.read_text(encoding="utf-8") == settings_page(), (
        "run python -m trimtab.cli.settings_reference > docs/reference/settings.md"
    )


def test_every_setting_has_its_row():
    page = settings_page()

    assert [key for key in defaults() if f"| `{key}` |" not in page] == []
