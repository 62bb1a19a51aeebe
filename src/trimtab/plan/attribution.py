"""Who earns what: Shapley values of a saving that several actions make together.

Actions interact where they touch the same workload, the same node group or the same commitment; other parts of the bill add up,
so that each connected component is a game of its own. A game of up to 12 players is enumerated; a larger one is sampled over
seeded permutations (which still sum to the joint saving exactly). Shapley (1953); for cost games see Young (1985).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import comb

import numpy as np

from trimtab.units import apportion

EXACT_PLAYERS = 12
_PERMUTATIONS = 400

Value = Callable[[frozenset[int]], int]
"""The saving of a set of actions, in micro-dollars; the empty set saves 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shares:
    """Per action: its share of the joint saving, what it saves alone, what is lost without it (micro-dollars)."""

    shapley: tuple[int, ...]
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


def attribute(value: Value, groups: Sequence[Sequence[int]], players: int, *, seed: int) -> Shares:
    """Return each player's shares; the Shapley values sum to `value(all players)` exactly.

    Rounding of single bill lines lets components add up to within micro-dollars only: what is left goes to the largest shares.
    """
    everyone = frozenset(range(players))
    joint = value(everyone)
    exact = np.zeros(players)
    for group in groups:
        shares = _enumerated(value, group) if len(group) <= EXACT_PLAYERS else _sampled(value, group, seed)
        for player, share in zip(group, shares, strict=True):
            exact[player] = share
    return Shares(
        shapley=tuple(_rounded(exact, joint)),
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


def _sampled(value: Value, group: Sequence[int], seed: int) -> list[float]:
    rng = np.random.default_rng(seed)
    total = dict.fromkeys(group, 0)
    for _ in range(_PERMUTATIONS):
        before, so_far = 0, frozenset[int]()
        for player in rng.permutation(np.asarray(group)).tolist():
            so_far |= {player}
            after = value(so_far)
            total[player] += after - before
            before = after
    return [total[player] / _PERMUTATIONS for player in group]


def _rounded(exact: np.ndarray[tuple[int], np.dtype[np.float64]], joint: int) -> list[int]:
    parts = [int(np.floor(share)) for share in exact]
    rest = apportion(joint - sum(parts), np.abs(exact).tolist())
    return [part + extra for part, extra in zip(parts, rest, strict=True)]
