"""`trimtab prices refresh`: read the clouds' price lists into a file that `--prices` takes."""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from trimtab.catalog import load_catalog
from trimtab.catalog.providers import PRICE_LISTED
from trimtab.cli.options import NEW_FILE, AnswerOptions, answer_options, option, options_from
from trimtab.cli.output import Format
from trimtab.cli.screen import say
from trimtab.errors import SourceError, UsageError

if TYPE_CHECKING:
    from trimtab.sources.price_lists.refresh import RefreshRequest

_KEY, _TOKEN = "TRIMTAB_GCP_API_KEY", "TRIMTAB_GCP_TOKEN"


@dataclass(frozen=True, slots=True, kw_only=True)
class PricesRefreshOptions:
    """What was asked of `trimtab prices refresh`."""

    path: Path = option(
        "--to", type=NEW_FILE, default=Path("prices.csv"), show_default=True,
        help="The price file to bring up to date, .csv or .yaml; rates of your own in it stay.",
    )  # fmt: skip
    providers: tuple[str, ...] = option(
        "--provider", type=click.Choice(PRICE_LISTED), show_default="aws, azure, and gcp where its key or token is set",
        help="Read this list; repeatable.",
    )  # fmt: skip
    regions: tuple[str, ...] = option(
        "--region", help="Only this region; repeatable. AWS: else those of the price book."
    )
    dry_run: bool = option("--dry-run", help="Show what would change, and write nothing.")
    aws_via: str = option(
        "--aws", type=click.Choice(["bulk", "query"]), default="bulk", show_default=True,
        help="AWS's public offer files, or its Query API (credentials, much less to read).",
    )  # fmt: skip
    spot_via: str = option(
        "--aws-spot", type=click.Choice(["advisor", "history", "none"]), default="advisor", show_default=True,
        help="Derived from the Spot Advisor, or observed (credentials).",
    )  # fmt: skip
    endpoints: tuple[str, ...] = option(
        "--endpoint", metavar="NAME=URL", envvar="TRIMTAB_PRICE_ENDPOINTS",
        help="Another address: aws-bulk, aws-advisor, aws-pricing, aws-ec2, gcp or azure.",
    )  # fmt: skip
    keep_going: bool = option("--keep-going", help="Where a provider's list fails, write the others' all the same.")
    accept_vanished: bool = option(
        "--accept-vanished", help="Write also where most rates of the file are no longer listed."
    )
    answer: AnswerOptions = answer_options()


@click.command("refresh")
@options_from(PricesRefreshOptions)
def command(options: PricesRefreshOptions) -> None:
    """Read the price lists of AWS, Google and Azure into a price file, and say what changed.

    The file then goes over the packaged list with --prices or TRIMTAB_PRICES; each rate names its list and its day. Where a
    list fails the file stays as it was. Google's list needs an API key in TRIMTAB_GCP_API_KEY or a token in TRIMTAB_GCP_TOKEN.

    \b
    Examples:
      trimtab prices refresh --dry-run
      trimtab prices refresh --provider azure --region eastus --to prices.csv
      trimtab prices refresh --aws query --aws-spot history --region us-east-1
      TRIMTAB_GCP_TOKEN=$(gcloud auth print-access-token) trimtab prices refresh --provider gcp
      trimtab audit fleet/ --prices prices.csv
    """
    from trimtab.catalog.price_diff import merged_history
    from trimtab.cli.prices.price_file import (
        found_changes,
        read_price_file,
        refresh_sheet,
        refuse_a_broken_list,
        summary,
        write_price_file,
    )
    from trimtab.sources.price_lists.refresh import REFRESHED, read_lists

    asked = _request(options)
    packaged = load_catalog()
    former = read_price_file(options.path, packaged, REFRESHED)
    reading, failed = read_lists(asked, packaged)
    for provider, error in failed.items():
        say(f"{provider}: {error}", err=True)
    if failed and not (options.keep_going and reading.prices):
        raise SourceError(
            f"{options.path} stays as it was: {', '.join(failed)} failed; --keep-going writes what there is"
        )
    found = found_changes(reading, former, packaged)
    people = options.answer.output_format in (Format.TABLE, Format.MARKDOWN)
    options.answer.write(refresh_sheet(found, for_people=people))
    for line in summary(found, reading):
        say(line, err=True)
    if not options.accept_vanished:
        refuse_a_broken_list(found, former)
    if not options.dry_run:
        write_price_file(options.path, former, merged_history(former.listed, found, asked.now.date()))
        say(f"{options.path}: written; use it with --prices {options.path} or TRIMTAB_PRICES={options.path}", err=True)
    if failed:
        raise click.exceptions.Exit(1)


def _request(options: PricesRefreshOptions) -> RefreshRequest:
    from trimtab.sources.price_lists.refresh import ENDPOINTS, AwsVia, RefreshRequest, SpotVia

    headers = _gcp_headers()
    chosen = options.providers or tuple(name for name in PRICE_LISTED if name != "gcp" or headers)
    pairs = dict(_pair(text) for text in options.endpoints)
    for name in pairs:
        if name not in ENDPOINTS:
            raise UsageError(f"--endpoint {name}: the lists are {', '.join(ENDPOINTS)}")
    if "gcp" in chosen and not headers and "gcp" not in pairs:
        raise UsageError(f"Google's price list needs an API key in {_KEY} or a token in {_TOKEN}")
    return RefreshRequest(
        providers=chosen,
        regions=options.regions,
        now=datetime.now(UTC),
        endpoints=pairs,
        aws_via=AwsVia(options.aws_via),
        spot_via=SpotVia(options.spot_via),
        gcp_headers=headers,
    )


def _gcp_headers() -> dict[str, str]:
    """Return what lets us in to Google's list, from the environment."""
    if os.environ.get(_TOKEN):
        return {"Authorization": f"Bearer {os.environ[_TOKEN]}"}
    return {"X-Goog-Api-Key": os.environ[_KEY]} if os.environ.get(_KEY) else {}


def _pair(text: str) -> tuple[str, str]:
    name, equals, url = text.partition("=")
    if not equals:
        raise UsageError(f"--endpoint {text!r}: write NAME=URL, as azure=http://localhost:8080")
    return name, url
