"""Facts: GPUs, MIG profiles, instances, offerings, prices, model servers' metrics; rows of data with source and as_of."""

from trimtab.catalog.gpus import Gpu, InstanceType
from trimtab.catalog.kinds import (
    BuyingOption,
    CapacityType,
    InterruptionBucket,
    Lifecycle,
    Precision,
    PriceBasis,
)
from trimtab.catalog.mig import MigProfile
from trimtab.catalog.own_rates import OwnedHardware, owned_price
from trimtab.catalog.prices import ANY_REGION, Price, PriceBook
from trimtab.catalog.registry import Catalog, load_catalog

__all__ = [
    "ANY_REGION",
    "BuyingOption",
    "CapacityType",
    "Catalog",
    "Gpu",
    "InstanceType",
    "InterruptionBucket",
    "Lifecycle",
    "MigProfile",
    "OwnedHardware",
    "Precision",
    "Price",
    "PriceBasis",
    "PriceBook",
    "load_catalog",
    "owned_price",
]
