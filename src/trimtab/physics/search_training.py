"""Every way of training a model: GPU x count x recompute x optimizer, the largest micro-batch, days and cost."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from trimtab.catalog import BuyingOption, Gpu, Precision
from trimtab.errors import InputError
from trimtab.physics.fabrics import between_nodes
from trimtab.physics.footprint import Footprint, Parallel
from trimtab.physics.formats import WeightFormat, native_precision
from trimtab.physics.found_ways import Rejected, Unmet
from trimtab.physics.models import Architecture
from trimtab.physics.offers import USUAL, Caveat, Interruptions, NodeOffer, caveats_of, nodes_for, plain_and_cheapest
from trimtab.physics.predict import calibrated, predict_training
from trimtab.physics.serving_query import has_switched_nvlink
from trimtab.physics.training import (
    KEPT_FREE_FRAC,
    WIDE_ADAPTER_BITS,
    Method,
    Optimizer,
    Recompute,
    Sharding,
    Training,
    largest_micro_batch,
    nic_gb_s,
    query_of,
    training_footprint,
)
from trimtab.provenance import Estimate
from trimtab.units import BYTES_PER_GB, HR_PER_DAY, S_PER_HR


class Stack(Enum):
    """The software that trains: utilisation differs by up to twice between them on the same GPUs."""

    FSDP = "fsdp"
    """PyTorch's FSDP, which the pasted settings use."""
    MEGATRON = "megatron"
    """Megatron-Core with its own kernels and parallelism."""


