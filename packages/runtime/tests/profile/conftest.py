"""A sampler over the fake driver library, driven tick by tick."""

import ctypes
from collections.abc import Callable

import pytest

from trimtab_runtime.profile.nvml import Nvml
from trimtab_runtime.profile.sampler import Sampler


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
def player(nvml_script: Callable[[str], str]) -> Callable[..., Played]:
    """Start a sampler on a nvml_script."""

    def start(text: str, interval_s: float = 1.0) -> Played:
        return Played(nvml_script(text), interval_s)

    return start
