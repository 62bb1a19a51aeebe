"""The work of a service's tokens: how they divide a replica's time, and demand counted in tokens instead of requests.

How the time of a replica divides between tokens is a rule, and every use says which:

- **measured**: by the time of the engine's own steps that computed prompts and answers, where it counts it (SGLang, TGI);
- **modelled**: by the step times that `physics` gives the declared model on the service's GPU at its mean request and usual
  concurrency: an answer takes its share of steps that decode, a prompt what its steps are longer for it;
- **blended**: one weight for every token, where neither is known.

Times of requests (`vllm:request_prefill_time_seconds`, `..._decode_time_seconds`) are no rule here: a step that decodes 30
requests counts 30 times in them, so that prompts would bear next to nothing (`python -m benchmarks.token_cost`).

Requests are no unit of a language model's work: one may take a hundred times what another takes. So where the server's counters
of tokens were read, demand is the work of the tokens, in mean requests of the history that the law is learnt on. In sum that is
as many requests as came; by step it is more where they were long.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from functools import lru_cache

import numpy as np

from trimtab.errors import UnknownName
from trimtab.fleet.declared_models import ServedModel, served_model
from trimtab.fleet.model import ServiceObservation, TokenReadings, Workload
from trimtab.ledger.arrays import Flags, FloatArray
from trimtab.physics.offers import board
from trimtab.units import S_PER_HR

_LEAST_READ_FRAC = 0.9
"""Demand is counted in tokens where they were read in so much of the time: elsewhere requests are counted instead."""
_NO_WORSE = 1.1
"""Squared misfit to hourly GPU activity, over that of requests, up to which the work of tokens is believed."""


class TokenRule(Enum):
    """How a service's cost is divided between its tokens."""

    MEASURED = "measured"
    MODELLED = "modelled"
    BLENDED = "blended"


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenAmounts:
    """Something of each kind of token: counts, weights or micro-dollars."""

    input: float
    """Of prompt tokens that had to be computed."""
    output: float
    cached: float
    """Of prompt tokens that the prefix cache held."""

    @property
    def total(self) -> float:
        """Return the sum."""
        return self.input + self.output + self.cached


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenUse:
    """A service's tokens over a window, and their shares of its cost."""

    tokens: TokenAmounts
    """Counted, in the hours in which they were read."""
    cached_known: bool
    """Whether the server counts cached tokens; where it does not, they are among the input."""
    weights: TokenAmounts
    rule: TokenRule
    because: str
    read_frac: float
    """Share of the time that it held its GPUs of which tokens were read."""


def token_use(workload: Workload) -> TokenUse | None:
    """Return what a service's tokens were and how they share its cost; None if none were ever read."""
    service = workload.service
    if service is None or service.tokens is None:
        return None
    read = _read(service.tokens)
    tokens = _counted(service.tokens, read)
    weights, rule, because = _weights(workload, service.tokens, read, tokens)
    return TokenUse(
        tokens=tokens,
        cached_known=bool((~np.isnan(service.tokens.cached[read])).any()),
        weights=weights,
        rule=rule,
        because=because,
        read_frac=_read_frac(workload, read, service.step_s),
    )


def _read(seen: TokenReadings) -> Flags:
    """Return the steps whose tokens were read: of prompts and answers, or of what a server that has only one kind counts."""
    kinds = [known for values in (seen.input, seen.output) if (known := ~np.isnan(values)).any()]
    return np.asarray(np.logical_and.reduce(kinds), dtype=np.bool_)


def _counted(seen: TokenReadings, read: Flags) -> TokenAmounts:
    prompts = float(np.nansum(seen.input[read]))
    # a hit is counted when a prompt is admitted, the prompt when it is computed: at the edges hits may run ahead
    cached = min(float(np.nansum(seen.cached[read])), prompts)
    return TokenAmounts(input=prompts - cached, output=float(np.nansum(seen.output[read])), cached=cached)


def _weights(
    workload: Workload, seen: TokenReadings, read: Flags, tokens: TokenAmounts
) -> tuple[TokenAmounts, TokenRule, str]:
    if not tokens.input + tokens.cached or not tokens.output:
        return tokens, TokenRule.BLENDED, "one price for every token: its tokens are all of one kind"
    prefill_s, decode_s = (float(np.nansum(values[read])) for values in (seen.prefill_s, seen.decode_s))
    if prefill_s > 0 and decode_s > 0:
        because = f"the engine's steps took {prefill_s:,.0f} s for prompts and {decode_s:,.0f} s for answers alone"
        # steps compute only what was not cached; the remaining cost of a hit is not counted separately
        weights = TokenAmounts(input=prefill_s, output=decode_s, cached=0.0)
        return _on_tokens(weights, tokens), TokenRule.MEASURED, because
    model = served_model(workload)
    modelled = model if isinstance(model, str) else _modelled(workload, model, tokens)
    if isinstance(model, str) or isinstance(modelled, str):
        why = model if isinstance(model, str) else modelled
        return tokens, TokenRule.BLENDED, f"one price for every token: {why}, and its engine counts no step times"
    because = f"step times of {model.architecture.name} on {workload.gpu} for its mean request at its usual concurrency"
    return _on_tokens(modelled, tokens), TokenRule.MODELLED, because


