"""The answers of `trimtab fit` for people and programs: ranked ways and rejects as rows, what is said about them, pictures."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TypeVar

from trimtab.catalog import BuyingOption
from trimtab.cli.output import Cell, Sheet, SheetColumn, fixed
from trimtab.emit.fit_document import FitScenario, FitWay, frontier
from trimtab.fleet.ownership import TotalCost
from trimtab.physics.ask import FitMarket
from trimtab.physics.fitted import memory_fit
from trimtab.physics.footprint import Footprint, Item
from trimtab.physics.formats import WeightFormat, notes
from trimtab.physics.found_ways import Rejected, ServingOption, Unmet
from trimtab.physics.measured_models import measured_models
from trimtab.physics.models import Architecture, hub_id, known_models
from trimtab.physics.offers import Caveat, board, replicas_for
from trimtab.physics.roofline import Roofline
from trimtab.physics.search_training import TrainingDemand, TrainingOption
from trimtab.physics.serving_demand import Demand, cheapest_change, serving_change
from trimtab.physics.training import Method
from trimtab.pipeline.fitting import ReplayedLoad
from trimtab.provenance import Estimate
from trimtab.units import MS_PER_S

T = TypeVar("T", ServingOption, TrainingOption)
SHOWN_REJECTS = 8
LEAST_SHOWN_GIB = 0.05
"""Items of memory below this are not shown to people."""
MORE = "(-o json lists all)"
NEAREST_FIRST = (Unmet.TARGET, Unmet.MEMORY, Unmet.DRIVER, Unmet.PRICE, Unmet.UNKNOWN, Unmet.FORMAT)

BUYING = {
    BuyingOption.ON_DEMAND: ("on_demand", "on demand"),
    BuyingOption.SPOT: ("spot", "spot with losses"),
    BuyingOption.RESERVED_1Y: ("reserved_1y", "1-year"),
    BuyingOption.RESERVED_3Y: ("reserved_3y", "3-year"),
    BuyingOption.SAVINGS_PLAN_1Y: ("savings_plan_1y", "1-year plan"),
    BuyingOption.SAVINGS_PLAN_3Y: ("savings_plan_3y", "3-year plan"),
    BuyingOption.OWNED: ("owned", "owned"),
}
"""The ways of buying that rows show: key and title. Spot holds what lost nodes cost."""
WIDTH = 60
HEIGHT = 14
BAR_WIDTH = 40


def _column(key: str, title: str, digits: int | None = None) -> SheetColumn:
    if digits is None:
        return SheetColumn(key=key, title=title)
    return SheetColumn(key=key, title=title, show=fixed(digits), right=True, whole=True)


def dollars(cell: Cell) -> str:
    """Return an amount whole from 100 on, below it in cents, below 1 in tenths of cents."""
    if not isinstance(cell, int | float):
        return str(cell)
    return f"{cell:,.{0 if abs(cell) >= 100 else 2 if abs(cell) >= 1 else 3}f}"


def _interval(estimate: Estimate, digits: int, factor: float = 1.0) -> str:
    return f"{estimate.low * factor:,.{digits}f}–{estimate.high * factor:,.{digits}f}"


_BAR_WIDTH = 8


def _memory_bar(used_gib: float, total_gib: float) -> str:
    """Return a bar of the memory that is used, such as `█████░░░ 61%`."""
    share = min(max(used_gib / total_gib, 0.0), 1.0)
    full = round(share * _BAR_WIDTH)
    return "█" * full + "░" * (_BAR_WIDTH - full) + f" {share:.0%}"


def _buying(usd: Mapping[BuyingOption, float], unit: str, digits: int) -> dict[str, Cell]:
    """Return what each way of buying costs; None where it is not sold."""
    return {
        f"{key}_{unit}": round(usd[option], digits) if option in usd else None for option, (key, _) in BUYING.items()
    }


def _buying_columns(unit: str, title: str, digits: int) -> tuple[SheetColumn, ...]:
    return tuple(_column(f"{key}_{unit}", f"{name} {title}", digits) for key, name in BUYING.values())


SERVING_COLUMNS = (
    SheetColumn(key="gpu", title="GPU", whole=True, repeat=True),
    _column("gpus", "GPUs", 0),
    _column("replicas", "replicas", 0),
    SheetColumn(key="format", title="format", whole=True),
    _column("usd_per_mtok", "$/M tokens", 3),
    _column("usd_per_mtok_interval", "80 %"),
    _column("total_usd_per_mtok", "all told $/M", 3),
    _column("usd_hr", "$/h", 2),
    _column("tok_s", "tokens/s", 0),
    _column("ttft_ms", "TTFT ms", 0),
    _column("ttft_interval", "80 %"),
    _column("ttft_p95_ms", "TTFT p95 ms", 0),
    _column("ttft_p95_interval", "80 %"),
    _column("tpot_ms", "TPOT ms", 1),
    _column("tpot_interval", "80 %"),
    _column("concurrency", "at once", 0),
    _column("memory", "memory"),
    _column("binding", "bound by"),
    _column("offering", "cheapest offering"),
    _column("caveats", "caveat"),
    _column("tok_s_per_usd_hr", "tokens/s per $/h", 0),
    _column("stranded_gpus", "stranded", 0),
    *_buying_columns("usd_hr", "$/h", 2),
)

TRAINING_COLUMNS = (
    SheetColumn(key="gpu", title="GPU", whole=True, repeat=True),
    _column("gpus", "GPUs", 0),
    SheetColumn(key="usd", title="total $", show=dollars, right=True, whole=True),
    _column("usd_interval", "80 %"),
    SheetColumn(key="total_usd", title="all told $", show=dollars, right=True, whole=True),
    _column("days", "days", 2),
    _column("days_interval", "80 %"),
    _column("tok_s", "tokens/s", 0),
    _column("micro_batch", "micro-batch", 0),
    _column("recompute", "recompute"),
    _column("optimizer", "optimizer"),
    _column("memory", "memory"),
    _column("usd_hr", "$/h", 2),
    _column("offering", "cheapest offering"),
    _column("caveats", "caveat"),
    _column("tok_s_per_usd_hr", "tokens/s per $/h", 0),
    _column("stranded_gpus", "stranded", 0),
    *_buying_columns("usd", "$", 0),
)

FOR_PEOPLE = frozenset({
    "gpu", "gpus", "replicas", "format", "usd_per_mtok", "usd_per_mtok_interval", "total_usd_per_mtok", "usd_hr",
    "ttft_ms", "ttft_interval", "ttft_p95_ms", "ttft_p95_interval", "tpot_ms", "tpot_interval", "concurrency",
    "usd", "usd_interval", "total_usd", "days", "days_interval", "tok_s", "micro_batch", "recompute", "optimizer",
    "memory", "offering", "caveats",
})  # fmt: skip
"""Columns of a table in the terminal; CSV and YAML have all, and so does JSON."""
CLOSED_LOOP = frozenset({"ttft_ms", "ttft_interval"})
REPLAYED = frozenset({"ttft_p95_ms", "ttft_p95_interval"})


def caveat_words(caveats: Sequence[Caveat]) -> str | None:
    """Return why an option is ranked after the others; None where nothing is wrong with it."""
    return "; ".join(caveat.value for caveat in caveats) or None


def scenario_lines(found: Sequence[FitScenario]) -> list[str]:
    """Return the named scenarios as one block of aligned lines."""
    cells = [_scenario_cells(scenario) for scenario in found]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    # by hand: a table of rich would wrap the last column, which is prose and not padded
    lines = ["  ".join([*map(str.ljust, row[:-1], widths), row[-1]]) for row in cells]
    return ["\n".join(["scenarios over all ways of buying:", *lines])] if lines else []


def _scenario_cells(scenario: FitScenario) -> tuple[str, ...]:
    way = scenario.way
    remarks = [
        f"{way.label}, {way.setup}; {way.where}",
        *([way.spot_words] if scenario.option is BuyingOption.SPOT else ()),
        *(caveat.value for caveat in way.caveats),
    ]
    return (
        scenario.name.value,
        scenario.option.value,
        # every unit begins with the dollar sign
        f"${dollars(scenario.cost)}{way.unit[1:]}",
        f"{way.time.value:,.3g} {way.time_unit}",
        "; ".join(remarks),
    )


def scenario_rows(found: Sequence[FitScenario]) -> list[dict[str, Cell]]:
    """Return the named scenarios for programs."""
    return [
        {
            "scenario": scenario.name.value,
            "option": scenario.option.value,
            "gpu": scenario.way.gpu.name,
            "gpus": scenario.way.gpus,
            "setup": scenario.way.setup,
            "cost": round(scenario.cost, 4),
            "cost_unit": scenario.way.unit,
            "time": round(scenario.way.time.value, 4),
            "time_low": round(scenario.way.time.low, 4),
            "time_high": round(scenario.way.time.high, 4),
            "time_unit": scenario.way.time_unit,
            "offering": scenario.way.where,
            "spot": scenario.way.spot_words if scenario.option is BuyingOption.SPOT else None,
            "caveats": caveat_words(scenario.way.caveats),
        }
        for scenario in found
    ]


def serving_row(way: ServingOption) -> dict[str, Cell]:
    """Return one way of serving as raw values."""
    return {
        "gpu": way.gpu.name,
        "gpus": way.gpus,
        "replicas": way.replicas,
        "format": way.stored.value,
        "usd_per_mtok": round(way.usd_per_mtok.value, 4),
        "usd_per_mtok_interval": _interval(way.usd_per_mtok, 3),
        "usd_hr": round(way.usd_hr, 4),
        "tok_s": round(way.tok_s.value * way.replicas, 1),
        "ttft_ms": round(way.ttft_s.value * MS_PER_S, 1),
        "ttft_interval": _interval(way.ttft_s, 0, MS_PER_S),
        "tpot_ms": round(way.tpot_s.value * MS_PER_S, 2),
        "tpot_interval": _interval(way.tpot_s, 0, MS_PER_S),
        "concurrency": way.concurrency,
        "memory": _memory_bar(way.footprint.total_gib, way.gpu.memory_gib),
        "binding": way.binding.value,
        "offering": way.offer.where,
        "caveats": caveat_words(way.caveats),
        "tok_s_per_usd_hr": None if way.tok_s_per_usd_hr is None else round(way.tok_s_per_usd_hr, 1),
        "stranded_gpus": way.stranded_gpus,
        **_buying(way.usd_hr_by_option, "usd_hr", 4),
    }


def training_row(way: TrainingOption) -> dict[str, Cell]:
    """Return one way of training as raw values."""
    return {
        "gpu": way.gpu.name,
        "gpus": way.gpus,
        "usd": round(way.usd.value, 2),
        "usd_interval": f"{dollars(way.usd.low)}–{dollars(way.usd.high)}",
        "days": round(way.days.value, 3),
        "days_interval": _interval(way.days, 2),
        "tok_s": round(way.tok_s.value, 1),
        "micro_batch": way.plan.micro_batch,
        "recompute": way.plan.recompute.value,
        "optimizer": way.plan.optimizer.value,
        "memory": _memory_bar(way.footprint.total_gib, way.gpu.memory_gib),
        "usd_hr": round(way.usd_hr, 4),
        "offering": way.offer.where,
        "caveats": caveat_words(way.caveats),
        "tok_s_per_usd_hr": None if way.tok_s_per_usd_hr is None else round(way.tok_s_per_usd_hr, 1),
        "stranded_gpus": way.stranded_gpus,
        **_buying(way.usd_by_option, "usd", 2),
    }


def machine_serving_row(way: ServingOption) -> dict[str, Cell]:
    """Return one way of serving for programs: bounds and sizes as numbers instead of bars and ranges."""
    return {
        **_numeric(serving_row(way)),
        "usd_per_mtok_low": round(way.usd_per_mtok.low, 4),
        "usd_per_mtok_high": round(way.usd_per_mtok.high, 4),
        "ttft_low_ms": round(way.ttft_s.low * MS_PER_S, 1),
        "ttft_high_ms": round(way.ttft_s.high * MS_PER_S, 1),
        "tpot_low_ms": round(way.tpot_s.low * MS_PER_S, 2),
        "tpot_high_ms": round(way.tpot_s.high * MS_PER_S, 2),
        "memory_gib": round(way.footprint.total_gib, 2),
        **_memory_items(way.footprint),
        **_spot(way),
        "basis": way.tok_s.basis.value,
    }


def replayed_cells(load: ReplayedLoad | None) -> dict[str, Cell]:
    """Return what the replay of a way's load says, for programs; None where nothing was replayed."""
    quantiles = {
        "ttft_p50": None if load is None else load.ttft_p50_s,
        "ttft_p95": None if load is None else load.ttft_p95_s,
    }
    cells: dict[str, Cell] = {}
    for name, first in quantiles.items():
        cells[f"{name}_ms"] = None if first is None else round(first.value * MS_PER_S, 1)
        cells[f"{name}_low_ms"] = None if first is None else round(first.low * MS_PER_S, 1)
        cells[f"{name}_high_ms"] = None if first is None else round(first.high * MS_PER_S, 1)
    return {
        **cells,
        "beyond_saturation": None if load is None else load.ttft_p95_s is None,
        "tpot_p95_ms": None if load is None or math.isnan(load.tpot_p95_s) else round(load.tpot_p95_s * MS_PER_S, 2),
        **tail_cells(load),
        "preempted_frac": None if load is None else round(load.preempted_frac, 4),
    }


