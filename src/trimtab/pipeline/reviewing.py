"""Manifests against a fleet's history: what a change would have cost, and which targets it would have missed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import date

from trimtab.catalog import Catalog, load_catalog
from trimtab.fleet.build import build_fleet, bundle_window
from trimtab.fleet.market import Market
from trimtab.fleet.settings import Settings
from trimtab.fleet.starts import starts_of, with_measured
from trimtab.pipeline.auditing import SEED, Progress
from trimtab.pipeline.opening import carried_at, require_nodes
from trimtab.plan.commitments.inventory import Owned, running
from trimtab.replay.outcomes.evaluate import cases_of
from trimtab.review import Manifests, Review, review_fleet
from trimtab.tables.bundle import Bundle


def review(
    bundle: Bundle,
    proposed: Manifests,
    present: Manifests | None = None,
    settings: Settings | None = None,
    catalog: Catalog | None = None,
    *,
    at: date | None = None,
    owned: Sequence[Owned] = (),
    progress: Progress | None = None,
) -> Review:
    """Replay a bundle's whole window under manifests, beside those in force where given, else beside history as it ran.

    Raises BundleError, and MissingPrice where no node has a price.
    """
    tell = progress or (lambda stage, share: None)
    settings, catalog = settings or Settings(), catalog or load_catalog()
    settings = replace(settings, assumptions=with_measured(settings.assumptions, starts_of(bundle)))
    window = bundle_window(bundle)
    day = at or window.end.date()
    market = Market.of(catalog, day, settings)
    tell("reading the fleet", 0.0)
    fleet = build_fleet(bundle, settings)
    require_nodes(bundle, fleet)
    carried = carried_at(bundle, market, fleet)
    (fleet,), market = carried.fleets, carried.market
    held = tuple(commitment for _, commitment in running(owned, fleet.usage.pools, market, day))
    tell("replaying the history under the manifests", 0.2)
    return review_fleet(
        fleet, cases_of(fleet, settings, SEED, market=market), market, proposed, present=present, owned=held
    )
