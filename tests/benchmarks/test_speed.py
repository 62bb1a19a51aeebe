"""The demonstration is planned with a fraction of the replays that its ways would take."""

from benchmarks.speed import counting

from trimtab.catalog import load_catalog
from trimtab.fleet.build import build_fleet, bundle_window
from trimtab.fleet.market import Market
from trimtab.fleet.settings import Settings
from trimtab.pipeline import SEED, open_demo, split_window
from trimtab.plan.planner import judge, plan_of

MOST_REPLAYS = 160
"""684 where every way was replayed."""


def test_the_demonstration_is_planned_with_few_replays():
    bundle, settings = open_demo("two-hundred-k"), Settings()
    whole = bundle_window(bundle)
    fleet = build_fleet(bundle, settings, split_window(whole, settings).fit)
    market = Market.of(load_catalog(), whole.end.date(), settings)

    with counting() as work:
        planned = plan_of(judge(fleet, market, settings, seed=SEED, progress=work.tell), work.tell)

    assert work.planning <= MOST_REPLAYS
    assert sum(work.replays.values()) == work.planning
    assert (planned.plan.work_gap_frac or 0.0) < 0.001
