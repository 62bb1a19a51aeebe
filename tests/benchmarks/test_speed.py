"""Demonstrations are planned, and what was not declared is priced, with a fraction of the replays that all ways would take."""

from collections import Counter

from benchmarks.speed import counting, work_of

from trimtab.catalog import load_catalog
from trimtab.catalog.prices import PriceBook
from trimtab.fleet.build import build_fleet, bundle_window
from trimtab.fleet.market import Market
from trimtab.fleet.settings import Settings
from trimtab.pipeline import SEED, open_demo, split_window
from trimtab.plan.planner import plan_of
from trimtab.plan.prospects import judge

MOST_REPLAYS = 90
"""70 of them are; 684 where every way was replayed."""
MOST_LOOK_UPS = 2000
"""Of what a shape is sold for: 17,373 in an audit in which each pair of options that is compared looks its commitments up."""
MOST_PRICED = 200
"""Rates of a pool: tens of thousands where each way that is charged looks its rate up."""

MOST_UNDECLARED = 110
"""83 are; 1,062 where each way that a permission admits was searched for at every place."""


def test_what_was_not_declared_is_priced_with_few_replays():
    _, work, _ = work_of("three-small-models")

    assert work.replays["pricing what was not declared"] <= MOST_UNDECLARED


def test_the_demonstration_is_planned_with_few_replays_and_few_looks_at_the_price_list(monkeypatch):
    looked_up, options = Counter[str](), PriceBook.options
    priced, price = Counter[str](), PriceBook.price

    def counted(book, provider, instance_type, region, **filters):
        looked_up[instance_type] += 1
        return options(book, provider, instance_type, region, **filters)

    def counted_price(book, provider, instance_type, *args, **kwargs):
        priced[instance_type] += 1
        return price(book, provider, instance_type, *args, **kwargs)

    monkeypatch.setattr(PriceBook, "options", counted)
    monkeypatch.setattr(PriceBook, "price", counted_price)
    bundle, settings = open_demo("two-hundred-k"), Settings()
    whole = bundle_window(bundle)
    fleet = build_fleet(bundle, settings, split_window(whole, settings).fit)
    market = Market.of(load_catalog(), whole.end.date(), settings)

    with counting() as work:
        planned = plan_of(judge(fleet, market, settings, seed=SEED, progress=work.tell), work.tell)

    assert work.planning <= MOST_REPLAYS
    assert sum(work.replays.values()) == work.planning
    assert looked_up.total() <= MOST_LOOK_UPS
    assert priced.total() <= MOST_PRICED
    assert (planned.plan.work_gap_frac or 0.0) < 0.001
