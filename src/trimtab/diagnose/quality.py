"""Judge whether a candidate answers as well as a baseline, and how many requests a day to check once it serves.

**Accept** where the upper limit of the loss over all pairs lies below the margin, and no slice surely loses more than it.
**Reject** where the lower limit of the loss over all pairs, or of one slice, lies above the margin. Else the samples do not
tell, and the answer says how many more would.

A *loss* is the baseline's mean score less the candidate's, as a share of the score's scale: above 0 the candidate is worse.
Both limits of a loss are one-sided: each is wrong with probability at most `alpha`. A limit below a margin is therefore a test
of non-inferiority at that margin with a false accept in at most `alpha` of evaluations.

*Right or wrong* (0 and 1). Of n questions the baseline alone answers b right, the candidate alone c. The score test of b - c
against its value at a loss of d, n d, has the variance n (2 q + d (1 - d)), where q is the maximum-likelihood share of c under
that loss: the root of 2 n q^2 + ((2 n - b + c) d - b - c) q - c d (1 - d) = 0 (Tango, Statistics in Medicine 17, 1998, pages
891-908). b - c moves in whole steps, so half a step is taken off (Yates' correction): without it the test accepts up to 5.5 %
where 5 % is promised, with it at most 5.0 % (counted over all outcomes; `python -m benchmarks.quality`).

*Any other score*. Student's t of the differences has no protection where losses are rare and large: all differences seen may be
0. So one pair that loses the whole scale is added before the upper limit is taken (one that gains it before the lower), and the
limit is moved outwards where differences are skewed that way (Hall, Journal of the Royal Statistical Society B 54, 1992, pages
221-228: by (1 + 2 t^2) g / (6 sqrt n) standard errors, g their skewness).

**Slices** can only refuse. An accept passes one test, that of all pairs: slices cannot raise the rate of false accepts, and
that test needs no correction. But each slice is a further chance to refuse a candidate that is fine. So with m slices each
limit is taken at alpha / m (Bonferroni), which holds whatever slices share. Whether *any* slice fails is the first step of
Holm's procedure, so Holm's would decide alike. A candidate that loses no more than the margin anywhere is refused by the test
of all pairs in at most 5 % of evaluations, and by its slices in at most 5 %.

**Looks.** Who looks, sees that it is not enough, evaluates more and looks again has several chances of a false accept. So the
first look spends 0.8 of the error (4 of 5 %), and each further look 0.8 of what is left (0.8 %, 0.16 %, ...): however many
there are, they add up to 5 %. A later look judges fresh questions only. Its size was chosen by what was seen before, and only
questions that were not seen are independent of that choice.

Each day the mean over the last `days` days is compared with what it was. An alarm is a mean that lies so low that chance puts
it there on one day in 365: at most one false alarm a year, whatever days share. A drop is noticed within `days` days in 9 of 10
cases, since the window lies wholly behind the drop then. With z the normal quantiles of both:

    requests = (z_alarm sd_before + z_noticed sd_after)^2 / drop^2

*Paired*: a copy of a request goes to the former model too (a shadow), and both answers are scored; sd is that of the
differences, sqrt(p) with p the share of questions on which exactly one of both is right, and sqrt(p + drop - drop^2) once as
many more are lost. *Alone*: only the served answer is scored and compared with the share a that was right in the evaluation;
sd is sqrt(a (1 - a)). Formulas: Fleiss, Levin and Paik, Statistical Methods for Rates and Proportions, 3rd edition, chapters 4
and 13.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from statistics import NormalDist

import numpy as np

from trimtab.errors import Fault, InputError, UsageError, fault_count
from trimtab.ledger.arrays import FloatArray, IntArray

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


FALSE_ACCEPT_FRAC = 0.05
"""Of all evaluations of a candidate that loses exactly the margin, at most so many accept it, over all looks."""
POWER = 0.8
"""With which the further samples would tell."""
ALL = "all"
_FIRST_SHARE = 0.8
_SHOWN_FAULTS = 10


class QualityVerdict(Enum):
    """What the samples say of a candidate."""

    ACCEPT = "accept"
    REJECT = "reject"
    MORE = "more samples"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoredAnswer:
    """One question's score, where it stands (`row` counts from 1), and what the question was, if the log says."""

    task: str
    id: str
    score: float
    file: str
    row: int
    slices: tuple[tuple[str, str], ...] = ()
    """Pairs of a field and its value: (`subject`, `anatomy`)."""
    question: str = ""
    """A digest of the question itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """The answers of one model, one metric a task."""

    name: str
    answers: tuple[ScoredAnswer, ...]
    metrics: Mapping[str, str]
    """Task -> the metric that its scores are."""
    settings: Mapping[str, str]
    """Task -> how it was run, where the log says: version, number of examples in the prompt."""
    lower_is_better: bool = False
    left_out: tuple[str, ...] = ()
    """What was read and not taken, and why."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PairedAnswers:
    """The questions that both answered; scores as shares of the scale, higher is better."""

    ids: tuple[str, ...]
    baseline: FloatArray
    candidate: FloatArray
    slices: Mapping[str, IntArray]
    """Name of a slice (`subject=anatomy`) -> indices of its pairs."""
    left_out: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class QualityRule:
    """The loss that is tolerated, and which look at the candidate this is."""

    margin_frac: float = 0.01
    look: int = 1

    @property
    def alpha(self) -> float:
        """Return the error that this look may spend."""
        return look_alpha(self.look)


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedSlice:
    """A slice, its loss at corrected limits, and whether it surely loses more than the margin."""

    name: str
    loss: LossInterval
    fails: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class QualityFinding:
    """The verdict, what decided it, all pairs and the slices, worst first."""

    verdict: QualityVerdict
    because: str
    rule: QualityRule
    overall: LossInterval
    slices: tuple[JudgedSlice, ...]
    binary: bool
    more_pairs: int | None
    """Fresh pairs that would decide with a power of 80 % if the loss is what was seen; None where decided, or hopeless."""
    more_pairs_if_equal: int | None
    """The same if the candidate is as good as the baseline."""


