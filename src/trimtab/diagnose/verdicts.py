"""A verdict per workload: what its activity says and cannot say, and why a GPU does little where the evidence proves a cause.

Low SM activity alone proves nothing: launches, input, transfers and an empty queue look the same. Each cause therefore has a
witness of its own, and without one the answer is that the evidence cannot tell.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np

from trimtab.catalog import Gpu
from trimtab.diagnose.findings import ProductForm, Verdict
from trimtab.fleet.activity import mean_of_known
from trimtab.fleet.model import Fleet, Workload
from trimtab.fleet.settings import Bands
from trimtab.ledger.arrays import FloatArray
from trimtab.provenance import Evidence
from trimtab.tables.workloads import WorkloadKind
from trimtab.units import S_PER_HR


class Cause(Enum):
    """What keeps a GPU from doing more."""

    MEMORY_BANDWIDTH = "memory bandwidth"
    TRANSFERS = "transfers"
    CPU_INPUT = "CPU input"
    BATCH_TOO_SMALL = "batch too small"
    TOO_FEW_REQUESTS = "too few concurrent requests"
    NOT_LOW = "not low: the GPU works"
    UNDETERMINED = "undetermined"


@dataclass(frozen=True, slots=True, kw_only=True)
class Signs:
    """What was seen, as shares 0..1 of the time in which the program ran; None where it was not measured."""

    gpu_util_frac: float | None = None
    sm_frac: float | None = None
    tensor_frac: float | None = None
    dram_frac: float | None = None
    memory_peak_frac: float | None = None
    pcie_rx_frac: float | None = None
    """Of what the link carries."""
    pcie_tx_frac: float | None = None
    """The same, away from the GPU."""
    h2d_exposed_frac: float | None = None
    """Time in which data went to the GPU and no kernel ran, from a trace."""
    loader_wait_frac: float | None = None
    """Time in which the program waited for its data loader, from a trace."""
    gap_frac: float | None = None
    """Time between kernels, from a trace."""
    cpu_frac: float | None = None
    """CPU of the program, of what it may use."""
    serving: bool = False
    batch: float | None = None
    """Requests in work per replica: the batch, with continuous batching."""
    waiting: float | None = None
    """Requests queued per replica."""
    batch_cap: float | None = None
    """The most that a replica takes at once: the highest batch that it was observed to hold, or its setting."""


# Where a sign becomes a witness: rules of thumb of this project, each named in the evidence that it gives.

_WORKS_FRAC = 0.60
"""SM activity from which a GPU counts as busy."""
_DRAM_FRAC = 0.60
"""DRAM activity above which the bus binds: streaming kernels reach 0.9 of it, mixed ones 0.6 to 0.8."""
_TENSOR_FRAC = 0.50
_BUSY_FRAC = 0.80
"""GPU_UTIL from which kernels follow one another without a pause."""
_FEW_SM_FRAC = 0.45
"""SM activity below which such kernels are too small for the board."""
_STALL_FRAC = 0.20
"""Share of the time in a trace from which a wait explains something."""
_LINK_FRAC = 0.50
"""Share of what PCIe carries from which it explains idle SMs. DCGM counts headers too, so that a full link reads close to
1: from half on the GPU receives for half of the time or longer, at the link's full rate."""
_CPU_FRAC = 0.90
_QUIET_CAP_FRAC = 0.50
"""Share of its cap below which a service without a queue has too few requests."""
_FULL_CAP_FRAC = 0.90


@dataclass(frozen=True, slots=True, kw_only=True)
class CauseFinding:
    """A cause, the readings that prove it (or why none does), and what to try."""

    cause: Cause
    evidence: tuple[str, ...]
    try_next: tuple[str, ...]

    @property
    def sentence(self) -> str:
        """Say it in one sentence."""
        if self.cause is Cause.UNDETERMINED:
            return f"cause undetermined: {'; '.join(self.evidence)}"
        return f"{self.cause.value} ({'; '.join(self.evidence)})"


def causes_of(signs: Signs) -> tuple[CauseFinding, ...]:
    """Return every cause that the evidence proves, the best witnessed first; one of UNDETERMINED where it proves none."""
    found = (
        *_transfers(signs),
        *_input(signs),
        *_requests(signs),
        *_bandwidth(signs),
        *_batch(signs),
    )
    if found:
        return found
    if works := _at_work(signs):
        return (works,)
    return (_undetermined(signs),)


def _at_work(signs: Signs) -> CauseFinding | None:
    if signs.tensor_frac is not None and signs.tensor_frac >= _TENSOR_FRAC:
        return CauseFinding(
            cause=Cause.NOT_LOW, evidence=(f"tensor pipes {signs.tensor_frac:.0%} active",), try_next=()
        )
    if signs.sm_frac is not None and signs.sm_frac >= _WORKS_FRAC:
        return CauseFinding(cause=Cause.NOT_LOW, evidence=(f"SMs {signs.sm_frac:.0%} active",), try_next=())
    return None


