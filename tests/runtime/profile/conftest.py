"""A fake libnvidia-ml.so.1, compiled from C and driven by a script: no GPU and no driver needed."""

import ctypes
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from trimtab.runtime.profile.nvml import Nvml
from trimtab.runtime.profile.sampler import Sampler

SOURCE = Path(__file__).with_name("fake_nvml.c")


@pytest.fixture(scope="session")
def fake_nvml(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The path of the fake library."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        cure = "run scripts/install-system-packages"
        if os.environ.get("CI") == "true":
            pytest.fail(f"a C compiler is missing, and CI=true: {cure}")
        pytest.skip(f"a C compiler is missing: {cure}")
    library = tmp_path_factory.mktemp("nvml") / "libnvidia-ml.so.1"
    subprocess.run([compiler, "-O1", "-shared", "-fPIC", "-o", str(library), str(SOURCE)], check=True)
    return str(library)


@pytest.fixture
def script(fake_nvml: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], str]:
    """Give the fake library a script; returns its path."""

    def write(text: str) -> str:
        file = tmp_path / "script.txt"
        file.write_text(text)
        monkeypatch.setenv("TRIMTAB_FAKE_NVML", str(file))
        monkeypatch.setenv("TRIMTAB_NVML", fake_nvml)
        return fake_nvml

    return write


class Played:
    """A sampler over the fake library, whose clock is the script's tick."""

    def __init__(self, library: str, interval_s: float) -> None:
        self._fake = ctypes.CDLL(library)
        self.interval_s = interval_s
        self.tick = 0
        self.sampler = Sampler(Nvml(library), now_s=0.0, epoch_s=0.0, interval_s=interval_s)

    def play(self, ticks: int) -> None:
        """Take one sample at each of the next ticks."""
        for _ in range(ticks):
            self.tick += 1
            self._fake.fake_tick(ctypes.c_long(self.tick))
            self.sampler.round(self.tick * self.interval_s)
        self.sampler.flush()


@pytest.fixture
def player(script: Callable[[str], str]) -> Callable[..., Played]:
    """Start a sampler on a script."""

    def start(text: str, interval_s: float = 1.0) -> Played:
        return Played(script(text), interval_s)

    return start
