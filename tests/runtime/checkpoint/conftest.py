"""A scratch folder in memory where there is one: thousands of flushed files need not wear the disk."""

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
