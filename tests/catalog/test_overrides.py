"""The user's own rates go over the list; every fault of the file is told at once."""

from datetime import date

import pytest

from trimtab.catalog import BuyingOption, PriceBasis, load_catalog
from trimtab.errors import InputError, PriceFileError

ON_DEMAND = BuyingOption.ON_DEMAND
HEAD = "provider,instance_type,region,option,usd_hr,as_of,note\n"


def written(folder, text, name="own.csv"):
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_negotiated_rate_replaces_the_list_from_its_date(tmp_path):
    path = written(tmp_path, HEAD + "aws,p5.48xlarge,us-east-1,on-demand,40.0,2026-01-01,private offer\n")

    prices = load_catalog(path).prices

    def at(day):
        return prices.price("aws", "p5.48xlarge", "us-east-1", ON_DEMAND, at=day)

    assert at(date(2026, 9, 1)).usd_hr == 40.0
    assert at(date(2026, 9, 1)).basis is PriceBasis.NEGOTIATED
    assert at(date(2025, 12, 31)).usd_hr == 55.04


def test_rate_without_region_and_date_holds_everywhere_and_always(tmp_path):
    path = written(tmp_path, HEAD + "aws,p5.48xlarge,,reserved-3y,30.0,,\n")

    prices = load_catalog(path).prices

    for region in ("us-east-1", "ap-northeast-1"):
        assert prices.price("aws", "p5.48xlarge", region, BuyingOption.RESERVED_3Y, at=date(2023, 9, 1)).usd_hr == 30.0


def test_packaged_catalog_is_left_as_it_was(tmp_path):
    load_catalog(written(tmp_path, HEAD + "aws,p5.48xlarge,,on-demand,1.0,,\n"))

    assert load_catalog().prices.price("aws", "p5.48xlarge", "us-east-1", ON_DEMAND).usd_hr == 55.04


def test_yaml_adds_owned_hardware_as_a_type_of_its_own(tmp_path):
    path = written(
        tmp_path,
        """
owned:
  - {instance_type: dgx, gpu: H100, gpu_count: 8, capital_usd: 350400, years: 4, power_w: 10000, pue: 1.5,
     electricity_usd_kwh: 0.1, operations_usd_year: 8760}
prices:
  - {provider: acme, instance_type: box, option: on-demand, usd_hr: 3, gpu: L40S, gpu_count: 2, vcpus: 32, memory_gib: 256}
""",
        "own.yaml",
    )

    catalog = load_catalog(path)

    assert catalog.instance_type("owned", "dgx").gpu == "H100-SXM5-80GB"
    assert catalog.prices.price("owned", "dgx", "basement", BuyingOption.OWNED).usd_hr == pytest.approx(12.5)
    assert catalog.instance_type("acme", "box").memory_gib == 256


def test_all_bad_rows_are_reported_with_their_place(tmp_path):
    path = written(
        tmp_path,
        HEAD
        + "aws,p5.48xlarge,us-east-1,on-demand,0,,\n"
        + "aws,p5.48xlarg,us-east-1,on-demand,1.0,,\n"
        + "aws,p5.48xlarge,us-east-1,on_demand,1.0,,\n"
        + "aws,p5.48xlarge,us-east-1,on-demand,cheap,,\n"
        + "aws,p5.48xlarge,us-east-1,on-demand,1.0,yesterday,\n"
        + "aws,p5.48xlarge,us-east-1,,1.0,,\n",
    )

    with pytest.raises(PriceFileError) as caught:
        load_catalog(path)

    places = [fault.where for fault in caught.value.faults]
    assert places == [f"own.csv row {row}" for row in range(2, 8)]
    message = str(caught.value)
    assert "above 0" in message
    assert "did you mean p5.48xlarge" in message
    assert "did you mean on-demand" in message
    assert "'option' is missing" in message


def test_a_discount_instead_of_a_rate_is_refused(tmp_path):
    path = written(tmp_path, "provider,instance_type,option,discount_percent\naws,p5.48xlarge,on-demand,30\n")

    with pytest.raises(PriceFileError, match="unknown field 'discount_percent'"):
        load_catalog(path)


def test_an_empty_file_says_what_it_should_hold(tmp_path):
    with pytest.raises(InputError, match="holds no rates"):
        load_catalog(written(tmp_path, HEAD))


def test_a_row_with_a_cell_too_many_is_a_fault(tmp_path):
    with pytest.raises(InputError, match="row 2: more cells than the 7 columns"):
        load_catalog(written(tmp_path, HEAD + "aws,p5.48xlarge,us-east-1,on-demand,40.0,2026-01-01,note,extra\n"))


def test_a_file_saved_by_a_spreadsheet_is_read(tmp_path):
    path = tmp_path / "own.csv"
    path.write_bytes(("\ufeff" + HEAD + "aws,p5.48xlarge,us-east-1,on-demand,40.0,,\n").replace("\n", "\r\n").encode())

    assert load_catalog(path).prices.price("aws", "p5.48xlarge", "us-east-1", ON_DEMAND).usd_hr == 40.0


def test_a_file_that_cannot_be_read_says_so(tmp_path):
    with pytest.raises(InputError, match=r"cannot read .*absent\.csv"):
        load_catalog(tmp_path / "absent.csv")
    with pytest.raises(InputError, match="not valid YAML"):
        load_catalog(written(tmp_path, "prices: [", "broken.yaml"))
    with pytest.raises(InputError, match="must hold lists"):
        load_catalog(written(tmp_path, "- 1", "list.yaml"))


@pytest.mark.parametrize("count", ["0", "-1", "8.5", "1" * 400, "nan", "inf"])
def test_a_number_of_gpus_that_no_node_has_is_a_fault(tmp_path, count):
    head = HEAD.strip() + ",gpu,gpu_count\n"

    with pytest.raises(PriceFileError, match=r"row 2: gpu_count .* is not above 0"):
        load_catalog(written(tmp_path, f"{head}lab,box,,on-demand,1.5,,,H100-80GB,{count}\n"))
