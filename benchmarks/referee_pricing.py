"""The cheapest mix of options for one workload of the referees' instance, exactly, at given prices on the quotas.

A mix buys whole units of several options, steady or on spot, so that capacity covers the demand and spot is at most a share of
the capacity; each option in use costs a fixed sum. Depth-first branch and bound over how many units of which option come
next. The bound of a branch: the linear mix of the best steady and best spot rate that is left, plus one more fixed sum, or
plus each unit's part of it. A branch is left when it cannot gain more than a tolerance, or when the nodes are spent; the
least bound of all that was left is what the workload costs at least.
"""

from __future__ import annotations

import heapq

import numba
import numpy as np

from trimtab.ledger.arrays import FloatArray, IntArray

_ROUNDING = 1e-9


@numba.njit(cache=True)
def _linear(steady_hr: float, spot_hr: float, best_steady: float, best_spot: float, demand: float, cap: float) -> float:
    """Return the least linear cost of completing a mix that holds so much steady and spot capacity."""
    total = max(demand, steady_hr + spot_hr)
    if cap > 0.0:
        total = max(total, spot_hr / cap)
    most_spot = spot_hr
    if best_spot < best_steady:
        most_spot = max(spot_hr, min(cap * total, total - steady_hr))
    return (total - most_spot - steady_hr) * best_steady + (most_spot - spot_hr) * best_spot


@numba.njit(cache=True)
def _rest(at: int, steady: float, spot: float, suffix: FloatArray, demand: float, cap: float, fixed: float) -> float:
    """Return a bound on completing a mix with the options from `at` on; rows of `suffix`: rates without and with fixed."""
    if at >= suffix.shape[1]:
        return np.inf
    alone = fixed + _linear(steady, spot, suffix[0, at], suffix[1, at], demand, cap)
    spread = _linear(steady, spot, suffix[2, at], suffix[3, at], demand, cap)
    return max(alone, spread)


@numba.njit(cache=True)
def _complete(steady: float, spot: float, demand: float, cap: float) -> bool:
    slack = _ROUNDING * (1.0 + demand)
    return steady + spot >= demand - slack and (1.0 - cap) * spot <= cap * steady + slack


@numba.njit(cache=True)
def _suffix(
    steady_cost: FloatArray, spot_cost: FloatArray, capacity: FloatArray, most: IntArray, fixed: float
) -> FloatArray:
    """Return the best rates per capacity among the options from each place on: steady, spot, then with the fixed part."""
    count = len(capacity)
    suffix = np.full((4, count), np.inf)
    for at in range(count - 1, -1, -1):
        share = fixed / most[at]
        rates = (steady_cost[at], spot_cost[at], steady_cost[at] + share, spot_cost[at] + share)
        for line in range(4):
            later = suffix[line, at + 1] if at + 1 < count else np.inf
            suffix[line, at] = min(rates[line] / capacity[at], later)
    return suffix


@numba.njit(cache=True)
def _spot_units(first: float, second: float, units: tuple[int, int], room: float) -> tuple[int, int]:
    """Return how many of two options' units go on spot when as many as fit of the first go first."""
    on_first = min(units[0], int((room + _ROUNDING) / first))
    on_second = min(units[1], int((room - on_first * first + _ROUNDING) / second))
    return on_first, on_second


@numba.njit(cache=True)
def _best_pair(
    steady_cost: FloatArray,
    spot_cost: FloatArray,
    capacity: FloatArray,
    most: IntArray,
    demand: float,
    cap: float,
    fixed: float,
) -> tuple[float, IntArray]:
    """Return the best mix of one or two options that fills spot greedily: where the search starts."""
    count = len(capacity)
    best, units = np.inf, np.zeros((2, count), dtype=np.int64)
    for i in range(count):
        for j in range(count):
            for n_i in range(1, most[i] + 1):
                rest = demand - n_i * capacity[i]
                n_j = 0 if i == j or rest <= 0 else int(np.ceil(rest / capacity[j] - _ROUNDING))
                if i == j and rest > _ROUNDING * demand:
                    continue
                room = cap * (n_i * capacity[i] + n_j * capacity[j])
                for turn in range(2):
                    if turn == 0:
                        s_i, s_j = _spot_units(capacity[i], capacity[j], (n_i, n_j), room)
                    else:
                        s_j, s_i = _spot_units(capacity[j], capacity[i], (n_j, n_i), room)
                    s_i = s_i if spot_cost[i] < steady_cost[i] else 0
                    s_j = s_j if spot_cost[j] < steady_cost[j] else 0
                    cost = fixed + (fixed if n_j else 0.0)
                    cost += (n_i - s_i) * steady_cost[i] + s_i * spot_cost[i]
                    cost += (n_j - s_j) * steady_cost[j] + s_j * spot_cost[j]
                    if cost < best:
                        best = cost
                        units[:] = 0
                        units[0, j], units[1, j] = n_j - s_j, s_j
                        units[0, i] += n_i - s_i
                        units[1, i] += s_i
                if rest <= 0:
                    break
    return best, units


