"""Small problems that tests of the joint choice share."""

from itertools import product

import numpy as np
from hypothesis import strategies as st

from trimtab.catalog import load_catalog
from trimtab.catalog.kinds import BuyingOption, CapacityType
from trimtab.catalog.pools import Pool, SharedPool
from trimtab.fleet.market import Market
from trimtab.fleet.settings import Assumptions, Planning
from trimtab.ledger import Commitment, CommitmentOffer
from trimtab.plan.planner import plan_of
from trimtab.plan.problem import KEEP, NodeGroup, Option, Problem
from trimtab.plan.program.solve import choice_cost
from trimtab.plan.prospects import judge

A = Pool("aws", "a.large", "r")
B = Pool("aws", "b.large", "r")
SPOT = A.held_as(CapacityType.SPOT)
MIG_ROOM = (8, 7, 3, 1)
MIG = (
    SharedPool(A, 7, "1g.5gb", takes=(1, 1, 0, 0), room=MIG_ROOM),
    SharedPool(A, 3, "2g.10gb", takes=(2, 2, 1, 0), room=MIG_ROOM),
    SharedPool(A, 2, "3g.20gb", takes=(4, 3, 1, 0), room=MIG_ROOM),
    SharedPool(A, 1, "4g.20gb", takes=(4, 4, 2, 1), room=MIG_ROOM),
)
"""Profiles of an A100 with 40 GB, side by side on nodes with one."""
SHARED = (SharedPool(A, 4), SharedPool(A, 4).kept_up, *MIG, SharedPool(B, 2))
FEW_HOURS = st.integers(1, 5)
EXACT = Planning(mip_gap_frac=0.0, mip_max_nodes=100_000)


def nodes_of(pool, rate):
    """A commitment to nodes of a pool on offer."""
    return CommitmentOffer(option=BuyingOption.RESERVED_1Y, rates_micro_usd_hr={pool: rate})


def spend_at(rates, option=BuyingOption.SAVINGS_PLAN_1Y):
    """A commitment to spend on offer."""
    return CommitmentOffer(option=option, rates_micro_usd_hr=rates)


def so_much(quantity, offer):
    """A commitment that is held or bought: nodes, or micro-dollars an hour."""
    return Commitment(offer=offer, quantity=quantity)


@st.composite
def problems(draw, hours_of=FEW_HOURS):
    hours = draw(hours_of)
    row = st.lists(st.integers(0, 3).map(lambda n: n * 1800), min_size=hours, max_size=hours)
    workloads = draw(st.integers(1, 3))

    def usage():
        pools = draw(st.lists(st.sampled_from([A, B, SPOT]), min_size=1, max_size=2, unique=True))
        return {pool: np.array(draw(row), dtype=np.int64) for pool in pools}

    entries = draw(st.dictionaries(st.sampled_from(["cloud 1", "cloud 2"]), st.integers(0, 20_000_000)))

    def option():
        own = {
            "own_micro_usd": draw(st.sampled_from([0, 1_000_000, 5_000_000])),
            "needs": frozenset(name for name in sorted(entries) if draw(st.booleans())),
        }
        if not draw(st.booleans()):
            return Option(usage=usage(), **own)
        slots = st.lists(st.integers(0, 5), min_size=hours, max_size=hours)
        return Option(usage={}, slots={draw(st.sampled_from(SHARED)): np.array(draw(slots), dtype=np.int64)}, **own)

    options = tuple(tuple(option() for _ in range(draw(st.integers(0, 3)))) for _ in range(workloads))
    groups = tuple(
        NodeGroup(
            usage={draw(st.sampled_from([A, B])): np.array(draw(row), dtype=np.int64)},
            holders=frozenset(draw(st.sets(st.integers(0, workloads - 1), min_size=1))),
        )
        for _ in range(draw(st.integers(1, 3)))
    )
    rate = st.integers(100_000, 9_000_000)
    rates = {A: draw(rate), B: draw(rate), SPOT: draw(rate)}
    offers = tuple(
        nodes_of(pool, int(rates[pool] * draw(st.floats(0.3, 0.9))))
        for pool in sorted(draw(st.sets(st.sampled_from([A, B]))))
    )
    return Problem(
        options=options,
        groups=groups,
        rates_micro_usd_hr=rates,
        offers=offers,
        hours=hours,
        entries_micro_usd=entries,
    )


def choices(problem):
    return product(*[(KEEP, *range(len(options))) for options in problem.options])


def brute_force(problem):
    return min(choice_cost(problem, choice) for choice in choices(problem))


def rounding(problem):
    """What rounding each pool-hour of the bill to a micro-dollar can amount to, and of a spend plan's cover to a second."""
    has_plans = problem.spend_offers or problem.owned_spend
    second = sum(problem.rates_micro_usd_hr.values()) // 3600 if has_plans else 0
    return (10 + second) * problem.hours


def market_of(rates, folder, day):
    """Return the market of the catalog with one's own rates over it, given as the text of their file."""
    path = folder / "own.csv"
    path.write_text(rates)
    return Market(catalog=load_catalog(path), at=day, max_term_years=1, assumptions=Assumptions())


class KeptOutcomes(dict):
    """Outcomes by key, so that plans of one fleet share its replays."""

    def put(self, key, outcome):
        self[key] = outcome


def make_plan(*args, progress, **options):
    """Judge a fleet and choose, in one go."""
    return plan_of(judge(*args, progress=progress, **options), progress)