def _transfers(signs: Signs) -> Iterator[CauseFinding]:
    advice = (
        "pinned memory and non_blocking copies, so that they overlap with kernels",
        "keep data on the GPU that is used again; move augmentation there",
    )
    if signs.h2d_exposed_frac is not None and signs.h2d_exposed_frac >= _STALL_FRAC:
        seen = f"{signs.h2d_exposed_frac:.0%} of the trace copies to the GPU while no kernel runs"
        yield CauseFinding(cause=Cause.TRANSFERS, evidence=(seen,), try_next=advice)
    elif signs.pcie_rx_frac is not None and signs.pcie_rx_frac >= _LINK_FRAC and not _busy_sm(signs):
        seen = f"PCIe carries {signs.pcie_rx_frac:.0%} of what it can, towards the GPU"
        back = signs.pcie_tx_frac
        if back is not None and back >= _LINK_FRAC:
            # what comes from the host goes one way: both ways is what GPUs send each other
            seen = f"{seen}, and {back:.0%} away from it: GPUs exchange data over it"
            advice = (
                "boards with NVLink between them, or all GPUs of a run behind one switch",
                "fewer and larger exchanges: gradient accumulation, less tensor parallelism, more pipeline stages",
            )
        yield CauseFinding(cause=Cause.TRANSFERS, evidence=(seen,), try_next=advice)


def _input(signs: Signs) -> Iterator[CauseFinding]:
    advice = (
        "more loader workers with prefetch and pinned memory",
        "decode ahead of time, or on the GPU",
        "a machine with more CPUs per GPU",
    )
    if signs.loader_wait_frac is not None and signs.loader_wait_frac >= _STALL_FRAC:
        seen = f"{signs.loader_wait_frac:.0%} of the trace waits for the data loader"
        yield CauseFinding(cause=Cause.CPU_INPUT, evidence=(seen,), try_next=advice)
    elif (
        signs.cpu_frac is not None
        and signs.cpu_frac >= _CPU_FRAC
        and signs.sm_frac is not None
        and signs.sm_frac < _FEW_SM_FRAC
        and not signs.serving
    ):
        seen = f"it uses {signs.cpu_frac:.0%} of the CPUs that it may use while SMs are {signs.sm_frac:.0%} active"
        yield CauseFinding(cause=Cause.CPU_INPUT, evidence=(seen,), try_next=advice)


def _requests(signs: Signs) -> Iterator[CauseFinding]:
    """Say that requests are too few, or kept out by a cap: both need the queue and the batch to prove it."""
    if not signs.serving or signs.batch is None or signs.waiting is None or signs.batch_cap is None:
        return
    if _busy_sm(signs):
        return
    share = signs.batch / signs.batch_cap if signs.batch_cap > 0 else 0.0
    seen = (
        f"{signs.batch:.1f} requests in work of {signs.batch_cap:.0f} at most, {signs.waiting:.1f} queued per replica"
    )
    if share < _QUIET_CAP_FRAC and signs.waiting < 1:
        advice: tuple[str, ...] = (
            "fewer replicas, so that each has more at once",
            "a smaller GPU or a MIG slice",
            "batch on purpose",
        )
        yield CauseFinding(cause=Cause.TOO_FEW_REQUESTS, evidence=(seen,), try_next=advice)
    elif share >= _FULL_CAP_FRAC and signs.waiting >= 1 and _low(signs.sm_frac, _WORKS_FRAC):
        advice = ("raise the concurrency cap (max_num_seqs, max_ongoing_requests): requests wait and the GPU has room",)
        yield CauseFinding(cause=Cause.TOO_FEW_REQUESTS, evidence=(seen, _sm(signs)), try_next=advice)


def _bandwidth(signs: Signs) -> Iterator[CauseFinding]:
    if signs.dram_frac is not None and signs.dram_frac >= _DRAM_FRAC:
        yield CauseFinding(
            cause=Cause.MEMORY_BANDWIDTH,
            evidence=(f"DRAM {signs.dram_frac:.0%} active",),
            try_next=(
                "a larger batch where it shares the weights it reads",
                "8-bit weights or cache, fused kernels",
                "a GPU with more bandwidth a dollar",
            ),
        )


