"""What `trimtab fit` says in words: the question as it was understood, and remarks on the answer."""

from __future__ import annotations

import math
from collections.abc import Sequence

from trimtab.physics.ask import FitMarket
from trimtab.physics.boards import board
from trimtab.physics.formats import WeightFormat
from trimtab.physics.found_ways import ServingOption
from trimtab.physics.models import Architecture
from trimtab.physics.search_training import TrainingDemand, TrainingOption
from trimtab.physics.serving_demand import Demand
from trimtab.physics.single_change import cheapest_change, serving_change
from trimtab.physics.support import notes


def change_lines(
    model: Architecture, demand: Demand | TrainingDemand, market: FitMarket, engine: str = ""
) -> list[str]:
    """Name the single change that makes a model fit one's own card; nothing where no card was named."""
    if market.own is None:
        return []
    card = board(market.own)
    if isinstance(demand, TrainingDemand):
        change = cheapest_change(model, card, demand)
    else:
        change = serving_change(model, card, demand, engine)
    return [f"what makes it fit {card.name}: {change or 'nothing; it needs a larger card or several'}"]


def serving_words(demand: Demand, market: FitMarket) -> str:
    """Say what is to be served, within what, and where."""
    load = f"{demand.rate_req_s:,.4g} requests/s" if demand.rate_req_s else f"{demand.concurrency} requests at once"
    if demand.mean_req_s:
        load += f" at the peak, {demand.mean_req_s:,.4g} on average"
    limits = demand.targets
    named = (("TTFT p95", limits.ttft_s), ("time per token", limits.tpot_s), ("latency", limits.latency_s))
    told = "; ".join(f"{name} within {limit:,.3g} s" for name, limit in named if limit is not None)
    return f"{load}{'; ' + told if told else ''}; {_place(market)}"


def training_words(demand: TrainingDemand, market: FitMarket) -> str:
    """Say what is to be trained, by when, and where."""
    deadline = f"; done in {demand.deadline_days:g} days" if demand.deadline_days else ""
    return f"sequences of {demand.sequence:,}{deadline}; {_place(market)}"


def _place(market: FitMarket) -> str:
    if market.own:
        return f"on one's own {market.own}"
    place = " ".join(word for word in (market.provider, market.region) if word) or "any provider and region"
    return f"{market.option.value}, {place}"


def size_line(one: ServingOption, demand: Demand) -> str:
    """Tell the requirement behind the count."""
    if demand.rate_req_s is None:
        return f"{demand.concurrency} requests at once, {one.concurrency} a replica: {one.replicas} replicas"
    needed = max(1, math.ceil(demand.rate_req_s / one.replica_req_s - 1e-9))
    room = f", with {demand.headroom_frac:.0%} headroom {one.replicas}" if demand.headroom_frac else ""
    return f"{demand.rate_req_s:,.3g} requests/s at {one.replica_req_s:,.3g} a replica need {needed} of {one.tensor} GPUs{room}"


def quality_lines(first: ServingOption) -> list[str]:
    """Warn where the first row narrows the weights: nothing is bought with quality unseen."""
    if first.stored in (WeightFormat.BF16, WeightFormat.FP16):
        return []
    return [f"{first.stored.value} weights change a model's answers: test quality first, or ask with --format bf16"]


def kernel_lines(shown: Sequence[ServingOption] | Sequence[TrainingOption]) -> list[str]:
    """Return what each shown GPU needs or lacks: attention kernels, oldest CUDA and driver."""
    by_note: dict[str, list[str]] = {}
    for one in shown:
        for note in notes(one.gpu):
            by_note.setdefault(note, []).append(one.gpu.name)
    return [f"{', '.join(dict.fromkeys(names))}: {note}" for note, names in by_note.items()]


def model_lines(model: Architecture, scale: float) -> list[str]:
    """Say what the answer takes for granted of a model, and whether it was calibrated."""
    found = []
    if model.generic:
        found.append(
            f"architecture guessed from the size: {model.layers} layers of {model.hidden}; give a config.json to be surer"
        )
    if "not understood" in model.source:
        found.append(
            f"{model.source}: layers of those kinds are taken for attention, so speed and memory are less sure"
        )
    if scale != 1.0:
        found.append(f"calibrated on your point: predictions scaled by {scale:.2f}")
    return found