def look_alpha(look: int) -> float:
    """Return the error that a look may spend: 4 %, 0.8 %, 0.16 %, ..., which add up to 5 %."""
    return FALSE_ACCEPT_FRAC * _FIRST_SHARE * (1 - _FIRST_SHARE) ** (look - 1)


def judged(pairs: PairedAnswers, rule: QualityRule) -> QualityFinding:
    """Return the verdict on a candidate."""
    overall = loss_interval(pairs.baseline, pairs.candidate, rule.alpha)
    if not math.isfinite(overall.high_frac):
        raise InputError(
            f"{overall.pairs} pairs of scores other than 0 and 1 are too few to judge: evaluate 100 or more"
        )
    count = max(1, len(pairs.slices))
    slices = []
    for name, at in pairs.slices.items():
        loss = loss_interval(pairs.baseline[at], pairs.candidate[at], rule.alpha / count)
        slices.append(JudgedSlice(name=name, loss=loss, fails=loss.low_frac > rule.margin_frac))
    worst_first = tuple(sorted(slices, key=lambda part: (not part.fails, -part.loss.loss_frac, part.name)))
    verdict, because = _verdict(overall, worst_first, rule)
    return QualityFinding(
        verdict=verdict,
        because=because,
        rule=rule,
        overall=overall,
        slices=worst_first,
        binary=is_binary(pairs.baseline, pairs.candidate),
        more_pairs=_more(overall, rule, max(overall.loss_frac, 0.0)) if verdict is QualityVerdict.MORE else None,
        more_pairs_if_equal=_more(overall, rule, 0.0) if verdict is QualityVerdict.MORE else None,
    )


