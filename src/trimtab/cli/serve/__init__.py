"""`trimtab serve`: the kept audits as pages, on this machine unless told otherwise; read-only."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import click

from trimtab.cli.options import (
    FILE,
    FOLDER,
    demo_option,
    option,
    options_from,
    owned_option,
    prices_option,
    quiet_option,
    set_option,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeOptions:
    """Arguments of `trimtab serve`."""

    audits: tuple[str, ...] = option(
        "--audits", metavar="[NAME=]DIR", show_default="the audits kept here",
        help="A folder of audits: JSON files that `trimtab audit -o json` wrote, or a `.trimtab` folder; repeat for several "
        "clusters, each with a name.",
    )  # fmt: skip
    reviews: Path | None = option(
        "--reviews", type=FOLDER, metavar="DIR",
        help="A folder of reviews to show: JSON files that `trimtab review -o json` wrote, one per change.",
    )  # fmt: skip
    demo: str | None = demo_option("Audit a demonstration fleet and show it; two-hundred-k by default.")
    host: str = option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
    port: int = option("--port", type=click.IntRange(1, 65_535), default=8080, show_default=True, help="Port.")
    token_file: Path | None = option(
        "--token-file", type=FILE, metavar="FILE", envvar="TRIMTAB_TOKEN_FILE",
        help="A file with the token that every reader must give; where others can reach the address, this or --user-header.",
    )  # fmt: skip
    user_header: str = option(
        "--user-header", default="", metavar="NAME",
        help="The header in which a proxy that signs readers in names them, such as X-Forwarded-Email.",
    )  # fmt: skip
    proxies: tuple[str, ...] = option(
        "--proxy", metavar="ADDRESS", show_default="this machine",
        help="The address or network of the proxy from which that header is trusted.",
    )  # fmt: skip
    users: tuple[str, ...] = option(
        "--allow-user", metavar="PATTERN", show_default="everyone whom the proxy admits",
        help="Readers to admit: ana@example.com, *@example.com; repeat for more.",
    )  # fmt: skip
    names: tuple[str, ...] = option(
        "--allow-host", metavar="NAME",
        help="A host name to answer to, such as that of a proxy in front; needs a token or --user-header.",
    )  # fmt: skip
    certificate: Path | None = option("--tls-cert", type=FILE, metavar="FILE", help="Certificate, to serve HTTPS.")
    key: Path | None = option("--tls-key", type=FILE, metavar="FILE", help="Its key.")
    prices: Path | None = prices_option("The own rates that the audits were made with.")
    owned: Path | None = owned_option("The commitments held that the audits were made with.")
    later: Path | None = option(
        "--later", type=FOLDER, metavar="DIR", show_default="the audit's own history after what the planner saw",
        help="Later history that plans are compared with, as `trimtab verify` does.",
    )  # fmt: skip
    flags: tuple[str, ...] = set_option("planning.engineers=2")
    quiet: bool = quiet_option()


@click.command()
@options_from(ServeOptions)
def command(options: ServeOptions) -> None:
    """Show the kept audits as pages in a browser: where the money goes, the plan with switches, the proof,
    and what it has saved since.

    If you switch an action off, the whole plan is chosen, billed and proved again without it. This needs the history (a
    demonstration, or the bundle's folder under the name that the audit has), with the same settings.

    Without a token or a proxy that names readers, only this machine can connect. The server changes nothing.

    \b
    Examples:
      trimtab serve                                  the audits kept here, on http://127.0.0.1:8080/
      trimtab serve --demo                           a demonstration, no cluster needed
      trimtab serve --audits reports/                JSON files of several fleets
      trimtab serve --audits eu=/srv/eu/.trimtab --audits us=/srv/us/.trimtab --reviews reviews/
      trimtab serve --user-header X-Forwarded-Email --allow-user '*@example.com' --allow-host gpu-costs.example.com
      trimtab serve --host 0.0.0.0 --token-file token --allow-host gpu-costs.example.com
      curl -s http://127.0.0.1:8080/api/audits | jq
    """
    from trimtab.cli.serve.run import run_serve

    run_serve(options)
