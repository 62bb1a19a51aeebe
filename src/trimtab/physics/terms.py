"""Additive models in the logarithm, as data: ln y = sum of terms, each shrunk towards zero when it was fitted.

A term is an amount per level of some keys (`{"by": ["stack"], "of": "one", "sd": 0.4, "values": {"vllm-2025": -0.1}}`), times
a number of the row (`"of": "ln_tokens"`) or times one. A level that was never seen adds nothing, so that an unknown chip or
engine starts from its family and its year: that is what the shrinkage buys.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from trimtab.errors import InputError

Floats = npt.NDArray[np.float64]
Keys = Mapping[str, str]
ONE = "one"
JOIN = "|"


@dataclass(frozen=True, slots=True, kw_only=True)
class Term:
    """One term: the keys whose levels it distinguishes, the number it multiplies, its prior width and fitted values."""

    by: tuple[str, ...]
    of: str
    sd: float
    values: Mapping[str, float]

    def level(self, keys: Keys) -> str:
        """Return the level of a row; empty where one of its keys is empty, which means that the term is not for it."""
        parts = [keys[name] for name in self.by]
        return JOIN.join(parts) if all(parts) else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """A sum of terms around a base value."""

    base: float
    terms: tuple[Term, ...] = ()

    def at(self, rows: Sequence[Keys], numbers: Mapping[str, Floats] | None = None) -> Floats:
        """Return the sum for each row, `(n,)`; `numbers` holds the columns that terms multiply."""
        total = np.full(len(rows), self.base)
        for term in self.terms:
            # a term without keys has one amount for all rows; of the others an unseen level adds nothing
            amounts = np.array(
                [term.values.get(term.level(keys), 0.0) if term.by else term.values[""] for keys in rows]
            )
            total += amounts if term.of == ONE else amounts * (numbers or {})[term.of]
        return total


def terms_from(content: object) -> Terms:
    """Read terms from the parsed JSON of a coefficient file; raises InputError when it is not shaped so."""
    if not isinstance(content, dict):
        raise InputError("a coefficient table must be a mapping with base and terms")
    return Terms(base=float(content["base"]), terms=tuple(_term(item) for item in content["terms"]))


def _term(item: Mapping[str, object]) -> Term:
    by, values, sd = item["by"], item["values"], item["sd"]
    if not isinstance(by, list) or not isinstance(values, dict) or not isinstance(sd, int | float):
        raise InputError(f"a term needs by, of, sd and values, got {sorted(item)}")
    return Term(
        by=tuple(str(name) for name in by),
        of=str(item["of"]),
        sd=float(sd),
        values={str(level): float(amount) for level, amount in values.items()},
    )


def terms_to_json(terms: Terms, *, digits: int = 5) -> dict[str, object]:
    """Return what `terms_from` reads back; amounts that round to nothing are left out."""
    return {
        "base": round(terms.base, digits),
        "terms": [
            {
                "by": list(term.by),
                "of": term.of,
                "sd": term.sd,
                "values": {
                    level: round(amount, digits)
                    for level, amount in sorted(term.values.items())
                    # a term without keys needs its one amount even where it is 0: `Terms.at` looks it up without a
                    # default
                    if not term.by or abs(amount) >= 10.0**-digits
                },
            }
            for term in terms.terms
        ],
    }
