"""`workloads.yaml`: declarations about workloads as a validated model, and checks for contradictions.

A key of `workloads` is a workload (`namespace/name`) or a pattern (`namespace/*`); patterns apply in file order, an exact key
last, and a later value replaces an earlier one field by field. Undeclared fields stay None.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from fnmatch import fnmatchcase
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Literal, Self, cast

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from trimtab.errors import BundleError, Fault
from trimtab.tables.quality_evidence import QualityEvidence, with_evidence
from trimtab.tables.yaml_faults import load_mapping, read_text, validation_faults
from trimtab.units import HR_PER_DAY, S_PER_DAY, S_PER_HR, S_PER_MIN

WORKLOADS_FILE = "workloads.yaml"
_VERSION = 1
_AT = "@"
"""Between a name and its cluster, in a history of several clusters."""
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]


def in_cluster(name: str, cluster: str) -> str:
    """Return the name of a workload, node or queue in a history of several clusters."""
    return f"{name}{_AT}{cluster}"


def cluster_of(name: str) -> str:
    """Return the cluster behind the name of a workload, node or queue; empty where the history is of just one."""
    return name.rpartition(_AT)[2] if _AT in name else ""


def local_name(name: str) -> str:
    """Return the name that the cluster itself knows."""
    return name.rpartition(_AT)[0] if _AT in name else name


class WorkloadKind(Enum):
    """The kind of a workload."""

    EXPERIMENT = "experiment"
    TRAINING = "training"
    SERVING = "serving"
    BATCH = "batch"
    NOTEBOOK = "notebook"
    EVALUATION = "evaluation"


class TargetMetric(Enum):
    """The metric of a declared target."""

    LATENCY = "latency"
    TTFT = "ttft"
    TPOT = "tpot"
    THROUGHPUT = "throughput"
    QUEUE_WAIT = "queue_wait"


_OF_REPLICAS = re.compile(
    r"\b(?:(?:vllm|sglang|trimtab):|(?:tgi|nv_inference|dynamo_component|bentoml|ts_inference)_|DCGM_FI_)\w*"
)
"""Series that model servers export for each pod, DCGM's of pods' GPUs, and rules that are recorded from them."""


def rests_on_replicas(query: str) -> str | None:
    """Return a series of a PromQL query that is gone with a service's last replica; None if none is known to be.

    >>> rests_on_replicas('sum(vllm:num_requests_waiting{pod=~"chat.*"})'), rests_on_replicas("sum(gateway_requests)")
    ('vllm:num_requests_waiting', None)
    """
    found = _OF_REPLICAS.search(query)
    return None if found is None else found[0]


_RANGE = re.compile(
    r"\b(\w+)\s*\(\s*(?!kube_)[a-zA-Z_:][\w:]*\s*"
    # a matcher's pattern may have braces of its own
    r"(?:\{(?:[^\"}]|\"(?:[^\"\\]|\\.)*\")*\})?\s*\[((\d+)([smhd]))\]"
)
"""A function over a range of a series, but for what kube-state-metrics says of objects: that is no load."""
_AVERAGING = frozenset({"rate", "increase", "avg_over_time"})
_SECONDS = {"s": 1, "m": S_PER_MIN, "h": S_PER_HR, "d": S_PER_DAY}


def ranges_of(query: str) -> Iterator[tuple[str, str]]:
    """Yield the functions of a PromQL query that look back, with how far, but for those that average.

    >>> list(ranges_of("max_over_time(a[5m]) + rate(b[1m])"))
    [('max_over_time', '5m')]
    """
    yield from dict.fromkeys((name, span) for name, span, *_ in _RANGE.findall(query) if name not in _AVERAGING)


def averaged_over_s(query: str) -> int:
    """Return the longest window over which a PromQL query averages, in seconds; 0 where it does not.

    >>> averaged_over_s('rate(a{pod=~"b-.{5}"}[5m]) + idelta(b[30s]) / 15'), averaged_over_s("irate(a[2m])")
    (300, 0)
    """
    found = (int(count) * _SECONDS[unit] for name, _, count, unit in _RANGE.findall(query) if name in _AVERAGING)
    return max(found, default=0)


class _WorkloadsModel(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class DeclaredTarget(_WorkloadsModel):
    """A target: a time metric's `quantile` stays within `limit_s`; throughput stays at `limit_frac` of what was observed."""

    metric: TargetMetric
    quantile: Annotated[float, Field(gt=0, lt=1)] = 0.95
    limit_s: Positive | None = None
    limit_frac: Positive | None = None

    @model_validator(mode="after")
    def _has_the_limit_of_its_metric(self) -> Self:
        if self.metric is TargetMetric.THROUGHPUT:
            if self.limit_frac is None or self.limit_s is not None:
                raise ValueError(
                    "a throughput target takes limit_frac (share of the observed throughput) and no limit_s"
                )
        elif (self.limit_s is None) == (self.limit_frac is None):
            raise ValueError("give limit_s (seconds), or limit_frac (multiple of what was observed), not both")
        return self

    @property
    def limit(self) -> str:
        """Return the limit in words."""
        return f"{self.limit_s:g} s" if self.limit_s is not None else f"{self.limit_frac:g} x observed"

    def describe(self) -> str:
        """Describe it in words."""
        if self.metric is TargetMetric.THROUGHPUT:
            return f"{self.metric.value} >= {self.limit}"
        return f"{self.metric.value} p{self.quantile * 100:g} <= {self.limit}"