def tail_cells(load: ReplayedLoad | None) -> dict[str, Cell]:
    """Return the times at the quantile asked for; None beyond saturation."""
    tail = None if load is None else load.tail
    if tail is None:
        return dict.fromkeys(("tail_percentile", "ttft_tail_ms", "tpot_tail_ms", "latency_tail_ms"))
    return {
        "tail_percentile": round(100 * tail.frac, 1),
        "ttft_tail_ms": round(tail.ttft_s.value * MS_PER_S, 1),
        "tpot_tail_ms": None if math.isnan(tail.tpot_s) else round(tail.tpot_s * MS_PER_S, 2),
        "latency_tail_ms": round(tail.latency_s * MS_PER_S, 1),
    }


def replayed_row(load: ReplayedLoad | None) -> dict[str, Cell]:
    """Return the first token's p95 in the replay, for people; None where there is none."""
    first = None if load is None else load.ttft_p95_s
    return {
        "ttft_p95_ms": None if first is None else round(first.value * MS_PER_S, 1),
        "ttft_p95_interval": None if first is None else _interval(first, 0, MS_PER_S),
    }


def replayed_lines(load: ReplayedLoad | None, demand: Demand) -> list[str]:
    """Tell what requests of the first row would see, and where that is beyond the limit that was asked for."""
    if load is None:
        return []
    p50, p95, limit_s = load.ttft_p50_s, load.ttft_p95_s, demand.targets.ttft_s
    come = "Poisson arrivals" if demand.rate_req_s is not None else "requests of these clients"
    again = f"; {load.preempted_frac:.2g} preemptions a request" if load.preempted_frac else ""
    if p50 is None or p95 is None:
        return [
            f"replayed scheduler, {come}: more comes than is served at once, so no time to first token is said{again}"
        ]
    beyond = f"; beyond the limit of {limit_s:,.3g} s" if limit_s is not None and p95.value > limit_s else ""
    found = [
        f"replayed scheduler, {come}: first token p50 {p50.value * MS_PER_S:,.0f} ms, p95 {p95.value * MS_PER_S:,.0f} ms "
        f"(80 %: {_interval(p95, 0, MS_PER_S)}){beyond}{again}"
    ]
    tail = load.tail
    if demand.targets.tail_frac is not None and tail is not None:
        found.append(
            f"at p{100 * tail.frac:g}: first token {tail.ttft_s.value * MS_PER_S:,.0f} ms "
            f"(80 %: {_interval(tail.ttft_s, 0, MS_PER_S)}), time per token {tail.tpot_s * MS_PER_S:,.1f} ms, "
            f"whole request {tail.latency_s:,.2f} s"
        )
    return found


