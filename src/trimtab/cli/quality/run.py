"""Read both sides, judge, and show the verdict, the slices, what to try next: as rows, a document, a comment."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date

import numpy as np

from trimtab.cli import ExitCode
from trimtab.cli.output import SCHEMA_VERSION, Cell, Format, Sheet, SheetColumn, fixed, write, write_sheet
from trimtab.cli.quality import QualityOptions
from trimtab.diagnose.quality import (
    ALL,
    FALSE_ACCEPT_FRAC,
    FALSE_ALARMS_A_YEAR,
    NOTICED_FRAC,
    POWER,
    LossInterval,
    PairedAnswers,
    QualityFinding,
    QualityRule,
    QualityVerdict,
    WatchPlan,
    is_binary,
    judged,
    paired,
    watch_plan,
)
from trimtab.emit.blocks import bullets
from trimtab.emit.writers.comment import write_comment
from trimtab.errors import UsageError
from trimtab.physics.footprint import weight_bytes
from trimtab.physics.formats import FORMATS, Quantizer, WeightFormat, next_quantizers
from trimtab.physics.models import Architecture, model_named
from trimtab.sources.evaluations import read_evaluation
from trimtab.tables.quality_evidence import QualityEvidence, read_evidence
from trimtab.units import BYTES_PER_GIB


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedCandidate:
    """The verdict on a candidate, and the notes about it."""

    finding: QualityFinding
    evidence: QualityEvidence
    metrics: tuple[str, ...]
    left_out: tuple[str, ...]
    next_methods: tuple[Quantizer, ...]
    model: Architecture | None
    watch: WatchPlan | None


def _percent(cell: Cell) -> str:
    return f"{100 * cell:.1f}" if isinstance(cell, int | float) else str(cell)


COLUMNS = (
    SheetColumn(key="slice", title="questions"),
    SheetColumn(key="pairs", title="pairs", show=lambda cell: f"{cell:,}", right=True, whole=True),
    SheetColumn(key="baseline_frac", title="baseline", show=_percent, right=True, whole=True),
    SheetColumn(key="candidate_frac", title="candidate", show=_percent, right=True, whole=True),
    SheetColumn(key="change_points", title="points", show=fixed(2, signed=True), right=True, whole=True),
    SheetColumn(key="low_points", title="low", show=fixed(2, signed=True), right=True, whole=True),
    SheetColumn(key="high_points", title="high", show=fixed(2, signed=True), right=True, whole=True),
    SheetColumn(key="verdict", title="so", whole=True),
)


def quality_sheet(found: JudgedCandidate, limit: int | None) -> Sheet:
    """Return a row for all questions and one per slice, worst first and at most `limit`, with notes that explain them."""
    rows = list(_rows(found.finding))
    shown = rows if limit is None else rows[: limit + 1]
    hidden = [f"{len(rows) - len(shown)} more slices (--limit)"] if len(rows) > len(shown) else []
    return Sheet(columns=COLUMNS, rows=shown, notes=[_headline(found), *hidden, *_notes(found)])


def quality_comment(found: JudgedCandidate, limit: int) -> str:
    """Return a pull request comment: the verdict, the slices, what it means."""
    sheet = quality_sheet(found, limit)
    return write_comment("quality", str(sheet.notes[0]), [sheet.table(), bullets(sheet.notes[1:])])


def quality_document(found: JudgedCandidate) -> dict[str, object]:
    """Return everything, for programs."""
    watch = found.watch
    return {
        "schema_version": SCHEMA_VERSION,
        **found.evidence.model_dump(mode="json", exclude={"kind", "schema_version", "seen"}),
        "more_pairs": found.finding.more_pairs,
        "more_pairs_if_equal": found.finding.more_pairs_if_equal,
        "metrics": found.metrics,
        "rows": list(_rows(found.finding)),
        "left_out": found.left_out,
        "next": [_method_row(method, found.model) for method in found.next_methods],
        "watch": None
        if watch is None
        else {
            "drop_frac": watch.drop_frac,
            "days": watch.days,
            "paired_requests_per_day": watch.paired_requests_per_day,
            "paired_alarm_frac": round(watch.paired_alarm_frac, 6),
            "alone_requests_per_day": watch.alone_requests_per_day,
            "alone_alarm_frac": round(watch.alone_alarm_frac, 6),
        },
    }


def _rows(finding: QualityFinding) -> Iterator[dict[str, Cell]]:
    yield {**_row(ALL, finding.overall), "verdict": finding.verdict.value}
    for part in finding.slices:
        yield {**_row(part.name, part.loss), "verdict": "fails" if part.fails else ""}


def _row(name: str, loss: LossInterval) -> dict[str, Cell]:
    finite = loss.pairs if abs(loss.high_frac) != float("inf") else 0
    return {
        "slice": name,
        "pairs": loss.pairs,
        "baseline_frac": round(loss.baseline_frac, 6),
        "candidate_frac": round(loss.candidate_frac, 6),
        "change_points": round(-100 * loss.loss_frac, 4) + 0.0,  # avoid -0
        "low_points": round(-100 * loss.high_frac, 4) if finite else None,
        "high_points": round(-100 * loss.low_frac, 4) if finite else None,
    }


def _headline(found: JudgedCandidate) -> str:
    named = f" {found.evidence.format}" if found.evidence.format else ""
    return f"{found.finding.verdict.value.upper()}{named}: {found.finding.because}."


def _notes(found: JudgedCandidate) -> Iterator[str]:
    finding = found.finding
    yield from _what_next(found)
    alpha = finding.rule.alpha
    yield (
        f"Points are hundredths of the score, below 0 the candidate is worse; low and high are each wrong in at most "
        f"{100 * alpha:.2g} % of evaluations (look {finding.rule.look}; {FALSE_ACCEPT_FRAC:.0%} over all looks), "
        f"{found.evidence.method}."
    )
    if finding.slices:
        yield (
            f"A slice can reject, not accept; its limits are corrected for {len(finding.slices)} slices (Bonferroni). A slice "
            "whose low end is below the margin may hide such a loss."
        )
    metrics = ", ".join(found.metrics[:4]) + (" and others" if len(found.metrics) > 4 else "")
    yield f"Judged by {metrics}; every question counts once, so large tasks weigh more."
    yield from found.left_out
    if found.watch is not None:
        yield _watch_line(found.watch)


def _what_next(found: JudgedCandidate) -> Iterator[str]:
    finding = found.finding
    if finding.verdict is QualityVerdict.MORE:
        if finding.more_pairs is None:
            yield (
                "No realistic number of samples would decide: the observed loss is too close to the margin. Try the next "
                "method, or choose another margin and judge fresh samples by it."
            )
        else:
            yield (
                f"Evaluate {finding.more_pairs:,} fresh questions on both sides and judge them with --after (write this "
                f"verdict with --verdict): if the true loss is as observed here, they decide in {POWER:.0%} of cases"
                f"{_equal(finding)}. Questions judged here do not count again: looking twice at the same ones would break the "
                "error rate."
            )
    for method in found.next_methods:
        row = _method_row(method, found.model)
        size = f", {row['weights_gib']:,.1f} GiB of weights" if isinstance(row["weights_gib"], float) else ""
        yield (
            f"Next: {method.name} ({method.stored.value}, {row['of_bf16_frac']:.0%} of bf16's bytes{size}): {method.takes} "
            f"({method.source})"
        )


def _equal(finding: QualityFinding) -> str:
    few = finding.more_pairs_if_equal
    return f" ({few:,} would do if there is no loss)" if few is not None and few != finding.more_pairs else ""


def _method_row(method: Quantizer, model: Architecture | None) -> Mapping[str, object]:
    wide = FORMATS[WeightFormat.BF16].weight_bytes
    return {
        "method": method.name,
        "format": method.stored.value,
        "of_bf16_frac": round(FORMATS[method.stored].weight_bytes / wide, 4),
        "weights_gib": None if model is None else round(weight_bytes(model, method.stored) / BYTES_PER_GIB, 2),
        "takes": method.takes,
        "source": method.source,
    }


def _watch_line(watch: WatchPlan) -> str:
    return (
        f"To notice a drop of {100 * watch.drop_frac:g} points within {watch.days} days ({NOTICED_FRAC:.0%} of cases, "
        f"{FALSE_ALARMS_A_YEAR:g} false alarm a year at most): score {watch.paired_requests_per_day:,} requests a day that are "
        f"also sent to the former model (a shadow), or {watch.alone_requests_per_day:,} of the served model alone. Each day "
        f"take the mean of the last {watch.days} days; alarm where it is {100 * watch.paired_alarm_frac:.2f} points (alone "
        f"{100 * watch.alone_alarm_frac:.2f}) below that of this evaluation."
    )


_EXIT = {
    QualityVerdict.ACCEPT: ExitCode.DONE,
    QualityVerdict.REJECT: ExitCode.NO,
    QualityVerdict.MORE: ExitCode.UNDECIDED,
}


def run_quality(options: QualityOptions) -> int:
    """Run the command and return its exit code."""
    if options.format is not None:
        next_quantizers(options.format)  # checked first, so that an invalid format fails before any work
    model = model_named(options.model) if options.model else None
    before = read_evidence(options.after) if options.after else None
    _fits_look_before(options, before)
    sides = [
        read_evaluation(
            path, metric=options.metric, slice_fields=options.slices, lower_is_better=options.lower_is_better
        )
        for path in (options.baseline, options.candidate)
    ]
    pairs = paired(
        *sides,
        scale=options.scale,
        drop_unpaired=options.drop_unpaired,
        seen=frozenset(before.seen if before else ()),
    )
    rule = QualityRule(margin_frac=options.margin / 100, look=before.look + 1 if before else 1)
    finding = judged(pairs, rule)
    evidence = _evidence(options, finding, pairs, tuple(sides[0].metrics), before)
    found = JudgedCandidate(
        finding=finding,
        evidence=evidence,
        metrics=tuple(dict.fromkeys(sides[0].metrics.values())),
        left_out=pairs.left_out,
        next_methods=_next(evidence),
        model=model,
        watch=_watch(options, pairs),
    )
    if options.verdict is not None:
        write(_text(found.evidence), options.verdict)
    _show(options, found)
    return _EXIT[finding.verdict]


def _fits_look_before(options: QualityOptions, before: QualityEvidence | None) -> None:
    """Reject a second look that does not fit the first. Raises UsageError."""
    if before is None:
        return
    if before.verdict != "more samples":
        raise UsageError(f"{options.after} is decided ({before.verdict}): a further look would break its error rate")
    if abs(before.margin_frac - options.margin / 100) > 1e-9:
        raise UsageError(
            f"{options.after} was judged at a margin of {100 * before.margin_frac:g} points: keep it, or start over"
        )
    if options.format and before.format and options.format.casefold() != before.format.casefold():
        raise UsageError(f"{options.after} is of {before.format}, not of {options.format}: judge each format by itself")


def _evidence(
    options: QualityOptions,
    finding: QualityFinding,
    pairs: PairedAnswers,
    tasks: tuple[str, ...],
    before: QualityEvidence | None,
) -> QualityEvidence:
    overall, undecided = finding.overall, finding.verdict is QualityVerdict.MORE
    return QualityEvidence(
        verdict=finding.verdict.value,
        because=finding.because,
        format=options.format or (before.format if before else None),
        model=options.model or (before.model if before else None),
        decided_on=date.today(),
        look=finding.rule.look,
        alpha_frac=finding.rule.alpha,
        margin_frac=finding.rule.margin_frac,
        pairs=overall.pairs,
        tasks=tuple(task or "one task" for task in tasks),
        baseline_frac=overall.baseline_frac,
        candidate_frac=overall.candidate_frac,
        loss_frac=overall.loss_frac,
        low_frac=overall.low_frac,
        high_frac=overall.high_frac,
        method="score test of paired shares (Tango 1998)" if finding.binary else "t of paired differences, widened",
        seen=(*(before.seen if before else ()), *pairs.ids) if undecided else (),
    )


def _next(evidence: QualityEvidence) -> tuple[Quantizer, ...]:
    """Return what to try after a rejected candidate, if its format is known."""
    return next_quantizers(evidence.format) if evidence.verdict == "reject" and evidence.format else ()


def _watch(options: QualityOptions, pairs: PairedAnswers) -> WatchPlan | None:
    """Return the requested plan for production. Raises UsageError for scores other than right and wrong."""
    if options.watch_drop is None:
        return None
    if not is_binary(pairs.baseline, pairs.candidate):
        raise UsageError("--watch-drop plans for answers that are right or wrong; these have other scores")
    return watch_plan(
        drop_frac=options.watch_drop / 100,
        days=options.watch_days,
        discordant_frac=float(np.mean(pairs.baseline != pairs.candidate)),
        right_frac=float(pairs.candidate.mean()),
    )


def _text(evidence: QualityEvidence) -> str:
    return json.dumps(evidence.model_dump(mode="json"), indent=2, allow_nan=False)


def _show(options: QualityOptions, found: JudgedCandidate) -> None:
    answer = options.answer
    if answer.output_format is Format.GITHUB_COMMENT:
        write(quality_comment(found, options.limit), answer.out)
    elif answer.output_format is Format.JSON and not answer.fields:
        write(json.dumps(quality_document(found), indent=2, allow_nan=False, ensure_ascii=False), answer.out)
    else:
        brief = answer.output_format in (Format.TABLE, Format.MARKDOWN)
        write_sheet(
            quality_sheet(found, options.limit if brief else None),
            answer.output_format,
            out=answer.out,
            fields=answer.fields,
        )
