"""A bundle -> the files that watch its cluster: no audit and no plan is needed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import date

from trimtab.catalog import Catalog, load_catalog
from trimtab.emit.verify_document import VerifiedPart
from trimtab.fleet.market import Market
from trimtab.fleet.settings import Settings
from trimtab.monitor import Thresholds, monitoring_files, watched_cluster
from trimtab.tables.bundle import Bundle


def monitoring(
    bundle: Bundle,
    thresholds: Thresholds | None = None,
    catalog: Catalog | None = None,
    *,
    at: date | None = None,
    rule_labels: Mapping[str, str] | None = None,
    verified: VerifiedPart | None = None,
) -> dict[str, str]:
    """Return path -> text of the alerts and boards of a bundle's cluster, priced on a day (default: when it ended).

    `verified` is what a plan was found to have saved; the board of money shows it.
    """
    catalog = catalog or load_catalog()
    market = Market.of(catalog, at or bundle.end.date(), Settings())
    watched = watched_cluster(bundle, market, catalog, rule_labels=rule_labels)
    return monitoring_files(replace(watched, verified=verified), thresholds or Thresholds())
