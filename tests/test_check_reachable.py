"""scripts/check-reachable: modules that nobody imports and functions that nobody names are found, what is reached is not."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parent.parent / "scripts" / "check-reachable"
CLI = """
def main():
    from trimtab.pages import show

    show()
"""
PAGES = """
LIMIT = 3


def show():
    return LIMIT
"""


@pytest.fixture
def check(tmp_path):
    """Run the script on a package of these modules; return its exit status and lines."""

    def run(modules):
        (tmp_path / "scripts").mkdir()
        shutil.copy(SCRIPT, tmp_path / "scripts")
        for name, text in {"__init__": "", "cli": CLI, "pages": PAGES, **modules}.items():
            path = tmp_path / "src" / "trimtab" / f"{name}.py"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        done = subprocess.run(
            [sys.executable, tmp_path / "scripts" / SCRIPT.name], capture_output=True, text=True, check=False
        )
        return done.returncode, done.stdout.splitlines()

    return run


def test_a_package_that_is_reached_whole_passes(check):
    assert check({}) == (0, [])


def test_a_module_that_nothing_imports_is_found(check):
    assert check({"lost": "A = 1"}) == (1, ["trimtab.lost: no entry point imports it"])


def test_a_module_that_a_lazy_table_spells_is_reached(check):
    table = '_LAZY = {"lazy": "trimtab.lazily"}\n\n\ndef __getattr__(name):\n    return _LAZY[name]\n'

    assert check({"__init__": table, "lazily": "def lazy(): pass"}) == (0, [])


def test_functions_that_only_call_one_another_are_found(check):
    twins = PAGES + "\n\ndef first():\n    return second()\n\n\ndef second():\n    return first()\n"

    status, lines = check({"pages": twins})

    assert status == 1
    assert [line.split(" ")[0] for line in lines] == ["trimtab.pages:first", "trimtab.pages:second"]


def test_a_method_that_nothing_names_is_found(check):
    with_class = PAGES.replace("return LIMIT", "return Page(LIMIT)") + (
        "\n\nclass Page:\n    def __init__(self, lines):\n        self.lines = lines\n\n"
        "    def unread(self):\n        return self.lines\n"
    )

    status, lines = check({"pages": with_class})

    assert (status, [line.split(" ")[0] for line in lines]) == (1, ["trimtab.pages:Page.unread"])