def _modelled(workload: Workload, model: ServedModel, tokens: TokenAmounts) -> TokenAmounts | str:
    """Return the weights by the model's step times, or why there are none."""
    try:
        gpu = board(workload.gpu or "")
    except UnknownName:
        return f"its GPU ({workload.gpu or 'not known'}) is none that step times are known of"
    prompts = tokens.input + tokens.cached
    cached = model.input_tokens * tokens.cached / prompts if prompts else 0.0
    spent = model.token_seconds(gpu, cached)
    return TokenAmounts(input=spent.input_s, output=spent.output_s, cached=spent.cached_s)


def _on_tokens(weights: TokenAmounts, tokens: TokenAmounts) -> TokenAmounts:
    """Return the weights of the kinds that there are tokens of; the tokens themselves where that leaves nothing."""
    kept = TokenAmounts(
        input=weights.input if tokens.input else 0.0,
        output=weights.output if tokens.output else 0.0,
        cached=weights.cached if tokens.cached else 0.0,
    )
    return kept if kept.total > 0 else tokens


def _read_frac(workload: Workload, read: Flags, step_s: float) -> float:
    """Return the share of the GPU time held in steps whose tokens were read."""
    hour = np.minimum((np.arange(len(read)) * step_s // S_PER_HR).astype(np.int64), len(workload.gpu_seconds) - 1)
    steps = np.bincount(hour, minlength=len(workload.gpu_seconds))
    seen = np.bincount(hour[read], minlength=len(workload.gpu_seconds))
    share: FloatArray = np.divide(seen, steps, out=np.zeros(len(steps)), where=steps > 0)
    held = float(workload.gpu_seconds.sum())
    return min(1.0, float((workload.gpu_seconds * share).sum()) / held) if held > 0 else 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenWork:
    """What a token takes of a replica, in mean requests of the history that says so."""

    input_req: float
    """Each prompt token that has to be computed."""
    output_req: float
    cached_req: float
    """Each prompt token that the prefix cache holds; as much as any other if they are not counted separately."""


def token_work(workload: Workload) -> TokenWork | str:
    """Return the work per token of a service, or why its demand is counted in requests.

    Weights that follow the hourly activity of its GPUs worse than plain requests do are not believed.
    """
    service = workload.service
    if service is None or service.tokens is None:
        return "its server was not seen to count tokens"
    if not service.tokens.counted:
        return "mean lengths of its requests are known, and no counter of tokens was read"
    use = token_use(workload)
    assert use is not None
    if use.rule is TokenRule.BLENDED:
        return use.because
    if use.read_frac < _LEAST_READ_FRAC:
        return f"its tokens were read in {use.read_frac:.0%} of the time only"
    both = _read(service.tokens) & np.isfinite(service.arrivals)
    requests = float(service.arrivals[both].sum())
    if requests <= 0:
        return "not one request was seen while its tokens were read"
    scale = requests / use.weights.total
    input_req = _each(use.weights.input, use.tokens.input) * scale
    work = TokenWork(
        input_req=input_req,
        output_req=_each(use.weights.output, use.tokens.output) * scale,
        cached_req=_each(use.weights.cached, use.tokens.cached) * scale if use.cached_known else input_req,
    )
    busy = workload.activity.busy_gpus
    if _misfit(_in_tokens(service, work).arrivals, busy) > _NO_WORSE * _misfit(service.arrivals, busy):
        return "GPU activity follows its requests more closely than the work that its tokens are said to be"
    return work


def _each(weight: float, tokens: float) -> float:
    return weight / tokens if tokens > 0 else 0.0


def _misfit(work: FloatArray, busy_gpus: FloatArray) -> float:
    """Return the share of hourly activity (n_hours,), squared, that is not in proportion to work (n_steps,); 0 if untold."""
    per_hour = len(work) // max(len(busy_gpus), 1)
    if per_hour < 1:
        return 0.0
    hourly = work[: len(busy_gpus) * per_hour].reshape(-1, per_hour).sum(axis=1)
    both = np.isfinite(hourly) & np.isfinite(busy_gpus) & (hourly > 0)
    busy, done = busy_gpus[both], hourly[both]
    if not both.any() or not busy.any():
        return 0.0
    slope = float(busy @ done) / float(done @ done)
    return float(((busy - slope * done) ** 2).sum() / (busy**2).sum())


def in_tokens(service: ServiceObservation, work: TokenWork | None) -> ServiceObservation:
    """Return the same service with the work of its tokens, in mean requests, in place of its requests.

    A step of which no tokens were read keeps its requests. Without `work` it is the same service.
    """
    return service if work is None or service.tokens is None else _in_tokens(service, work)


@lru_cache(maxsize=64)
def _in_tokens(service: ServiceObservation, work: TokenWork) -> ServiceObservation:
    tokens = service.tokens
    assert tokens is not None
    cached = np.minimum(np.nan_to_num(tokens.cached), np.nan_to_num(tokens.input))
    done = np.nan_to_num(tokens.input) * work.input_req - cached * (work.input_req - work.cached_req)
    done += np.nan_to_num(tokens.output) * work.output_req
    if service.waiting.size:
        # what came and waits has had no token computed
        grown = np.diff(service.waiting, prepend=service.waiting[:1])
        done = np.maximum(done + np.where(np.isfinite(grown), grown, 0.0), 0.0)
    # of hits that a server counts elsewhere and that were not read here, none is known to have been computed
    told = ~np.isnan(tokens.cached)
    counted = _read(tokens) & np.isfinite(service.arrivals) & (told | ~told.any())
    return replace(service, arrivals=np.where(counted, done, service.arrivals))
