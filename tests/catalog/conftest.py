"""The packaged catalog, read once."""

import pytest

from trimtab.catalog import load_catalog


@pytest.fixture(scope="session")
def catalog():
    return load_catalog()
