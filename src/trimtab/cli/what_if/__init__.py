"""`trimtab what-if`: another demand, other prices, no spot, a budget, a deadline, beside the world as it is."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import click

from trimtab.cli.output import Format, output_options
from trimtab.cli.price_options import at_option, prices_option
from trimtab.cli.scenario_options import ScenarioOptions, scenario_options


@click.command()
@click.argument("bundle", required=False, type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--demo", is_flag=False, flag_value="two-hundred-k", metavar="[NAME]", help="A demonstration fleet.")
@scenario_options
@click.option("--quota", "quotas", multiple=True, metavar="TYPE=NODES",
              help="What if so many nodes were all one could get? p5.48xlarge=16, g6.xlarge@us-east-1:spot=40.")  # fmt: skip
@click.option("--spot-max", type=click.FloatRange(0, 1), metavar="SHARE",
              help="What if at most this share of node-hours could be on spot? 0.3")  # fmt: skip
@click.option("--cloud", "clouds", multiple=True, metavar="PROVIDER",
              help="What if work could move to another cloud? gcp, azure, ...; may be repeated.")  # fmt: skip
@click.option("--owned", type=click.Path(exists=True, dir_okay=False, path_type=Path), metavar="FILE",
              help="Commitments that you hold, as `trimtab commit --owned` takes them.")  # fmt: skip
@prices_option()
@at_option()
@click.option("--set", "flags", multiple=True, metavar="KEY=VALUE", help="One setting, such as planning.engineers=2.")
@click.option("-q", "--quiet", is_flag=True, help="No progress, errors only.")
@click.option("-v", "--verbose", count=True, help="Log stages (-v) or every step (-vv) on stderr.")
@output_options()
def command(
    bundle: Path | None,
    demo: str | None,
    options: ScenarioOptions,
    quotas: tuple[str, ...],
    spot_max: float | None,
    clouds: tuple[str, ...],
    owned: Path | None,
    prices: Path | None,
    at: date | None,
    flags: tuple[str, ...],
    quiet: bool,
    verbose: int,
    output_format: Format,
    out: Path | None,
    fields: tuple[str, ...],
) -> None:
    """Plan the fleet of the last audit, or of a bundle, in another world, and show both plans side by side.

    What the last audits replayed is looked up, so that another price, quota, budget or deadline is answered in seconds.

    \b
    Examples:
      trimtab what-if --no-spot                           the history of the last audit
      trimtab what-if fleet/ --demand 1.5x --price spot+30%
      trimtab what-if fleet/ --quota p5.48xlarge=16 --spot-max 0.3
      trimtab what-if fleet/ --cloud gcp                  what moves to another cloud, if it pays
      trimtab what-if fleet/ --budget 100k                the least work that gets there
      trimtab what-if fleet/ --deadline 2027-03           what fits before March
      trimtab what-if --demo --price H100-15% -o json
    """
    from trimtab.cli.what_if.run import WhatIfRequest, run_what_if

    run_what_if(
        WhatIfRequest(
            bundle=bundle,
            demo=demo,
            scenario=options.scenario(quotas=", ".join(quotas) or None, spot_max_frac=spot_max, clouds=clouds),
            owned=owned,
            prices=prices,
            at=at,
            flags=flags,
            quiet=quiet,
            verbose=verbose,
            output_format=output_format,
            out=out,
            fields=fields,
        )
    )
