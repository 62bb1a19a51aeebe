from datetime import date

import pytest

from trimtab.catalog.pools import Pool
from trimtab.errors import InputError, PriceFileError
from trimtab.sources.bills.commitments import quoted_offer, read_owned

POOL = Pool("gcp", "a2-highgpu-4g", "us-central1")
HEAD = "name,provider,instance_type,region,count,term_years,upfront_usd,usd_hr,start,end\n"


def written(tmp_path, text):
    file = tmp_path / "held.csv"
    file.write_text(text)
    return file


def test_a_row_is_a_commitment_with_its_days(tmp_path):
    (one,) = read_owned(written(tmp_path, HEAD + "cud,gcp,a2-highgpu-4g,us-central1,2,3,,5.14,2025-03-01,2028-03-01\n"))

    assert (one.scope.offer.pool, one.scope.count, one.end) == (POOL, 2, date(2028, 3, 1))
    assert one.scope.offer.effective_usd_hr == 5.14
    assert one.runs_at(date(2025, 3, 1))
    assert not one.runs_at(date(2028, 3, 1))


def test_a_missing_column_and_a_wrong_term_are_told_with_their_rows(tmp_path):
    text = HEAD + "cud,gcp,a2-highgpu-4g,us-central1,2,2,,5.14,2025-03-01,2028-03-01\n"

    with pytest.raises(PriceFileError, match=r"row 2 \(cud\): term_years must be 1 or 3, not 2"):
        read_owned(written(tmp_path, text))
    with pytest.raises(PriceFileError, match="no column 'end'"):
        read_owned(written(tmp_path, text.replace(",end\n", ",until\n").replace(",2,2,", ",2,1,")))


def test_a_quote_names_its_pool_by_type():
    offer = quoted_offer("a2-highgpu-4g:3y:26280:2", {"a2-highgpu-4g": POOL})

    assert (offer.pool, offer.term_years, offer.effective_usd_hr) == (POOL, 3, 3.0)


def test_a_quote_that_cannot_be_read_shows_the_form():
    with pytest.raises(InputError, match="TYPE:TERM:UPFRONT_USD:USD_HR"):
        quoted_offer("a2-highgpu-4g", {"a2-highgpu-4g": POOL})
    with pytest.raises(InputError, match="could not convert"):
        quoted_offer("a2-highgpu-4g:1y:much:1", {"a2-highgpu-4g": POOL})