class DeclaredCheckpoint(_WorkloadsModel):
    """How a job checkpoints and resumes."""

    interval_s: Positive
    save_s: NotNegative = 0.0
    restore_s: NotNegative = 0.0


class DeclaredBatching(_WorkloadsModel):
    """What a replica does with several requests at once: seconds by batch size, and the memory of each further request.

    `seconds` were measured on the GPU that the workload runs on; sizes start at 1.
    """

    seconds: Mapping[Annotated[int, Field(ge=1)], Positive]
    item_gib: NotNegative | None = None

    @model_validator(mode="after")
    def _is_a_curve(self) -> Self:
        if 1 not in self.seconds or len(self.seconds) < 2:
            raise ValueError("seconds needs size 1 and at least one larger batch")
        times = [self.seconds[size] for size in sorted(self.seconds)]
        if any(late < early for early, late in pairwise(times)):
            raise ValueError("a larger batch cannot take less time: check the seconds")
        return self


class DeclaredTraining(_WorkloadsModel):
    """How a run uses memory today: what is trained, its optimizer, recomputation, ZeRO stage, micro-batch and sequence.

    `global_batch` counts the sequences of one optimizer step over all GPUs (default: no accumulation). `adapter_bits` is the
    width of LoRA's weights (default: PEFT's, 32).
    """

    method: Literal["full", "lora", "qlora", "adapter"] = "full"
    optimizer: Literal["adamw", "adamw-bf16", "adamw-8bit", "adafactor", "lion", "sgd"] = "adamw"
    recompute: Literal["none", "selective", "full"] = "none"
    sharding: Literal[0, 1, 2, 3] = 0
    micro_batch: Annotated[int, Field(ge=1)] = 1
    global_batch: Annotated[int, Field(ge=1)] | None = None
    sequence: Annotated[int, Field(ge=1)] = 2048
    adapter_bits: Literal[16, 32] = 32


class DeclaredDeferral(_WorkloadsModel):
    """A run may start up to `within_hr` after it was requested; `start_hours` (UTC) are cheap or clean hours, if known."""

    within_hr: Positive
    start_hours: tuple[Annotated[int, Field(ge=0, le=23)], ...] | None = None


Weekday = Literal["mon", "tue", "wed", "thu", "fri", "sat", "sun"]
_WEEK: tuple[Weekday, ...] = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")


