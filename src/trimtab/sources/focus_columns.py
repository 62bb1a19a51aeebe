"""The columns of FOCUS's Cost and Usage data set, by the version that brought them.

Source: the FinOps Open Cost and Usage Specification, data model of 1.4 (CC BY 4.0, https://focus.finops.org).
"""

from __future__ import annotations

from collections.abc import Mapping

NEWEST = "1.4"
INTRODUCED: Mapping[str, tuple[str, ...]] = {
    "1.0": (
        "AvailabilityZone",
        "BilledCost",
        "BillingAccountId",
        "BillingAccountName",
        "BillingCurrency",
        "BillingPeriodEnd",
        "BillingPeriodStart",
        "ChargeCategory",
        "ChargeClass",
        "ChargeDescription",
        "ChargeFrequency",
        "ChargePeriodEnd",
        "ChargePeriodStart",
        "CommitmentDiscountCategory",
        "CommitmentDiscountId",
        "CommitmentDiscountName",
        "CommitmentDiscountStatus",
        "CommitmentDiscountType",
        "ConsumedQuantity",
        "ConsumedUnit",
        "ContractedCost",
        "ContractedUnitPrice",
        "EffectiveCost",
        "InvoiceIssuerName",
        "ListCost",
        "ListUnitPrice",
        "PricingCategory",
        "PricingQuantity",
        "PricingUnit",
        "ProviderName",
        "PublisherName",
        "RegionId",
        "RegionName",
        "ResourceId",
        "ResourceName",
        "ResourceType",
        "ServiceCategory",
        "ServiceName",
        "SkuId",
        "SkuPriceId",
        "SubAccountId",
        "SubAccountName",
        "Tags",
    ),
    "1.1": (
        "CapacityReservationId",
        "CapacityReservationStatus",
        "CommitmentDiscountQuantity",
        "CommitmentDiscountUnit",
        "ServiceSubcategory",
        "SkuMeter",
        "SkuPriceDetails",
    ),
    "1.2": (
        "BillingAccountType",
        "InvoiceId",
        "PricingCurrency",
        "PricingCurrencyContractedUnitPrice",
        "PricingCurrencyEffectiveCost",
        "PricingCurrencyListUnitPrice",
        "SubAccountType",
    ),
    "1.3": (
        "AllocatedMethodDetails",
        "AllocatedMethodId",
        "AllocatedResourceId",
        "AllocatedResourceName",
        "AllocatedTags",
        "ContractApplied",
        "HostProviderName",
        "ServiceProviderName",
    ),
    "1.4": (
        "CommitmentProgramEligibilityDetails",
        "InvoiceDetailId",
    ),
}
KNOWN = frozenset(name for names in INTRODUCED.values() for name in names)


def version_of(columns: frozenset[str]) -> str:
    """Return the version that a file's columns show: the latest that brought one of them."""
    return max((version for version, names in INTRODUCED.items() if columns & set(names)), default="1.0")


def unknown_columns(columns: frozenset[str]) -> frozenset[str]:
    """Return the columns in the style of FOCUS that no known version has: of a newer one, or misnamed.

    Providers' own columns begin with `x_`.
    """
    return frozenset(name for name in columns - KNOWN if name[:1].isupper() and not name.startswith("x_"))
