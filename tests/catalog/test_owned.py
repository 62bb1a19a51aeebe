"""Owned hardware: capital over its life, operations, and the power it draws."""

from datetime import date

import pytest
from hypothesis import given, strategies as st

from trimtab.catalog import BuyingOption, OwnedHardware, PriceBasis, owned_price
from trimtab.catalog.own_rates import annuity, owned_usd_hr

NODE = {
    "instance_type": "dgx", "capital_usd": 350_400.0, "years": 4.0, "power_w": 10_000.0, "pue": 1.5,
    "electricity_usd_kwh": 0.1, "operations_usd_year": 8760.0,
}  # fmt: skip


def test_rate_is_the_sum_worked_by_hand():
    """350,400 / 4 / 8,760 = 10.00; operations 1.00; 10 kW x 1.5 x 0.10 = 1.50."""
    assert owned_usd_hr(OwnedHardware(**NODE)) == pytest.approx(12.50)


def test_cost_of_capital_adds_an_annuity():
    """0.07 / (1 - 1.07**-20) = 0.09439."""
    assert annuity(0.07, 20) == pytest.approx(0.09439, abs=1e-5)


@given(st.floats(1e-4, 0.3), st.floats(1, 10))
def test_interest_never_makes_hardware_cheaper(rate_frac, years):
    assert annuity(rate_frac, years) >= annuity(0.0, years)


def test_price_says_that_it_is_the_owners():
    price = owned_price(OwnedHardware(**NODE), date(2026, 1, 1))

    assert (price.option, price.basis) == (BuyingOption.OWNED, PriceBasis.OWNED)


def test_every_impossible_figure_is_named_at_once():
    with pytest.raises(ValueError, match="years must be above 0; pue must be 1 or more"):
        OwnedHardware(**{**NODE, "years": 0.0, "pue": 0.9})
