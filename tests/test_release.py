"""What is released works: both distributions built, whole, and installed into environments that hold nothing of the checkout.

Dependencies of trimtab come from the pinned environment of the tests, since no test uses a network:
`scripts/check-release` installs them anew, by pip, uv and pipx.
"""

import json
import os
import re
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from trimtab._version import __version__
from trimtab_runtime._version import __version__ as RUNTIME_VERSION

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
RUNTIME_PROJECT = tomllib.loads((ROOT / "packages/runtime/pyproject.toml").read_text())["project"]
PINNED = dict(
    re.findall(
        r"^([\w.-]+)==([^\s;\\]+)",
        "\n".join(file.read_text() for file in sorted((ROOT / "requirements").glob("*.txt"))),
        re.MULTILINE,
    )
)
NOT_PINNED = {"google-auth", "azure-identity"}
"""Read through their own transports in the tests; `scripts/check-release` resolves them."""


def run(*command, folder):
    """Return what a command says in a folder, in an environment without a trace of the checkout."""
    environment = {
        key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "TRIMTAB", "VIRTUAL"))
    }
    environment["COLUMNS"] = "100"
    done = subprocess.run(
        [str(part) for part in command], cwd=folder, env=environment, capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_check_of_the_release_ends_with_status_1_and_names_the_step_that_failed(tmp_path):
    script = tmp_path / "scripts" / "check-release"
    script.parent.mkdir()
    script.write_text((ROOT / "scripts" / "check-release").read_text())

    def checked(*flags):
        return subprocess.run([sys.executable, script, *flags], capture_output=True, text=True, timeout=240)

    nothing_built, cannot_build = checked("--platforms-only"), checked("--no-demo")

    assert nothing_built.returncode == 1
    assert nothing_built.stderr == f"failed: no wheels in {tmp_path / 'dist'}; run it without --platforms-only first\n"
    assert cannot_build.returncode == 1
    assert cannot_build.stderr.startswith(f"failed: {sys.executable} -m hatchling build -d {tmp_path / 'dist'}\n")


@pytest.fixture(scope="module")
def dist(tmp_path_factory):
    """The folder of both distributions' wheels and source archives."""
    folder = tmp_path_factory.mktemp("dist")
    for project in (ROOT, ROOT / "packages" / "runtime"):
        run(sys.executable, "-m", "hatchling", "build", "-d", folder, folder=project)
    return folder


@pytest.fixture(scope="module")
def wheel(dist):
    return dist / f"trimtab-{__version__}-py3-none-any.whl"


@pytest.fixture(scope="module")
def runtime_wheel(dist):
    return dist / f"trimtab_runtime-{RUNTIME_VERSION}-py3-none-any.whl"


def clean_environment(folder, wheels):
    """Make an environment with these wheels and nothing else, and return its folder of programs."""
    run(sys.executable, "-m", "venv", "--without-pip", folder, folder=folder.parent)
    command = ("-m", "pip", "--python", folder / "bin/python", "install", "-q", "--no-index", "--no-deps")
    run(sys.executable, *command, *wheels, folder=folder.parent)
    return folder / "bin"


@pytest.fixture(scope="module")
def installed(tmp_path_factory, wheel, runtime_wheel):
    """trimtab from its wheels; behind them, the dependencies of the pinned environment."""
    programs = clean_environment(tmp_path_factory.mktemp("clean") / "venv", [wheel, runtime_wheel])
    site = next((programs.parent / "lib").glob("python*/site-packages"))
    # the folder of a .pth is a path alone: an editable trimtab there (a .pth or a finder of its own) is not read
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return programs


def files_of(archive):
    with zipfile.ZipFile(archive) as opened:
        return {name for name in opened.namelist() if ".dist-info/" not in name}


def sources(folder):
    """Return the files of a package that a wheel must hold, named as there."""
    found = (file for file in folder.rglob("*") if file.is_file() and "__pycache__" not in file.parts)
    return {str(file.relative_to(folder.parent)) for file in found if file.suffix != ".pyc"}


def test_both_distributions_are_of_one_version():
    assert __version__ == RUNTIME_VERSION
    minor = __version__.rpartition(".")[0]
    needed = next(Requirement(text) for text in PROJECT["dependencies"] if text.startswith("trimtab-runtime"))
    assert needed.specifier.contains(__version__)
    assert str(needed.specifier).find(f">={minor}") >= 0, "a new trimtab needs the runtime that came with it"


def test_the_changelog_tells_of_the_version():
    heads = re.findall(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)

    assert heads[:2] == ["Unreleased", __version__]


def test_a_wheel_holds_every_file_of_its_package_and_no_other(wheel, runtime_wheel):
    assert files_of(wheel) == sources(ROOT / "src" / "trimtab")
    assert files_of(runtime_wheel) == sources(ROOT / "packages" / "runtime" / "src" / "trimtab_runtime")


@pytest.mark.parametrize("name", ["trimtab", "trimtab_runtime"])
def test_a_source_archive_builds_the_same_wheel(dist, tmp_path, name):
    with tarfile.open(dist / f"{name}-{__version__}.tar.gz") as archive:
        # Python 3.11 knows filters from 3.11.4 on
        archive.extraction_filter = getattr(tarfile, "data_filter", None)
        archive.extractall(tmp_path)

    run(
        sys.executable,
        "-m",
        "hatchling",
        "build",
        "-t",
        "wheel",
        "-d",
        tmp_path,
        folder=tmp_path / f"{name}-{__version__}",
    )

    file = f"{name}-{__version__}-py3-none-any.whl"
    with zipfile.ZipFile(dist / file) as first, zipfile.ZipFile(tmp_path / file) as again:
        assert {item.filename: item.CRC for item in first.infolist()} == {
            item.filename: item.CRC for item in again.infolist()
        }


def test_a_wheel_names_its_licence_and_what_it_needs(wheel):
    with zipfile.ZipFile(wheel) as archive:
        folder = f"trimtab-{__version__}.dist-info"
        said = Parser().parsestr(archive.read(f"{folder}/METADATA").decode())
        assert "Apache License" in archive.read(f"{folder}/licenses/LICENSE").decode()

    assert said["License-Expression"] == "Apache-2.0"
    assert sorted(said.get_all("Provides-Extra")) == sorted(PROJECT["optional-dependencies"])


def test_the_runtime_alone_needs_nothing(tmp_path, runtime_wheel):
    programs = clean_environment(tmp_path / "venv", [runtime_wheel])
    program = (
        "import json, sys, trimtab_runtime as r; r.batch, r.Checkpointer, r.NoticeWatcher; import trimtab_runtime.profile, "
        "trimtab_runtime.http; print(r.__file__)"
    )

    assert str(tmp_path) in run(programs / "python", "-c", program, folder=tmp_path)
    assert __version__ in run(programs / "trimtab-runtime", "--version", folder=tmp_path)


def test_the_command_line_works_from_the_wheels(installed, tmp_path):
    where = run(
        installed / "python",
        "-c",
        "import trimtab, trimtab_runtime as r; print(trimtab.__file__, r.__file__)",
        folder=tmp_path,
    )
    assert all(part.startswith(str(installed.parent)) for part in where.split()), "not the checkout's"

    assert run(installed / "trimtab", "--version", folder=tmp_path).strip() == f"trimtab, version {__version__}"
    assert json.loads(run(installed / "trimtab", "prices", "--gpus", "-o", "json", folder=tmp_path))["rows"]
    assert run(installed / "trimtab", "emit", "--in-cluster", "--out", "deploy", folder=tmp_path)
    assert run(installed / "trimtab", "emit", "--check", "deploy/manifests", folder=tmp_path), (
        "its schemas are in the wheel"
    )


def test_a_demonstration_is_audited_from_the_wheels_as_the_readme_shows_it(installed, tmp_path):
    recorded = re.search(r"```text\n\$ trimtab (.*?)\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)

    shown = run(installed / "trimtab", *recorded[1].split(), "-q", "--no-report", folder=tmp_path)

    parts = [part.strip("\n") for part in recorded[2].split("\n...\n")]
    assert len(parts) > 3
    for part in parts:
        assert part in shown, "record it anew: COLUMNS=100 trimtab audit --demo finetune-7b -q --no-report"


def wanted(project):
    extras = project.get("optional-dependencies", {})
    everything = [*project["dependencies"], *(text for texts in extras.values() for text in texts)]
    return sorted({text for text in everything if not text.startswith("trimtab-runtime")})


@pytest.mark.parametrize("text", [*wanted(PROJECT), *wanted(RUNTIME_PROJECT)])
def test_what_is_needed_is_what_is_tested(text):
    """The pinned requirements, which every test runs with, lie within what a release asks for."""
    asked = Requirement(text)
    if asked.name in NOT_PINNED:
        assert asked.name not in PINNED, "pinned now: take it from the list"
        return

    assert asked.specifier.contains(PINNED[asked.name], prereleases=True)


def test_extras_that_messages_and_docs_name_exist():
    pages = [ROOT / "README.md", *ROOT.glob("docs/**/*.md"), *ROOT.glob("src/**/*.py"), *ROOT.glob("packages/**/*.py")]
    named = {
        (name, extra)
        for page in pages
        for name, extras in re.findall(r"\b(trimtab(?:-runtime)?)\[([\w,]+)\]", page.read_text())
        for extra in extras.split(",")
    }
    there = {("trimtab", extra) for extra in PROJECT["optional-dependencies"]}
    there |= {("trimtab-runtime", extra) for extra in RUNTIME_PROJECT["optional-dependencies"]}

    assert named - there == set()
    assert named
