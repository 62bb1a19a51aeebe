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


def test_a_private_class_name_is_used_once_too(check, tmp_path, monkeypatch):
    monkeypatch.setattr(check, "ROOT", tmp_path)
    (tmp_path / "one.py").write_text('"""A module."""\n\nclass _Run:\n    """A job."""\n')
    (tmp_path / "two.py").write_text('"""A module."""\n\nclass _Run:\n    """A replay."""\n')

    assert list(check.findings(tmp_path, {})) == ["class _Run is defined in one.py, two.py: give each its own name"]


def test_a_name_that_a_package_exports_is_no_module_of_it(check, tmp_path, monkeypatch):
    monkeypatch.setattr(check, "ROOT", tmp_path)
    (tmp_path / "__init__.py").write_text('"""A package."""\n\nfrom x.bill import bill\n\n__all__ = ["bill", "tax"]\n')
    (tmp_path / "bill.py").write_text('"""The bill."""\n')

    assert list(check.findings(tmp_path, {})) == ["__init__.py: exports bill, which is a module of it as well"]


def test_the_glossary_names_a_term_for_each_word_that_it_refuses(check):
    refused = check.refused_words(check.GLOSSARY.read_text())

    assert refused["sway"] == "roadmap"
    assert all(term for term in refused.values())


@pytest.mark.parametrize(
    ("name", "head"),
    [
        ("NodeOffers", "offer"),
        ("LatencyLaw", "law"),
        ("StaticPolicies", "policy"),
        ("KubeApi", "api"),
        ("RateSeries", "series"),
        ("PriceBasis", "basis"),
    ],
)
def test_the_head_of_a_class_name_is_its_last_word_in_the_singular(check, name, head):
    assert check.head_noun(name) == head


def test_a_class_is_named_by_a_term_of_the_glossary_or_by_a_plain_word(check):
    terms = check.glossary_terms(
        "| term | meaning |\n|---|---|\n| capacity block | nodes |\n| taint, toleration | ... |\n"
    )
    plain = check.plain_words("# comment\nrow reader  # words\n")

    found = list(check.unknown_heads({"HeldBlocks", "Toleration", "NodeRows", "QuadA100", "PriceSway"}, terms, plain))

    assert [line.partition(";")[0] for line in found] == [
        "class PriceSway: 'sway' is no term of the glossary",
        "plain-words.txt: 'reader' is a term of the glossary, or ends no class name",
    ]


def test_a_term_of_the_glossary_is_not_listed_as_a_plain_word_too(check):
    (found,) = check.unknown_heads({"NodeOffer"}, {"offer"}, {"offer"})

    assert found.startswith("plain-words.txt: 'offer' is a term of the glossary")


def test_only_public_classes_at_the_top_of_a_module_are_read(check, tmp_path):
    (tmp_path / "one.py").write_text("class Plan:\n    class Inner: ...\n\nclass _Hidden: ...\n")

    assert check.public_classes(tmp_path) == {"Plan"}


def test_archaic_phrases_are_found_in_docstrings_comments_and_texts(check, tmp_path, monkeypatch):
    monkeypatch.setattr(check, "ROOT", tmp_path)
    module = tmp_path / "one.py"
    module.write_text(
        '"""Return the price, held against\nthe list."""\n\nnobody = 1  # a name is not a phrase\n'
        'raise ValueError(f"mend the {nobody} rows")  # whence it came\n'
    )
    page = tmp_path / "page.md"
    page.write_text("# Title\n\nThe row `nobody` stands for what\nnobody holds.\n")

    found = list(check.archaic([module, page], check.PHRASES))

    assert [line.rpartition("; write ")[0] for line in found] == [
        "one.py:1: 'held against'",
        "one.py:5: 'mend'",
        "one.py:5: 'whence'",
        "page.md:4: 'nobody'",
    ]


def test_every_pattern_of_plain_files_names_files(check):
    assert [pattern for pattern in check.PLAIN if not list(check.ROOT.glob(pattern))] == []
