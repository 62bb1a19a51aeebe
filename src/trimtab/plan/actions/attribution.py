"""Who earns what: Shapley values of a saving that several actions make together.

Actions interact where they touch the same workload, the same node group or the same commitment; other parts of the bill add up,
so that each connected component is a game of its own. A game of up to 12 players is enumerated; a larger one is sampled over
seeded permutations, each followed by its reverse (which still sum to the joint saving exactly), with an interval from the
spread of the pairs. Shapley (1953); for cost games Young (1985); sampling Castro, Gomez and Tejada (2009), reversed pairs
Mitchell, Cooper, Frank and Holmes (2022).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import comb

import numpy as np

from trimtab.ledger.arrays import FloatArray
from trimtab.units import apportion

EXACT_PLAYERS = 12
PAIRS = 200
"""Permutations sampled, each with its reverse."""
CONFIDENCE_FRAC = 0.95
_QUANTILE = 1.972
"""Of Student's t with 199 degrees of freedom at 97.5 %, for the interval of a mean of 200 pairs."""

Value = Callable[[frozenset[int]], int]
"""The saving of a set of actions, in micro-dollars; the empty set saves 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShapleyShares:
    """Per action: its share of the joint saving, what it saves alone, what is lost without it (micro-dollars)."""

    shapley: tuple[int, ...]
    shapley_low: tuple[int, ...]
    """Lower end of the 95 % sampling interval; the share itself where the game was enumerated."""
    shapley_high: tuple[int, ...]
    standalone: tuple[int, ...]
    last_in: tuple[int, ...]
    sampled: bool


def components(players: int, touches: Sequence[Iterable[Hashable]]) -> list[list[int]]:
    """Group players that touch a common thing, directly or through others; `touches` lists the things of each player."""
    parent = list(range(players))

    def root(player: int) -> int:
        while parent[player] != player:
            parent[player] = parent[parent[player]]
            player = parent[player]
        return player

    owner: dict[Hashable, int] = {}
    for player, things in enumerate(touches):
        for thing in things:
            parent[root(player)] = root(owner.setdefault(thing, player))
    groups: dict[int, list[int]] = {}
    for player in range(players):
        groups.setdefault(root(player), []).append(player)
    return list(groups.values())


def attribute(
    value: Value, groups: Sequence[Sequence[int]], players: int, *, seed: int, waits: bool = False
) -> ShapleyShares:
    """Return each player's shares; the Shapley values sum to `value(all players)` exactly.

    Where a player `waits`, one that takes from a sampled order's value so far is counted with the one that makes up for it; no
    set may then be worth more than its whole group.
    Rounding of single bill lines lets components add up to within micro-dollars only: what is left goes to the largest shares.
    """
    everyone = frozenset(range(players))
    joint = value(everyone)
    exact, half_width = np.zeros(players), np.zeros(players)
    for group in groups:
        members = np.asarray(group, dtype=np.int64)
        if len(group) <= EXACT_PLAYERS:
            exact[members] = _enumerated(value, group)
        else:
            exact[members], half_width[members] = _sampled(value, group, seed, waits=waits)
    shapley = _rounded(exact, joint)
    widths = [int(np.ceil(width)) for width in half_width]
    return ShapleyShares(
        shapley=tuple(shapley),
        shapley_low=tuple(share - width for share, width in zip(shapley, widths, strict=True)),
        shapley_high=tuple(share + width for share, width in zip(shapley, widths, strict=True)),
        standalone=tuple(value(frozenset({player})) for player in range(players)),
        last_in=tuple(joint - value(everyone - {player}) for player in range(players)),
        sampled=any(len(group) > EXACT_PLAYERS for group in groups),
    )


def _enumerated(value: Value, group: Sequence[int]) -> list[float]:
    known = {
        frozenset(some): value(frozenset(some)) for size in range(len(group) + 1) for some in combinations(group, size)
    }
    shares = []
    for player in group:
        others = [other for other in group if other != player]
        share = 0.0
        for size in range(len(group)):
            weight = 1.0 / (len(group) * comb(len(others), size))
            gain = sum(
                known[frozenset({*some, player})] - known[frozenset(some)] for some in combinations(others, size)
            )
            share += weight * gain
        shares.append(share)
    return shares


def _sampled(value: Value, group: Sequence[int], seed: int, *, waits: bool) -> tuple[FloatArray, FloatArray]:
    """Return each player's mean gain over the sampled orders, and half the width of its interval."""
    rng = np.random.default_rng(seed)
    gains = np.zeros((PAIRS, len(group)))
    for pair in range(PAIRS):
        order = rng.permutation(len(group)).tolist()
        for one_way in (order, order[::-1]):
            before, so_far = 0, frozenset[int]()
            for place in one_way:
                so_far |= {group[place]}
                after = max(before, value(so_far)) if waits else value(so_far)
                gains[pair, place] += (after - before) / 2
                before = after
    spread = gains.std(axis=0, ddof=1) / np.sqrt(PAIRS)
    return np.asarray(gains.mean(axis=0)), np.asarray(_QUANTILE * spread)


def _rounded(exact: FloatArray, joint: int) -> list[int]:
    parts = [int(np.floor(share)) for share in exact]
    rest = apportion(joint - sum(parts), np.abs(exact).tolist())
    return [part + extra for part, extra in zip(parts, rest, strict=True)]
