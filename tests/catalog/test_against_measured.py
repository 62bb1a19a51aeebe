"""The packaged facts agree with the independently gathered ones: rates within 1 %, prices within 0.1 %."""

import csv

import pytest

from trimtab.catalog import BuyingOption, Precision
from trimtab.errors import MissingPrice, UnknownName

pytestmark = pytest.mark.shared

RATES = {
    "fp32_tflops": Precision.FP32, "tf32_dense": Precision.TF32, "fp16_dense": Precision.FP16, "bf16_dense": Precision.BF16,
    "fp8_dense": Precision.FP8, "int8_dense_tops": Precision.INT8, "fp4_dense": Precision.FP4,
}  # fmt: skip
COLUMNS = {
    "on_demand_usd_hr": BuyingOption.ON_DEMAND, "spot_usd_hr": BuyingOption.SPOT, "ri_1y_usd_hr": BuyingOption.RESERVED_1Y,
    "ri_3y_usd_hr": BuyingOption.RESERVED_3Y,
}  # fmt: skip


def rows(path):
    with path.open(encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream))


def test_every_board_has_the_gathered_specification(catalog, shared_dir):
    for row in rows(shared_dir / "data" / "catalog" / "gpus.csv"):
        gpu = catalog.gpu(row["name"])
        assert gpu.memory_gib == pytest.approx(float(row["memory_mib_nvsmi"]) / 1024)
        assert gpu.mem_bw_gb_s == pytest.approx(float(row["mem_bw_gbs"]), rel=0.01)
        for column, precision in RATES.items():
            assert gpu.tflops(precision) == (pytest.approx(float(row[column]), rel=0.01) if row[column] else None)


def test_every_cloud_price_is_the_gathered_one(catalog, shared_dir):
    compared = 0
    for row in rows(shared_dir / "data" / "catalog" / "prices.csv"):
        if row["provider"] not in {"aws", "gcp", "azure", "nebius"} or "skypilot-v6" in row["source"]:
            continue
        for column, option in COLUMNS.items():
            if row[column]:
                found = catalog.prices.price(row["provider"], row["instance_type"], row["region"], option)
                assert found.usd_hr == pytest.approx(float(row[column]), rel=1e-3), row
                compared += 1

    assert compared > 1200


def test_what_was_not_gathered_has_no_price(catalog, shared_dir):
    for row in rows(shared_dir / "data" / "catalog" / "prices.csv"):
        if row["provider"] == "aws" and not row["ri_1y_usd_hr"]:
            with pytest.raises((MissingPrice, UnknownName)):
                catalog.prices.price("aws", row["instance_type"], row["region"], BuyingOption.RESERVED_1Y)
