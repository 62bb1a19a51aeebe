"""The arguments of `trimtab fit` as values: the model, the market, the load or the training, one's own measurement."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from trimtab.catalog import BuyingOption, load_catalog
from trimtab.cli.fit import FitOptions
from trimtab.errors import InputError, UnknownName, UsageError
from trimtab.fleet.settings import Assumptions
from trimtab.inputs.documents import load_yaml, read_json, read_json_object
from trimtab.inputs.files import read_text
from trimtab.physics.ask import FitMarket, Measured, measured_point
from trimtab.physics.benchmark_results import figures_of_loadgen
from trimtab.physics.fabrics import stated
from trimtab.physics.measured_models import measured_models, relative_of
from trimtab.physics.models import Architecture, architecture_from_config, generic_model, known_models, model_named
from trimtab.physics.offers import Caveat, Interruptions
from trimtab.physics.search_training import Stack, TrainingDemand
from trimtab.physics.serving_demand import Demand, Targets
from trimtab.physics.serving_query import Adapters, Speculation
from trimtab.physics.training import WIDE_ADAPTER_BITS, Method
from trimtab.sources.traces.request_mix import RequestMix
from trimtab.units import HR_PER_DAY, MS_PER_S, S_PER_DAY, S_PER_HR, parse_span

_SCALES = {"": 1.0, "K": 1e3, "M": 1e6, "B": 1e9, "T": 1e12}
_PERIODS = {"s": 1, "sec": 1, "h": S_PER_HR, "hour": S_PER_HR, "d": S_PER_DAY, "day": S_PER_DAY}

_INPUT_TOKENS, _OUTPUT_TOKENS = 1024, 256
_ACCEPTED = {
    "marketplace": Caveat.MARKETPLACE,
    "consumer": Caveat.CONSUMER_CARD,
    "4-bit": Caveat.FOUR_BIT,
}
DEFAULT_TPOT_S = 0.1
"""The limit on the time per token of a service for which none was stated: MLPerf Inference v5.1's for Llama-3.1-8B, Server."""
NO_LIMIT = "none"
_AT_ONCE = 16
"""Requests at once where no load is stated."""


def amount(text: str) -> float:
    """Read a count such as 500, 20K, 2B; raises UsageError."""
    found = re.fullmatch(r"\s*([\d.,_]+)\s*([KMBTkmbt]?)\s*", text)
    try:
        value = float(found[1].replace(",", "").replace("_", "")) * _SCALES[found[2].upper()] if found else -1.0
    except ValueError:
        value = -1.0
    if not value > 0:
        raise UsageError(f"{text!r} is not an amount; write 500, 20K, 2B")
    return value


def amount_per_second(text: str) -> float:
    """Read a rate such as 20, 1M/day, 500K/h in events a second; raises UsageError."""
    count, _, period = text.partition("/")
    if period and period not in _PERIODS:
        raise UsageError(f"{text!r} is not a rate; write 20/s, 500K/h or 1M/day")
    return amount(count) / _PERIODS[period or "s"]


def seconds(text: str | None) -> float | None:
    """Read a limit such as 300ms, 2s, 4h, 14d; a bare number means milliseconds. Raises UsageError."""
    if text is None:
        return None
    bare = text.strip()
    try:
        if bare.endswith("ms") or bare.replace(".", "", 1).isdigit():
            return amount(bare.removesuffix("ms")) / MS_PER_S
        return parse_span(bare).total_seconds()
    except ValueError as error:
        raise UsageError(f"{text!r} is not a length of time; write 300ms, 2s, 4h or 14d") from error


def model_of(name: str | None, params: str | None, active: str | None = None) -> Architecture:
    """Return the architecture of a config.json, of the local hub cache, of the built-in table, or of a size.

    Raises UnknownName with near matches, UsageError where neither a name nor a size is given.
    """
    if name is not None:
        if (path := _config_path(name)) is not None:
            return architecture_from_config(read_json_object(path), name=name)
        if params is None:
            return _named(name)
    if params is None:
        raise UsageError("name a model, give the path of its config.json, or its size with --params 7B")
    size = amount(params) / _SCALES["B"] if params[-1:].isalpha() else amount(params)
    return generic_model(size, active_b=amount(active) / _SCALES["B"] if active else None, name=name or "")


def _named(name: str) -> Architecture:
    try:
        return model_named(name)
    except UnknownName as error:
        if (relative := relative_of(name)) is not None:
            raise InputError(
                f"{name} is another network than {relative.name} ({relative.kind}), and its speed was not measured in public; "
                f"`trimtab fit {relative.name}` answers for that one"
            ) from error
        raise InputError(
            f"{_unknown(name)}; --list-models lists all. A language model: give its config.json, or --params such as 7B. "
            "Of any other kind nothing was measured under this name, so its speed is unknown"
        ) from error


