"""Names and YAML."""

import re

import yaml
from hypothesis import given, strategies as st

from trimtab.emit.manifests.emission import dns_name, yaml_text

NAMES = st.text(min_size=1, max_size=90)
WORDS = st.text(st.sampled_from("ab 0:#-'\"{}[]|>%\né€"), max_size=40)


def test_a_good_name_is_kept():
    assert dns_name("trimtab", "chat-api") == "trimtab-chat-api"


def test_names_that_differ_only_in_spelling_stay_apart():
    assert dns_name("chat_api") != dns_name("chat.api") != dns_name("chat-api")


@given(NAMES)
def test_every_name_is_a_dns_1123_label(name):
    made = dns_name("trimtab", name)

    assert re.fullmatch(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", made)


@given(st.lists(NAMES, min_size=2, max_size=2, unique=True))
def test_different_names_stay_different(names):
    assert dns_name(names[0]) != dns_name(names[1])


@given(st.dictionaries(WORDS, WORDS | st.integers() | st.booleans() | st.none() | st.lists(WORDS)))
def test_what_is_written_reads_back(one):
    assert yaml.safe_load(yaml_text(one, comment="two\nlines")) == one
