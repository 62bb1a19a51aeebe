"""The world that plans are enacted in shares nothing with what it judges: nothing in it imports trimtab."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

WORLD = Path(__file__).parents[2] / "benchmarks" / "proving" / "world"


@pytest.mark.parametrize("path", sorted(WORLD.glob("*.py")), ids=lambda path: path.stem)
def test_the_world_imports_nothing_of_trimtab_or_of_the_other_benchmarks(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))

    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    imported |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    relative = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.level]

    assert not relative
    assert not {name for name in imported if name.split(".")[0] == "trimtab"}
    assert not {
        name for name in imported if name.startswith("benchmarks") and not name.startswith("benchmarks.proving.world")
    }
