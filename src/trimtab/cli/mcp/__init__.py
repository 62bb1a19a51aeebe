"""`trimtab mcp`: the kept audits, plans, prices and fits as read-only tools of an MCP server, for agents."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import click

from trimtab.cli.options import FOLDER, option, options_from, owned_option, prices_option, set_option
from trimtab.errors import UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class McpOptions:
    """Arguments of `trimtab mcp`."""

    audits: Path | None = option(
        "--audits", type=FOLDER, metavar="DIR", show_default="the audits kept here",
        help="A folder of audits: JSON files that `trimtab audit -o json` wrote, or a `.trimtab` folder.",
    )  # fmt: skip
    bundles: tuple[Path, ...] = option(
        "--bundles", type=FOLDER, metavar="DIR", show_default="the folder that it is started in",
        help="A folder whose bundles may be asked about; may be repeated. Nothing outside is opened.",
    )  # fmt: skip
    prices: Path | None = prices_option("The own rates that the audits were made with.")
    owned: Path | None = owned_option("The commitments held that the audits were made with.")
    flags: tuple[str, ...] = set_option("planning.engineers=2")


@click.command()
@options_from(McpOptions)
def command(options: McpOptions) -> None:
    """Let an agent ask: the kept audits, plans, prices and fits as read-only tools of an MCP server.

    The agent's program starts it and speaks to it over stdin and stdout; no port is opened, the network is not used, and
    nothing is written. Each answer has at most 4 kB, and says how to get the rest. Needs the extra `mcp`: pip install
    'trimtab[mcp]'.

    \b
    Examples:
      trimtab mcp                                    the audits kept here
      trimtab mcp --audits reports/ --bundles fleets/
      claude mcp add trimtab -- trimtab mcp          register it with an agent
      trimtab audit --demo && trimtab mcp            something to ask about, no cluster needed
    """
    try:
        from trimtab.cli.mcp.run import run_mcp
    except ImportError as error:
        raise UsageError(
            f"the tools need the extra `mcp`: pip install 'trimtab[mcp]' ({error.name} is missing)"
        ) from error
    run_mcp(options)