class DeclaredOpenHours(_WorkloadsModel):
    """The hours in which a service must answer (UTC, `[from_hour, to_hour)`); what comes outside them may be refused."""

    days: tuple[Weekday, ...] = _WEEK[:5]
    from_hour: Annotated[int, Field(ge=0, le=23)]
    to_hour: Annotated[int, Field(ge=1, le=24)]

    @model_validator(mode="after")
    def _is_a_stretch(self) -> Self:
        if not self.days or self.from_hour >= self.to_hour:
            raise ValueError("open_hours needs a day at least, and a to_hour after its from_hour (UTC)")
        return self

    @property
    def hours_of_week(self) -> tuple[int, ...]:
        """Return the open hours of the week (Monday 00:00 UTC is hour 0)."""
        days = sorted({_WEEK.index(day) for day in self.days})
        return tuple(HR_PER_DAY * day + hour for day in days for hour in range(self.from_hour, self.to_hour))


class DeclaredWake(_WorkloadsModel):
    """What shows that requests arrive while no replica is up, and how long it keeps a request: an ingress, a gateway, a queue.

    `query` is PromQL, above 0 while requests come or wait; it must not rest on the replicas, which are gone then. `hold_s` is
    how long a request waits there for the first replica before it fails (for a queue, as long as messages are kept).
    """

    query: Annotated[str, Field(min_length=1)]
    hold_s: Positive

    @model_validator(mode="after")
    def _outlives_the_replicas(self) -> Self:
        if not self.query.strip():
            raise ValueError("query is empty: give PromQL that is above 0 while requests come or wait")
        gone = rests_on_replicas(self.query)
        if gone is not None:
            raise ValueError(
                f"query reads {gone}, which replicas export themselves: with the last one it is gone, and nothing would "
                "wake the service. Count requests where they come in: an ingress, a gateway, a queue"
            )
        return self


