"""Evaluation results of one model as scored answers: logs of lm-evaluation-harness, runs of HELM, plain JSONL.

A row has `doc_id`, `doc`, `doc_hash`, `filter`, `metrics` and each metric under its own name
(EleutherAI/lm-evaluation-harness, `lm_eval/evaluator.py`). A task with several filters has a row for each: the metric is named
`exact_match,strict-match`, as in the table that the harness prints. Results say how a task was run: `versions`, `n-shot`, and
which metrics are better when lower.

The file lists instances with their id, their perturbation, the trial of the prompt's examples, and statistics, each with a
name, a split and a mean. Trials of an instance share its question: they are averaged, so that what is paired is independent.
Perturbed copies are left out and counted, for the same reason.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from trimtab.diagnose.quality import Evaluation, ScoredAnswer
from trimtab.errors import InputError, near_matches
from trimtab.inputs.documents import check_depth, read_json
from trimtab.inputs.files import read_text

EvaluationRow = Mapping[str, object]
"""A line of an evaluation's file, or its results: a JSON object."""

USUAL_SLICES = ("subject", "category")
"""Fields by which answers are sliced wherever they are there."""


def rows_of(path: Path) -> Iterator[tuple[int, EvaluationRow]]:
    """Yield each row's number, from 1, and its object. Raises InputError for a row that holds none."""
    for number, line in enumerate(read_text(path).splitlines(), start=1):
        if line.strip():
            yield number, _row(line, f"{path}, row {number}")


def first_row(path: Path) -> EvaluationRow:
    """Return the first row. Raises InputError if there is none."""
    found = next(rows_of(path), None)
    if found is None:
        raise InputError(f"{path} is empty; was the evaluation cut short?")
    return found[1]


def _row(line: str, where: str) -> EvaluationRow:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{where}: not JSON ({error}); is the file cut short? write it again") from error
    if not isinstance(found, dict):
        raise InputError(f"{where}: a row must be one JSON object (saw {line[:40]!r})")
    check_depth(found, where)
    return found


def score_of(value: object, what: str, where: str) -> float:
    """Return a score as a number; NaN if it is null. Raises InputError for what is not a number.

    True and false are 1 and 0. Not finite ones are returned, so that all of a side are reported at once.
    """
    if isinstance(value, bool | int | float):
        return float(value)
    if value is None:
        return math.nan
    raise InputError(
        f"{where}: {what} is not a number (saw {str(value)[:40]!r}); name a metric of one number an answer"
    )


