"""Every GPU for a model that generates no text: its measured or transferred throughput, the count for a rate, the cost.

A replica is one GPU. What was never measured is rejected as unknown: chips without any row, boards with less memory than the
smallest on which the model ran, formats in which it was not run, limits on latency below the one that was kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from trimtab.catalog import BuyingOption, Gpu, Precision
from trimtab.errors import Unpredictable
from trimtab.physics.ask import FitMarket, runnable
from trimtab.physics.found_ways import Rejected, Unmet
from trimtab.physics.measured_models import MLPERF, MeasuredModel
from trimtab.physics.offers import NodeOffer
from trimtab.physics.predict import knows, packaged
from trimtab.physics.public_benchmarks import FITTED, WorkloadQuery, predict_workload
from trimtab.physics.serving_query import chip_of
from trimtab.physics.sizing import nodes_for, replicas_for
from trimtab.provenance import Estimate
from trimtab.units import S_PER_HR

UNITS_PRICED = 1000
"""A cost is that of a thousand units."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredDemand:
    """What is asked: units a second at the peak and on average (None: one GPU at full load), a limit, headroom."""

    online: bool
    rate_units_s: float | None = None
    mean_units_s: float | None = None
    latency_s: float | None = None
    headroom_frac: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredOption:
    """One GPU that serves the model: how fast one is, how many it takes, what they cost."""

    gpu: Gpu
    format: str
    units_s: Estimate
    """Of one GPU."""
    on_this_chip: bool
    """Whether the model itself was measured on this chip; else the chip was measured with others."""
    gpus: int
    offer: NodeOffer
    nodes: int
    stranded_gpus: int
    usd_hr: float
    usd_per_kunit: Estimate
    usd_hr_by_option: Mapping[BuyingOption, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredAnswer:
    """GPUs that serve the model, cheapest first, and those that do not or of which nothing is known."""

    found: tuple[MeasuredOption, ...]
    rejected: tuple[Rejected, ...]


def measured_answer(
    model: MeasuredModel, demand: MeasuredDemand, market: FitMarket, *, formats: Sequence[str] = ()
) -> MeasuredAnswer:
    """Search all GPUs on offer; raises Unpredictable for a limit on latency that nobody measured."""
    _check_latency(model, demand)
    candidates, rejected = runnable(market)
    found: list[MeasuredOption] = []
    for gpu, offers in candidates:
        why = _unknown(model, gpu)
        if why:
            rejected.append(Rejected(gpu=gpu.name, what=model.name, reason=Unmet.UNKNOWN, because=why))
            continue
        for form in model.formats:
            if formats and form not in formats:
                continue
            if not gpu.tflops(Precision(form)):
                because = f"it was measured in {form}, for which this has no arithmetic"
                rejected.append(Rejected(gpu=gpu.name, what=form, reason=Unmet.FORMAT, because=because))
                continue
            priced = list(_priced(model, demand, market, gpu, form, offers))
            if priced:
                found.append(min(priced, key=lambda sold: (sold.usd_hr, sold.offer.where)))
            else:
                because = f"nobody sells {gpu.name} {market.option.value} there"
                rejected.append(Rejected(gpu=gpu.name, what=form, reason=Unmet.PRICE, because=because))
    if formats and not set(formats) & set(model.formats):
        raise Unpredictable(
            f"{model.name} was measured in {' and '.join(model.formats)} only: its speed in {', '.join(formats)} is unknown"
        )
    found.sort(key=lambda way: (way.usd_per_kunit.value, way.usd_hr, way.gpus, way.gpu.name))
    return MeasuredAnswer(found=tuple(found), rejected=tuple(rejected))


def _check_latency(model: MeasuredModel, demand: MeasuredDemand) -> None:
    limit = demand.latency_s
    if limit is None:
        return
    if model.server_p99_s is None:
        raise Unpredictable(
            f"{model.name} was measured in bulk only: its latency is unknown on any GPU; leave out --latency"
        )
    if limit < model.server_p99_s:
        raise Unpredictable(
            f"{model.name} was measured at a p99 of {model.server_p99_s:g} s: whether any GPU keeps {limit:g} s is unknown. "
            f"Give --latency {model.server_p99_s:g}s or more, or measure it"
        )


def _unknown(model: MeasuredModel, gpu: Gpu) -> str:
    """Return why nothing is known of the model on a board; empty where something is."""
    table = packaged(FITTED).tables["throughput"]
    if gpu.vendor != "NVIDIA" or not knows(table, ("chip",), chip_of(gpu)):
        return "no model of these kinds was measured on it"
    if not model.transfers and chip_of(gpu) not in model.chips:
        return (
            f"it was measured on {', '.join(sorted(model.chips))} only, and its speed elsewhere could not be foretold"
        )
    # what is listed may lie a little below what is sold under the same number of gigabytes
    if gpu.memory_gib < 0.97 * model.least_gib:
        return f"it was never run in less than {model.least_gib:.0f} GiB, and this has {gpu.memory_gib:.0f}"
    return ""


def _query(model: MeasuredModel, gpu: Gpu, form: str, *, online: bool) -> WorkloadQuery:
    return WorkloadQuery(
        task=model.task,
        gpu=gpu,
        gpus=1,
        precision=form,
        domain=MLPERF,
        mode=model.mode(online=online),
        metric="throughput",
    )


def _priced(
    model: MeasuredModel,
    demand: MeasuredDemand,
    market: FitMarket,
    gpu: Gpu,
    form: str,
    offers: Sequence[NodeOffer],
) -> Iterator[MeasuredOption]:
    query = _query(model, gpu, form, online=demand.online)
    speed = predict_workload(query)
    gpus = replicas_for(demand.rate_units_s or 0.0, speed.value, headroom_frac=demand.headroom_frac)
    for offer in offers:
        bought = BuyingOption.OWNED if BuyingOption.OWNED in offer.usd_hr else market.option
        if bought not in offer.usd_hr:
            continue
        nodes = nodes_for(gpus, 1, offer.gpus)
        by_option = {
            way: rate
            * nodes.nodes
            * (market.losses.serving_factor(offer.interruption) if way is BuyingOption.SPOT else 1)
            for way, rate in offer.usd_hr.items()
        }
        served = demand.mean_units_s or demand.rate_units_s or speed.value * gpus
        cost = by_option[bought] / (served * S_PER_HR) * UNITS_PRICED
        yield MeasuredOption(
            gpu=gpu,
            format=form,
            units_s=speed,
            on_this_chip=chip_of(gpu) in model.chips,
            gpus=gpus,
            offer=offer,
            nodes=nodes.nodes,
            stranded_gpus=nodes.stranded_gpus,
            usd_hr=by_option[bought],
            usd_per_kunit=Estimate(
                value=cost,
                low=cost * speed.value / speed.high,
                high=cost * speed.value / speed.low,
                basis=speed.basis,
                because=speed.because,
            ),
            usd_hr_by_option=by_option,
        )
