"""Logs of lm-evaluation-harness: `samples_TASK_TIME.jsonl` (--log_samples), and `results_TIME.json` beside them.

A row has `doc_id`, `doc`, `doc_hash`, `filter`, `metrics` and each metric under its own name
(EleutherAI/lm-evaluation-harness, `lm_eval/evaluator.py`). A task with several filters has a row for each: the metric is named
`exact_match,strict-match`, as in the table that the harness prints. Results say how a task was run: `versions`, `n-shot`, and
which metrics are better when lower.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from trimtab.diagnose.quality import Evaluation, ScoredAnswer
from trimtab.errors import InputError, near_matches
from trimtab.inputs.json_text import read_json
from trimtab.sources.evaluations.json_lines import Row, check_slices, rows_of, score_of, slices_of

_NAME = re.compile(r"samples_(?P<task>.+?)(?:_(?P<time>\d{4}-\d\d-\d\dT[\d.:\-]+))?")
_TABLES = ("versions", "n-shot", "higher_is_better")
"""What results say of each task, by name."""
_LOWER_IS_BETTER = ("perplexity", "bits_per_byte", "wer", "cer", "ter", "brier_score", "loss")


def read(
    path: Path, files: Sequence[Path], *, metric: str | None, slice_fields: Sequence[str], lower_is_better: bool
) -> Evaluation:
    """Return the answers of a folder's or a file's logs; the first metric of a task where none is named."""
    answers: list[ScoredAnswer] = []
    metrics: dict[str, str] = {}
    others: dict[str, tuple[str, ...]] = {}
    for task, file in _latest(files).items():
        rows = list(rows_of(file))
        known = _metrics([row for _, row in rows], file)
        metrics[task] = chosen = _chosen(known, metric, file)
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


def _metrics(rows: Sequence[Row], file: Path) -> dict[str, None]:
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


def _chosen(known: Mapping[str, None], wanted: str | None, file: Path) -> str:
    if wanted is None:
        return next(iter(known))
    found = next((name for name in known if wanted in (name, name.partition(",")[0])), None)
    if found is None:
        near = near_matches(wanted, known)
        raise InputError(f"{file}: no metric {wanted!r}; it has {', '.join(near or known)}")
    return found


def _answer(task: str, row: Row, metric: str, file: Path, number: int, slice_fields: Sequence[str]) -> ScoredAnswer:
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


def _results(path: Path) -> Row:
    """Return what the results beside the logs say of tasks, the newest where several say it; empty where there are none."""
    files = path.rglob("results*.json") if path.is_dir() else path.parent.glob("results*.json")
    merged: dict[str, dict[str, object]] = {}
    # names end in the time, whatever folders they are in
    for file in sorted(files, key=lambda file: file.name):
        content = read_json(file)
        for key in _TABLES:
            table = content.get(key) if isinstance(content, dict) else None
            merged.setdefault(key, {}).update(table if isinstance(table, dict) else {})
    return merged


def _of_task(results: Row, key: str, task: str) -> object:
    table = results.get(key)
    return table.get(task) if isinstance(table, dict) else None


def _settings(results: Row, task: str) -> str:
    stated = (
        ("version", _of_task(results, "versions", task)),
        ("examples in the prompt", _of_task(results, "n-shot", task)),
    )
    return ", ".join(f"{what} {value}" for what, value in stated if value is not None)


def _is_lower_better(results: Row, task: str, metric: str) -> bool:
    name = metric.partition(",")[0]
    stated = _of_task(results, "higher_is_better", task)
    if isinstance(stated, dict) and isinstance(stated.get(name), bool):
        return not stated[name]
    return name in _LOWER_IS_BETTER or name.endswith("perplexity")
