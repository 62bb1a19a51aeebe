"""What `trimtab fit` is told: the model, amounts such as 7B or 1M/day, limits such as 300ms."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from trimtab.catalog import BuyingOption, load_catalog
from trimtab.errors import InputError, UnknownName, UsageError
from trimtab.fleet.settings import Assumptions
from trimtab.inputs.json_text import read_json_object
from trimtab.physics.ask import Market
from trimtab.physics.hf_config import architecture_from_config
from trimtab.physics.interruption import Interruptions
from trimtab.physics.models import Architecture, generic_model, known_models, model_named
from trimtab.physics.search_training import TrainingDemand
from trimtab.physics.serving_demand import Demand, Targets
from trimtab.physics.training_memory import Method
from trimtab.sources.request_mix import RequestMix
from trimtab.units import HR_PER_DAY, MS_PER_S, S_PER_DAY, S_PER_HR, parse_span

_SCALES = {"": 1.0, "K": 1e3, "M": 1e6, "B": 1e9, "T": 1e12}
_PERIODS = {"s": 1, "sec": 1, "h": S_PER_HR, "hour": S_PER_HR, "d": S_PER_DAY, "day": S_PER_DAY}

_INPUT_TOKENS, _OUTPUT_TOKENS = 1024, 256
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
        raise InputError(f"{error}; or give its config.json, or --params such as 7B") from UnknownName(
            "model", name, known_models()
        )


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


def market_of(
    assumed: Assumptions,
    prices: Path | None,
    *,
    gpus: tuple[str, ...],
    own: str | None,
    provider: str | None,
    region: str | None,
    option: str,
    driver: str | None,
    cuda: str | None,
) -> Market:
    """Return today's market, with own rates from a file; what losing spot nodes costs is as assumed."""
    return Market(
        gpus=gpus,
        own=own,
        provider=provider,
        region=region,
        option=BuyingOption(option),
        at=date.today(),
        catalog=load_catalog(prices),
        driver=driver,
        cuda=cuda,
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


def serving_of(
    mix: RequestMix | None,
    *,
    offline: str | None,
    within: str | None,
    rate: str | None,
    concurrency: int | None,
    input_tokens: int | None,
    output_tokens: int | None,
    limits: tuple[str | None, str | None, str | None],
    headroom_frac: float,
) -> ServingQuestion:
    """Return the load that was asked about: as stated, else as the trace has it, else the usual one.

    `limits` are those of the first token, of each token and of a request. A day's bulk is spread over the time in which it must
    be done, and needs no headroom.
    """
    window_s = (seconds(within) or S_PER_DAY) if offline else S_PER_DAY
    arrivals = amount_per_second(rate) if rate else mix.peak_req_s if mix else None
    if offline:
        arrivals = amount_per_second(offline) * S_PER_DAY / window_s
    elif concurrency is not None:
        arrivals = None
    ttft_s, tpot_s, latency_s = (seconds(one) for one in limits)
    demand = Demand(
        input_tokens=float(input_tokens or (mix.input_tokens if mix else None) or _INPUT_TOKENS),
        output_tokens=float(output_tokens or (mix.output_tokens if mix else None) or _OUTPUT_TOKENS),
        rate_req_s=arrivals,
        mean_req_s=mix.mean_req_s if mix and rate is None and arrivals is not None else None,
        concurrency=(concurrency or _AT_ONCE) if arrivals is None else None,
        targets=Targets(ttft_s=ttft_s, tpot_s=tpot_s, latency_s=latency_s),
        headroom_frac=0.0 if offline else headroom_frac,
    )
    return ServingQuestion(demand=demand, hours_per_day=min(HR_PER_DAY, window_s / S_PER_DAY * HR_PER_DAY))


def training_of(
    finetune: str | None,
    pretrain: bool,
    *,
    tokens: str | None,
    deadline: str | None,
    sequence: int,
    batch: int | None,
) -> TrainingDemand:
    """Return the training that was asked about; raises UsageError without tokens."""
    if tokens is None:
        raise UsageError("training needs --tokens, such as --tokens 2B")
    limit_s = seconds(deadline)
    return TrainingDemand(
        method=Method(finetune) if finetune else Method.FULL,
        tokens=amount(tokens),
        sequence=sequence,
        global_batch=batch,
        deadline_days=None if limit_s is None else limit_s / S_PER_DAY,
        pretrain=pretrain,
    )
