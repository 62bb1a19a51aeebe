"""Fixtures for what a test needs from outside: shared measurement data, a Prometheus server, a browser.

Where one is absent the test skips and says so; where CI=true that is a failure, because there it must be present.
"""

import os
import shutil
from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("suite", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("suite")

ROOT = Path(__file__).resolve().parent.parent


def _absent(what: str, cure: str) -> None:
    if os.environ.get("CI") == "true":
        pytest.fail(f"{what} is missing, and CI=true: {cure}")
    pytest.skip(f"{what} is missing: {cure}")


@pytest.fixture(scope="session")
def shared_dir() -> Path:
    """The folder of shared measurement data beside the checkout."""
    folder = ROOT.parent / "shared"
    if not folder.is_dir():
        _absent(
            "the shared measurement data",
            "it is not part of the repository; the project's own data cover the behaviour",
        )
    return folder


def _binary(*names: str) -> str:
    for name in names:
        found = shutil.which(name)
        if found:
            return found
    _absent(names[0], "run scripts/install-system-packages")
    raise AssertionError("unreachable")


@pytest.fixture(scope="session")
def prometheus_bin() -> str:
    """A real Prometheus server."""
    return _binary("prometheus")


@pytest.fixture(scope="session")
def promtool_bin() -> str:
    """promtool, which comes with Prometheus."""
    return _binary("promtool")


@pytest.fixture(scope="session")
def chromium_bin() -> str:
    """A headless-capable Chromium."""
    return _binary("chromium", "chromium-browser", "google-chrome")