class WorkloadSpec(_WorkloadsModel):
    """Declarations about a workload; None = not declared."""

    kind: WorkloadKind | None = None
    team: str | None = None
    owner: str | None = None
    model: str | None = None
    params_b: Positive | None = None
    precision: str | None = None
    """How the weights are stored today: bf16, fp16, fp8, int8, awq-int4, ..."""
    quantize: tuple[str, ...] | None = None
    """Formats of which the team has found that the model's answers stay good enough."""
    quality: Mapping[str, QualityEvidence] | None = None
    """What evaluations found of formats, by format: verdict files of `trimtab quality`. An accepted one may be planned."""
    targets: tuple[DeclaredTarget, ...] | None = None
    interruptible: bool | None = None
    regions: tuple[str, ...] | None = None
    """Where it may run: regions, or `provider/region`. Not declared: only where it runs now."""
    data_gib: NotNegative | None = None
    """What must be copied once where it runs elsewhere: weights, datasets, checkpoints."""
    traffic_gib_mo: NotNegative | None = None
    """What crosses between it and its data and callers each month where it runs elsewhere, both ways together."""
    min_replicas: Annotated[int, Field(ge=0)] | None = None
    """0: none while there are no requests, if `wakes_on` says what wakes it. The first request waits for a start."""
    max_replicas: Annotated[int, Field(ge=1)] | None = None
    max_concurrency: Annotated[int, Field(ge=1)] | None = None
    """The most requests that a replica works on at once: vLLM's `--max-num-seqs`, a pool's workers. Others wait."""
    cold_start_s: NotNegative | None = None
    restore_s: NotNegative | None = None
    """How long a replica takes from its place on a new node to ready where its process is restored from a snapshot, as measured
    there: an option for plans."""
    checkpoint: DeclaredCheckpoint | None = None
    need_gib: Positive | None = None
    isolation: Literal["hardware", "mps", "time-slicing", "none"] | None = None
    """What must keep it apart from others on its GPU: hardware; MPS will do; taking turns will do; either will do."""
    labels: Mapping[str, str] | None = None
    """What a bill may be split by beside the team: cost centre, product, environment."""
    batching: DeclaredBatching | None = None
    training: DeclaredTraining | None = None
    deferrable: DeclaredDeferral | None = None
    open_hours: DeclaredOpenHours | None = None
    wakes_on: DeclaredWake | None = None
    """What wakes it where `min_replicas` is 0; without it one replica stays."""
    pool: bool | None = None
    """Its model may sleep while it has no requests, and take turns with other models on one GPU."""
    wake_s: NotNegative | None = None
    """How long its server takes to wake from sleep; not declared: from its memory."""
    sleep_level: Literal[1, 2] | None = None
    """vLLM's: weights kept in host memory (1, the default), or read from disk again (2)."""
    notes: str | None = None

    @model_validator(mode="after")
    def _replicas_are_ordered(self) -> Self:
        if self.min_replicas is not None and self.max_replicas is not None and self.min_replicas > self.max_replicas:
            raise ValueError(f"min_replicas {self.min_replicas} is above max_replicas {self.max_replicas}")
        return self

    @model_validator(mode="after")
    def _evidence_is_of_this_format_and_model(self) -> Self:
        for form, found in (self.quality or {}).items():
            if found.verdict == "more samples":
                raise ValueError(
                    f"quality of {form}: the verdict is {found.because}; evaluate more before it is evidence"
                )
            if found.format is not None and found.format.casefold() != form.casefold():
                raise ValueError(f"quality of {form}: the verdict is of {found.format}")
            if found.verdict == "reject" and form.casefold() in map(str.casefold, self.quantize or ()):
                raise ValueError(f"quantize accepts {form}, which its evaluation rejected: {found.because}")
            if found.model and self.model and _base_name(found.model) != _base_name(self.model):
                raise ValueError(f"quality of {form}: the verdict is of {found.model}, not of {self.model}")
        return self


def _base_name(model: str) -> str:
    return model.rsplit("/", 1)[-1].casefold()


class Workloads(_WorkloadsModel):
    """The whole file: specs by workload or pattern, in file order."""

    version: int = _VERSION
    workloads: Mapping[str, WorkloadSpec] = Field(default_factory=dict)

    def spec(self, workload: str) -> WorkloadSpec:
        """Return what is declared about a workload, with patterns and the exact key merged; all None if nothing is.

        Raises BundleError if what two keys declare contradicts.
        """
        matching = [spec for key, spec in self.workloads.items() if key != workload and fnmatchcase(workload, key)]
        exact = self.workloads.get(workload)
        merged: dict[str, object] = {}
        for spec in [*matching, *([exact] if exact is not None else [])]:
            merged.update({name: getattr(spec, name) for name in spec.model_fields_set})
        try:
            return WorkloadSpec.model_validate(merged)
        except ValidationError as error:
            keys = ", ".join(key for key in self.workloads if key == workload or fnmatchcase(workload, key))
            where = f"{WORKLOADS_FILE}: {workload}, as {keys} declare it together"
            raise BundleError(validation_faults(error, WorkloadSpec, where)) from error

    def unmatched(self, names: Iterable[str]) -> list[str]:
        """Return the keys that no workload of these names answers to: declarations without effect."""
        known = list(names)
        return [key for key in self.workloads if not any(key == name or fnmatchcase(name, key) for name in known)]


def parse_workloads(text: str, *, where: str = WORKLOADS_FILE, folder: Path | None = None) -> Workloads:
    """Read the text of a workloads.yaml. Raises BundleError with every fault and near matches for misspelt keys.

    Verdict files are read from `folder`; without one their content must be in the text, as in a bundle.
    """
    raw = load_mapping(text, where)
    version = raw.get("version", _VERSION)
    if isinstance(version, int) and version > _VERSION:
        cure = f"this trimtab reads up to version {_VERSION}: update trimtab"
        raise BundleError([Fault(what="the file is of a newer version", where=where, value=str(version), cure=cure)])
    if folder is not None:
        raw = with_evidence(raw, folder, where)
    try:
        return Workloads.model_validate(raw)
    except ValidationError as error:
        raise BundleError(validation_faults(error, Workloads, where)) from error


