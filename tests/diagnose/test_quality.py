"""Verdicts on a candidate: pairing, slices, looks, and the plan for production."""

import math

import numpy as np
import pytest

from trimtab.diagnose.quality import (
    Evaluation,
    PairedAnswers,
    QualityRule,
    QualityVerdict,
    ScoredAnswer,
    alarm_quantile,
    judged,
    look_alpha,
    paired,
    watch_plan,
)
from trimtab.errors import InputError, UsageError


def side(name, scores, task="t", **more):
    answers = tuple(
        ScoredAnswer(task=task, id=str(at), score=score, file=f"{name}.jsonl", row=at + 1)
        for at, score in enumerate(scores)
    )
    return Evaluation(name=name, answers=answers, metrics={task: "acc"}, settings={task: "version 1"}, **more)


def pairs_of(baseline, candidate, **slices):
    return PairedAnswers(
        ids=tuple(map(str, range(len(baseline)))),
        baseline=np.array(baseline, dtype=float),
        candidate=np.array(candidate, dtype=float),
        slices={name: np.array(at) for name, at in slices.items()},
    )


def answers(right, lost, gained, wrong):
    """Return both sides' scores from the four counts of a paired table."""
    return [1] * (right + lost) + [0] * (gained + wrong), [1] * right + [0] * lost + [1] * gained + [0] * wrong


@pytest.mark.parametrize(
    ("counts", "verdict"),
    [
        ((3_500, 40, 40, 1_420), QualityVerdict.ACCEPT),
        ((3_300, 240, 40, 1_420), QualityVerdict.REJECT),
        ((70, 3, 2, 25), QualityVerdict.MORE),
    ],
)
def test_the_verdict_follows_from_the_paired_table(counts, verdict):
    assert judged(pairs_of(*answers(*counts)), QualityRule()).verdict is verdict


def test_one_slice_that_surely_loses_more_refuses_a_candidate_that_is_fine_elsewhere():
    fine, harmed = answers(3_800, 10, 40, 1_000), answers(150, 30, 0, 20)
    both = [one + other for one, other in zip(fine, harmed, strict=True)]
    at = list(range(len(fine[0]), len(both[0])))

    found = judged(pairs_of(*both, **{"subject=law": at, "subject=other": list(range(len(fine[0])))}), QualityRule())

    assert found.verdict is QualityVerdict.REJECT
    assert "subject=law" in found.because
    assert found.slices[0].fails
    assert judged(pairs_of(*both), QualityRule()).verdict is QualityVerdict.ACCEPT


def test_errors_of_all_looks_add_up_to_five_percent():
    assert math.fsum(look_alpha(look) for look in range(1, 30)) == pytest.approx(0.05)
    assert look_alpha(2) < look_alpha(1)


def test_undecided_says_how_many_fresh_pairs_would_tell():
    found = judged(pairs_of(*answers(690, 25, 25, 260)), QualityRule())

    assert found.verdict is QualityVerdict.MORE
    # ((z of 0.8 % + z of 80 %) x sqrt(0.05) / 0.01)^2 = ((2.41 + 0.84) x 22.4)^2
    assert found.more_pairs == pytest.approx(5_290, rel=0.02)


def test_questions_of_an_earlier_look_do_not_count_again():
    first = paired(side("a", [1, 0, 1]), side("b", [1, 1, 1]))
    longer = paired(side("a", [1, 0, 1, 1, 0]), side("b", [1, 1, 1, 0, 0]), seen=frozenset(first.ids))

    assert len(longer.ids) == 2
    assert not set(longer.ids) & set(first.ids)
    with pytest.raises(InputError, match="fresh"):
        paired(side("a", [1, 0, 1]), side("b", [1, 1, 1]), seen=frozenset(first.ids))


def test_every_score_that_is_no_number_is_named_with_its_row():
    with pytest.raises(InputError, match=r"(?s)2 fault.*b.jsonl, row 2.*nan.*row 3.*inf.*score the answer"):
        paired(side("a", [1, 0, 1]), side("b", [1, math.nan, math.inf]))


def test_an_id_that_stands_twice_is_refused():
    twice = side("a", [1, 0])
    doubled = Evaluation(
        name="b", answers=side("b", [1, 0]).answers + side("b", [1]).answers, metrics={"t": "acc"}, settings={}
    )

    with pytest.raises(InputError, match=r"same id as in row 1 of b\.jsonl"):
        paired(twice, doubled)


def test_answers_without_a_partner_are_refused_or_counted():
    with pytest.raises(InputError, match=r"(?s)1 answers do not pair.*a.jsonl, row 3.*--drop-unpaired"):
        paired(side("a", [1, 0, 1]), side("b", [1, 1]))

    found = paired(side("a", [1, 0, 1]), side("b", [1, 1]), drop_unpaired=True)

    assert len(found.ids) == 2
    assert found.left_out == ("1 answers without a partner in b are left out",)


def test_other_tasks_metrics_settings_or_questions_are_refused():
    one = side("a", [1, 0])
    with pytest.raises(InputError, match="different tasks: only a has t; only b has u"):
        paired(one, side("b", [1, 0], task="u"))
    with pytest.raises(InputError, match="different metrics in 1 task"):
        paired(one, Evaluation(name="b", answers=one.answers, metrics={"t": "f1"}, settings={}))
    with pytest.raises(InputError, match=r"different settings.*version 1 in a and version 2 in b"):
        paired(one, Evaluation(name="b", answers=one.answers, metrics={"t": "acc"}, settings={"t": "version 2"}))
    asked = [ScoredAnswer(task="t", id="0", score=1, file=name, row=1, question=name) for name in "ab"]
    with pytest.raises(InputError, match="the question is not the one of the baseline"):
        paired(*(Evaluation(name=ask.file, answers=(ask,), metrics={"t": "acc"}, settings={}) for ask in asked))


def test_scores_outside_0_to_1_need_their_scale():
    with pytest.raises(InputError, match=r"outside 0\.\.1"):
        paired(side("a", [40.0, 60.0]), side("b", [41.0, 59.0]))

    assert paired(side("a", [40.0, 60.0]), side("b", [41.0, 59.0]), scale=100).baseline.tolist() == [0.4, 0.6]


def test_where_lower_is_better_a_rise_is_a_loss():
    found = paired(side("a", [0.0, 0.0], lower_is_better=True), side("b", [1.0, 0.0], lower_is_better=True))

    assert found.baseline.mean() > found.candidate.mean()


def test_a_watched_drop_is_noticed_and_a_steady_service_seldom_alarms():
    plan = watch_plan(drop_frac=0.02, days=7, discordant_frac=0.08, right_frac=0.7)
    rng = np.random.default_rng(5)
    requests, draws = plan.paired_requests_per_day * plan.days, 20_000

    def alarms(lost, gained):
        counts = rng.multinomial(requests, [lost, gained, 1 - lost - gained], size=draws)
        return np.mean((counts[:, 1] - counts[:, 0]) / requests < -plan.paired_alarm_frac)

    assert alarms(0.06, 0.04) >= 0.88
    assert alarms(0.04, 0.04) <= 1.3 / 365
    assert plan.alone_requests_per_day > 2 * plan.paired_requests_per_day
    assert alarm_quantile() == pytest.approx(2.78, abs=0.01)


def test_a_plan_for_a_drop_to_nothing_is_refused():
    with pytest.raises(UsageError, match="leaves nothing"):
        watch_plan(drop_frac=0.5, days=7, discordant_frac=0.1, right_frac=0.4)
