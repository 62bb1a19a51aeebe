"""Read both sides, judge, and show the verdict, the slices, what to try next and how to watch it in production."""

from __future__ import annotations

import json
from datetime import date

import numpy as np

from trimtab.cli.output import Format, write, write_sheet
from trimtab.cli.quality import EXIT_REJECTED, EXIT_UNDECIDED, QualityOptions
from trimtab.cli.quality.tables import JudgedCandidate, quality_comment, quality_document, quality_sheet
from trimtab.diagnose.paired_scores import is_binary
from trimtab.diagnose.quality import (
    PairedAnswers,
    QualityFinding,
    QualityRule,
    QualityVerdict,
    judged,
    paired,
)
from trimtab.diagnose.quality_watch import WatchPlan, watch_plan
from trimtab.errors import UsageError
from trimtab.physics.models import model_named
from trimtab.physics.quantizers import Quantizer, next_quantizers
from trimtab.sources.evaluations import read_evaluation
from trimtab.tables.quality_evidence import QualityEvidence, read_evidence

_EXIT = {QualityVerdict.ACCEPT: 0, QualityVerdict.REJECT: EXIT_REJECTED, QualityVerdict.MORE: EXIT_UNDECIDED}


def run_quality(options: QualityOptions) -> int:
    """Run the command and return its exit code."""
    if options.format is not None:
        next_quantizers(options.format)  # before any work: a format that is none is refused
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
    """Refuse a second look that would not add up with the first; raises UsageError."""
    if before is None:
        return
    if before.verdict != "more samples":
        raise UsageError(f"{options.after} is decided ({before.verdict}): a further look would break its error rate")
    if abs(before.margin_frac - options.margin / 100) > 1e-9:
        raise UsageError(
            f"{options.after} was judged at a margin of {100 * before.margin_frac:g} points: keep it, or begin anew"
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
    """Return what to try after a candidate that was rejected, where its format is known."""
    return next_quantizers(evidence.format) if evidence.verdict == "reject" and evidence.format else ()


def _watch(options: QualityOptions, pairs: PairedAnswers) -> WatchPlan | None:
    """Return the plan for production that was asked for; raises UsageError for scores other than right and wrong."""
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
