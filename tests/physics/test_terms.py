"""Additive terms as data: unknown levels add nothing, files read back what was written."""

import numpy as np
import pytest
from hypothesis import given, strategies as st

from trimtab.errors import InputError
from trimtab.physics.fitted import Term, Terms, terms_from, terms_to_json

AMOUNTS = st.floats(-3, 3, allow_nan=False).map(lambda one: round(one, 4))
TERMS = st.builds(
    lambda base, values: Terms(base=base, terms=(Term(by=("chip",), of="one", sd=0.2, values=values),)),
    AMOUNTS,
    st.dictionaries(st.sampled_from(["A100", "H100", "L4"]), AMOUNTS),
)


@given(TERMS)
def test_a_table_reads_back_what_it_wrote(table):
    rows = [{"chip": name} for name in ("A100", "H100", "L4", "T4", "")]

    again = terms_from(terms_to_json(table))

    assert np.allclose(again.at(rows), table.at(rows), atol=2e-5)


def test_an_unknown_level_adds_nothing_and_an_empty_key_is_no_level():
    table = Terms(
        base=1.0, terms=(Term(by=("chip", "stack"), of="one", sd=0.2, values={"A100|vllm": 0.5, "|vllm": 9.0}),)
    )

    found = table.at(
        [{"chip": "A100", "stack": "vllm"}, {"chip": "B900", "stack": "vllm"}, {"chip": "", "stack": "vllm"}]
    )

    assert found.tolist() == [1.5, 1.0, 1.0]


def test_a_term_may_multiply_a_number_of_the_row():
    table = Terms(base=0.0, terms=(Term(by=(), of="ln_gpus", sd=0.1, values={"": 2.0}),))

    assert table.at([{}, {}], {"ln_gpus": np.array([0.0, 3.0])}).tolist() == [0.0, 6.0]


def test_a_malformed_table_is_refused():
    with pytest.raises(InputError, match="mapping"):
        terms_from([1, 2])
