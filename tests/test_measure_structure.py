"""scripts/measure-structure counts lines of code, comments that say something, and functions with their size."""

import sys
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

EXAMPLE = '''"""A module."""

import math  # noqa: F401

RATE = {
    "a": 1.0,

    "b": 2.0,
}
"""What one costs."""


def cost(first, /, second, *, third=0.0):
    """Return the cost.

    Over several lines.
    """
    # the third counts twice, since it is paid both ways
    return first + second + 2 * third


class Bill:
    async def paid(self):
        text = """no docstring:

        it has a name"""
        return text
'''


@pytest.fixture
def measure(monkeypatch, tmp_path):
    loader = SourceFileLoader("measure_structure", str(ROOT / "scripts" / "measure-structure"))
    spec = spec_from_loader("measure_structure", loader)
    module = module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "measure_structure", module)  # a dataclass looks its module up
    loader.exec_module(module)
    monkeypatch.setattr(module, "PACKAGE", tmp_path)
    return module


def written(folder, name, text):
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_code_is_what_is_no_blank_line_comment_or_docstring(measure, tmp_path):
    found = measure.module_of(written(tmp_path, "one.py", EXAMPLE))

    assert found.lines == len(EXAMPLE.splitlines())
    # import; the four lines of RATE that are not blank; def and return; class, def, three lines of a string, return
    assert found.code == 1 + 4 + 2 + 6


def test_instructions_to_tools_are_no_comments(measure, tmp_path):
    assert measure.module_of(written(tmp_path, "one.py", EXAMPLE)).comments == 1


def test_functions_are_listed_with_their_lines_and_all_their_parameters(measure, tmp_path):
    assert measure.module_of(written(tmp_path, "one.py", EXAMPLE)).functions == (("cost", 7, 3), ("paid", 5, 1))


def test_the_figures_leave_the_runtime_out_and_list_what_is_too_long(measure, tmp_path, capsys):
    for package in measure.COMMENTED:
        written(tmp_path, f"{package}/one.py", EXAMPLE)
    written(tmp_path, "runtime/one.py", EXAMPLE)
    written(tmp_path, "long.py", "def tall():\n" + "    step = 1\n" * measure.LONG_LINES)

    measure.main()

    said = capsys.readouterr().out.splitlines()
    assert said[0] == f"files: 4, of which 3 below {measure.SMALL_LINES} lines"
    assert said[2] == "comments per 100 lines of code in replay: 7.7"
    assert said[-3:] == [
        f"functions over {measure.LONG_LINES} lines: 1",
        "  long.py:tall: 101 lines, 0 parameters",
        f"functions with {measure.MANY_PARAMETERS} parameters or more: 0",
    ]


def test_every_package_of_which_comments_are_counted_exists(measure):
    assert [package for package in measure.COMMENTED if not (ROOT / "src" / "trimtab" / package).is_dir()] == []
