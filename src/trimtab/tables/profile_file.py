"""A profile as written by `trimtab profile`, checked on reading. None stands for a missing reading."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from trimtab.errors import InputError
from trimtab.inputs.documents import read_json_object


class _ProfileModel(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)


class MetricSpread(_ProfileModel):
    """A reading over time, weighted by the time for which it held."""

    mean: float
    p50: float
    p95: float
    min: float
    max: float
    seen_s: float


class ProfileHour(_ProfileModel):
    """One hour of the clock on one device."""

    start_epoch_s: float
    samples: int
    gpu_util_frac: MetricSpread | None = None
    sm_active_frac: MetricSpread | None = None
    tensor_active_frac: MetricSpread | None = None
    dram_active_frac: MetricSpread | None = None
    memory_mean_gib: float | None = None
    memory_max_gib: float | None = None
    power_mean_w: float | None = None
    energy_kwh: float | None = None


class ProfileDevice(_ProfileModel):
    """One GPU or MIG instance."""

    index: int
    uuid: str
    name: str
    memory_gib: float | None = None
    pcie_gb_s: float | None = None
    power_limit_w: float | None = None
    mig_profile: str | None = None
    parent: str | None = None
    has_mig_instances: bool = False
    state: str = "present"
    lost_times: int = 0
    lost_s: float = 0.0
    metrics: Mapping[str, MetricSpread | None] = Field(default_factory=dict)
    energy_kwh: float | None = None
    throttled_frac: Mapping[str, float] | None = None
    processes: tuple[Mapping[str, float | None], ...] = ()
    absent: Mapping[str, str] = Field(default_factory=dict)
    counter_resets: int = 0
    readings_clamped: int = 0
    timeline: tuple[Mapping[str, float | None], ...] = ()
    hours: tuple[ProfileHour, ...] = ()

    def mean(self, metric: str) -> float | None:
        """Return a metric's mean; None if it was not read."""
        spread = self.metrics.get(metric)
        return None if spread is None else spread.mean


class ProfiledProgram(_ProfileModel):
    """The program beside the GPUs."""

    pids: tuple[int, ...] = ()
    cpu_s: float = 0.0
    cpu_limit: float = 1.0


class ProfileTrouble(_ProfileModel):
    """A call that failed."""

    device: str
    what: str
    answer: str
    times: int = 1


class ProfileFile(_ProfileModel):
    """The whole profile."""

    schema_version: int
    gpu: str | None = None
    gpus: int | None = None
    tok_s: float | None = None
    problem: str | None = None
    started_epoch_s: float
    wall_s: float
    interval_s: float
    samples: int = 0
    samples_missed: int = 0
    longest_sample_s: float = 0.0
    unobserved_s: float | None = None
    program: ProfiledProgram = ProfiledProgram()
    torch: tuple[Mapping[str, float | None], ...] = ()
    devices: tuple[ProfileDevice, ...] = ()
    troubles: tuple[ProfileTrouble, ...] = ()

    @property
    def used(self) -> tuple[ProfileDevice, ...]:
        """Return the devices that the program's own processes were on; all of them where none was seen there."""
        own = set(self.program.pids)
        own_devices = tuple(
            device for device in self.devices if any(process.get("pid") in own for process in device.processes)
        )
        return own_devices or tuple(device for device in self.devices if not device.has_mig_instances)


def checked_profile(document: Mapping[str, object], where: str = "the profile") -> ProfileFile:
    """Return a profile of plain values. Raises InputError with every fault."""
    try:
        return ProfileFile.model_validate(document)
    except ValidationError as error:
        faults = "; ".join(f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}" for fault in error.errors()[:20])
        raise InputError(f"{where} is not a profile of trimtab: {faults}") from error


def profile_values(path: Path) -> dict[str, object]:
    """Read a profile's plain values, unchecked. Raises InputError if there is no JSON object."""
    return read_json_object(path)
