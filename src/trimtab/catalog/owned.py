"""The hourly rate of hardware one owns: capital spread over its life, operations, and the power it draws.

    usd_hr = (capital_usd * annuity(capital_rate_frac, years) + operations_usd_year) / HR_PER_YEAR
             + power_w / W_PER_KW * pue * electricity_usd_kwh

The rate is for every hour of the year, used or not: idle owned hardware costs as much as busy hardware, but for power,
which is taken at the average draw that the owner states. Prices of capital and power are the owner's; none is assumed.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date

from trimtab.catalog.kinds import BuyingOption, PriceBasis
from trimtab.catalog.prices import ANY_REGION, Price
from trimtab.units import HR_PER_YEAR, W_PER_KW


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnedHardware:
    """What one node costs its owner. Raises ValueError where a figure cannot be."""

    instance_type: str
    capital_usd: float
    """The price of the node and its share of racks and network, less what it can be sold for at the end."""
    years: float
    """The life over which it is written off."""
    power_w: float
    """The average draw of the node at the plug."""
    pue: float
    """Power of the site over power of the machines, 1 or more."""
    electricity_usd_kwh: float
    operations_usd_year: float = 0.0
    """People, space, support and spares."""
    capital_rate_frac: float = 0.0
    """Yearly cost of capital; 0 writes the price off in equal parts."""
    provider: str = "owned"
    region: str = ANY_REGION

    def __post_init__(self) -> None:
        wrong = [
            text
            for text, fine in (
                ("capital_usd must be above 0", self.capital_usd > 0),
                ("years must be above 0", self.years > 0),
                ("power_w must not be negative", self.power_w >= 0),
                ("pue must be 1 or more", self.pue >= 1),
                ("electricity_usd_kwh must not be negative", self.electricity_usd_kwh >= 0),
                ("operations_usd_year must not be negative", self.operations_usd_year >= 0),
                ("capital_rate_frac must not be negative", self.capital_rate_frac >= 0),
            )
            if not fine
        ]
        if wrong:
            raise ValueError(f"{self.instance_type}: {'; '.join(wrong)}")


def annuity(rate_frac: float, years: float) -> float:
    """Return the yearly share of a sum that pays it off, with interest, over `years`.

    rate / (1 - (1 + rate) ** -years), which tends to 1 / years as the rate goes to 0.

    >>> annuity(0.0, 4)
    0.25
    >>> round(annuity(0.07, 20), 4)
    0.0944
    """
    return 1 / years if rate_frac == 0 else rate_frac / (1 - (1 + rate_frac) ** -years)


def owned_usd_hr(node: OwnedHardware) -> float:
    """Return the hourly rate of an owned node by the formula of this module."""
    yearly_usd = node.capital_usd * annuity(node.capital_rate_frac, node.years) + node.operations_usd_year
    power_usd_hr = node.power_w / W_PER_KW * node.pue * node.electricity_usd_kwh
    return yearly_usd / HR_PER_YEAR + power_usd_hr


def owned_price(node: OwnedHardware, as_of: date) -> Price:
    """Return the rate of an owned node as a row of the price book."""
    return Price(
        provider=node.provider,
        instance_type=node.instance_type,
        region=node.region,
        option=BuyingOption.OWNED,
        usd_hr=owned_usd_hr(node),
        as_of=as_of,
        source="owner's figures",
        basis=PriceBasis.OWNED,
        note=f"{node.capital_usd:,.0f} USD over {node.years:g} years, {node.power_w:g} W at PUE {node.pue:g}",
    )