def machine_training_row(way: TrainingOption) -> dict[str, Cell]:
    """Return one way of training for programs."""
    memory_low_gib, memory_high_gib = memory_ends_gib(way.footprint)
    return {
        **_numeric(training_row(way)),
        "usd_low": round(way.usd.low, 2),
        "usd_high": round(way.usd.high, 2),
        "days_low": round(way.days.low, 3),
        "days_high": round(way.days.high, 3),
        "memory_gib": round(way.footprint.total_gib, 2),
        "memory_low_gib": round(memory_low_gib, 2),
        "memory_high_gib": round(memory_high_gib, 2),
        **_memory_items(way.footprint),
        **_spot(way),
        "basis": way.tok_s.basis.value,
    }


def _spot(way: ServingOption | TrainingOption) -> dict[str, Cell]:
    """Return the spot rate before losses, how often nodes are lost, and whether the rate was observed."""
    listed = way.offer.usd_hr.get(BuyingOption.SPOT)
    if listed is None:
        return {"spot_listed_usd_hr": None, "spot_interruption": None, "spot_as_of": None, "spot_derived": None}
    bucket = way.offer.interruption
    return {
        "spot_listed_usd_hr": round(listed * way.nodes, 4),
        "spot_interruption": bucket.value if bucket else None,
        "spot_as_of": str(way.offer.spot_as_of) if way.offer.spot_as_of else None,
        "spot_derived": way.offer.spot_derived,
    }


