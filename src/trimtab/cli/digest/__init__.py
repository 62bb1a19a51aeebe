"""`trimtab digest`: a week of a fleet or a team, for a terminal, a mail, Slack or Teams."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from enum import Enum
from pathlib import Path

import click

from trimtab.cli.options import (
    FILE,
    at_option,
    bundle_argument,
    demo_option,
    group,
    option,
    options_from,
    prices_option,
    quiet_option,
)
from trimtab.cli.server_options import ServerOptions

POST_VARIABLE = "TRIMTAB_POST_URL"
"""Environment variable for the address to post to, so that it appears in no process list or shell history."""


class DigestForm(Enum):
    """Output formats of a digest."""

    TABLE = "table"
    MARKDOWN = "markdown"
    HTML_MAIL = "html-mail"
    SLACK = "slack"
    TEAMS = "teams"
    JSON = "json"


@dataclass(frozen=True, slots=True, kw_only=True)
class DigestOptions:
    """Arguments of `trimtab digest`."""

    bundle: Path | None = bundle_argument()
    demo: str | None = demo_option()
    source: ServerOptions = group(ServerOptions)
    team: str | None = option("--team", metavar="NAME", help="The digest of this team instead of the fleet.")
    each: bool = option(
        "--each", help="The fleet's digest and one for each team: files in the folder --out, or separate posts."
    )
    week: str | None = option(
        "--week", metavar="2026-W44", show_default="the last full one",
        help="A week in ISO 8601 form (Monday to Sunday, UTC).",
    )  # fmt: skip
    audit: str | None = option(
        "--audit", metavar="KEPT", show_default="the last one, if it is of this fleet",
        help="The audit with the open actions: a kept one's number, or a file of `trimtab audit -o json`.",
    )  # fmt: skip
    verified: Path | None = option(
        "--verify", type=FILE, metavar="FILE", help="Realised savings: a file of `trimtab verify -o json`."
    )
    basis: str | None = option(
        "--cost", type=click.Choice(["effective", "billed", "list"]),
        show_default="effective if there is a bill, else list",
        help="Charges of the bill with commitments amortised, as invoiced, or list prices.",
    )  # fmt: skip
    rates: tuple[str, ...] = option("--fx", metavar="CURRENCY=USD", help="Dollars per unit of a currency: EUR=1.08.")
    prices: Path | None = prices_option()
    at: date | None = at_option("Use the list prices of this day.", "those of each day")
    quiet: bool = quiet_option("No progress.")
    post: str | None = option(
        "--post", is_flag=False, flag_value="", metavar="[URL]",
        help=f"Post it, with -o slack, teams or json; without URL to the address in {POST_VARIABLE}.",
    )  # fmt: skip
    out: Path | None = option(
        "--out", type=click.Path(path_type=Path), metavar="PATH", help="Write to a file, or with --each to a folder."
    )
    form: str = option(
        "-o", "--output", type=click.Choice([form.value for form in DigestForm]), default=DigestForm.TABLE.value,
        show_default=True, help="Output format.",
    )  # fmt: skip


@click.command()
@options_from(DigestOptions)
def command(options: DigestOptions) -> None:
    """Summarize a week of a fleet or a team: cost, changes, open actions, realised savings.

    The rows sum to the bill to the cent, and the causes to the change. A week that the history covers only in part is marked
    as such and compared per hour. Without a previous week no change is shown.

    Open actions come from the last audit kept here, realised savings from a file of `trimtab verify -o json`. The
    address of --post is a secret: it is never shown or logged.

    \b
    Examples:
      trimtab digest --demo
      trimtab digest fleet/ --team search -o markdown
      trimtab digest fleet/ -o html-mail --out monday.html
      trimtab digest fleet/ --each -o slack --out digests/
      trimtab verify fleet/ -o json --out verified.json && trimtab digest fleet/ --verify verified.json
      TRIMTAB_POST_URL=... trimtab digest fleet/ -o slack --post
    """
    from trimtab.cli.digest.run import run_digest

    run_digest(options)
