"""A scratch folder in memory where there is one (thousands of flushed files need not wear a disk), and optional packages."""

import importlib
import os
import tempfile
from pathlib import Path

import pytest

MEMORY = Path("/dev/shm")


@pytest.fixture
def memory_path(tmp_path):
    if not MEMORY.is_dir():
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(prefix="trimtab-test-", dir=MEMORY) as folder:
        yield Path(folder)


def _optional(name):
    try:
        return importlib.import_module(name)
    except ImportError:
        if os.environ.get("CI") == "true":
            pytest.fail(f"{name} is missing, and CI=true: pip install -r requirements/torch.txt")
        pytest.skip(f"{name} is missing: pip install -r requirements/torch.txt")


@pytest.fixture(scope="session")
def torch():
    module = _optional("torch")
    module.set_num_threads(1)
    return module


@pytest.fixture(scope="session")
def fsspec():
    return _optional("fsspec")
