"""What the options of `trimtab fit` ask for: where GPUs are bought, the load to serve, the tokens to train on."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from pathlib import Path

from trimtab.catalog import BuyingOption, load_catalog
from trimtab.cli.fit_inputs import amount, amount_per_second, seconds
from trimtab.errors import UsageError
from trimtab.fleet.settings import Assumptions
from trimtab.physics.ask import Market
from trimtab.physics.interruption import Interruptions
from trimtab.physics.search_training import TrainingDemand
from trimtab.physics.serving_demand import Demand, Targets
from trimtab.physics.training_memory import Method
from trimtab.sources.traces.request_mix import RequestMix
from trimtab.units import HR_PER_DAY, S_PER_DAY

_INPUT_TOKENS, _OUTPUT_TOKENS = 1024, 256
_AT_ONCE = 16
"""Requests at once where no load is stated."""


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
