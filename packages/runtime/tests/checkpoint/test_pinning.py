"""Host memory is page-locked once, unlocked before it goes, and a driver that declines costs speed only."""

import mmap

from trimtab_runtime.checkpoint.pinning import PinnedMemory


class Driver:
    """Records what a CUDA runtime would be asked."""

    def __init__(self, result=0):
        self.locked = {}
        self.result = result

    def cudaHostRegister(self, address, size_bytes, flags):
        if self.result == 0:
            self.locked[address] = size_bytes
        return self.result

    def cudaHostUnregister(self, address):
        del self.locked[address]
        return 0


def test_a_larger_range_replaces_the_one_before():
    driver, pinned = Driver(), PinnedMemory()

    assert pinned.pin(memoryview(mmap.mmap(-1, 4096)), driver)
    assert pinned.pin(memoryview(mmap.mmap(-1, 8192)), driver)

    assert list(driver.locked.values()) == [8192]


def test_a_driver_that_declines_is_reported_not_fatal(caplog):
    pinned = PinnedMemory()

    assert not pinned.pin(memoryview(mmap.mmap(-1, 4096)), Driver(result=2))
    assert "CUDA error 2" in caplog.text


def test_without_cuda_nothing_is_locked():
    assert not PinnedMemory().pin(memoryview(mmap.mmap(-1, 4096)), None)
