import subprocess
import sys
from pathlib import Path

import pytest

from trimtab.cli.settings import defaults

PAGES = Path(__file__).parents[2] / "docs" / "reference"


@pytest.mark.parametrize("page", ["commands", "settings"])
def test_a_reference_page_is_what_its_writer_writes(page):
    # a process of its own: click keeps a command's help option as the first call of it in a process made it
    program = [sys.executable, "-m", "trimtab.cli.reference", page]
    written = subprocess.run(program, check=True, capture_output=True, text=True, encoding="utf-8").stdout
    assert (PAGES / f"{page}.md").read_text(encoding="utf-8") == written, (
        f"run python -m trimtab.cli.reference {page} > docs/reference/{page}.md"
    )


def test_every_setting_has_its_row():
    page = (PAGES / "settings.md").read_text(encoding="utf-8")

    assert [key for key in defaults() if f"| `{key}` |" not in page] == []