def _batch(signs: Signs) -> Iterator[CauseFinding]:
    """Kernels that follow one another and fill few SMs are too small; a queue that is empty is another cause."""
    if signs.gpu_util_frac is None or signs.sm_frac is None:
        return
    stalled = (signs.loader_wait_frac or 0) >= _STALL_FRAC or (signs.h2d_exposed_frac or 0) >= _STALL_FRAC
    starved = signs.serving and (signs.waiting is None or signs.waiting < 1)
    if signs.gpu_util_frac >= _BUSY_FRAC and signs.sm_frac < _FEW_SM_FRAC and not stalled and not starved:
        room = () if signs.memory_peak_frac is None else (f"memory peaks at {signs.memory_peak_frac:.0%}",)
        yield CauseFinding(
            cause=Cause.BATCH_TOO_SMALL,
            evidence=(f"kernels run {signs.gpu_util_frac:.0%} of the time on {signs.sm_frac:.0%} of the SMs", *room),
            try_next=("a larger batch", "fused kernels or CUDA graphs (torch.compile)", "share the GPU: MIG or MPS"),
        )


def _busy_sm(signs: Signs) -> bool:
    return signs.sm_frac is not None and signs.sm_frac >= _WORKS_FRAC


def _low(value: float | None, bound: float) -> bool:
    return value is not None and value < bound


def _sm(signs: Signs) -> str:
    return f"SMs {signs.sm_frac:.0%} active"


def _undetermined(signs: Signs) -> CauseFinding:
    """Say what the evidence lacks, and how to get it."""
    lacking, advice = [], []
    if signs.sm_frac is None:
        lacking.append("SM activity was not measured")
        advice.append("turn on SM_ACTIVE in dcgm-exporter, or profile on Hopper or newer")
    if signs.dram_frac is None:
        lacking.append("DRAM activity was not measured")
    if signs.serving and (signs.batch is None or signs.waiting is None):
        lacking.append("concurrent and queued requests were not measured")
        advice.append("scrape the model server's own metrics")
    if not signs.serving and signs.loader_wait_frac is None:
        lacking.append("no trace shows input, copies and gaps")
        advice.append("record a torch.profiler trace and give it with --trace")
    if not lacking:
        lacking.append("no reading explains the low activity")
        advice.append("look at the timeline: the GPU may wait for another program, disk or network")
    return CauseFinding(cause=Cause.UNDETERMINED, evidence=tuple(lacking), try_next=tuple(advice))


def verdict_of(
    workload: Workload, window: str, bands: Bands, ended: Sequence[str] = (), gpu: Gpu | None = None
) -> Verdict:
    """Judge a workload by SM activity where present; by GPU_UTIL, and says so, where not.

    Where its readings prove no cause, those that a replayed plan ends (`ended`) stand for them. `gpu` is its board, where the
    catalog knows it.
    """
    causes = _causes(workload, bands, ended, gpu) or _bound(workload)
    sentences = [_use(workload, bands), *_memory(workload, bands), *causes]
    if workload.activity.signal == "gpu_util":
        sentences.append(_only_busy_time(gpu))
    if gpu is not None and not gpu.has_speed_law:
        sentences.append(f"how fast it would be on other boards than {gpu.name} is not known: it is moved to none")
    return Verdict(workload=workload.name, headline="; ".join(sentences), evidence=_evidence(workload, window, gpu))


def _only_busy_time(gpu: Gpu | None) -> str:
    if gpu is None or gpu.vendor == "NVIDIA":
        return "only GPU_UTIL was there, which says that a kernel ran and not how hard: turn on SM_ACTIVE"
    return "its exporter reports how much of the time it was busy, not how hard it worked"


def _use(workload: Workload, bands: Bands) -> str:
    mean, p95 = workload.activity.mean_frac, workload.activity.p95_frac
    if mean is None or p95 is None:
        return "no GPU activity was measured"
    serving = workload.kind is WorkloadKind.SERVING
    if serving and p95 > bands.at_risk_frac:
        return f"at risk: {p95:.0%} active in its busiest hours"
    if mean < bands.over_provisioned_frac:
        return f"over-provisioned: {mean:.0%} active on average"
    if mean < bands.find_cause_frac:
        return f"{mean:.0%} active on average: find the cause"
    return f"healthy: {mean:.0%} active" if mean <= bands.healthy_frac or not serving else f"busy: {mean:.0%} active"


def _memory(workload: Workload, bands: Bands) -> list[str]:
    peak, total = workload.activity.memory_peak_gib, workload.activity.memory_total_gib
    if peak is None or total is None or total <= 0:
        return []
    share = peak / total
    if share > bands.memory_risk_frac:
        return [f"memory peaks at {share:.0%}: at risk of running out"]
    if share > bands.memory_recompute_frac:
        return [f"memory peaks at {share:.0%}: recompute or quantization would make room"]
    return [f"memory peaks at {share:.0%}: could share a GPU"] if share < bands.memory_share_frac else []


def _bound(workload: Workload) -> list[str]:
    """Say what binds, where DRAM and tensor activity prove it; low SM activity alone proves nothing."""
    activity = workload.activity
    if activity.dram_frac is None or activity.sm_frac is None or activity.sm_frac <= 0:
        return []
    if activity.dram_frac > 0.6:
        return [f"bound by memory bandwidth (DRAM {activity.dram_frac:.0%} active)"]
    if activity.tensor_frac is not None and activity.tensor_frac > 0.5:
        return [f"bound by compute (tensor pipes {activity.tensor_frac:.0%} active)"]
    return []