def _verdict(overall: LossInterval, slices: Sequence[JudgedSlice], rule: QualityRule) -> tuple[QualityVerdict, str]:
    margin = points(rule.margin_frac)
    if overall.low_frac > rule.margin_frac:
        return QualityVerdict.REJECT, f"it surely loses at least {points(overall.low_frac)} points, more than {margin}"
    failing = [part for part in slices if part.fails]
    if failing:
        named = ", ".join(f"{part.name} (at least {points(part.loss.low_frac)} points)" for part in failing[:3])
        return QualityVerdict.REJECT, f"{len(failing)} of {len(slices)} slices surely lose more than {margin}: {named}"
    # written as a negation, so that a limit that could not be computed accepts nothing
    if not overall.high_frac < rule.margin_frac:
        return QualityVerdict.MORE, f"the loss may be as much as {points(overall.high_frac)} points, more than {margin}"
    return QualityVerdict.ACCEPT, f"it loses less than {points(overall.high_frac)} points, so less than {margin}"


def _more(overall: LossInterval, rule: QualityRule, loss_frac: float) -> int | None:
    """Return the fresh pairs by which the next look tells a loss from the margin."""
    # no difference seen yet is no proof that there is none: half a question in the pairs that there are
    sd = max(overall.sd_frac, math.sqrt(0.5 / overall.pairs))
    return pairs_needed(sd, abs(rule.margin_frac - loss_frac), look_alpha(rule.look + 1), POWER)


def points(share_frac: float) -> str:
    """Return a share of the scale in points, hundredths of it."""
    return f"{100 * share_frac:.2f}"


def paired(
    baseline: Evaluation,
    candidate: Evaluation,
    *,
    scale: float | None = None,
    drop_unpaired: bool = False,
    seen: frozenset[str] = frozenset(),
) -> PairedAnswers:
    """Pair the answers of two models to the same questions.

    `scale` is the width of the score's scale (1 where all scores lie in 0..1 and none is given); `seen` are digests of
    questions that an earlier look judged, which are left out. Raises InputError where tasks, metrics, settings or questions
    differ, where a score is not finite or stands twice, and where ids do not pair unless these are to be dropped.
    """
    _same_tasks(baseline, candidate)
    left, right = _by_key(baseline), _by_key(candidate)
    _same_questions(left, right)
    notes = [*baseline.left_out, *candidate.left_out]
    notes += _unpaired(left, right, baseline, candidate, drop=drop_unpaired)
    keys = sorted(key for key in left if key in right and digest_of(key) not in seen)
    if seen:
        notes.append(f"{len(left.keys() & right.keys()) - len(keys)} questions of earlier looks are left out")
    if not keys:
        raise InputError(
            f"no question of {baseline.name} is left to compare with {candidate.name}; evaluate fresh ones on both sides"
        )
    width = _scale(scale, left.values(), right.values())
    shares = [np.array([side[key].score for key in keys]) / width for side in (left, right)]
    if baseline.lower_is_better:
        notes.append("lower is better: scores are shown as 1 - score")
        shares = [1 - share for share in shares]
    return PairedAnswers(
        ids=tuple(digest_of(key) for key in keys),
        baseline=shares[0],
        candidate=shares[1],
        slices=_slices([left[key] for key in keys]),
        left_out=tuple(dict.fromkeys(notes)),
    )


_Key = tuple[str, str]


def digest_of(key: tuple[str, str]) -> str:
    """Return what stands for a question (task, id) in the record of a look: 12 hexadecimal digits."""
    return hashlib.sha256("\x1f".join(key).encode()).hexdigest()[:12]


