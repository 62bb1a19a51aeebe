"""Own rates that can hardly be meant are used as they stand, and questioned with their row, value and cure."""

import pytest

from trimtab.catalog import BuyingOption, load_catalog
from trimtab.catalog.own_rates import shown
from trimtab.errors import PriceFileError

HEAD = "provider,instance_type,region,option,usd_hr,gpu,gpu_count\n"


def questions(folder, *rows):
    path = folder / "own.csv"
    path.write_text(HEAD + "\n".join(rows) + "\n")
    return load_catalog(path).questions


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ("aws,p5.48xlarge,us-east-1,on-demand,0.0001", "$0.0001 an hour for aws p5.48xlarge in us-east-1, on-demand is under"),
        ("aws,p5.48xlarge,us-east-1,on-demand,2", "under 5% of the lowest listed rate of this type"),
        ("aws,p5.48xlarge,us-east-1,on-demand,5504", "over 5x the highest listed rate of this type"),
        ("acme,box,here,on-demand,0.01,H100,8", "under 5% of the lowest listed rate of 8 x H100"),
        ("aws,p5.48xlarge,us-eest-1,on-demand,50", "no list of aws names the region 'us-eest-1': is it us-east-1"),
        ("aws,p5.48xlarge,us-east-1,spot,60", "spot is not sold above on demand"),
    ],
)  # fmt: skip
def test_a_rate_that_can_hardly_be_meant_is_questioned_with_its_row(tmp_path, row, said):
    found = questions(tmp_path, "aws,g5.xlarge,us-east-1,on-demand,0.9", row)

    assert [said in one and one.startswith("own.csv row 3: ") for one in found] == [True]


def test_usual_discounts_and_types_of_ones_own_are_not_questioned(tmp_path):
    rows = ("aws,p5.48xlarge,,on-demand,30", "aws,p5.48xlarge,us-east-1,spot,11", "acme,box,here,on-demand,20,H100,8")

    assert questions(tmp_path, *rows) == ()


def test_a_questioned_rate_still_holds(tmp_path):
    path = tmp_path / "own.csv"
    path.write_text(HEAD + "aws,p5.48xlarge,us-east-1,on-demand,0.0001\n")

    rate = load_catalog(path).prices.price("aws", "p5.48xlarge", "us-east-1", BuyingOption.ON_DEMAND)

    assert rate.usd_hr == 0.0001


def test_nonsense_is_an_error(tmp_path):
    with pytest.raises(PriceFileError, match="must be above 0 USD an hour"):
        questions(tmp_path, "aws,p5.48xlarge,us-east-1,on-demand,-1")


def test_many_questions_are_counted():
    assert shown([f"row {number}" for number in range(7)])[-1].startswith("2 more own rates are questioned")
