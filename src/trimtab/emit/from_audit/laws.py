"""Services' laws as parts of the audit's document."""

from __future__ import annotations

from trimtab.emit.document import BackTestPart, HeldPart, LawPart
from trimtab.emit.money import dollars
from trimtab.fleet.law_evidence import BackTest, BackTestedMeasure
from trimtab.plan.proof.law_report import LawFinding, LoadTest

_REQUESTS, _GPUS = "requests/s", "GPUs at work"
_DIGITS = 5


def law_part(found: LawFinding) -> LawPart:
    """Return a law's part."""
    test, unit = found.tested.back_test, _REQUESTS if found.requests else _GPUS
    return LawPart(
        workload=found.workload,
        bound=found.tested.bound.value,
        unit=unit,
        planned=_figure(found.top_req_s),
        shown=_figure(found.tested.shown_req_s),
        by_activity=_figure(found.tested.activity_req_s),
        back_test=_back_test(test) if isinstance(test, BackTest) else None,
        untested="" if isinstance(test, BackTest) else test,
        load_test="" if found.load_test is None else _recipe(found.load_test, unit),
        load_test_saves_usd_mo=_saves(found.load_test),
    )


def _recipe(test: LoadTest, unit: str) -> str:
    saves = _saves(test)
    buys = "" if saves is None else f", and save up to {dollars(saves)} a month more, before commitments"
    if unit == _GPUS:
        return (
            "collect its request metrics (table demand), then, at a busy hour, let fewer and fewer replicas serve it, 20 "
            f"minutes each, while its targets hold, and audit again: the plan may then go as far{buys}"
        )
    return (
        f"at a busy hour, let so few replicas serve it that each gets up to {test.reach_req_s:.3g} {unit}, 20 minutes for each "
        f"number of them, back at once where a target is missed; audit again: the plan may then go as far as went well{buys}"
    )


def _saves(test: LoadTest | None) -> float | None:
    return None if test is None or test.saves_usd_mo is None else round(test.saves_usd_mo, 2)


def _back_test(test: BackTest) -> BackTestPart:
    return BackTestPart(
        fitted_req_s=_figure(test.fitted_req_s),
        tested_req_s=_figure(test.tested_req_s),
        limit_s=test.limit_s,
        in_time=_held(test.in_time),
        running=_held(test.running),
        waiting=_held(test.waiting),
        gpu_s=_held(test.gpu_s),
        error_frac=round(test.error_frac, _DIGITS),
    )


def _held(held: BackTestedMeasure | None) -> HeldPart | None:
    return None if held is None else HeldPart(foretold=_figure(held.foretold), measured=_figure(held.measured))


def _figure(value: float) -> float:
    return float(f"{value:.6g}")
