"""What is different in a scenario: the options that `trimtab audit` and `trimtab what-if` share."""

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
        raise click.BadParameter(f"{value!r} is no multiple of today's demand; write 1.5x, 0.8x or +50%")
    return factor


def _amount(_context: click.Context, _parameter: click.Parameter, value: str | None) -> float | None:
    if value is None:
        return None
    found = _AMOUNT.fullmatch(value.strip())
    if found is None:
        raise click.BadParameter(f"{value!r} is no amount; write 100k, 1.2M or 95000 (dollars a month)")
    return float(found["number"].replace(",", "")) * _MULTIPLES[found["multiple"].lower()]


def _day(_context: click.Context, _parameter: click.Parameter, value: str | None) -> date | None:
    if value is None:
        return None
    try:
        return date.fromisoformat(f"{value}-01" if _MONTH.fullmatch(value) else value)
    except ValueError as error:
        raise click.BadParameter(f"{value!r} is no day; write 2027-03 or 2027-03-15") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class ScenarioOptions:
    """What the options said; nothing said is no scenario."""

    demand: float | None = option(
        "--demand", callback=_factor, metavar="1.5x", help="What if demand were so much? (1.5x, +50%)"
    )
    changes: tuple[str, ...] = option(
        "--price", metavar="WHAT+N%",
        help="What if a price changed? spot+30%, H100-15%, commitments+5%, aws+10%; may be repeated.",
    )  # fmt: skip
    limits: tuple[str, ...] = option(
        "--target", metavar="WORKLOAD=SECONDS",
        help="What if a target were another? prod/chat=0.3 (latency), prod/chat:ttft=500ms, team/train:queue_wait=600; may "
        "be repeated.",
    )  # fmt: skip
    no_spot: bool = option("--no-spot", help="What if nothing were moved to spot?")
    budget_usd_mo: float | None = option(
        "--budget", callback=_amount, metavar="100k",
        help="Find the least work that keeps the monthly bill within so much.",
    )  # fmt: skip
    deadline: date | None = option(
        "--deadline", callback=_day, metavar="2027-03",
        help="Find what fits before a day; a month alone means its first day.",
    )  # fmt: skip

    def scenario(
        self, *, quotas: str | None = None, spot_max_frac: float | None = None, clouds: tuple[str, ...] = ()
    ) -> Scenario | None:
        """Return the scenario, or None where nothing is different; raises InputError for a price or target without sense."""
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