def _causes(workload: Workload, bands: Bands, ended: Sequence[str], gpu: Gpu | None) -> list[str]:
    """Say why a workload that works does little, or that this cannot be told and what is missing."""
    activity = workload.activity
    if activity.mean_frac is None or not bands.active_frac <= activity.mean_frac < bands.find_cause_frac:
        return []
    found = causes_of(signs_of(workload, gpu))
    if found[0].cause is Cause.UNDETERMINED and ended:
        return [f"cause: {' and '.join(ended)} (the plan ends that)"]
    if found[0].cause is Cause.UNDETERMINED and activity.sm_frac is None:
        return []
    leads = {Cause.UNDETERMINED: "", Cause.MEMORY_BANDWIDTH: "bound by "}
    return [f"{leads.get(cause.cause, 'cause: ')}{cause.sentence}" for cause in found]


def signs_of(workload: Workload, gpu: Gpu | None = None) -> Signs:
    """Return what a workload's history shows of the five causes; a service's cap is the most that it was observed to hold.

    What its links carried are shares of what those of `gpu` can; without it, of no known share.
    """
    activity, service = workload.activity, workload.service
    peak, total = activity.memory_peak_gib, activity.memory_total_gib
    batch = waiting = cap = None
    if service is not None:
        each = np.where(service.replicas > 0, service.replicas, np.nan)
        batch, cap = mean_of_known(service.running / each), _most(service.running / each)
        waiting = mean_of_known(service.waiting / each) if len(service.waiting) else None
    return Signs(
        gpu_util_frac=activity.gpu_util_frac,
        sm_frac=activity.sm_frac,
        tensor_frac=activity.tensor_frac,
        dram_frac=activity.dram_frac,
        memory_peak_frac=None if peak is None or not total else peak / total,
        pcie_rx_frac=_of_link(activity.pcie_rx_gb_s, gpu),
        pcie_tx_frac=_of_link(activity.pcie_tx_gb_s, gpu),
        cpu_frac=activity.cpu_frac,
        serving=workload.kind is WorkloadKind.SERVING,
        batch=batch,
        waiting=waiting,
        batch_cap=cap,
    )


def _of_link(rate_gb_s: float | None, gpu: Gpu | None) -> float | None:
    most_gb_s = None if gpu is None else gpu.pcie_gb_s
    return None if rate_gb_s is None or most_gb_s is None else min(rate_gb_s / most_gb_s, 1.0)


def _most(values: FloatArray) -> float | None:
    seen = values[~np.isnan(values)]
    return float(seen.max()) if len(seen) else None


def _evidence(workload: Workload, window: str, gpu: Gpu | None) -> tuple[Evidence, ...]:
    activity = workload.activity
    readings = {
        "SM active": activity.sm_frac,
        "tensor active": activity.tensor_frac,
        "DRAM active": activity.dram_frac,
        "GPU_UTIL": activity.gpu_util_frac,
    }
    if activity.cpu_frac is not None:
        readings["CPU of what its pods may use"] = activity.cpu_frac
    link_frac = _of_link(activity.pcie_rx_gb_s, gpu)
    if link_frac is not None:
        readings["PCIe towards the GPU, of what it carries"] = link_frac
    return tuple(
        Evidence(
            what=name,
            query=f"mean over device-hours of {workload.name}",
            window=window,
            value="not measured" if value is None else f"{value:.1%}",
        )
        for name, value in readings.items()
    )


def product_form(fleet: Fleet, bands: Bands) -> ProductForm:
    """Return allocation x busy x efficiency of the whole fleet, weighted by GPU-hours."""
    billed = sum(
        float(seconds.sum()) * node.gpu_count for node, seconds in zip(fleet.nodes, fleet.node_seconds, strict=True)
    )
    held = sum(float(workload.gpu_seconds.sum()) for workload in fleet.workloads)
    busy_hours, work_hours, measured = 0.0, 0.0, 0.0
    for workload in fleet.workloads:
        gpus = workload.gpu_seconds / S_PER_HR
        seen = ~np.isnan(workload.activity.busy_gpus) & (gpus > 0)
        level = workload.activity.busy_gpus[seen]
        measured += float(gpus[seen].sum())
        busy_hours += float(gpus[seen][level >= gpus[seen] * bands.active_frac / 2].sum())
        work_hours += float(level.sum())
    return ProductForm(
        allocation_frac=held / billed if billed else 0.0,
        busy_frac=busy_hours / measured if measured else None,
        efficiency_frac=work_hours / busy_hours if busy_hours else None,
    )