def _unknown(name: str) -> UnknownName:
    """Return the error for a name, with the near matches among all models."""
    bare = name.rsplit("/", 1)[-1]
    return UnknownName("model", bare, (*measured_models(), *known_models()))


def _config_path(name: str) -> Path | None:
    """Return the config.json that a name means: a file, a folder that holds one, a snapshot in the local hub cache."""
    given = Path(name)
    if given.suffix == ".json":
        if not given.is_file():
            raise InputError(f"there is no file {name}")
        return given
    if (given / "config.json").is_file():
        return given / "config.json"
    home = Path(os.environ.get("HF_HOME", Path.home() / ".cache" / "huggingface"))
    snapshots = home / "hub" / f"models--{name.replace('/', '--')}" / "snapshots"
    found = sorted(snapshots.glob("*/config.json")) if "/" in name and snapshots.is_dir() else []
    return found[-1] if found else None


def market_of(options: FitOptions, assumed: Assumptions) -> FitMarket:
    """Return today's market, with own rates from a file; what losing spot nodes costs is as assumed."""
    return FitMarket(
        gpus=options.gpus,
        own=options.own,
        provider=options.provider,
        region=options.region,
        option=BuyingOption(options.buying),
        at=date.today(),
        catalog=load_catalog(options.prices),
        driver=options.driver,
        cuda=options.cuda,
        accepted=frozenset(_ACCEPTED[name] for name in options.accept),
        over_nodes=options.over_nodes,
        link=None if options.kv_gb_s is None else stated(options.kv_gb_s),
        losses=Interruptions(
            startup_s=assumed.node_startup_s,
            cold_start_s=assumed.service_cold_start_s,
            save_s=assumed.checkpoint_save_s,
            restore_s=assumed.checkpoint_restore_s,
            notice_s=assumed.spot_notice_s,
            unknown_loss_per_hr=assumed.spot_loss_per_hr,
        ),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingQuestion:
    """A load, and the hours of a day in which it is served."""

    demand: Demand
    hours_per_day: float


def serving_of(options: FitOptions, mix: RequestMix | None) -> ServingQuestion:
    """Return the load that was asked about: as stated, else as the trace has it, else the usual one.

    A day's bulk is spread over the time in which it must be done, and needs no headroom.
    """
    offline, rate = options.offline, options.rate
    window_s = (seconds(options.within) or S_PER_DAY) if offline else S_PER_DAY
    arrivals = amount_per_second(rate) if rate else mix.peak_req_s if mix else None
    if offline:
        arrivals = amount_per_second(offline) * S_PER_DAY / window_s
    elif options.concurrency is not None:
        arrivals = None
    demand = Demand(
        input_tokens=float(options.input_tokens or (mix.input_tokens if mix else None) or _INPUT_TOKENS),
        output_tokens=float(options.output_tokens or (mix.output_tokens if mix else None) or _OUTPUT_TOKENS),
        rate_req_s=arrivals,
        mean_req_s=mix.mean_req_s if mix and rate is None and arrivals is not None else None,
        concurrency=(options.concurrency or _AT_ONCE) if arrivals is None else None,
        targets=Targets(
            ttft_s=seconds(options.ttft),
            tpot_s=_tpot_s(options),
            latency_s=seconds(options.latency),
            tail_frac=None if options.percentile is None else options.percentile / 100,
        ),
        longest_tokens=options.longest or (mix.longest_tokens if mix else None),
        headroom_frac=0.0 if offline else options.headroom,
        cached_frac=prefix_hit_of(options.prefix_hit, mix),
        loaded_frac=options.offload_hit,
        speculation=_speculation(options),
        adapters=_adapters(options),
    )
    return ServingQuestion(demand=demand, hours_per_day=min(HR_PER_DAY, window_s / S_PER_DAY * HR_PER_DAY))


def _tpot_s(options: FitOptions) -> float | None:
    """Return the limit on the time per token: as stated, or the default of a service that states no other."""
    if options.tpot == NO_LIMIT:
        return None
    if options.tpot is None and options.serve and options.latency is None:
        return DEFAULT_TPOT_S
    return seconds(options.tpot)


def prefix_hit_of(told: str | None, mix: RequestMix | None) -> float:
    """Return the share of prompt tokens found in the prefix cache, as stated or as measured; raises UsageError."""
    if told is None:
        return 0.0
    if told == "measured":
        if mix is None or mix.cached_frac is None:
            raise UsageError(
                "--prefix-hit measured needs --trace with cached_tokens or prefix_block_ids, or a fleet whose servers count "
                "cached tokens (vllm:prefix_cache_hits_total, sglang:cached_tokens_total)"
            )
        return mix.cached_frac
    try:
        share = float(told)
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        raise UsageError(f"--prefix-hit {told!r} is not a share; write 0.4, or measured")
    return share


def _speculation(options: FitOptions) -> Speculation | None:
    if (options.draft_tokens is None) != (options.acceptance is None):
        raise UsageError("speculative decoding needs both --draft-tokens and --acceptance")
    if options.draft_tokens is None or options.acceptance is None:
        return None
    return Speculation(
        draft_tokens=options.draft_tokens, acceptance_frac=options.acceptance, draft_cost_frac=options.draft_cost
    )


def _adapters(options: FitOptions) -> Adapters | None:
    if options.adapters is None:
        return None
    return Adapters(number=options.adapters, rank=options.adapter_rank, slowdown_frac=options.adapter_slowdown)


def training_of(options: FitOptions) -> TrainingDemand:
    """Return the training that was asked about; raises UsageError without tokens."""
    if options.tokens is None:
        raise UsageError("training needs --tokens, such as --tokens 2B")
    limit_s = seconds(options.deadline)
    return TrainingDemand(
        method=Method(options.finetune) if options.finetune else Method.FULL,
        tokens=amount(options.tokens),
        sequence=options.sequence,
        global_batch=options.batch,
        deadline_days=None if limit_s is None else limit_s / S_PER_DAY,
        pretrain=options.pretrain,
        adapter_bits=options.adapter_bits,
        stack=Stack(options.stack),
    )


def check_fit_options(options: FitOptions) -> None:
    """Refuse options that contradict one another, or do not say what to find GPUs for; raises UsageError."""
    kinds = {
        "--serve": options.serve,
        "--offline": bool(options.offline),
        "--finetune": bool(options.finetune),
        "--pretrain": options.pretrain,
    }
    asked = [name for name, given in kinds.items() if given]
    if len(asked) != 1:
        raise UsageError(f"give one of {', '.join(kinds)}" + (f", not {' and '.join(asked)}" if asked else ""))
    serves = options.serve or bool(options.offline)
    if options.adapter_bits != WIDE_ADAPTER_BITS and options.finetune != Method.LORA.value:
        raise UsageError("--adapter-bits belongs to --finetune lora")
    if options.stack == Stack.MEGATRON.value and options.finetune == Method.QLORA.value:
        raise UsageError("Megatron trains no adapters on a 4-bit base: give --stack fsdp or --finetune lora")
    if options.formats and not serves:
        raise UsageError(
            "--format belongs to --serve and --offline: weights are trained in 16 bits, and under --finetune qlora kept in "
            "NF4. No public run trained on weights of 8 bits, so its speed and memory are unknown"
        )
    loads = {"--trace": options.trace, "--rate": options.rate, "--concurrency": options.concurrency}
    given = [name for name, value in loads.items() if value is not None]
    if options.within is not None and not options.offline:
        raise UsageError("--within belongs to --offline: the time in which a day's requests must be done")
    if options.offline and given:
        raise UsageError(f"--offline states the amount: leave out {' and '.join(given)}")
    if "--concurrency" in given and len(given) > 1:
        raise UsageError(f"give one of {' and '.join(given)}: each states the load")
    if not options.serve and given:
        raise UsageError(f"{' and '.join(given)} belong to --serve")
    served = {
        "--ttft": options.ttft,
        "--tpot": options.tpot,
        "--latency": options.latency,
        "--input": options.input_tokens,
        "--output-tokens": options.output_tokens,
        "--longest": options.longest,
    }
    trained = {"--tokens": options.tokens, "--deadline": options.deadline, "--batch": options.batch}
    strange = [name for name, value in (trained if serves else served).items() if value is not None]
    if strange:
        whose = "--finetune and --pretrain" if serves else "--serve and --offline"
        raise UsageError(f"{' and '.join(strange)} {'belong' if len(strange) > 1 else 'belongs'} to {whose}")
    limits = (options.ttft, options.tpot, options.latency)
    if options.percentile is not None and not any(limit not in (None, NO_LIMIT) for limit in limits):
        raise UsageError("--percentile says where a limit is kept: give --ttft, --tpot or --latency")


def read_measured(path: Path, on: str | None = None) -> Measured:
    """Read a benchmark's result or a profile; raises UsageError where it cannot be one, or hides its GPU."""
    match path.suffix:
        case ".yaml" | ".yml":
            content = load_yaml(read_text(path), str(path))
        case ".txt":
            content = figures_of_loadgen(read_text(path))
        case _:
            content = read_json(path)
    return measured_point(content, str(path), on)
