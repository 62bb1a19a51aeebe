"""NVIDIA's management library (NVML) through ctypes: loading it, its answers by name, the structures it fills.

Not through nvidia-ml-py: what people embed uses the standard library alone, and of the 50 us that a sample of eight GPUs may
cost its calls alone would take 32 for fewer readings (a look-up, a new structure and a check each).
A test holds every constant and structure here against that package's. Sources: nvml.h of CUDA 13, nvidia-ml-py 13.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from enum import IntEnum
from typing import TypeAlias

from trimtab_runtime.errors import ProfileError

LIBRARY = "libnvidia-ml.so.1"
LIBRARY_VARIABLE = "TRIMTAB_NVML"
"""Names another library file to load."""

NvmlCall: TypeAlias = Callable[..., int]


class Answer(IntEnum):
    """What NVML answers (nvmlReturn_t)."""

    SUCCESS = 0
    UNINITIALIZED = 1
    INVALID_ARGUMENT = 2
    NOT_SUPPORTED = 3
    NO_PERMISSION = 4
    ALREADY_INITIALIZED = 5
    NOT_FOUND = 6
    INSUFFICIENT_SIZE = 7
    INSUFFICIENT_POWER = 8
    DRIVER_NOT_LOADED = 9
    TIMEOUT = 10
    IRQ_ISSUE = 11
    LIBRARY_NOT_FOUND = 12
    FUNCTION_NOT_FOUND = 13
    CORRUPTED_INFOROM = 14
    GPU_IS_LOST = 15
    RESET_REQUIRED = 16
    OPERATING_SYSTEM = 17
    LIB_RM_VERSION_MISMATCH = 18
    IN_USE = 19
    MEMORY = 20
    NO_DATA = 21
    INSUFFICIENT_RESOURCES = 23
    ARGUMENT_VERSION_MISMATCH = 25
    DEPRECATED = 26
    NOT_READY = 27
    GPU_NOT_FOUND = 28
    INVALID_STATE = 29
    UNKNOWN = 999


UNSUPPORTED = frozenset(
    {
        Answer.NOT_SUPPORTED,
        Answer.NO_PERMISSION,
        Answer.FUNCTION_NOT_FOUND,
        Answer.INVALID_ARGUMENT,
        Answer.ARGUMENT_VERSION_MISMATCH,
        Answer.DEPRECATED,
    }
)
"""Answers that will not change while the program runs: the reading is absent from then on."""
GONE = frozenset(
    {Answer.GPU_IS_LOST, Answer.GPU_NOT_FOUND, Answer.NOT_FOUND, Answer.RESET_REQUIRED, Answer.UNINITIALIZED}
)
"""Answers that say that the device is not there (any more)."""


class Field(IntEnum):
    """Field values requested in one call (NVML_FI_DEV_*)."""

    TOTAL_ENERGY_CONSUMPTION = 83
    NVLINK_THROUGHPUT_DATA_TX = 138
    NVLINK_THROUGHPUT_DATA_RX = 139
    POWER_INSTANT = 186
    PCIE_COUNT_TX_BYTES = 197
    PCIE_COUNT_RX_BYTES = 198


class Gpm(IntEnum):
    """Profiling metrics of Hopper and newer (NVML_GPM_METRIC_*)."""

    SM_UTIL = 2
    SM_OCCUPANCY = 3
    ANY_TENSOR_UTIL = 5
    DRAM_BW_UTIL = 10
    PCIE_TX_PER_SEC = 20
    PCIE_RX_PER_SEC = 21
    NVLINK_TOTAL_RX_PER_SEC = 60
    NVLINK_TOTAL_TX_PER_SEC = 61


THROTTLE_REASONS = {
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x10: "sync boost",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "power brake",
    0x100: "display clock setting",
    0x200: "board limit",
    0x400: "reliability",
}
"""Bits of the clocks' event reasons; idle (0x1) and the user's own clocks (0x2) slow nothing down against a wish."""

ALL_LINKS = 0xFFFFFFFF
NO_VALUE_U32 = 0xFFFFFFFF
NO_VALUE_U64 = 0xFFFFFFFFFFFFFFFF
CLOCK_SM = 1
MIG_ENABLED = 1
PCIE_TX, PCIE_RX = 0, 1
NAME_BYTES = 96
GPM_VERSION = 1


class FieldValue(ctypes.Structure):
    """nvmlFieldValue_t."""

    _fields_ = (
        ("field_id", ctypes.c_uint),
        ("scope_id", ctypes.c_uint),
        ("timestamp", ctypes.c_longlong),
        ("latency_us", ctypes.c_longlong),
        ("value_type", ctypes.c_uint),
        ("answer", ctypes.c_uint),
        ("value", ctypes.c_ulonglong),
    )


class GpmMetric(ctypes.Structure):
    """nvmlGpmMetric_t."""

    _fields_ = (
        ("metric_id", ctypes.c_uint),
        ("answer", ctypes.c_uint),
        ("value", ctypes.c_double),
        ("short_name", ctypes.c_void_p),
        ("long_name", ctypes.c_void_p),
        ("unit", ctypes.c_void_p),
    )


class GpmHead(ctypes.Structure):
    """The head of nvmlGpmMetricsGet_t; the metrics follow it."""

    _fields_ = (
        ("version", ctypes.c_uint),
        ("count", ctypes.c_uint),
        ("before", ctypes.c_void_p),
        ("after", ctypes.c_void_p),
    )


class GpmSupport(ctypes.Structure):
    """nvmlGpmSupport_t."""

    _fields_ = (("version", ctypes.c_uint), ("supported", ctypes.c_uint))


class ProcessRow(ctypes.Structure):
    """nvmlProcessInfo_v2_t, which the calls of version 2 and 3 fill."""

    _fields_ = (
        ("pid", ctypes.c_uint),
        ("used_bytes", ctypes.c_ulonglong),
        ("gpu_instance", ctypes.c_uint),
        ("compute_instance", ctypes.c_uint),
    )


class NvmlError(ProfileError):
    """A call that NVML refused, by name and answer."""

    def __init__(self, call: str, code: int) -> None:
        self.code = code
        super().__init__(f"{call}: {answer_words(code)}")


def answer_words(code: int) -> str:
    """Say an answer in words: `gpu is lost`."""
    try:
        return Answer(code).name.lower().replace("_", " ").replace("gpu", "GPU")
    except ValueError:
        return f"unknown answer {code}"


class Nvml:
    """The loaded and initialised library. Raises ProfileError if there is none, or no driver behind it."""

    def __init__(self, path: str | None = None) -> None:
        name = path or os.environ.get(LIBRARY_VARIABLE) or LIBRARY
        try:
            self._library = ctypes.CDLL(name)
        except OSError as error:
            raise ProfileError(f"no NVIDIA driver here: {name} cannot be loaded ({error})") from error
        self._require("nvmlInit_v2")

    def call(self, *names: str) -> NvmlCall | None:
        """Return the first of some functions that this library has; arguments must be ctypes values, which are passed as is."""
        for name in names:
            try:
                return self._library[name]
            except AttributeError:
                continue
        return None

    def ask(self, name: str, *arguments: object) -> int:
        """Call a function by name and return its answer; a function the library lacks answers FUNCTION_NOT_FOUND."""
        function = self.call(name)
        return Answer.FUNCTION_NOT_FOUND if function is None else int(function(*arguments))

    def _require(self, name: str, *arguments: object) -> None:
        if code := self.ask(name, *arguments):
            raise NvmlError(name, code)

    def device_count(self) -> int:
        """Return the number of GPUs. Raises NvmlError."""
        count = ctypes.c_uint()
        self._require("nvmlDeviceGetCount_v2", ctypes.byref(count))
        return count.value

    def handle(self, index: int) -> ctypes.c_void_p:
        """Return a GPU's handle. Raises NvmlError."""
        handle = ctypes.c_void_p()
        self._require("nvmlDeviceGetHandleByIndex_v2", ctypes.c_uint(index), ctypes.byref(handle))
        return handle

    def handle_of(self, uuid: str) -> ctypes.c_void_p | None:
        """Return the handle of a GPU or MIG instance by UUID; None if it is not there."""
        handle = ctypes.c_void_p()
        code = self.ask("nvmlDeviceGetHandleByUUID", ctypes.c_char_p(uuid.encode()), ctypes.byref(handle))
        return None if code else handle

    def text(self, name: str, *before: object) -> str | None:
        """Return what a function writes into a text buffer; None if it does not answer."""
        buffer = ctypes.create_string_buffer(NAME_BYTES)
        if self.ask(name, *before, buffer, ctypes.c_uint(NAME_BYTES)):
            return None
        return buffer.value.decode("utf-8", "replace")

    def number(self, name: str, handle: ctypes.c_void_p) -> int | None:
        """Return the unsigned number that a function gives of a device; None if it does not answer."""
        value = ctypes.c_uint()
        return None if self.ask(name, handle, ctypes.byref(value)) else value.value

    def close(self) -> None:
        """Shut the library down; its other users in this process keep their own count."""
        self.ask("nvmlShutdown")