def slices_of(row: EvaluationRow, fields: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Return the fields by which a row is sliced, with their values: those requested, and subject and category."""
    wanted = dict.fromkeys((*fields, *USUAL_SLICES))
    return tuple((field, str(row[field])) for field in wanted if isinstance(row.get(field), str | int | bool))


def check_slices(seen: Sequence[tuple[tuple[str, str], ...]], fields: Sequence[str], where: Path) -> None:
    """Raise InputError for a field that was requested and is in no row."""
    known = {field for slices in seen for field, _ in slices}
    missing = [field for field in fields if field not in known]
    if missing:
        raise InputError(f"{where}: no row has a field {', '.join(missing)} to slice by; rows may hold it under `doc`")


_NAME = re.compile(r"samples_(?P<task>.+?)(?:_(?P<time>\d{4}-\d\d-\d\dT[\d.:\-]+))?")
_TABLES = ("versions", "n-shot", "higher_is_better")
"""What results say of each task, by name."""
_LOWER_IS_BETTER = ("perplexity", "bits_per_byte", "wer", "cer", "ter", "brier_score", "loss")


def _read_harness(
    path: Path, files: Sequence[Path], *, metric: str | None, slice_fields: Sequence[str], lower_is_better: bool
) -> Evaluation:
    """Return the answers of a folder's or a file's logs; the first metric of a task where none is named."""
    answers: list[ScoredAnswer] = []
    metrics: dict[str, str] = {}
    others: dict[str, tuple[str, ...]] = {}
    for task, file in _latest(files).items():
        rows = list(rows_of(file))
        known = _metrics([row for _, row in rows], file)
        metrics[task] = chosen = _harness_metric(known, metric, file)
        others[task] = tuple(name for name in known if name != chosen)
        name, _, kept_filter = chosen.partition(",")
        for number, row in rows:
            if row.get("filter", "none") == kept_filter:
                answers.append(_answer(task, row, name, file, number, slice_fields))
    check_slices([answer.slices for answer in answers], slice_fields, path)
    results = _results(path)
    lower = {task: lower_is_better or _is_lower_better(results, task, found) for task, found in metrics.items()}
    if len(set(lower.values())) > 1:
        raise InputError(f"{path}: of some tasks' metrics lower is better, of others higher; compare them apart")
    return Evaluation(
        name=str(path),
        answers=tuple(answers),
        metrics=metrics,
        settings={task: stated for task in metrics if (stated := _settings(results, task))},
        lower_is_better=any(lower.values()),
        left_out=_left_out(others),
    )


def _left_out(others: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    names = dict.fromkeys(name for found in others.values() for name in found)
    return (f"Other metrics of the logs are left out (--metric): {', '.join(names)}.",) if names else ()


def _latest(files: Sequence[Path]) -> dict[str, Path]:
    """Return each task's log; of several runs of a task in one folder the last, by the time in the name."""
    found: dict[str, tuple[str, Path]] = {}
    for file in files:
        parts = _NAME.fullmatch(file.stem)
        task, time = (parts["task"], parts["time"] or "") if parts else (file.stem, "")
        if task not in found or time > found[task][0]:
            found[task] = time, file
    return {task: file for task, (_, file) in sorted(found.items())}


def _metrics(rows: Sequence[EvaluationRow], file: Path) -> dict[str, None]:
    """Return the metrics of a log in their order, each as `metric,filter`."""
    found: dict[str, None] = {}
    for row in rows:
        named = row.get("metrics")
        for metric in named if isinstance(named, list) else ():
            if isinstance(row.get(str(metric)), int | float | None) and str(metric) in row:
                found.setdefault(f"{metric},{row.get('filter', 'none')}")
    if not found:
        raise InputError(f"{file}: no row names a metric of one number an answer under `metrics`")
    return found


def _harness_metric(known: Mapping[str, None], wanted: str | None, file: Path) -> str:
    if wanted is None:
        return next(iter(known))
    found = next((name for name in known if wanted in (name, name.partition(",")[0])), None)
    if found is None:
        near = near_matches(wanted, known)
        raise InputError(f"{file}: no metric {wanted!r}; it has {', '.join(near or known)}")
    return found


def _answer(
    task: str, row: EvaluationRow, metric: str, file: Path, number: int, slice_fields: Sequence[str]
) -> ScoredAnswer:
    where = f"{file}, row {number}"
    if "doc_id" not in row or metric not in row:
        raise InputError(f"{where}: no {'doc_id' if 'doc_id' not in row else metric} (saw {', '.join(row)[:80]})")
    doc = row.get("doc")
    return ScoredAnswer(
        task=task,
        id=str(row["doc_id"]),
        score=score_of(row[metric], metric, where),
        file=str(file),
        row=number,
        slices=slices_of({**(doc if isinstance(doc, dict) else {}), **row}, slice_fields),
        question=str(row.get("doc_hash", "")),
    )


def _results(path: Path) -> EvaluationRow:
    """Return the task settings in the result files beside the logs, the newest if there are several; empty if there are
    none."""
    files = path.rglob("results*.json") if path.is_dir() else path.parent.glob("results*.json")
    merged: dict[str, dict[str, object]] = {}
    # names end in the time, whatever folders they are in
    for file in sorted(files, key=lambda file: file.name):
        content = read_json(file)
        for key in _TABLES:
            table = content.get(key) if isinstance(content, dict) else None
            merged.setdefault(key, {}).update(table if isinstance(table, dict) else {})
    return merged


def _of_task(results: EvaluationRow, key: str, task: str) -> object:
    table = results.get(key)
    return table.get(task) if isinstance(table, dict) else None


def _settings(results: EvaluationRow, task: str) -> str:
    stated = (
        ("version", _of_task(results, "versions", task)),
        ("examples in the prompt", _of_task(results, "n-shot", task)),
    )
    return ", ".join(f"{what} {value}" for what, value in stated if value is not None)


def _is_lower_better(results: EvaluationRow, task: str, metric: str) -> bool:
    name = metric.partition(",")[0]
    stated = _of_task(results, "higher_is_better", task)
    if isinstance(stated, dict) and isinstance(stated.get(name), bool):
        return not stated[name]
    return name in _LOWER_IS_BETTER or name.endswith("perplexity")


_HELM_FILE = "per_instance_stats.json"
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


def _read_helm(path: Path, files: Sequence[Path], *, metric: str | None, lower_is_better: bool) -> Evaluation:
    """Return the answers of runs. Raises InputError if a run lacks the metric or an instance lacks a part."""
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
        metrics[task] = chosen = _helm_metric(plain, metric, file)
        answers += _of_run(task, plain, chosen, file)
    return Evaluation(
        name=str(path),
        answers=tuple(answers),
        metrics=metrics,
        settings={},
        lower_is_better=lower_is_better,
        left_out=(f"{perturbed} perturbed instances of {path} are left out",) if perturbed else (),
    )


def _object(row: object, file: Path, number: int) -> EvaluationRow:
    if not isinstance(row, dict) or not isinstance(row.get("stats"), list) or "instance_id" not in row:
        raise InputError(f"{file}, row {number}: an instance needs instance_id and stats (saw {str(row)[:60]!r})")
    return row


def _stats(row: EvaluationRow) -> Iterator[tuple[str, Mapping[str, object]]]:
    stats = row["stats"]
    for stat in stats if isinstance(stats, list) else ():
        if isinstance(stat, dict):
            name = stat.get("name")
            yield str(name.get("name") if isinstance(name, dict) else name), stat


def _helm_metric(rows: Sequence[tuple[int, EvaluationRow]], wanted: str | None, file: Path) -> str:
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


def _of_run(task: str, rows: Sequence[tuple[int, EvaluationRow]], metric: str, file: Path) -> list[ScoredAnswer]:
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


_IDS = ("id", "question_id", "sample_id", "doc_id", "instance_id")
_SCORES = ("score", "correct", "is_correct", "passed")


def _read_plain_rows(
    path: Path, files: Sequence[Path], *, metric: str | None, slice_fields: Sequence[str], lower_is_better: bool
) -> Evaluation:
    """Return the answers of plain rows. Raises InputError for a row without an id or a score."""
    answers, metrics = [], {}
    for file in files:
        for number, row in rows_of(file):
            where = f"{file}, row {number}"
            name = _field(row, _IDS, "an id", where)
            scored = _field(row, (metric,) if metric else _SCORES, "a score", where)
            task = str(row.get("task", ""))
            metrics[task] = scored
            answers.append(
                ScoredAnswer(
                    task=task,
                    id=str(row[name]),
                    score=score_of(row[scored], scored, where),
                    file=str(file),
                    row=number,
                    slices=slices_of(row, slice_fields),
                )
            )
    check_slices([answer.slices for answer in answers], slice_fields, path)
    return Evaluation(
        name=str(path), answers=tuple(answers), metrics=metrics, settings={}, lower_is_better=lower_is_better
    )


def _field(row: EvaluationRow, names: Sequence[str], what: str, where: str) -> str:
    found = next((name for name in names if name in row), None)
    if found is None:
        raise InputError(f"{where}: no {' or '.join(names)} says {what} (saw {', '.join(row) or 'no field'})")
    return found


_CURE = (
    "give samples_*.jsonl of lm-evaluation-harness (lm_eval --log_samples), per_instance_stats.json of HELM, "
    'or JSONL with "id" and "score"'
)


def read_evaluation(
    path: Path, *, metric: str | None = None, slice_fields: Sequence[str] = (), lower_is_better: bool = False
) -> Evaluation:
    """Return the answers that a file, or the files of a folder, hold; `metric` chooses among several.

    `slice_fields` name further fields of a row by whose values answers are sliced. Raises InputError if nothing can be read,
    with the file, the row, the value and what to do.
    """
    files = _files(path)
    runs = [file for file in files if file.name == _HELM_FILE]
    if runs:
        return _read_helm(path, runs, metric=metric, lower_is_better=lower_is_better)
    lines = [file for file in files if file.suffix in (".jsonl", ".ndjson")]
    if not lines:
        raise InputError(f"{path} holds no answers to single questions{_aggregates(files)}; {_CURE}")
    if "doc_id" in first_row(lines[0]):
        return _read_harness(path, lines, metric=metric, slice_fields=slice_fields, lower_is_better=lower_is_better)
    return _read_plain_rows(path, lines, metric=metric, slice_fields=slice_fields, lower_is_better=lower_is_better)


def _files(path: Path) -> list[Path]:
    if path.is_file():
        return [path]
    return sorted(file for file in path.rglob("*") if file.suffix in (".json", ".jsonl", ".ndjson"))


def _aggregates(files: Sequence[Path]) -> str:
    """Say that results are means over all questions, where they are."""
    for file in files:
        content = read_json(file)
        if isinstance(content, dict) and isinstance(content.get("results"), dict):
            return f": {file.name} has means only, which cannot be paired"
    return ""