@numba.njit(cache=True)
def _write(units: IntArray, steps: IntArray, node: int, at: int, number: int, on_spot: int) -> None:
    """Write the mix that a branch and one step more make."""
    units[:] = 0
    units[0, at], units[1, at] = number - on_spot, on_spot
    while node > 0:
        parent, option, taken, spot = steps[node]
        units[0, option], units[1, option] = taken - spot, spot
        node = parent


@numba.njit(cache=True)
def cheapest_mix(
    steady_cost: FloatArray,
    spot_cost: FloatArray,
    capacity: FloatArray,
    most: IntArray,
    demand: float,
    cap: float,
    fixed: float,
    tolerance: float,
    max_nodes: int,
) -> tuple[float, float, IntArray]:
    """Return (least cost found, certified bound, units (2, n_options): steady, spot), best branch first."""
    count = len(capacity)
    suffix = _suffix(steady_cost, spot_cost, capacity, most, fixed)
    best, units = _best_pair(steady_cost, spot_cost, capacity, most, demand, cap, fixed)
    steps = np.zeros((max_nodes, 4), dtype=np.int64)
    held = np.zeros((max_nodes, 3))
    open_nodes = [(_rest(0, 0.0, 0.0, suffix, demand, cap, fixed), 0)]
    steps[0, 1] = -1
    used, left = 1, np.inf
    while len(open_nodes):
        least, node = heapq.heappop(open_nodes)
        if least >= best * (1.0 - tolerance):
            left = min(left, least)
            break
        for at in range(steps[node, 1] + 1, count):
            cheapest = min(steady_cost[at], spot_cost[at])
            base = held[node, 2] + fixed
            for number in range(1, most[at] + 1):
                if base + number * cheapest >= best:
                    break
                for on_spot in range(number + 1 if cap > 0.0 else 1):
                    steady = held[node, 0] + (number - on_spot) * capacity[at]
                    spot = held[node, 1] + on_spot * capacity[at]
                    cost = base + (number - on_spot) * steady_cost[at] + on_spot * spot_cost[at]
                    if cost >= best:
                        continue
                    if _complete(steady, spot, demand, cap):
                        best = cost
                        _write(units, steps, node, at, number, on_spot)
                        continue
                    bound = cost + _rest(at + 1, steady, spot, suffix, demand, cap, fixed)
                    if bound >= best:
                        continue
                    if used >= max_nodes:
                        left = min(left, bound)
                        continue
                    steps[used, 0], steps[used, 1], steps[used, 2], steps[used, 3] = node, at, number, on_spot
                    held[used, 0], held[used, 1], held[used, 2] = steady, spot, cost
                    heapq.heappush(open_nodes, (bound, used))
                    used += 1
    return best, min(best, left), units


@numba.njit(cache=True)
def price_all(
    first: IntArray,
    steady_cost: FloatArray,
    spot_cost: FloatArray,
    price: FloatArray,
    capacity: FloatArray,
    most: IntArray,
    demand: FloatArray,
    cap: FloatArray,
    fixed: float,
    tolerance: float,
    max_nodes: int,
) -> tuple[FloatArray, FloatArray, IntArray]:
    """Price every workload; its options are `first[w]:first[w + 1]` of the flat arrays. Returns costs, bounds, units (2, n)."""
    count = len(demand)
    cost, bound = np.zeros(count), np.zeros(count)
    units = np.zeros((2, len(capacity)), dtype=np.int64)
    for w in range(count):
        lo, hi = first[w], first[w + 1]
        steady, spot = steady_cost[lo:hi] + price[lo:hi], spot_cost[lo:hi] + price[lo:hi]
        order = np.argsort((np.minimum(steady, spot) + fixed / most[lo:hi]) / capacity[lo:hi])
        best, least, mix = cheapest_mix(
            steady[order], spot[order], capacity[lo:hi][order], most[lo:hi][order],
            demand[w], cap[w], fixed, tolerance, max_nodes,
        )  # fmt: skip
        cost[w], bound[w] = best, least
        for place in range(len(order)):
            units[0, lo + order[place]] = mix[0, place]
            units[1, lo + order[place]] = mix[1, place]
    return cost, bound, units
