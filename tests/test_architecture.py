"""docs/explanation/architecture.md answers a newcomer's questions: what it names exists."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "trimtab"
PAGE = (ROOT / "docs" / "explanation" / "architecture.md").read_text(encoding="utf-8")


def _rows(section: str) -> list[list[str]]:
    """Return the cells of each row of the first table after a heading or sentence."""
    lines = PAGE[PAGE.index(section) :].splitlines()
    first = next(number for number, line in enumerate(lines) if line.startswith("|"))
    rows = []
    for line in lines[first + 2 :]:
        if not line.startswith("|"):
            break
        rows.append([cell.strip() for cell in line.strip("|").split(" | ")])
    return rows


def _names(text: str) -> list[str]:
    return re.findall(r"`([a-z_./]+)`", text)


def _exists(path: str) -> bool:
    """Return whether a path exists as written, in the package, or as the name of one of its files."""
    return (ROOT / path).exists() or (PACKAGE / path).exists() or any(PACKAGE.rglob(path))


@pytest.mark.parametrize("question", ["a lever", "a price", "a formula", "a coupling", "an emitted field"])
def test_the_page_answers_where_something_is_with_paths_that_exist(question):
    (answer,) = [row[1] for row in _rows("## Where is it?") if row[0] == question]

    paths = [name for name in _names(answer) if "/" in name or "." in name]

    assert paths
    assert [path for path in paths if not _exists(path)] == []


def test_all_paths_of_the_table_exist_and_so_do_its_pages():
    rows = _rows("## Where is it?")
    paths = [name for row in rows for name in _names(row[1]) if "/" in name or name.endswith((".py", ".csv"))]
    links = [link for row in rows for link in re.findall(r"\]\(([^)#]+)", row[-1])]

    assert [path for path in paths if not _exists(path)] == []
    assert [link for link in links if not (ROOT / "docs" / "explanation" / link).exists()] == []


def test_every_package_has_its_layer():
    named = {name for row in _rows("## Layers") for name in _names(row[1])}
    packages = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}

    assert packages - named == set()
    assert {name for name in named if not (PACKAGE / name).exists() and not (PACKAGE / f"{name}.py").exists()} == {
        "trimtab_runtime"
    }


def test_the_sources_and_their_shared_modules_are_those_in_the_tree():
    rows = _rows("The subpackages of `sources`")
    packages = {path.parent.name for path in PACKAGE.glob("sources/*/__init__.py")}
    modules = {path.stem for path in PACKAGE.glob("sources/*.py")} - {"__init__"}

    assert {_names(row[0])[0] for row in rows[:-1]} | set(_names(rows[-1][1])) == packages | modules


def test_every_coupling_has_its_row():
    modules = {path.stem for path in PACKAGE.glob("plan/program/couplings/*.py")} - {"__init__", "parts"}

    assert {_names(row[0])[0] for row in _rows("## The joint problem")} == modules
