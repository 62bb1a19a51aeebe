"""One-sided limits of how much worse a candidate answers the same questions: paired shares, and paired means.

A *loss* is the baseline's mean score less the candidate's, as a share of the score's scale: above 0 the candidate is worse.
Both limits of a loss are one-sided: each is wrong with probability at most `alpha`. A limit below a margin is therefore a test
of non-inferiority at that margin with a false accept in at most `alpha` of evaluations.

Right or wrong (0 and 1). Of n questions the baseline alone answers b right, the candidate alone c. The score test of b - c
against its value at a loss of d, n d, has the variance n (2 q + d (1 - d)), where q is the maximum-likelihood share of c under
that loss: the root of 2 n q^2 + ((2 n - b + c) d - b - c) q - c d (1 - d) = 0 (Tango, Statistics in Medicine 17, 1998, pages
891-908). b - c moves in whole steps, so half a step is taken off (Yates' correction): without it the test accepts up to 5.5 %
where 5 % is promised, with it at most 5.0 % (counted over all outcomes; `python -m benchmarks.quality`).

Any other score. Student's t of the differences has no protection where losses are rare and large: all differences seen may be
0. So one pair that loses the whole scale is added before the upper limit is taken (one that gains it before the lower), and the
limit is moved outwards where differences are skewed that way (Hall, Journal of the Royal Statistical Society B 54, 1992, pages
221-228: by (1 + 2 t^2) g / (6 sqrt n) standard errors, g their skewness).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from trimtab.ledger.arrays import FloatArray

_NORMAL = NormalDist()
_STEPS = 60
"""Halvings of an interval of length 2: below 1e-17."""
_LEAST_PAIRS = 10
"""Pairs of other scores than 0 and 1 below which no limit is stated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LossInterval:
    """The mean loss of some pairs and its one-sided limits, as shares of the scale; `sd_frac` is that of a pair."""

    pairs: int
    baseline_frac: float
    candidate_frac: float
    low_frac: float
    high_frac: float
    sd_frac: float

    @property
    def loss_frac(self) -> float:
        """Return the mean loss: above 0 the candidate is worse."""
        return self.baseline_frac - self.candidate_frac


def loss_interval(baseline: FloatArray, candidate: FloatArray, alpha: float) -> LossInterval:
    """Return the loss of scores in pairs, `(n,)` each, as shares of the scale (0..1, or any finite number).

    Raises ValueError without pairs. Limits are infinite where there are too few pairs of scores other than 0 and 1.
    """
    if len(baseline) == 0 or len(baseline) != len(candidate):
        raise ValueError(f"{len(baseline)} and {len(candidate)} scores do not pair")
    losses = baseline - candidate
    low, high = (_share_limits if is_binary(baseline, candidate) else _mean_limits)(losses, alpha)
    return LossInterval(
        pairs=len(losses),
        baseline_frac=float(baseline.mean()),
        candidate_frac=float(candidate.mean()),
        low_frac=low,
        high_frac=high,
        sd_frac=float(losses.std()),
    )


def is_binary(*scores: FloatArray) -> bool:
    """Say whether all scores are 0 or 1."""
    return all(bool(np.all((found == 0) | (found == 1))) for found in scores)


def _share_limits(losses: FloatArray, alpha: float) -> tuple[float, float]:
    lost, gained = int((losses > 0).sum()), int((losses < 0).sum())
    # losing and gaining change places in the mirror
    return -share_upper_limit(gained, lost, len(losses), alpha), share_upper_limit(lost, gained, len(losses), alpha)


def share_upper_limit(lost: int, gained: int, pairs: int, alpha: float) -> float:
    """Return the largest loss that a one-sided score test at level alpha does not refuse (see the module's text).

    >>> round(share_upper_limit(0, 0, 363, 0.05), 4)
    0.01
    """
    critical = _NORMAL.inv_cdf(alpha)
    low, high = (lost - gained) / pairs, 1.0
    # the statistic falls as the loss under test rises
    for _ in range(_STEPS):
        middle = (low + high) / 2
        low, high = (low, middle) if _score(lost, gained, pairs, middle) <= critical else (middle, high)
    return high


def _score(lost: int, gained: int, pairs: int, loss_frac: float) -> float:
    """Return the standardised distance of what was seen from a loss under test."""
    linear = (2 * pairs - lost + gained) * loss_frac - lost - gained
    constant = -gained * loss_frac * (1 - loss_frac)
    gained_frac = (math.sqrt(max(linear**2 - 8 * pairs * constant, 0.0)) - linear) / (4 * pairs)
    variance = pairs * (2 * gained_frac + loss_frac * (1 - loss_frac))
    distance = lost - gained - pairs * loss_frac + 0.5
    return distance / math.sqrt(variance) if variance > 0 else math.copysign(math.inf, distance)


def _mean_limits(losses: FloatArray, alpha: float) -> tuple[float, float]:
    if len(losses) < _LEAST_PAIRS:
        return -math.inf, math.inf
    return -mean_upper_limit(-losses, alpha), mean_upper_limit(losses, alpha)


def mean_upper_limit(losses: FloatArray, alpha: float) -> float:
    """Return the upper limit of a mean loss: Student's t with one whole loss added, moved up for skewness (see above)."""
    seen = np.append(losses, 1.0)
    count, mean = len(seen), float(seen.mean())
    spread = float(seen.std(ddof=1))
    skewness = float(((seen - mean) ** 3).mean()) / spread**3 if spread > 0 else 0.0
    quantile = t_quantile(1 - alpha, count - 1)
    shift = (1 + 2 * quantile**2) * max(skewness, 0.0) / (6 * math.sqrt(count))
    return mean + (quantile + shift) * spread / math.sqrt(count)


def t_quantile(probability: float, freedom: int) -> float:
    """Return Student's quantile by its expansion in the normal one (Abramowitz and Stegun 26.7.5), within 0.001 from 10 on.

    >>> round(t_quantile(0.95, 30), 3)
    1.697
    """
    z = _NORMAL.inv_cdf(probability)
    first = (z**3 + z) / 4
    second = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return z + first / freedom + second / freedom**2 + third / freedom**3


def pairs_needed(sd_frac: float, gap_frac: float, alpha: float, power: float) -> int | None:
    """Return the pairs by which a gap between loss and margin is told with that power; None for more than anybody has.

    n = ((z_alpha + z_power) sd / gap)^2, the sample size of a one-sided test of a mean of known spread.
    """
    if gap_frac <= 0:
        return None
    z = -_NORMAL.inv_cdf(alpha) + _NORMAL.inv_cdf(power)
    needed = math.ceil((z * sd_frac / gap_frac) ** 2)
    return needed if needed <= _MOST_PAIRS else None


_MOST_PAIRS = 1_000_000
"""No evaluation has more questions."""
