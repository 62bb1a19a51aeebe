"""What the catalog's pages show is what happens."""

import re
from pathlib import Path

import pytest

from trimtab.catalog import load_catalog

DOCS = Path(__file__).resolve().parents[2] / "docs"


def blocks(page, language):
    return re.findall(rf"```{language}\n(.*?)```", (DOCS / page).read_text(encoding="utf-8"), flags=re.DOTALL)


def test_example_of_the_reference_runs():
    for block in blocks("reference/catalog.md", "python"):
        exec(compile(block, "catalog.md", "exec"), {})


@pytest.mark.parametrize("language", ["csv", "yaml"])
def test_example_files_of_own_prices_load(tmp_path, language):
    for block in blocks("how-to/own-prices.md", language):
        path = tmp_path / f"own.{language}"
        path.write_text(block, encoding="utf-8")
        assert load_catalog(path).prices.prices != load_catalog().prices.prices