FINETUNE_FRAMEWORK = "HF SFTTrainer/fms-acceleration"
PRETRAIN_FRAMEWORK = "torchtitan"
MEGATRON_FRAMEWORK = "Megatron-Bridge"
"""The measured framework that stands for each stack."""
COUNTS = (1, 2, 4, 8)
CLUSTER_COUNTS = (8, 16, 32, 64, 128, 256, 512, 1024)
GPUS_IN_NODE = 8
LEAST_FABRIC_FRAC = 0.5
"""Share of the measured nodes' network that a node must have, for runs over several nodes."""
MOST_MICRO_BATCH = 64
PRETRAIN_STEP_TOKENS = 1 << 22
"""Tokens of an optimizer step of pre-training where no batch is stated: 4M, as Llama 2 (arXiv 2307.09288, section 2.2) and the
first steps of Llama 3 (arXiv 2407.21783, section 3.4.1). Without a bound a thousand GPUs would all be filled, by batches far
beyond those of published runs."""
RECOMPUTES = (Recompute.NONE, Recompute.FULL)
OPTIMIZERS = (Optimizer.ADAMW, Optimizer.ADAMW_8BIT)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingDemand:
    """What is to be trained: tokens, sequence, a global batch in sequences (None: `step_sequences` says), days, set-up hours.

    `adapter_bits` is the width of LoRA's weights; 32 is PEFT's default.
    """

    method: Method
    tokens: float
    sequence: int = 2048
    global_batch: int | None = None
    deadline_days: float | None = None
    setup_hr: float = 0.5
    pretrain: bool = False
    adapter_bits: int = WIDE_ADAPTER_BITS
    stack: Stack = Stack.FSDP

    def __post_init__(self) -> None:
        if not (math.isfinite(self.tokens) and self.tokens > 0) or self.sequence < 1:
            raise InputError("training needs tokens and a sequence length above 0")

    @property
    def step_sequences(self) -> int | None:
        """Return the sequences of an optimizer step: as stated, the usual ones of pre-training; None for what GPUs hold."""
        if self.global_batch is None and self.pretrain:
            return max(1, PRETRAIN_STEP_TOKENS // self.sequence)
        return self.global_batch


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingOption:
    """One way of training that works."""

    gpu: Gpu
    gpus: int
    plan: Training
    footprint: Footprint
    tok_s: Estimate
    days: Estimate
    offer: NodeOffer
    option: BuyingOption
    nodes: int
    stranded_gpus: int
    usd_hr: float
    usd: Estimate
    usd_by_option: Mapping[BuyingOption, float]
    """What the run costs under each way of buying; spot with lost work, saves and restarts."""
    caveats: tuple[Caveat, ...] = ()
    """Why this option is ranked after those without caveats."""

    @property
    def tok_s_per_usd_hr(self) -> float | None:
        """Return tokens per second per dollar an hour; None on hardware that costs nothing here."""
        return self.tok_s.value / self.usd_hr if self.usd_hr else None


def plans_of(model: Architecture, gpu: Gpu, gpus: int, demand: TrainingDemand) -> list[Training]:
    """Return the memory plans worth trying: with and without recomputation, 8-bit states where all weights are trained."""
    half = WeightFormat.BF16 if native_precision(gpu) is Precision.BF16 else WeightFormat.FP16
    stored = WeightFormat.NF4 if demand.method is Method.QLORA else half
    # a single GPU has no other to share weights with
    sharding = Sharding.WEIGHTS if gpus > 1 else Sharding.NONE
    return [
        Training(
            model=model,
            method=demand.method,
            stored=stored,
            optimizer=optimizer,
            recompute=recompute,
            sharding=sharding,
            parallel=Parallel(data=gpus),
            sequence=demand.sequence,
            adapter_bits=demand.adapter_bits,
            fused_loss=gpus == 1,
        )
        for recompute in RECOMPUTES
        # adapters' states are a small part of the memory: fewer bits for them make no room
        for optimizer in (OPTIMIZERS if demand.method is Method.FULL else OPTIMIZERS[:1])
    ]


def _fit_batch(plan: Training, gpu: Gpu, demand: TrainingDemand) -> int:
    batch = largest_micro_batch(plan, gpu, most=MOST_MICRO_BATCH)
    if demand.step_sequences is None:
        return batch
    # ranks share the global batch: a larger micro-batch would exceed it
    return min(batch, max(1, demand.step_sequences // plan.parallel.data))


def _framework(demand: TrainingDemand) -> str:
    if demand.stack is Stack.MEGATRON:
        return MEGATRON_FRAMEWORK
    return PRETRAIN_FRAMEWORK if demand.pretrain else FINETUNE_FRAMEWORK


def _speed(plan: Training, gpu: Gpu, demand: TrainingDemand) -> Estimate:
    """Return tokens per second of all GPUs."""
    query = query_of(plan, gpu, framework=_framework(demand), global_batch=demand.step_sequences)
    # predicted per GPU, asked for all of them
    return predict_training(query).scaled(plan.parallel.data)


def search_training(
    model: Architecture,
    offers: Sequence[tuple[Gpu, tuple[NodeOffer, ...]]],
    demand: TrainingDemand,
    *,
    option: BuyingOption = BuyingOption.ON_DEMAND,
    scale: float = 1.0,
    losses: Interruptions = USUAL,
    accepted: frozenset[Caveat] = frozenset(),
) -> tuple[list[TrainingOption], list[Rejected]]:
    """Return the ways that fit and meet the deadline, and the others with their nearest miss.

    Ways without a caveat come first, each part sorted by cost. `scale` is measured over predicted speed of the user's own run;
    1 without one.
    """
    good: list[TrainingOption] = []
    bad: list[Rejected] = []
    for gpu, sold in offers:
        for gpus in _counts(sold, demand):
            found = _on(model, gpu, gpus, sold, demand, option, scale, losses, accepted)
            if isinstance(found, Rejected):
                bad.append(found)
            else:
                good += found
    return sorted(good, key=training_rank), bad


def training_rank(way: TrainingOption) -> tuple[bool, float, float, str, int]:
    """Return the sort key of an answer: options with a caveat last, then by cost."""
    return (bool(way.caveats), way.usd.value, way.days.value, way.gpu.name, way.gpus)


def _counts(sold: Sequence[NodeOffer], demand: TrainingDemand) -> tuple[int, ...]:
    """Return the GPU counts worth trying; one's own machine has no more than it has."""
    owned = [offer.gpus for offer in sold if BuyingOption.OWNED in offer.usd_hr]
    if owned:
        return tuple(count for count in COUNTS if count <= max(owned))
    return CLUSTER_COUNTS if demand.pretrain else COUNTS


def _roomy(gpu: Gpu, sold: Sequence[NodeOffer], gpus: int, demand: TrainingDemand) -> list[NodeOffer]:
    """Return the shapes on which the predicted speed holds: one node up to eight GPUs, beyond it the largest nodes."""
    # fine-tuning was measured within one node only, pre-training across nodes as well
    whole = [offer for offer in sold if offer.gpus >= min(gpus, GPUS_IN_NODE)]
    if not demand.pretrain or gpus <= GPUS_IN_NODE:
        return whole
    return [offer for offer in whole if _is_measured_fabric(gpu, offer, gpus)]


def _is_measured_fabric(gpu: Gpu, offer: NodeOffer, gpus: int) -> bool:
    """Return whether links are like the measured ones: switched NVLink, and a published network at least half as fast."""
    if offer.gpus >= gpus or BuyingOption.OWNED in offer.usd_hr:
        return True
    network = between_nodes(offer)
    if network is None or not has_switched_nvlink(gpu):
        return False
    return network.node_byte_s / offer.gpus >= LEAST_FABRIC_FRAC * nic_gb_s(gpu) * BYTES_PER_GB


def _unfit_precision(gpu: Gpu, sold: Sequence[NodeOffer]) -> str:
    """Return why a rented GPU's precision rules it out; one's own card may still try fp16 with loss scaling."""
    owned = any(BuyingOption.OWNED in offer.usd_hr for offer in sold)
    if owned or native_precision(gpu) is Precision.BF16:
        return ""
    return f"{gpu.name} has no bf16: models trained in bf16 overflow in fp16 (ask with --on to try loss scaling)"


def _on(
    model: Architecture,
    gpu: Gpu,
    gpus: int,
    sold: Sequence[NodeOffer],
    demand: TrainingDemand,
    option: BuyingOption,
    scale: float,
    losses: Interruptions,
    accepted: frozenset[Caveat],
) -> list[TrainingOption] | Rejected:
    if reason := _unfit_precision(gpu, sold):
        return Rejected(gpu=gpu.name, what=f"{gpus} GPUs", reason=Unmet.FORMAT, because=reason)
    plans = plans_of(model, gpu, gpus, demand)
    fitting = [replace(plan, micro_batch=batch) for plan in plans if (batch := _fit_batch(plan, gpu, demand)) >= 1]
    if not fitting:
        return _too_large(plans, gpu, gpus)
    # nodes and rate are the same for every plan that fits, so the fastest is the cheapest
    speed, plan = max(((_speed(plan, gpu, demand), plan) for plan in fitting), key=lambda pair: pair[0].value)
    # `scale` is of speed here, so it multiplies
    if scale != 1:
        speed = calibrated(speed.value * scale)
    days = _days(demand, speed)
    if demand.deadline_days is not None and days.value > demand.deadline_days:
        return Rejected(
            gpu=gpu.name,
            what=f"{gpus} GPUs",
            reason=Unmet.TARGET,
            because=f"takes {days.value:.1f} days, the deadline is {demand.deadline_days:g}",
            miss_frac=days.value / demand.deadline_days - 1,
        )
    roomy = _roomy(gpu, sold, gpus, demand)
    if not roomy:
        where = (
            f"no provider sells {gpu.name} there over links like those of measured runs: "
            "NVLink switches and a published network"
            if demand.pretrain and gpus > GPUS_IN_NODE
            else f"no provider sells {gpus} {gpu.name} in one node there: "
            "the network between nodes was not measured for this"
        )
        return Rejected(gpu=gpu.name, what=f"{gpus} GPUs", reason=Unmet.PRICE, because=where)
    priced = [
        found
        for offer in roomy
        if (found := _priced(gpu, gpus, plan, speed, days, offer, option, demand, losses, accepted))
    ]
    if not priced:
        where = f"no provider sells {gpu.name} {option.value} there"
        if option is BuyingOption.SPOT and any(option in offer.usd_hr for offer in sold):
            where = f"lost nodes would keep a run on spot {gpu.name} from its deadline, or from ending at all"
        return Rejected(gpu=gpu.name, what=f"{gpus} GPUs", reason=Unmet.PRICE, because=where)
    return plain_and_cheapest(sorted(priced, key=lambda way: (way.usd.value, way.offer.where)))


def _days(demand: TrainingDemand, speed: Estimate) -> Estimate:
    seconds_per_day = S_PER_HR * HR_PER_DAY
    # the ends swap: the highest speed takes the fewest days
    value, low, high = (demand.tokens / rate / seconds_per_day for rate in (speed.value, speed.high, speed.low))
    return Estimate(value=value, low=low, high=high, basis=speed.basis, because=speed.because)


def _too_large(plans: Sequence[Training], gpu: Gpu, gpus: int) -> Rejected:
    # each plan needs the least memory with one sequence at a time
    need = min(training_footprint(plan).total_gib for plan in plans)
    usable = gpu.memory_gib * (1 - KEPT_FREE_FRAC)
    return Rejected(
        gpu=gpu.name,
        what=f"{gpus} GPUs",
        reason=Unmet.MEMORY,
        because=f"needs at least {need:.1f} GiB a GPU; a run may use {usable:.1f} of {gpu.name}'s {gpu.memory_gib:.1f}",
        miss_frac=need / usable - 1 if math.isfinite(need) else math.inf,
    )


def _priced(
    gpu: Gpu,
    gpus: int,
    plan: Training,
    speed: Estimate,
    days: Estimate,
    offer: NodeOffer,
    option: BuyingOption,
    demand: TrainingDemand,
    losses: Interruptions,
    accepted: frozenset[Caveat],
) -> TrainingOption | None:
    bought = BuyingOption.OWNED if BuyingOption.OWNED in offer.usd_hr else option
    if bought not in offer.usd_hr or (bought is BuyingOption.OWNED and offer.gpus < gpus):
        return None
    nodes = nodes_for(gpus, 1, offer.gpus)
    # any lost node stops the whole run, so more nodes lose more time
    longer = losses.training_factor(offer.interruption, nodes.nodes)
    lasting = {way: longer if way is BuyingOption.SPOT else 1.0 for way in offer.usd_hr}
    hourly = offer.usd_hr[bought] * nodes.nodes
    taken = days.scaled(lasting[bought]) if math.isfinite(lasting[bought]) else None
    # judged again, since losses make a run longer than its work
    if taken is None or (demand.deadline_days is not None and taken.value > demand.deadline_days):
        return None
    cost = taken.scaled(HR_PER_DAY * hourly)
    # the stated hours of set-up are certain: they move the interval and do not widen it
    setup = demand.setup_hr * hourly
    return TrainingOption(
        gpu=gpu,
        gpus=gpus,
        plan=plan,
        footprint=training_footprint(plan),
        tok_s=speed,
        days=taken,
        offer=offer,
        option=bought,
        nodes=nodes.nodes,
        stranded_gpus=nodes.stranded_gpus,
        usd_hr=hourly,
        usd=replace(cost, value=cost.value + setup, low=cost.low + setup, high=cost.high + setup),
        usd_by_option={
            way: rate * nodes.nodes * (days.value * lasting[way] * HR_PER_DAY + demand.setup_hr)
            for way, rate in offer.usd_hr.items()
            # a run that losses outpace never ends, so it has no price
            if math.isfinite(lasting[way])
        },
        caveats=caveats_of(gpu, offer, accepted),
    )
