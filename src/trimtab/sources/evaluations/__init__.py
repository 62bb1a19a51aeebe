"""Evaluation results of one model as scored answers: logs of lm-evaluation-harness, runs of HELM, plain JSONL."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from trimtab.diagnose.quality import Evaluation
from trimtab.errors import InputError
from trimtab.inputs.json_text import read_json
from trimtab.sources.evaluations import harness, helm, plain_rows
from trimtab.sources.evaluations.json_lines import first_row

_CURE = (
    "give samples_*.jsonl of lm-evaluation-harness (lm_eval --log_samples), per_instance_stats.json of HELM, "
    'or JSONL with "id" and "score"'
)


def read_evaluation(
    path: Path, *, metric: str | None = None, slice_fields: Sequence[str] = (), lower_is_better: bool = False
) -> Evaluation:
    """Return the answers that a file, or the files of a folder, hold; `metric` chooses among several.

    `slice_fields` name further fields of a row by whose values answers are sliced. Raises InputError where nothing can be read,
    with the file, the row, the value and what to do.
    """
    files = _files(path)
    runs = [file for file in files if file.name == helm.FILE_NAME]
    if runs:
        return helm.read(path, runs, metric=metric, lower_is_better=lower_is_better)
    lines = [file for file in files if file.suffix in (".jsonl", ".ndjson")]
    if not lines:
        raise InputError(f"{path} holds no answers to single questions{_aggregates(files)}; {_CURE}")
    if "doc_id" in first_row(lines[0]):
        return harness.read(path, lines, metric=metric, slice_fields=slice_fields, lower_is_better=lower_is_better)
    return plain_rows.read(path, lines, metric=metric, slice_fields=slice_fields, lower_is_better=lower_is_better)


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