def _numeric(row: dict[str, Cell]) -> dict[str, Cell]:
    return {key: value for key, value in row.items() if key != "memory" and not key.endswith("_interval")}


def best_per_gpu(found: Sequence[T], limit: int, every: bool) -> list[T]:
    """Return the cheapest way on each GPU (all ways when asked), at most `limit`."""
    kept: dict[str, T] = {}
    for way in found:
        kept.setdefault(way.gpu.name if not every else f"{len(kept)}", way)
    return list(kept.values())[:limit]


def reject_lines(rejected: Sequence[Rejected]) -> list[str]:
    """Return the nearest misses, one a GPU, and how many more there are."""
    ranked = sorted(rejected, key=lambda reject: (NEAREST_FIRST.index(reject.reason), reject.miss_frac, reject.gpu))
    first: dict[str, Rejected] = {}
    for reject in ranked:
        first.setdefault(reject.gpu, reject)
    lines = [
        f"rejected: {reject.gpu} {reject.what}: {reject.reason.value}: {reject.because}"
        for reject in list(first.values())[:SHOWN_REJECTS]
    ]
    more = len(rejected) - len(lines)
    return [*lines, f"rejected: {more} more {MORE}"] if more > 0 and lines else lines


def reject_rows(rejected: Sequence[Rejected]) -> list[dict[str, Cell]]:
    """Return all rejects as raw values."""
    return [
        {"gpu": reject.gpu, "what": reject.what, "reason": reject.reason.value, "because": reject.because}
        for reject in rejected
    ]


