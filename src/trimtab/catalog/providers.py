"""The clouds that trimtab knows by name: how nodes, bills and price lists spell each of them and their machines."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from trimtab.catalog.rows import packaged_rows

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True, kw_only=True)
class Provider:
    """A cloud: its name in the price book, and what others call it."""

    name: str
    node_id_schemes: tuple[str, ...]
    """How `spec.providerID` of its Kubernetes nodes begins, before the colon."""
    node_label_prefixes: tuple[str, ...] = ()
    """How labels begin that only its managed Kubernetes sets."""
    bill_words: tuple[str, ...] = ()
    """Words by which the provider's name in a bill (FOCUS `ProviderName`) is recognized, in lower case."""
    region: re.Pattern[str] | None = None
    """How its regions are spelled; None where no price list of it is read."""


PROVIDERS = (
    Provider(
        name="aws",
        node_id_schemes=("aws",),
        node_label_prefixes=("eks.amazonaws.com/",),
        bill_words=("aws", "amazon"),
        region=re.compile(r"[a-z]{2}(-[a-z]+)+-\d+"),
    ),
    Provider(
        name="gcp",
        node_id_schemes=("gce",),
        node_label_prefixes=("cloud.google.com/gke",),
        bill_words=("google", "gcp"),
        region=re.compile(r"[a-z]+-[a-z]+\d+"),
    ),
    Provider(
        name="azure",
        node_id_schemes=("azure",),
        node_label_prefixes=("kubernetes.azure.com/",),
        bill_words=("azure", "microsoft"),
        region=re.compile(r"[a-z0-9]+"),
    ),
    Provider(name="oci", node_id_schemes=("oci", "ocid1")),
)
PRICE_LISTED = tuple(provider.name for provider in PROVIDERS if provider.region is not None)
"""Providers whose own price lists are read."""


def provider_of_node_id(provider_id: str) -> str | None:
    """Return the provider that a node's `spec.providerID` names, or None.

    >>> provider_of_node_id("gce://project/us-central1-a/name"), provider_of_node_id("kind://docker/kind/node")
    ('gcp', None)
    """
    scheme = provider_id.partition(":")[0]
    return next((provider.name for provider in PROVIDERS if scheme in provider.node_id_schemes), None)


def provider_of_node_labels(labels: Iterable[str]) -> str | None:
    """Return the provider whose managed Kubernetes set one of a node's labels, or None."""
    keys = tuple(labels)
    return next(
        (provider.name for provider in PROVIDERS if any(key.startswith(provider.node_label_prefixes) for key in keys)),
        None,
    )


def provider_of_bill(name: str) -> str:
    """Return the price book's name of a provider as a bill names it; a name that is not known stays, in lower case.

    >>> provider_of_bill("Amazon Web Services"), provider_of_bill("Lambda")
    ('aws', 'lambda')
    """
    spelled = name.lower()
    return next(
        (provider.name for provider in PROVIDERS if any(word in spelled for word in provider.bill_words)), spelled
    )


def is_region(provider: str, region: str) -> bool:
    """Return whether a region is spelled as a provider with a price list spells its own."""
    return any(
        row.name == provider and row.region is not None and row.region.fullmatch(region) is not None
        for row in PROVIDERS
    )


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


PROVIDER_ID = "provider_id"
"""The label of a node that holds the provider's id of it."""


def last_part(resource: str) -> str:
    """Return the last part of a resource id: `arn:...:instance/i-0abc` and `aws:///zone/i-0abc` name the same node."""
    return resource.rstrip("/").rpartition("/")[2].rpartition(":")[2].casefold()


def nodes_by_resource(nodes: pa.Table) -> dict[str, str]:
    """Return node names by the last part of what a bill may call them: the provider's id, or the name itself."""
    found = {}
    for row in nodes.select(["node", "labels"]).to_pylist(maps_as_pydicts="lossy"):
        found[last_part(row["node"])] = row["node"]
        provider_id = (row["labels"] or {}).get(PROVIDER_ID)
        if provider_id:
            found[last_part(provider_id)] = row["node"]
    return found
