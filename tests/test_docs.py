"""Docs that point somewhere point at something: links, files and modules named in them, and every command that there is."""

import re
from pathlib import Path

import pytest

from trimtab.cli import root

ROOT = Path(__file__).parents[1]
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *ROOT.glob("docs/**/*.md")])
LINK = re.compile(r"\]\((?!https?:|mailto:)([^)#\s]*)(#[^)\s]*)?\)")
SOURCE = re.compile(r"`((?:src/trimtab|benchmarks|scripts|tests|packages)/[\w./-]+)`")
MODULE = re.compile(r"`([a-z_]+(?:/[a-z_]+)*/[a-z_]+\.py)`")


def anchors(page):
    """Return the anchors of a page's headings, as GitHub makes them."""
    heads = re.findall(r"^#+ (.+)$", re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page):
    for target, anchor in LINK.findall(page.read_text()):
        file = (page.parent / target) if target else page
        assert file.exists(), f"{page.name} links to {target}"
        if anchor and file.suffix == ".md":
            assert anchor[1:] in anchors(file), f"{page.name} links to {target}{anchor}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_file_that_a_page_names_is_there(page):
    text = page.read_text()
    for name in SOURCE.findall(text):
        assert (ROOT / name).exists(), f"{page.name} names {name}"
    if page.name in {"architecture.md", "CONTRIBUTING.md"}:
        for name in MODULE.findall(text):
            places = (ROOT, ROOT / "src" / "trimtab", ROOT / "src" / "trimtab" / "emit")
            assert any((place / name).exists() for place in places), f"{page.name} names {name}"


def test_every_command_has_a_place_in_the_docs():
    text = "\n".join(page.read_text() for page in PAGES)
    missing = [name for name in root.list_commands(None) if f"trimtab {name}" not in text]
    assert not missing
