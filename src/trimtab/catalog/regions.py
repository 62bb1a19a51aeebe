"""Where the clouds' regions lie: the continent of each, for how far a move is and where another cloud's nearest nodes are."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from trimtab.catalog.rows import packaged_rows


@cache
def continents() -> Mapping[tuple[str, str], str]:
    """Return the continent by (provider, region); regions that the providers' lists did not name are left out."""
    return {(row["provider"], row["region"]): row["continent"] for row in packaged_rows("regions.csv")}


def continent_of(provider: str, region: str) -> str | None:
    """Return a region's continent, or None where it is not known.

    >>> continent_of("aws", "eu-central-1"), continent_of("lambda", "any")
    ('europe', None)
    """
    return continents().get((provider, region))
