"""Plain JSONL: a row per answer with `id`, `score`, and where they are there `task`, `subject`, `category`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from trimtab.diagnose.quality import Evaluation, ScoredAnswer
from trimtab.errors import InputError
from trimtab.sources.evaluations.json_lines import Row, check_slices, rows_of, score_of, slices_of

_IDS = ("id", "question_id", "sample_id", "doc_id", "instance_id")
_SCORES = ("score", "correct", "is_correct", "passed")


def read(
    path: Path, files: Sequence[Path], *, metric: str | None, slice_fields: Sequence[str], lower_is_better: bool
) -> Evaluation:
    """Return the answers of plain rows; raises InputError for a row without an id or a score."""
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


def _field(row: Row, names: Sequence[str], what: str, where: str) -> str:
    found = next((name for name in names if name in row), None)
    if found is None:
        raise InputError(f"{where}: no {' or '.join(names)} says {what} (saw {', '.join(row) or 'no field'})")
    return found
