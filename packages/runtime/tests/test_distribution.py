"""The distribution: built, it needs nothing, and its imports and its command line work on a bare Python."""

import os
import subprocess
import sys
import zipfile
from email.parser import Parser
from importlib.util import find_spec
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    if find_spec("hatchling") is None or find_spec("pip") is None:
        pytest.skip("building needs hatchling and pip: make setup-dev")
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*command, "-w", str(folder), str(PACKAGE)], check=True, timeout=120)
    return next(folder.glob("trimtab_runtime-*.whl"))


def test_the_wheel_depends_on_nothing_and_holds_no_tests(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        text = archive.read(next(name for name in names if name.endswith("METADATA"))).decode()

    needed = Parser().parsestr(text).get_all("Requires-Dist") or []
    assert all("extra ==" in one for one in needed)
    assert {name.partition("/")[0].partition("-")[0] for name in names} == {"trimtab_runtime"}
    assert "trimtab_runtime/py.typed" in names
    assert not [name for name in names if "test" in name]


@pytest.mark.parametrize(
    "command", ["--version", "--help", "spot-run --help", "profile --help", "checkpoints --help", "serve --help"]
)
def test_installed_alone_its_command_line_works(wheel, tmp_path, command):
    environment = {**os.environ, "PYTHONPATH": str(wheel)}  # a wheel of plain Python is importable as it is

    done = subprocess.run(
        [sys.executable, "-S", "-m", "trimtab_runtime", *command.split()],
        env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=60,
    )  # fmt: skip

    assert done.returncode == 0, done.stderr
    assert "trimtab-runtime" in done.stdout
