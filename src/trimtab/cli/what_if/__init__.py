"""`trimtab what-if`: plans a fleet under other demand, prices, targets or limits, beside the baseline."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from pathlib import Path

import click

from trimtab.cli.options import (
    AnswerOptions,
    ScenarioOptions,
    answer_options,
    at_option,
    bundle_argument,
    cloud_option,
    demo_option,
    group,
    option,
    options_from,
    owned_option,
    prices_option,
    quiet_option,
    quota_option,
    set_option,
    spot_max_option,
    verbose_option,
)
from trimtab.units import S_PER_DAY


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIfOptions:
    """Arguments of `trimtab what-if`."""

    bundle: Path | None = bundle_argument()
    demo: str | None = demo_option("A demonstration fleet.")
    other: ScenarioOptions = group(ScenarioOptions)
    quotas: tuple[str, ...] = quota_option("Scenario: a quota on nodes: p5.48xlarge=16, g6.xlarge@us-east-1:spot=40.")
    spot_max: float | None = spot_max_option("Scenario: at most this share of node-hours on spot, such as 0.3.")
    clouds: tuple[str, ...] = cloud_option(
        "Scenario: work may move to another cloud: gcp, azure, ...; repeat for several."
    )
    regions: tuple[str, ...] = option(
        "--region", metavar="REGION",
        help="Scenario: work may move to another region: us-west-2, gcp/us-central1; repeat for several.",
    )  # fmt: skip
    node_start_s: float | None = option(
        "--node-start", type=click.FloatRange(0, S_PER_DAY), metavar="SECONDS",
        help="Scenario: a new node is ready after this time, such as 40 with a warm pool of stopped instances.",
    )  # fmt: skip
    owned: Path | None = owned_option()
    prices: Path | None = prices_option()
    at: date | None = at_option()
    flags: tuple[str, ...] = set_option("planning.engineers=2")
    quiet: bool = quiet_option()
    verbose: int = verbose_option()
    answer: AnswerOptions = answer_options()


@click.command()
@options_from(WhatIfOptions)
def command(options: WhatIfOptions) -> None:
    """Plan a fleet under changed demand, prices or limits, and show both plans side by side.

    Without BUNDLE, uses the fleet of the last audit. Replays of earlier audits are reused, so another price, quota, budget
    or deadline takes seconds.

    \b
    Examples:
      trimtab what-if --no-spot                           the history of the last audit
      trimtab what-if fleet/ --demand 1.5x --price spot+30%
      trimtab what-if fleet/ --target prod/chat=0.3       another limit, in seconds
      trimtab what-if fleet/ --quota p5.48xlarge=16 --spot-max 0.3
      trimtab what-if fleet/ --cloud gcp                  what moves to another cloud, if it pays
      trimtab what-if fleet/ --region us-west-2           what moves to another region, if it pays
      trimtab what-if fleet/ --budget 100k                the least work that gets there
      trimtab what-if fleet/ --deadline 2027-03           what fits before March
      trimtab what-if --demo --price H100-15% -o json
    """
    from trimtab.cli.what_if.run import run_what_if

    run_what_if(options)
