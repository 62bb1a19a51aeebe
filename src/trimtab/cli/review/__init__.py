"""`trimtab review`: what a change of manifests would have cost, and which targets it would have missed."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

import click

from trimtab.cli import ExitCode
from trimtab.cli.options import (
    AnswerOptions,
    answer_options,
    argument,
    at_option,
    bundle_argument,
    demo_option,
    option,
    options_from,
    owned_option,
    prices_option,
    quiet_option,
)
from trimtab.cli.output import ROW_FORMATS, Format, write, write_sheet
from trimtab.cli.progress import progress_bar, set_verbosity

if TYPE_CHECKING:
    from trimtab.review import Review

_PATH = click.Path(exists=True, path_type=Path)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewOptions:
    """Arguments of `trimtab review`."""

    manifests: Path = argument(type=_PATH)
    bundle: Path | None = bundle_argument()
    demo: str | None = demo_option("A demonstration fleet.")
    against: Path | None = option(
        "--against", type=_PATH, metavar="FOLDER",
        help="The manifests in use today, to compare with; by default, the history as it ran.",
    )  # fmt: skip
    fail_over: float | None = option(
        "--fail-over", type=float, metavar="USD_MO",
        help="Exit with code 10 if the bill grows by more than this amount a month.",
    )  # fmt: skip
    owned: Path | None = owned_option()
    prices: Path | None = prices_option()
    at: date | None = at_option()
    quiet: bool = quiet_option()
    answer: AnswerOptions = answer_options(*ROW_FORMATS, Format.GITHUB_COMMENT)


@click.command()
@options_from(ReviewOptions)
def command(options: ReviewOptions) -> int:
    """Show what a change of manifests would have cost over a fleet's history, and which targets it would have missed.

    MANIFESTS is a folder or a file: plain YAML, a kustomization, a chart that was rendered, or what `trimtab emit` wrote.
    BUNDLE is the history, as `trimtab collect` records it. What the objects leave open is replayed as it ran; what is not
    modelled is listed, never guessed. Nothing is applied.

    Exit code 4: a target that was kept is missed, or pods would not run. 5: a workload that changes could not be judged.
    10: the bill grows by more than --fail-over.

    \b
    Examples:
      trimtab review k8s/ fleet/
      trimtab review k8s/ fleet/ --against k8s-on-main/
      helm template charts/chat > chat.yaml && trimtab review chat.yaml fleet/ --fail-over 500
      trimtab review k8s/ fleet/ -o github-comment --out comment.md
      trimtab audit --demo && trimtab emit && trimtab review manifests/ --demo
    """
    from trimtab.catalog import load_catalog
    from trimtab.cli.history import held_commitments
    from trimtab.cli.review.tables import TABLE_FIELDS, review_comment, review_sheet
    from trimtab.errors import UsageError
    from trimtab.pipeline import open_demo, open_fleet, review
    from trimtab.review import read_objects
    from trimtab.sources.kubernetes.manifests import read_manifests

    if (options.bundle is None) == (options.demo is None):
        raise UsageError("which history? give the folder of a bundle (trimtab review k8s/ fleet/), or --demo")
    set_verbosity(0, options.quiet)
    proposed = read_objects(read_manifests(options.manifests))
    present = None if options.against is None else read_objects(read_manifests(options.against))
    catalog = load_catalog(options.prices)
    with progress_bar(quiet=options.quiet) as tell:
        tell("opening the fleet", 0.0)
        history = open_fleet(options.bundle) if options.bundle is not None else open_demo(str(options.demo))
        held = held_commitments(options.owned, catalog, history)
        found = review(history, proposed, present, catalog=catalog, at=options.at, owned=held, progress=tell)
    if options.answer.output_format is Format.GITHUB_COMMENT:
        write(review_comment(found), options.answer.out)
    else:
        shown = options.answer.fields or (TABLE_FIELDS if options.answer.output_format is Format.TABLE else ())
        write_sheet(review_sheet(found), options.answer.output_format, out=options.answer.out, fields=shown)
    return _ended(found, options.fail_over)


def _ended(found: Review, fail_over_usd_mo: float | None) -> int:
    if not found.passes:
        return ExitCode.NO
    if found.unjudged:
        return ExitCode.UNDECIDED
    over = fail_over_usd_mo is not None and found.change_usd_mo > fail_over_usd_mo
    return ExitCode.OVER_LIMIT if over else ExitCode.DONE