def sheet_of(rows: Sequence[Mapping[str, Cell]], columns: Sequence[SheetColumn], notes: Sequence[str]) -> Sheet:
    """Return rows as a sheet."""
    return Sheet(columns=columns, rows=rows, notes=notes)


MODEL_COLUMNS = (
    SheetColumn(key="model", title="model", whole=True),
    SheetColumn(key="kind", title="kind", whole=True),
    _column("params_b", "billion", 2),
    SheetColumn(key="hub_id", title="on the hub"),
)


def models_sheet() -> Sheet:
    """Return the models that have a name here."""
    rows: list[Mapping[str, Cell]] = [
        {"model": model.name, "kind": model.kind, "params_b": None, "hub_id": model.hub_id or None}
        for model in measured_models().values()
    ]
    rows += [
        {
            "model": model.name,
            "kind": "encoder" if model.encoder else "language",
            "params_b": model.params_b,
            "hub_id": hub_id(model.name),
        }
        for model in known_models().values()
        if model.name not in measured_models()
    ]
    notes = (
        "Other language models: the path of a config.json, or --params 7B. Of other kinds only these were measured in public; "
        "the speed of any other is unknown.",
    )
    return sheet_of(rows, MODEL_COLUMNS, notes)


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
    tail = "" if limits.tail_frac is None else f" p{100 * limits.tail_frac:g}"
    named = (
        (f"TTFT{tail or ' p95'}", limits.ttft_s),
        (f"time per token{tail}", limits.tpot_s),
        (f"latency{tail}", limits.latency_s),
    )
    told = "; ".join(f"{name} within {limit:,.3g} s" for name, limit in named if limit is not None)
    return f"{load}{'; ' + told if told else ''}; {_place(market)}"


