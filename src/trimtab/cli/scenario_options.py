"""The options that describe a scenario, shared by `trimtab audit` and `trimtab what-if`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING, Any

import click

from trimtab.cli.options import option

if TYPE_CHECKING:
    from trimtab.plan.proof.scenario import Scenario

_MULTIPLES = {"": 1.0, "k": 1e3, "m": 1e6}
_AMOUNT = re.compile(r"\$?\s*(?P<number>[\d,]+(?:\.\d+)?)\s*(?P<multiple>[km]?)", re.IGNORECASE)
_FACTOR = re.compile(r"(?P<number>\d+(?:\.\d+)?)\s*x|(?P<percent>[+-]\d+(?:\.\d+)?)\s*%", re.IGNORECASE)
_MONTH = re.compile(r"\d{4}-\d{2}")
_HUNDRED = 100.0


def _factor(_context: click.Context, _parameter: click.Parameter, value: str | None) -> float | None:
    if value is None:
        return None
    found = _FACTOR.fullmatch(value.strip())
    factor = 0.0
    if found is not None:
        factor = float(found["number"]) if found["number"] else 1 + float(found["percent"]) / _HUNDRED
    if factor <= 0:
        raise click.BadParameter(f"{value!r} is not a multiple of today's demand; write 1.5x, 0.8x or +50%")
    return factor


def _amount(_context: click.Context, _parameter: click.Parameter, value: str | None) -> float | None:
    if value is None:
        return None
    found = _AMOUNT.fullmatch(value.strip())
    if found is None:
        raise click.BadParameter(f"{value!r} is not an amount; write 100k, 1.2M or 95000 (dollars a month)")
    return float(found["number"].replace(",", "")) * _MULTIPLES[found["multiple"].lower()]


def _day(_context: click.Context, _parameter: click.Parameter, value: str | None) -> date | None:
    if value is None:
        return None
    try:
        return date.fromisoformat(f"{value}-01" if _MONTH.fullmatch(value) else value)
    except ValueError as error:
        raise click.BadParameter(f"{value!r} is not a date; write 2027-03 or 2027-03-15") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class ScenarioOptions:
    """The scenario options that were given; none means no scenario."""

    demand: float | None = option(
        "--demand", callback=_factor, metavar="1.5x", help="Scenario: demand is this multiple of today's (1.5x, +50%)."
    )
    changes: tuple[str, ...] = option(
        "--price", metavar="WHAT+N%",
        help="Scenario: a price changes: spot+30%, H100-15%, commitments+5%, aws+10%; repeat for several.",
    )  # fmt: skip
    limits: tuple[str, ...] = option(
        "--target", metavar="WORKLOAD=SECONDS",
        help="Scenario: another target: prod/chat=0.3 (latency), prod/chat:ttft=500ms, team/train:queue_wait=600; repeat "
        "for several.",
    )  # fmt: skip
    no_spot: bool = option("--no-spot", help="Scenario: nothing runs on spot.")
    budget_usd_mo: float | None = option(
        "--budget", callback=_amount, metavar="100k",
        help="Find the least work that keeps the monthly bill within this amount.",
    )  # fmt: skip
    deadline: date | None = option(
        "--deadline", callback=_day, metavar="2027-03",
        help="Find what can be done by this day; a month means its first day.",
    )  # fmt: skip

    def scenario(
        self, *, quotas: str | None = None, spot_max_frac: float | None = None, clouds: tuple[str, ...] = ()
    ) -> Scenario | None:
        """Return the scenario, or None if nothing is changed. Raises InputError for a price or target that makes no sense."""
        from trimtab.catalog.registry import price_change
        from trimtab.fleet.targets import other_limit
        from trimtab.plan.proof.scenario import Scenario

        said = Scenario(
            demand=self.demand or 1.0,
            prices=tuple(price_change(text) for text in self.changes),
            limits=tuple(other_limit(text) for text in self.limits),
            use_spot=False if self.no_spot else None,
            spot_max_frac=spot_max_frac,
            quotas=quotas,
            clouds=clouds,
            budget_usd_mo=self.budget_usd_mo,
            deadline=self.deadline,
        )
        return said if said.words() else None


def quota_option(said: str) -> Any:
    """Declare quotas that a plan must keep; `said` is the help."""
    return option("--quota", setting="limits.quotas", metavar="TYPE=NODES", help=said)


def spot_max_option(said: str) -> Any:
    """Declare the largest share of node-hours on spot, in 0..1; `said` is the help."""
    return option("--spot-max", setting="limits.spot_max_frac", type=click.FloatRange(0, 1), metavar="SHARE", help=said)


def cloud_option(said: str) -> Any:
    """Declare further clouds that work may move to; `said` is the help."""
    return option("--cloud", setting="limits.providers", metavar="PROVIDER", help=said)
