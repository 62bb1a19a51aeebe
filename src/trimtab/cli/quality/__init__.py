"""`trimtab quality`: whether a candidate answers as well as a baseline: accept, reject, or how many more samples are needed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import click

from trimtab.cli.options import (
    FILE,
    FILE_OR_FOLDER,
    NEW_FILE,
    AnswerOptions,
    answer_options,
    option,
    options_from,
)
from trimtab.cli.output import ROW_FORMATS, Format


@dataclass(frozen=True, slots=True, kw_only=True)
class QualityOptions:
    """Arguments of `trimtab quality`."""

    baseline: Path = option(
        "--baseline", type=FILE_OR_FOLDER, required=True, help="Answers of the model served today: a file or a folder."
    )
    candidate: Path = option(
        "--candidate",
        type=FILE_OR_FOLDER,
        required=True,
        help="Answers of the candidate to the same questions.",
    )
    metric: str | None = option(
        "--metric", metavar="NAME", help="Which score, if a log has several; the first by default."
    )
    margin: float = option(
        "--margin", type=click.FloatRange(0, 50, min_open=True), default=1.0, show_default=True, metavar="POINTS",
        help="The tolerated loss, in hundredths of the score's scale.",
    )  # fmt: skip
    scale: float | None = option(
        "--scale", type=click.FloatRange(0, min_open=True), help="Width of the scale, for scores outside 0..1."
    )
    lower_is_better: bool = option("--lower-is-better", help="A lower score is better (errors, perplexity).")
    slices: tuple[str, ...] = option(
        "--slice",
        metavar="FIELD",
        help="Also judge slices by this field; task, subject and category are used if present.",
    )
    drop_unpaired: bool = option(
        "--drop-unpaired", help="Leave out answers without a counterpart; their number is shown."
    )
    after: Path | None = option(
        "--after", type=FILE, metavar="VERDICT",
        help="The verdict file of an earlier test: its questions are left out, and the allowed error is reduced.",
    )  # fmt: skip
    format: str | None = option("--format", metavar="fp8", help="How the candidate stores weights: fp8, awq, gptq, ...")
    model: str | None = option("--model", metavar="NAME", help="The model, to give the sizes of what to try next.")
    verdict: Path | None = option(
        "--verdict", type=NEW_FILE, metavar="FILE", help="Write the verdict here, as evidence for workloads.yaml."
    )
    watch_drop: float | None = option(
        "--watch-drop", type=click.FloatRange(0, 100, min_open=True, max_open=True), metavar="POINTS",
        help="Compute how many requests a day to check in production to detect such a drop.",
    )  # fmt: skip
    watch_days: int = option(
        "--watch-days", type=click.IntRange(min=1), default=7, show_default=True, help="Days within which to detect it."
    )
    limit: int = option(
        "--limit",
        type=click.IntRange(min=0),
        default=10,
        show_default=True,
        help="Maximum number of slices shown; -o json has all.",
    )
    answer: AnswerOptions = answer_options(*ROW_FORMATS, Format.GITHUB_COMMENT)


@click.command()
@options_from(QualityOptions)
def command(options: QualityOptions) -> int:
    """Test with paired samples whether a candidate answers as well as a baseline.

    Accept: it loses less than the margin, wrong in at most 5 % of such verdicts. Reject: it clearly loses more, over all
    questions or in a slice. Otherwise: how many more samples would decide. Reads samples_*.jsonl of lm-evaluation-harness
    (--log_samples), HELM's per_instance_stats.json, and JSONL with id and score.

    Exit code 0: accept. 4: reject. 5: more samples are needed. 1: the files cannot be read or do not pair. 2: wrong options.

    \b
    Examples:
      trimtab quality --baseline bf16/ --candidate fp8/ --format fp8
      trimtab quality --baseline a.jsonl --candidate b.jsonl --margin 2 --slice language
      trimtab quality --baseline bf16/ --candidate fp8/ --format fp8 --verdict fp8.json
      trimtab quality --baseline bf16/ --candidate fp8/ --after fp8.json
      trimtab quality --baseline bf16/ --candidate fp8/ --watch-drop 2 --watch-days 7
    """
    from trimtab.cli.quality.run import run_quality

    return run_quality(options)
