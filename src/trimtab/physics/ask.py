"""Which GPU for this model, ranked, with what was rejected: what `trimtab.fit` asks, and one's own measured point beside it.

Every form needs to say on which GPU it was measured: `gpu` in the file, or `--measured-on`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date

from trimtab.catalog import BuyingOption, Catalog, Gpu
from trimtab.catalog.providers import provider_of_bill
from trimtab.errors import MissingPrice, Unpredictable, UsageError, near_matches
from trimtab.notebook import ShownInNotebook
from trimtab.physics.benchmark_results import figures_of
from trimtab.physics.fabrics import Fabric
from trimtab.physics.formats import WeightFormat, too_old
from trimtab.physics.found_ways import Rejected, ServingOption, Unmet
from trimtab.physics.models import Architecture
from trimtab.physics.offers import USUAL, Caveat, Interruptions, NodeOffer, board, offers_for, owned_offer
from trimtab.physics.search_serving import search_serving, sweep
from trimtab.physics.search_training import TrainingDemand, TrainingOption, search_training
from trimtab.physics.serving_demand import Demand, ServingWay, spread_ways, ways_of
from trimtab.units import MS_PER_S

DEFAULT_ENGINE = "vllm"


@dataclass(frozen=True, slots=True, kw_only=True)
class FitMarket:
    """Where to look: named GPUs (all of NVIDIA's when none), one's own card, a provider, a region, a way of buying, a date."""

    catalog: Catalog
    """Facts and prices."""
    gpus: tuple[str, ...] = ()
    own: str | None = None
    provider: str | None = None
    region: str | None = None
    option: BuyingOption = BuyingOption.ON_DEMAND
    at: date | None = None
    driver: str | None = None
    """The driver that nodes have; None: any that a GPU needs."""
    cuda: str | None = None
    losses: Interruptions = USUAL
    """What losing spot nodes costs."""
    accepted: frozenset[Caveat] = frozenset()
    """Caveats that do not move an option behind the others; what is named counts as accepted (`accepted_caveats`)."""
    over_nodes: bool = False
    """Replicas may span several nodes of a published network."""
    link: Fabric | None = None
    """The user's own figure for the network of a node."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FitAnswer(ShownInNotebook):
    """Ways that work, cheapest first, and those that do not, each with its reason."""

    found: tuple[ServingOption, ...] | tuple[TrainingOption, ...]
    rejected: tuple[Rejected, ...]


def accepted_caveats(market: FitMarket, formats: Sequence[WeightFormat] = ()) -> frozenset[Caveat]:
    """Return the caveats that the user accepts: those stated, and those of a named provider, GPU or format."""
    named = {
        Caveat.MARKETPLACE: market.provider is not None,
        Caveat.CONSUMER_CARD: bool(market.gpus),
        Caveat.FOUR_BIT: bool(formats),
    }
    return market.accepted | {caveat for caveat, is_named in named.items() if is_named}


def offered(market: FitMarket) -> list[tuple[Gpu, tuple[NodeOffer, ...]]]:
    """Return the GPUs that somebody sells there, or the user's own card; raises MissingPrice when there is none."""
    if market.own is not None:
        # one's own card is judged alone: what is for sale plays no part
        gpu = board(market.own)
        return [(gpu, (owned_offer(gpu, 1),))]
    catalog = market.catalog
    _known_provider(catalog, market.provider)
    # other vendors' boards take part only where they are named
    wanted = [catalog.gpu(name) for name in market.gpus] or [gpu for gpu in catalog.gpus if gpu.vendor == "NVIDIA"]
    lawless = [gpu.name for gpu in wanted if not gpu.has_speed_law]
    if lawless:
        raise Unpredictable(
            f"{', '.join(lawless)}: programs are compiled for these, and no measured runs say how fast they are"
        )
    sellers = _sellers(catalog, market)
    found = [
        (gpu, offers)
        for gpu in wanted
        if (
            offers := _there(
                offers_for(catalog, gpu, provider=market.provider, region=market.region, at=market.at), sellers
            )
        )
    ]
    if not found:
        place = ", ".join(word for word in (market.provider, market.region) if word) or "any region"
        names = ", ".join(gpu.name for gpu in wanted[:3])
        raise MissingPrice(f"no price for {names} in {place}; drop --provider or --region, or see `trimtab prices`")
    return found


def _known_provider(catalog: Catalog, provider: str | None) -> None:
    """Raise MissingPrice, with near matches, for a provider that no price list has."""
    known = {price.provider for price in catalog.prices.prices}
    if provider is not None and provider not in known:
        meant = provider_of_bill(provider)
        near = (meant,) if meant in known else near_matches(provider, known)
        cure = f"did you mean {', '.join(near)}?" if near else "`trimtab prices` lists all"
        raise MissingPrice(f"no price of provider {provider!r}: no list has it; {cure}")


def _sellers(catalog: Catalog, market: FitMarket) -> frozenset[str]:
    """Return who sells in the named region: a rate that holds anywhere holds where its seller is.

    Raises MissingPrice, with near matches, for a region that no price list has.
    """
    if market.region is None:
        return frozenset(price.provider for price in catalog.prices.prices)
    places = {(price.provider, price.region) for price in catalog.prices.prices}
    # a seller that was named is there in any region: some state one rate for all of theirs
    named = {market.provider} if market.provider else set()
    there = frozenset(seller for seller, region in places if region == market.region or seller in named)
    if not there:
        near = near_matches(market.region, {region for _, region in places})
        cure = f"did you mean {', '.join(near)}?" if near else "`trimtab prices` lists all"
        raise MissingPrice(f"no price for region {market.region!r}: no list has it; {cure}")
    return there


def _there(offers: tuple[NodeOffer, ...], sellers: frozenset[str]) -> tuple[NodeOffer, ...]:
    """Keep the offers of those sellers, and hardware that is owned."""
    return tuple(offer for offer in offers if offer.provider in sellers or BuyingOption.OWNED in offer.usd_hr)


def runnable(market: FitMarket) -> tuple[list[tuple[Gpu, tuple[NodeOffer, ...]]], list[Rejected]]:
    """Return the GPUs on offer that the named driver and CUDA run, and the others with their reason."""
    fine, rejected = [], []
    for gpu, offers in offered(market):
        # a driver rules a GPU out for every format alike: one reason, not one a format
        if reason := too_old(gpu, driver=market.driver, cuda=market.cuda):
            rejected.append(Rejected(gpu=gpu.name, what="all formats", reason=Unmet.DRIVER, because=reason))
        else:
            fine.append((gpu, offers))
    return fine, rejected


def serving_answer(
    model: Architecture,
    demand: Demand,
    market: FitMarket,
    *,
    engine: str = DEFAULT_ENGINE,
    formats: Sequence[WeightFormat] = (),
    scale: float = 1.0,
    accepted: frozenset[Caveat] | None = None,
) -> FitAnswer:
    """Search all ways of serving a demand, in the named formats or in all that a GPU runs.

    `scale` is measured over predicted time of the user's own point; `accepted` are the caveats that do not count, those of the
    market where None. Raises Unpredictable for encoders.
    """
    if model.encoder:
        raise Unpredictable(
            f"{model.name} is an encoder: it generates no tokens. `trimtab fit` knows the speed of those that were measured in "
            "public (--list-models); that of others is unknown: measure it on one GPU and transfer it with "
            "trimtab.physics.transfer.speed_ratio"
        )
    ways: list[ServingWay] = []
    candidates, rejected = runnable(market)
    for gpu, offers in candidates:
        fitting, refused = ways_of(model, gpu, offers, demand, engine, formats)
        ways += fitting
        rejected += refused
        if market.over_nodes:
            spread, unknown = spread_ways(model, gpu, offers, demand, engine, formats, market.link)
            ways += spread
            rejected += unknown
    # all GPUs in one search, because the sweep over concurrencies is one pass of array arithmetic
    found, missed = search_serving(
        ways,
        demand,
        option=market.option,
        scale=scale,
        losses=market.losses,
        accepted=accepted_caveats(market, formats) if accepted is None else accepted,
    )
    return FitAnswer(found=tuple(found), rejected=(*rejected, *missed))


def training_answer(model: Architecture, demand: TrainingDemand, market: FitMarket, *, scale: float = 1.0) -> FitAnswer:
    """Search all ways of training; `scale` is measured over predicted speed of one's own run."""
    candidates, rejected = runnable(market)
    found, missed = search_training(
        model,
        candidates,
        demand,
        option=market.option,
        scale=scale,
        losses=market.losses,
        accepted=accepted_caveats(market),
    )
    return FitAnswer(found=tuple(found), rejected=(*rejected, *missed))


MOST_GPUS = 8
_TPOT_MS = ("tpot_ms", "mean_tpot_ms", "median_tpot_ms", "inter_token_latency")
"""Our own name, those of `vllm bench serve`, that of genai-perf (a record with `avg`, in milliseconds)."""
_LATENCY_MS = ("latency_ms", "mean_e2el_ms", "request_latency", "http_req_duration")
"""A whole request: our own name, vLLM's, genai-perf's, k6's (milliseconds all)."""
_CONCURRENCY = ("concurrency", "max_concurrency", "vus", "vus_max")
_TOK_S = ("tok_s", "tokens_per_s", "train_tokens_per_second")
"""Our own names, and the one that transformers' Trainer logs."""

_MOST = 1e15
"""No figure of a benchmark is larger."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """A point that somebody measured; what it does not tell is None."""

    gpu: Gpu
    gpus: int
    tpot_s: float | None
    latency_s: float | None
    tok_s: float | None
    concurrency: int


def measured_point(content: object, where: str, on: str | None = None) -> Measured:
    """Return the point that a benchmark's result or a profile states; `on` names its GPU, `where` is for messages.

    Raises UsageError where the content cannot be a result, or hides its GPU.
    """
    if not isinstance(content, dict):
        raise UsageError(
            f"{where} must hold one object: a result of vllm bench, genai-perf, k6, GuideLLM, inference-perf, llm-d-benchmark, "
            "MLPerf or a profile"
        )
    fields = {**_flat(content), **(figures_of(content) or {})}
    name = on or next(
        (content[key] for key in ("gpu", "gpu_name", "device") if isinstance(content.get(key), str)), None
    )
    if name is None:
        raise UsageError(
            f'{where} must say on which GPU it was measured: add "gpu": "A100-80GB", or give --measured-on'
        )
    tpot_ms, latency_ms = _number(fields, *_TPOT_MS), _number(fields, *_LATENCY_MS)
    return Measured(
        gpu=board(name),
        gpus=int(_number(fields, "tensor_parallel", "tensor_parallel_size", "gpus") or 1),
        tpot_s=None if tpot_ms is None else tpot_ms / MS_PER_S,
        latency_s=None if latency_ms is None else latency_ms / MS_PER_S,
        tok_s=_number(fields, *_TOK_S) or _by_step(fields),
        concurrency=int(_number(fields, *_CONCURRENCY) or 1),
    )


def _flat(content: Mapping[str, object]) -> Mapping[str, object]:
    """Return the fields that hold figures: k6 keeps its own under `metrics`, a newer k6 their figures under `values`."""
    metrics = content.get("metrics")
    return {**content, **metrics} if isinstance(metrics, Mapping) else content


def _number(fields: Mapping[str, object], *keys: str) -> float | None:
    """Return the first positive number under one of the keys; a record stands for its `avg`, `value` or `max`."""
    for key in keys:
        value = fields.get(key)
        if isinstance(value, Mapping):
            inner = value.get("values")
            record = inner if isinstance(inner, Mapping) else value
            value = next((record[name] for name in ("avg", "max", "value") if name in record), None)
        # to Python `true` is an int, but it is no measurement
        if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < _MOST:
            return float(value)
    return None


def _by_step(fields: Mapping[str, object]) -> float | None:
    """Return tokens a second from a profile's time of a step and its tokens."""
    step_s, tokens = _number(fields, "step_s", "step_s_p50"), _number(fields, "tokens_per_step")
    return tokens / step_s if step_s and tokens else None


def time_scale(model: Architecture, demand: Demand, engine: str, point: Measured | None) -> float:
    """Return measured over predicted time: per output token where it was measured, else of a whole request."""
    if point is None:
        return 1.0
    if point.tpot_s is None and point.latency_s is None:
        raise UsageError(
            "a serving calibration needs a time per output token (tpot_ms) or of a request (latency_ms) above 0"
        )
    ways, _ = ways_of(model, point.gpu, (owned_offer(point.gpu, MOST_GPUS),), demand, engine)
    # formats come widest first: a point that names none is assumed to be of the widest that fits
    mine = next((way for way in ways if way.query.tensor == point.gpus), None)
    if mine is None:
        raise UsageError(
            f"the calibration point cannot have run: {model.name} does not fit {point.gpus} x {point.gpu.name}"
        )
    # at the very concurrency of the measurement, so that the ratio holds nothing but the model's error
    times = sweep([mine.query], [point.concurrency])
    tpot_s = float(times.tpot_s[0, 0])
    if point.tpot_s is not None:
        return point.tpot_s / tpot_s
    assert point.latency_s is not None
    # a request is its first token and then the others one by one, as in the search
    return point.latency_s / (float(times.ttft_s[0, 0]) + (demand.output_tokens - 1) * tpot_s)


def speed_scale(model: Architecture, demand: TrainingDemand, point: Measured | None) -> float:
    """Return measured over predicted tokens a second of one's own run."""
    if point is None:
        return 1.0
    if point.tok_s is None:
        raise UsageError("a training calibration needs tok_s above 0 (or step_s and tokens_per_step), gpu and gpus")
    # nothing is bought here, so price and deadline rule nothing out
    found, _ = search_training(model, [(point.gpu, (owned_offer(point.gpu, point.gpus),))], demand)
    mine = next((option for option in found if option.gpus == point.gpus), None)
    if mine is None:
        raise UsageError(
            f"the calibration point cannot have run: {model.name} does not fit {point.gpus} x {point.gpu.name}"
        )
    return point.tok_s / mine.tok_s.value
