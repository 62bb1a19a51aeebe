"""Weeks with a planted fault held against the emitted rules by promtool: what fired, about whom, from when to when."""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import cast

import numpy as np
import yaml
from tests.monitor.fleet import WATCHED

from benchmarks.alert_weeks import FAULTS, WEEK_S, Planted, drawn_week, week_series
from trimtab.emit.manifests.emission import Plain
from trimtab.monitor.alerts import alert_rules
from trimtab.monitor.series import (
    ACTIVITY,
    HELD,
    KV_CACHE,
    MEMORY,
    MEMORY_TOTAL,
    MEMORY_USED,
    OCCUPANCY,
    POWER,
    POWER_LIMIT,
    READING,
    RUN,
    TEMPERATURE,
    THROTTLED,
    recording_rules,
)
from trimtab.monitor.watched import Thresholds
from trimtab.units import S_PER_HR, S_PER_MIN

_READ = frozenset(
    {READING, ACTIVITY, OCCUPANCY, MEMORY_USED, MEMORY_TOTAL, MEMORY, HELD, POWER, POWER_LIMIT, TEMPERATURE, THROTTLED}
) | {RUN, KV_CACHE}
"""Series that alerts read; boards, texts of alerts and the alert on spend read more."""
_LOOKBACK_MIN = 5
"""Minutes for which Prometheus takes a sample that stopped coming as the present one, where nothing marks it stale."""
_LATEST_END_MIN = 60 + 10
"""Minutes in which the longest range of an alert, and of the series below it, forgets a fault."""
_FOUND = re.compile(r"\{(?P<labels>[^}]*)\} (?P<value>[-+0-9.eE]+)")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


@dataclass(frozen=True, slots=True, kw_only=True)
class Fired:
    """One alert about one subject, from the first to the last moment at which it fired (seconds)."""

    alert: str
    labels: dict[str, str]
    first_s: float
    last_s: float

    def is_about(self, planted: Planted) -> bool:
        """Tell whether it is the planted fault's alert, about one of its subjects."""
        return self.alert == planted.alert and any(
            all(self.labels.get(label) == value for label, value in subject.items()) for subject in planted.subjects
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class WeekScore:
    """What became of one week: subjects of the fault, of them found in time, alerts that nothing was planted for."""

    alert: str
    subjects: int
    found: int
    late: int
    false: tuple[str, ...]
    delays_min: tuple[float, ...]


def scored_weeks(weeks: int, seed: int, evaluated_min: int, jobs: int) -> Iterator[WeekScore]:
    """Yield the score of each week, the alerts in turn; each week is drawn from its own seed."""
    alerts = list(FAULTS)
    asked = [(seed + number, alerts[number % len(alerts)], evaluated_min) for number in range(weeks)]
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        yield from pool.map(_score, *zip(*asked, strict=True))


def summary(scores: Iterable[WeekScore]) -> dict[str, object]:
    """Return what was found, late, and false, in all and by alert."""
    scores = list(scores)
    by_alert: defaultdict[str, list[WeekScore]] = defaultdict(list)
    for score in scores:
        by_alert[score.alert].append(score)
    false = Counter(name for score in scores for name in score.false)
    return {
        "weeks": len(scores),
        "faults": sum(score.subjects for score in scores),
        "found": sum(score.found for score in scores),
        "late": sum(score.late for score in scores),
        "weeks_with_false": sum(bool(score.false) for score in scores),
        "false": dict(false),
        "median_delay_min": {
            alert: round(float(np.median([delay for score in found for delay in score.delays_min])), 1)
            for alert, found in by_alert.items()
            if any(score.delays_min for score in found)
        },
    }


def _score(seed: int, alert: str, evaluated_min: int) -> WeekScore:
    limits = Thresholds()
    week, planted = drawn_week(np.random.default_rng(seed), alert, limits)
    fired = alerts_fired(list(week_series(week)), week.interval_s, evaluated_min, _rules(limits))
    slack_min = 2 * evaluated_min + _LOOKBACK_MIN
    due_s = planted.start_s + (planted.wait_min + slack_min) * S_PER_MIN
    over_s = planted.end_s + (_LATEST_END_MIN + slack_min) * S_PER_MIN
    meant = [found for found in fired if found.is_about(planted)]
    right = [found for found in meant if found.first_s >= planted.start_s and found.last_s <= over_s]
    return WeekScore(
        alert=alert,
        subjects=len(planted.subjects),
        found=sum(found.first_s <= due_s for found in right),
        late=sum(found.first_s > due_s for found in right),
        false=tuple(f"{found.alert} in a week of {alert}" for found in fired if found not in right),
        delays_min=tuple((found.first_s - planted.start_s) / S_PER_MIN for found in right),
    )


def _rules(limits: Thresholds) -> dict[str, Plain]:
    """Return one group of the rules, so that alerts see what was recorded at the same moment, as in a server."""
    rules: list[Plain] = [
        {"record": name, "expr": expression} for name, expression in recording_rules(WATCHED, limits) if name in _READ
    ]
    rules += [rule.as_plain(limits.runbooks) for rule in alert_rules(WATCHED, limits) if rule.name in FAULTS]
    return {"groups": [{"name": "all", "rules": rules}]}


def alerts_fired(
    series: Sequence[dict[str, str]], interval_s: int, evaluated_min: int, rules: dict[str, Plain]
) -> list[Fired]:
    """Return every alert that fired in a week, by alert and subject.

    promtool says what it got where that is not what was expected, so nothing is expected.
    """
    firing = f'timestamp(ALERTS{{alertstate="firing"}})[{WEEK_S // S_PER_HR}h:{evaluated_min}m]'
    ends = " or ".join(f'label_replace({end}_over_time({firing}), "end", "{end}", "", "")' for end in ("min", "max"))
    asked = {"expr": ends, "eval_time": f"{WEEK_S // S_PER_HR}h", "exp_samples": []}
    test = {"interval": f"{interval_s}s", "input_series": list(series), "promql_expr_test": [asked]}
    page = {"rule_files": ["rules.yaml"], "evaluation_interval": f"{evaluated_min}m", "tests": [test]}
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "rules.yaml").write_text(yaml.safe_dump(rules), encoding="utf-8")
        (Path(folder) / "test.yaml").write_text(yaml.safe_dump(page), encoding="utf-8")
        run = subprocess.run(
            ["promtool", "test", "rules", str(Path(folder) / "test.yaml")], capture_output=True, text=True, check=False
        )
    said = run.stdout + run.stderr
    if run.returncode and "got:" not in said:
        raise RuntimeError(f"promtool could not evaluate a week: {said[:500]}")
    return _parsed(said.partition("got:")[2])


def _parsed(got: str) -> list[Fired]:
    ends: defaultdict[tuple[tuple[str, str], ...], dict[str, float]] = defaultdict(dict)
    for match in _FOUND.finditer(got):
        labels = dict(cast("list[tuple[str, str]]", _LABEL.findall(match["labels"])))
        end = labels.pop("end")
        ends[tuple(sorted(labels.items()))][end] = float(match["value"])
    return [
        Fired(alert=dict(labels)["alertname"], labels=dict(labels), first_s=found["min"], last_s=found["max"])
        for labels, found in ends.items()
    ]