def training_words(demand: TrainingDemand, market: FitMarket) -> str:
    """Say what is to be trained, by when, and where."""
    deadline = f"; done in {demand.deadline_days:g} days" if demand.deadline_days else ""
    adapters = f", adapters of {demand.adapter_bits} bits" if demand.method is Method.LORA else ""
    return f"sequences of {demand.sequence:,}{adapters}{deadline}; {_place(market)}"


def _place(market: FitMarket) -> str:
    if market.own:
        return f"on one's own {market.own}"
    place = " ".join(word for word in (market.provider, market.region) if word) or "any provider and region"
    return f"{market.option.value}, {place}"


def size_line(way: ServingOption, demand: Demand) -> str:
    """Tell the requirement behind the count."""
    if demand.rate_req_s is None:
        return f"{demand.concurrency} requests at once, {way.concurrency} a replica: {way.replicas} replicas"
    needed = max(1, math.ceil(demand.rate_req_s / way.replica_req_s - 1e-9))
    sized = replicas_for(demand.rate_req_s, way.replica_req_s, headroom_frac=demand.headroom_frac)
    room = f", with {demand.headroom_frac:.0%} headroom {sized}" if demand.headroom_frac else ""
    if way.replicas > sized:
        room += f", for first tokens in time {way.replicas}"
    counted = (
        f"{needed} replica{'s' if needed != 1 else ''} of {way.replica_gpus} GPU{'s' if way.replica_gpus != 1 else ''}"
    )
    each = f"{way.replica_req_s:,.3g} a replica need {counted}"
    return f"{demand.rate_req_s:,.3g} requests/s at {each}{room}"


def memory_ends_gib(footprint: Footprint) -> tuple[float, float]:
    """Return the 80 % interval of a footprint."""
    fit = memory_fit()
    # errors are ln(predicted / measured): the highest error belongs to the lowest peak
    return footprint.total_gib * math.exp(-fit.high), footprint.total_gib * math.exp(-fit.low)


def _memory_items(footprint: Footprint) -> dict[str, Cell]:
    """Return what memory is spent on, for programs: every item, 0 where there is none of it."""
    return {f"memory_{item.name.lower()}_gib": round(footprint.gib(item), 3) for item in Item}


def memory_line(way: ServingOption | TrainingOption) -> str:
    """Tell what memory of the fullest GPU is spent on, the largest item first."""
    spent = sorted(((way.footprint.gib(item), item.value) for item in Item), reverse=True)
    items = ", ".join(f"{name} {gib:,.1f}" for gib, name in spent if gib >= LEAST_SHOWN_GIB)
    interval = ""
    if isinstance(way, TrainingOption):
        low_gib, high_gib = memory_ends_gib(way.footprint)
        interval = f" (80 % for other software: {low_gib:,.0f}–{high_gib:,.0f})"
    used = f"{way.footprint.total_gib:,.1f} of {way.gpu.memory_gib:,.1f} GiB{interval}"
    return f"memory of one {way.gpu.name}, {used}: {items}"


def quality_lines(first: ServingOption) -> list[str]:
    """Warn where the first row narrows the weights: nothing is bought with quality unseen."""
    if first.stored in (WeightFormat.BF16, WeightFormat.FP16):
        return []
    return [f"{first.stored.value} weights change a model's answers: test quality first, or ask with --format bf16"]


def kernel_lines(shown: Sequence[ServingOption] | Sequence[TrainingOption]) -> list[str]:
    """Return what each shown GPU needs or lacks: attention kernels, oldest CUDA and driver."""
    by_note: dict[str, list[str]] = {}
    for way in shown:
        for note in notes(way.gpu):
            by_note.setdefault(note, []).append(way.gpu.name)
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


