"""The example notebooks run from top to bottom, show a table where a cell ends in a value of ours, and keep no outputs."""

import ast
import json
from pathlib import Path

import pytest

NOTEBOOKS = sorted((Path(__file__).parents[1] / "docs" / "notebooks").glob("*.ipynb"))


def cells(notebook):
    return [cell for cell in json.loads(notebook.read_text())["cells"] if cell["cell_type"] == "code"]


def shown(source, names):
    """Run a cell as a notebook does; return the value of its last line, None where that is no expression."""
    *body, last = ast.parse(source).body
    if not isinstance(last, ast.Expr):
        exec(compile(ast.Module([*body, last], []), "cell", "exec"), names)
        return None
    exec(compile(ast.Module(body, []), "cell", "exec"), names)
    return eval(compile(ast.Expression(last.value), "cell", "eval"), names)


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda notebook: notebook.stem)
def test_a_notebook_runs_and_its_values_show_as_tables(notebook):
    names, views = {}, 0
    for cell in cells(notebook):
        value = shown("".join(cell["source"]), names)
        if hasattr(value, "_repr_html_"):
            views += 1
            assert "<table" in value._repr_html_()

    assert views >= 3


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda notebook: notebook.stem)
def test_a_notebook_is_kept_without_outputs(notebook):
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in cells(notebook))


def test_there_are_notebooks():
    assert len(NOTEBOOKS) == 2
