"""scripts/check-names finds names of two meanings, words that the glossary replaces, docstrings that begin badly."""

from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def check():
    loader = SourceFileLoader("check_names", str(ROOT / "scripts" / "check-names"))
    module = module_from_spec(spec_from_loader("check_names", loader))
    loader.exec_module(module)
    return module


def test_each_kind_of_bad_name_is_found(check, tmp_path, monkeypatch):
    monkeypatch.setattr(check, "ROOT", tmp_path)
    (tmp_path / "one.py").write_text('"""A module."""\n\nclass Plan:\n    """What to do."""\n')
    (tmp_path / "two.py").write_text(
        '"""no sentence"""\n\nclass Plan:\n    """Another."""\n\ndef sway_of():\n    """Return it."""\n'
    )

    found = list(check.findings(tmp_path, {"sway": "roadmap"}))

    assert found == [
        "two.py: the docstring of two does not begin with a sentence",
        "two.py: sway_of says 'sway'; the glossary's term is 'roadmap'",
        "class Plan is defined in one.py, two.py: give each its own name",
    ]


def test_a_name_that_a_package_exports_is_no_module_of_it(check, tmp_path, monkeypatch):
    monkeypatch.setattr(check, "ROOT", tmp_path)
    (tmp_path / "__init__.py").write_text('"""A package."""\n\nfrom x.bill import bill\n\n__all__ = ["bill", "tax"]\n')
    (tmp_path / "bill.py").write_text('"""The bill."""\n')

    assert list(check.findings(tmp_path, {})) == ["__init__.py: exports bill, which is a module of it as well"]


def test_the_glossary_names_a_term_for_each_word_that_it_refuses(check):
    refused = check.refused_words(check.GLOSSARY.read_text())

    assert refused["sway"] == "roadmap"
    assert all(term for term in refused.values())


def test_the_sources_hold_to_it(check):
    assert check.main() == 0
