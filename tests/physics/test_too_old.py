"""Drivers and CUDA against what a GPU's generation needs."""

import pytest

from trimtab.catalog import load_catalog
from trimtab.errors import InputError
from trimtab.physics.formats import too_old

CATALOG = load_catalog()


@pytest.mark.parametrize(
    ("gpu", "driver", "cuda", "said"),
    [
        ("H100", "535.104.05", "12.2", ""),
        ("H100", "470.57", None, "needs driver 520.61 or newer, yours is 470.57"),
        ("H100", None, "11.4", "needs CUDA 11.8 or newer, yours is 11.4"),
        ("B200", "550.54", "12.4", "needs driver 570.26"),
        ("T4", "470.57", "11.4", ""),
        ("H100", None, None, ""),
    ],
)
def test_a_generation_needs_its_oldest_driver_and_cuda(gpu, driver, cuda, said):
    assert said in too_old(CATALOG.gpu(gpu), driver=driver, cuda=cuda)
    assert bool(too_old(CATALOG.gpu(gpu), driver=driver, cuda=cuda)) == bool(said)


def test_what_is_no_version_is_refused():
    with pytest.raises(InputError, match="not a version"):
        too_old(CATALOG.gpu("H100"), driver="latest", cuda=None)