def _cell_at(value: float, low: float, high: float, cells: int) -> int:
    """Return the cell of a value on a logarithmic axis."""
    if not 0 < low < high:
        return 0
    share = (math.log(max(value, low)) - math.log(low)) / (math.log(high) - math.log(low))
    return min(cells - 1, max(0, round(share * (cells - 1))))


def _drawn(grid: Sequence[Sequence[str]], title: str, below: str) -> str:
    return "\n".join([title, *("│" + "".join(row).rstrip() for row in grid), "└" + "─" * WIDTH, below])


def roofline_picture(roofline: Roofline) -> str:
    """Return a log-log roofline: the roof in dots, P for prefill, D for decode, T for a training step."""
    flops = [point.flop_per_byte for point in roofline.points]
    left, right = min(*flops, roofline.ridge_flop_per_byte) / 4, max(*flops, roofline.ridge_flop_per_byte) * 4
    bottom, top = roofline.peak_tflops * min(1, left / roofline.ridge_flop_per_byte), roofline.peak_tflops * 1.5
    grid = [[" "] * WIDTH for _ in range(HEIGHT)]
    for column in range(WIDTH):
        intensity = left * (right / left) ** (column / (WIDTH - 1))
        roof = roofline.peak_tflops * min(1, intensity / roofline.ridge_flop_per_byte)
        grid[HEIGHT - 1 - _cell_at(roof, bottom, top, HEIGHT)][column] = "·"
    for point in roofline.points:
        row = HEIGHT - 1 - _cell_at(point.attainable_tflops, bottom, top, HEIGHT)
        grid[row][_cell_at(point.flop_per_byte, left, right, WIDTH)] = point.phase.value[0].upper()
    told = ", ".join(
        f"{point.phase.value} {point.flop_per_byte:,.0f} FLOP/byte: {point.binding.value}" for point in roofline.points
    )
    title = f"{roofline.gpu.name}: {roofline.peak_tflops:,.0f} TFLOPS, ridge at {roofline.ridge_flop_per_byte:,.0f} FLOP/byte"
    return _drawn(grid, title, told)


def pareto_picture(found: Sequence[FitWay]) -> str:
    """Return cost (up) against time (right); numbers are ranks, the frontier is listed below."""
    shown = list(found[:9])
    costs = [way.cost.value for way in shown]
    times = [way.time.value for way in shown]
    if not shown or min(costs) <= 0:
        return ""
    grid = [[" "] * WIDTH for _ in range(HEIGHT)]
    for rank, (cost, time) in enumerate(zip(costs, times, strict=True), start=1):
        row = HEIGHT - 1 - _cell_at(cost, min(costs) / 1.2, max(costs) * 1.2, HEIGHT)
        grid[row][_cell_at(time, min(times) / 1.2, max(times) * 1.2, WIDTH)] = str(rank)
    best = frontier(shown)
    named = ", ".join(f"{rank} {way.label}" for rank, way in enumerate(shown, start=1) if way in best)
    title = f"{shown[0].unit} (up) against {shown[0].time_unit} (right), by rank"
    return _drawn(grid, title, f"nothing beats: {named}")


def value_bars(found: Sequence[FitWay]) -> str:
    """Return a bar per offering: tokens per second per dollar an hour."""
    values = [(way.label, way.tok_s_per_usd_hr) for way in found if way.tok_s_per_usd_hr]
    if not values:
        return ""
    most = max(value for _, value in values)
    widest = max(len(name) for name, _ in values)
    bars = (f"{name:<{widest}} {'█' * max(1, round(value / most * BAR_WIDTH))} {value:,.0f}" for name, value in values)
    return "\n".join(["tokens/s per $/h", *bars])


def cost_table(total: TotalCost) -> str:
    """Return the parts of a total cost and how each was calculated."""
    lines = [f"all told, a {total.per}: ${total.usd:,.2f}"]
    return "\n".join([*lines, *(f"  {line.item.value:<24} {line.usd:>12,.2f}  {line.how}" for line in total.lines)])