def read_workloads(path: Path) -> Workloads:
    """Read a workloads.yaml; an absent file declares nothing."""
    if not path.is_file():
        return Workloads()
    return parse_workloads(read_text(path), where=str(path), folder=path.parent)


def workloads_text(workloads: Workloads) -> str:
    """Return the YAML text; `parse_workloads` gives the same value back."""
    plain = cast("dict[str, object]", workloads.model_dump(mode="json", exclude_unset=True))
    plain = {"version": workloads.version, **plain}
    return yaml.safe_dump(plain, sort_keys=False)


_SERVES = frozenset({WorkloadKind.SERVING})
_RUNS = frozenset(WorkloadKind) - {WorkloadKind.SERVING, WorkloadKind.NOTEBOOK}
KINDS_OF_FIELD = {
    "batching": _SERVES,
    "quantize": _SERVES,
    "quality": _SERVES,
    "min_replicas": _SERVES,
    "max_replicas": _SERVES,
    "max_concurrency": _SERVES,
    "cold_start_s": _SERVES,
    "restore_s": _SERVES,
    "open_hours": _SERVES,
    "wakes_on": _SERVES,
    "pool": _SERVES,
    "wake_s": _SERVES,
    "sleep_level": _SERVES,
    "checkpoint": _RUNS,
    "deferrable": _RUNS,
    "training": _RUNS,
}
"""Declarations that apply only to some kinds."""
KINDS_OF_TARGET = {
    TargetMetric.LATENCY: _SERVES,
    TargetMetric.TTFT: _SERVES,
    TargetMetric.TPOT: _SERVES,
    TargetMetric.QUEUE_WAIT: _RUNS,
    TargetMetric.THROUGHPUT: frozenset(WorkloadKind),
}
"""Kinds for which each target metric exists."""


def contradictions(workloads: Workloads, where: str) -> list[Fault]:
    """Return contradictions between the entries for one workload; the same value in two entries may come from a pattern."""
    return [fault for key, spec in workloads.workloads.items() for fault in _of_entry(spec, f"{where}: {key}")]


def without_effect(spec: WorkloadSpec, kind: WorkloadKind) -> tuple[str, ...]:
    """Return declarations that do not apply to a workload of this kind."""
    fields = [name for name, kinds in KINDS_OF_FIELD.items() if getattr(spec, name) is not None and kind not in kinds]
    metrics = {target.metric for target in spec.targets or ()}
    elsewhere = [metric for metric, kinds in KINDS_OF_TARGET.items() if metric in metrics and kind not in kinds]
    return (*fields, *(f"a {metric.value} target" for metric in elsewhere))


def _of_entry(spec: WorkloadSpec, where: str) -> Iterator[Fault]:
    if spec.kind is not None:
        for field in without_effect(spec, spec.kind):
            yield Fault(
                what=f"{field} does not apply to kind {spec.kind.value}",
                where=where,
                value=f"kind: {spec.kind.value}",
                cure="take one of the two out",
            )
    by_bound: dict[tuple[TargetMetric, float], list[DeclaredTarget]] = defaultdict(list)
    for target in spec.targets or ():
        by_bound[target.metric, target.quantile].append(target)
    for (metric, quantile), same in by_bound.items():
        if len(same) > 1:
            yield Fault(
                what=f"{len(same)} targets bound {metric.value} at the same quantile, {quantile:g}",
                where=where,
                value=", ".join(target.limit for target in same),
                cure="keep the one that is meant",
            )
