"""`trimtab review`: what a change of manifests would have cost, and which targets it would have missed."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

import click

from trimtab.cli.output import ROW_FORMATS, Format, output_options, write, write_sheet
from trimtab.cli.price_options import at_option, prices_option
from trimtab.cli.progress import progress_bar, set_verbosity

if TYPE_CHECKING:
    from trimtab.review import Review

EXIT_BREAKS = 4
"""Exit code where a target that was kept is missed, or pods would not run."""
EXIT_UNJUDGED = 5
"""Exit code where some workload that changes could not be replayed."""
EXIT_OVER = 10
"""Exit code where the bill grows by more than --fail-over."""
_PATH = click.Path(exists=True, path_type=Path)


@click.command()
@click.argument("manifests", type=_PATH)
@click.argument("bundle", required=False, type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--demo", is_flag=False, flag_value="two-hundred-k", metavar="[NAME]", help="A demonstration fleet.")
@click.option("--against", type=_PATH, metavar="FOLDER",
              help="The manifests in force, to replay beside them; else history stands as it ran.")  # fmt: skip
@click.option("--fail-over", type=float, metavar="USD_MO",
              help="Exit with code 10 where the bill grows by more than so much a month.")  # fmt: skip
@click.option("--owned", type=click.Path(exists=True, dir_okay=False, path_type=Path), metavar="FILE",
              help="Commitments that you hold, as `trimtab commit --owned` takes them.")  # fmt: skip
@prices_option()
@at_option()
@click.option("-q", "--quiet", is_flag=True, help="No progress, errors only.")
@output_options(*ROW_FORMATS, Format.GITHUB_COMMENT)
def command(
    manifests: Path,
    bundle: Path | None,
    demo: str | None,
    against: Path | None,
    fail_over: float | None,
    owned: Path | None,
    prices: Path | None,
    at: date | None,
    quiet: bool,
    output_format: Format,
    out: Path | None,
    fields: tuple[str, ...],
) -> int:
    """Say what a change of manifests would have cost over a fleet's history, and which targets it would have missed.

    MANIFESTS is a folder or a file: plain YAML, a kustomization, a chart that was rendered, or what `trimtab emit` wrote.
    BUNDLE is the history, as `trimtab collect` records it. What the objects do not say stays as it ran; what is not modelled
    is listed, never guessed. Nothing is applied.

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
    from trimtab.cli.held import held_commitments
    from trimtab.cli.review_sheets import TABLE_FIELDS, review_comment, review_sheet
    from trimtab.errors import UsageError
    from trimtab.pipeline import open_demo, open_fleet, review
    from trimtab.review import read_objects
    from trimtab.sources.kubernetes.objects import read_manifests

    if (bundle is None) == (demo is None):
        raise UsageError("which history? give the folder of a bundle (trimtab review k8s/ fleet/), or --demo")
    set_verbosity(0, quiet)
    proposed = read_objects(read_manifests(manifests))
    present = None if against is None else read_objects(read_manifests(against))
    catalog = load_catalog(prices)
    with progress_bar(quiet=quiet) as tell:
        tell("opening the fleet", 0.0)
        history = open_fleet(bundle) if bundle is not None else open_demo(str(demo))
        held = held_commitments(owned, catalog, history)
        found = review(history, proposed, present, catalog=catalog, at=at, owned=held, progress=tell)
    if output_format is Format.GITHUB_COMMENT:
        write(review_comment(found), out)
    else:
        shown = fields or (TABLE_FIELDS if output_format is Format.TABLE else ())
        write_sheet(review_sheet(found), output_format, out=out, fields=shown)
    return _ended(found, fail_over)


def _ended(found: Review, fail_over_usd_mo: float | None) -> int:
    if not found.passes:
        return EXIT_BREAKS
    if found.unjudged:
        return EXIT_UNJUDGED
    over = fail_over_usd_mo is not None and found.change_usd_mo > fail_over_usd_mo
    return EXIT_OVER if over else 0