def _same_tasks(baseline: Evaluation, candidate: Evaluation) -> None:
    mine, theirs = set(baseline.metrics), set(candidate.metrics)
    if mine != theirs:
        alone = [f"{name} has {', '.join(sorted(extra)[:5])}" for name, extra in
                 ((baseline.name, mine - theirs), (candidate.name, theirs - mine)) if extra]  # fmt: skip
        raise InputError(f"the two sides ran different tasks: only {'; only '.join(alone)}; run the same on both")
    for what, one, other in (
        ("metrics", baseline.metrics, candidate.metrics),
        ("settings", baseline.settings, candidate.settings),
    ):
        unlike = [task for task in sorted(mine) if task in one and task in other and one[task] != other[task]]
        if unlike:
            task = unlike[0]
            raise InputError(
                f"the two sides have different {what} in {len(unlike)} task(s): {task} has {one[task]} in {baseline.name} "
                f"and {other[task]} in {candidate.name}; evaluate both alike"
            )


def _by_key(evaluation: Evaluation) -> dict[_Key, ScoredAnswer]:
    """Return the answers by question; raises InputError with every score that is not finite and every id that stands twice."""
    found: dict[_Key, ScoredAnswer] = {}
    faults: list[Fault] = []
    for answer in evaluation.answers:
        key = answer.task, answer.id
        where = f"{answer.file}, row {answer.row}"
        if not math.isfinite(answer.score):
            cure = "score the answer (a failed one is 0), or leave the question out on both sides"
            faults.append(
                Fault(
                    what=f"the score of {answer.id} is not a finite number",
                    where=where,
                    value=str(answer.score),
                    cure=cure,
                )
            )
        elif key in found:
            first = found[key]
            cure = "keep one answer a question; several trials of one must be averaged"
            faults.append(
                Fault(
                    what=f"the same id as in row {first.row} of {first.file}", where=where, value=answer.id, cure=cure
                )
            )
        found.setdefault(key, answer)
    if faults:
        raise InputError(_listed(f"{fault_count(faults)} in {evaluation.name}", faults))
    return found


def _same_questions(left: Mapping[_Key, ScoredAnswer], right: Mapping[_Key, ScoredAnswer]) -> None:
    faults = [
        Fault(
            what="the question is not the one of the baseline under this id",
            where=f"{right[key].file}, row {right[key].row}",
            value=f"{key[0]} {key[1]}",
            cure="evaluate both on the same version of the data",
        )
        for key, answer in left.items()
        if key in right and answer.question and right[key].question and answer.question != right[key].question
    ]
    if faults:
        raise InputError(_listed(f"{len(faults)} question(s) differ", faults))


def _unpaired(
    left: Mapping[_Key, ScoredAnswer],
    right: Mapping[_Key, ScoredAnswer],
    baseline: Evaluation,
    candidate: Evaluation,
    *,
    drop: bool,
) -> list[str]:
    """Say which answers have no partner; raises InputError unless they are to be dropped."""
    notes: list[str] = []
    faults: list[Fault] = []
    for mine, other, name in ((left, right, candidate.name), (right, left, baseline.name)):
        alone = [answer for key, answer in mine.items() if key not in other]
        if alone:
            notes.append(f"{len(alone)} answers without a partner in {name} are left out")
        faults += [
            Fault(what=f"no answer under this id in {name}", where=f"{answer.file}, row {answer.row}",
                  value=f"{answer.task} {answer.id}".strip())
            for answer in alone
        ]  # fmt: skip
    if faults and not drop:
        cure = "answers that are missing may be the hard ones: run them again, or leave them out with --drop-unpaired"
        raise InputError(_listed(f"{len(faults)} answers do not pair", faults) + f"\n{cure}")
    return notes


def _listed(heading: str, faults: Sequence[Fault]) -> str:
    more = [f"  ... and {len(faults) - _SHOWN_FAULTS} more"] if len(faults) > _SHOWN_FAULTS else []
    return "\n".join([f"{heading}:", *(f"  - {fault}" for fault in faults[:_SHOWN_FAULTS]), *more])


