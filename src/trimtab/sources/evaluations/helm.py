"""Runs of HELM: `per_instance_stats.json`, one folder a run (stanford-crfm/helm, `src/helm/benchmark/runner.py`).

The file lists instances with their id, their perturbation, the trial of the prompt's examples, and statistics, each with a
name, a split and a mean. Trials of an instance share its question: they are averaged, so that what is paired is independent.
Perturbed copies are left out and counted, for the same reason.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from trimtab.diagnose.quality import Evaluation, ScoredAnswer
from trimtab.errors import InputError, near_matches
from trimtab.inputs.json_text import read_json
from trimtab.sources.evaluations.json_lines import Row, score_of

FILE_NAME = "per_instance_stats.json"
_PREFERRED = (
    "exact_match",
    "quasi_exact_match",
    "prefix_exact_match",
    "quasi_prefix_exact_match",
    "f1_score",
    "rouge_l",
)
"""HELM's own names of accuracy, in the order of its groups of metrics."""
_MODEL = re.compile(r",?model=[^,]*|,?model_deployment=[^,]*")


def read(path: Path, files: Sequence[Path], *, metric: str | None, lower_is_better: bool) -> Evaluation:
    """Return the answers of runs; raises InputError where a run lacks the metric or an instance lacks a part."""
    answers: list[ScoredAnswer] = []
    metrics: dict[str, str] = {}
    perturbed = 0
    for file in files:
        content = read_json(file)
        if not isinstance(content, list) or not content:
            raise InputError(f"{file} must list instances; was the run cut short?")
        rows = [(number, _object(row, file, number)) for number, row in enumerate(content, start=1)]
        plain = [(number, row) for number, row in rows if not row.get("perturbation")]
        perturbed += len(rows) - len(plain)
        task = _MODEL.sub("", file.parent.name).replace(":,", ":").strip(":,") or str(file.parent)
        metrics[task] = chosen = _chosen(plain, metric, file)
        answers += _of_run(task, plain, chosen, file)
    return Evaluation(
        name=str(path),
        answers=tuple(answers),
        metrics=metrics,
        settings={},
        lower_is_better=lower_is_better,
        left_out=(f"{perturbed} perturbed instances of {path} are left out",) if perturbed else (),
    )


def _object(row: object, file: Path, number: int) -> Row:
    if not isinstance(row, dict) or not isinstance(row.get("stats"), list) or "instance_id" not in row:
        raise InputError(f"{file}, row {number}: an instance needs instance_id and stats (saw {str(row)[:60]!r})")
    return row


def _stats(row: Row) -> Iterator[tuple[str, Mapping[str, object]]]:
    stats = row["stats"]
    for stat in stats if isinstance(stats, list) else ():
        if isinstance(stat, dict):
            name = stat.get("name")
            yield str(name.get("name") if isinstance(name, dict) else name), stat


def _chosen(rows: Sequence[tuple[int, Row]], wanted: str | None, file: Path) -> str:
    known = {name: None for _, row in rows for name, _ in _stats(row)}
    if wanted is None:
        found = next((name for name in _PREFERRED if name in known), None)
        if found is None:
            raise InputError(f"{file}: name one of its metrics with --metric: {', '.join(sorted(known)[:12])}")
        return found
    if wanted not in known:
        near = near_matches(wanted, known)
        raise InputError(f"{file}: no metric {wanted!r}; it has {', '.join(near or sorted(known)[:12])}")
    return wanted


def _of_run(task: str, rows: Sequence[tuple[int, Row]], metric: str, file: Path) -> list[ScoredAnswer]:
    trials: dict[str, list[tuple[object, float, int]]] = {}
    for number, row in rows:
        stat = next((stat for name, stat in _stats(row) if name == metric), None)
        if stat is None:
            raise InputError(
                f"{file}, row {number}: no {metric} of instance {row['instance_id']}; choose another --metric"
            )
        score = score_of(stat.get("mean"), metric, f"{file}, row {number}")
        trials.setdefault(str(row["instance_id"]), []).append((row.get("train_trial_index", 0), score, number))
    answers = []
    for instance, found in trials.items():
        indices = [trial for trial, _, _ in found]
        if len(set(map(str, indices))) < len(indices):
            raise InputError(f"{file}, row {found[-1][2]}: instance {instance} stands twice in one trial; run it again")
        mean = math.fsum(score for _, score, _ in found) / len(found)
        answers.append(ScoredAnswer(task=task, id=instance, score=mean, file=str(file), row=found[0][2]))
    return answers