def _scale(scale: float | None, *sides: Iterable[ScoredAnswer]) -> float:
    if scale is not None:
        return scale
    for answer in (answer for side in sides for answer in side):
        if not 0 <= answer.score <= 1:
            raise InputError(
                f"{answer.file}, row {answer.row}: the score {answer.score:g} lies outside 0..1, so a point could mean "
                "anything; say how wide the scale is, such as --scale 100"
            )
    return 1.0


def _slices(answers: Sequence[ScoredAnswer]) -> dict[str, IntArray]:
    """Return the pairs of each slice: tasks where there are several, and each value of a field that has several."""
    places: dict[tuple[str, str], list[int]] = {}
    for at, answer in enumerate(answers):
        for field, value in (("task", answer.task), *answer.slices):
            if value:
                places.setdefault((field, value), []).append(at)
    found: dict[tuple[int, ...], str] = {}
    for (field, value), members in places.items():
        pairs = tuple(members)
        # what holds all pairs, or those of another slice, would only be judged twice
        if len(pairs) < len(answers):
            found.setdefault(pairs, f"{field}={value}")
    by_name = sorted(found.items(), key=lambda part: part[1])
    return {name: np.array(members, dtype=np.int64) for members, name in by_name}


FALSE_ALARMS_A_YEAR = 1.0
NOTICED_FRAC = 0.9
_DAYS_A_YEAR = 365


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchPlan:
    """Requests a day that are checked, in both ways, to notice a drop within some days."""

    drop_frac: float
    days: int
    paired_requests_per_day: int
    """Each is answered twice: by the served model and by the one before."""
    paired_alarm_frac: float
    """An alarm: the mean over the days lies so far below that of the evaluation."""
    alone_requests_per_day: int
    alone_alarm_frac: float


def watch_plan(*, drop_frac: float, days: int, discordant_frac: float, right_frac: float) -> WatchPlan:
    """Return the requests a day to check; `discordant_frac` and `right_frac` are those of the evaluation.

    Raises UsageError for a drop or a number of days that is not above 0, or a drop to below no right answer at all.
    """
    if not 0 < drop_frac < 1 or days < 1:
        raise UsageError("a plan needs a drop between 0 and 100 points and at least 1 day")
    if drop_frac >= right_frac:
        raise UsageError(f"a drop of {100 * drop_frac:g} points from {100 * right_frac:.1f} leaves nothing: give less")
    after = right_frac - drop_frac
    # at least the drop itself: those questions are lost by the served model alone
    shared = max(discordant_frac, drop_frac)
    paired_sd, alone_sd = math.sqrt(shared), math.sqrt(right_frac * (1 - right_frac))
    paired = _per_day(paired_sd, math.sqrt(shared + drop_frac - drop_frac**2), drop_frac, days)
    alone = _per_day(alone_sd, math.sqrt(after * (1 - after)), drop_frac, days)
    return WatchPlan(
        drop_frac=drop_frac,
        days=days,
        paired_requests_per_day=paired,
        paired_alarm_frac=_alarm(paired_sd, paired * days),
        alone_requests_per_day=alone,
        alone_alarm_frac=_alarm(alone_sd, alone * days),
    )


def alarm_quantile() -> float:
    """Return how many standard deviations below the former mean raises an alarm."""
    return -NormalDist().inv_cdf(FALSE_ALARMS_A_YEAR / _DAYS_A_YEAR)


def _alarm(sd_before: float, requests: int) -> float:
    # counts move in whole steps: half a step further keeps the promise on false alarms
    return alarm_quantile() * sd_before / math.sqrt(requests) + 0.5 / requests


def _per_day(sd_before: float, sd_after: float, drop_frac: float, days: int) -> int:
    z_noticed = NormalDist().inv_cdf(NOTICED_FRAC)
    needed = ((alarm_quantile() * sd_before + z_noticed * sd_after) / drop_frac) ** 2
    # the half step of the alarm is made up for by 1 / drop more
    return math.ceil((needed + 1 / drop_frac) / days)
