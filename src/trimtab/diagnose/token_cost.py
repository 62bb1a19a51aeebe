"""What a service's tokens cost: its bill over input, output and cached tokens, to the last micro-dollar.

A GPU serves prompts and answers together, so how its cost divides between them is a rule, and every row says which:

- **measured**: by the time of the engine's own steps that computed prompts and answers, where it counts it (SGLang, TGI);
- **modelled**: by the step times that `physics` gives the declared model on the service's GPU at its mean request and usual
  concurrency: an answer takes its share of steps that decode, a prompt what its steps are longer for it;
- **blended**: one price for every token, where neither is known.

Times of requests (`vllm:request_prefill_time_seconds`, `..._decode_time_seconds`) are no rule here: a step that decodes 30
requests counts 30 times in them, so that prompts would bear next to nothing (`python -m benchmarks.token_cost`).

Hours of which no tokens were read keep their part of the bill as `unread`: it is nobody's price.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum

import numpy as np

from trimtab.errors import UnknownName
from trimtab.fleet.model import Flags, Fleet, FloatArray, TokenReadings, Workload
from trimtab.fleet.served_model import ServedModel, served_model
from trimtab.physics.boards import board
from trimtab.units import S_PER_HR, TOKENS_PER_MTOK, apportion, usd


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
    """What a service's tokens were over a window, and how they share its cost."""

    tokens: TokenAmounts
    """Counted, in the hours in which they were read."""
    cached_known: bool
    """Whether the server counts cached tokens; where it does not, they are among the input."""
    weights: TokenAmounts
    rule: TokenRule
    because: str
    read_frac: float
    """Share of the time that it held its GPUs of which tokens were read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenCharge:
    """A service's bill over its tokens, in micro-dollars that sum to it exactly; or the sum of several services."""

    name: str
    services: tuple[str, ...]
    input_micro_usd: int
    output_micro_usd: int
    cached_micro_usd: int
    unread_micro_usd: int
    """Of hours of which no tokens were read."""
    tokens: TokenAmounts
    cached_known: bool
    rules: tuple[TokenRule, ...]
    because: str

    @property
    def micro_usd(self) -> int:
        """Return the whole bill."""
        return self.input_micro_usd + self.output_micro_usd + self.cached_micro_usd + self.unread_micro_usd

    @property
    def input_usd_per_mtok(self) -> float | None:
        """Return dollars per million prompt tokens that were computed; None where there were none."""
        return _per_mtok(self.input_micro_usd, self.tokens.input)

    @property
    def output_usd_per_mtok(self) -> float | None:
        """Return dollars per million tokens answered."""
        return _per_mtok(self.output_micro_usd, self.tokens.output)

    @property
    def cached_usd_per_mtok(self) -> float | None:
        """Return dollars per million prompt tokens that the prefix cache held."""
        return _per_mtok(self.cached_micro_usd, self.tokens.cached)


def _per_mtok(micro_usd: int, tokens: float) -> float | None:
    return TOKENS_PER_MTOK * usd(micro_usd) / tokens if tokens > 0 else None


def token_use(workload: Workload) -> TokenUse | None:
    """Return what a service's tokens were and how they share its cost; None where none were ever read."""
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
        # steps compute only what was not cached: a hit costs what it saves nothing of, which nobody counts apart
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


def token_charge(name: str, micro_usd: int, use: TokenUse) -> TokenCharge:
    """Divide a service's bill over its tokens; the parts sum to it exactly. A service without a token leaves it unread."""
    read_frac = use.read_frac if use.weights.total > 0 else 0.0
    read = [weight * read_frac for weight in (use.weights.input, use.weights.output, use.weights.cached)]
    unread = use.weights.total * (1 - read_frac) if use.weights.total > 0 else 1.0
    parts = apportion(micro_usd, [*read, unread])
    return TokenCharge(
        name=name,
        services=(name,),
        input_micro_usd=parts[0],
        output_micro_usd=parts[1],
        cached_micro_usd=parts[2],
        unread_micro_usd=parts[3],
        tokens=use.tokens,
        cached_known=use.cached_known,
        rules=(use.rule,),
        because=use.because,
    )


def token_charges(fleet: Fleet, micro_usd: Mapping[str, int]) -> tuple[TokenCharge, ...]:
    """Return the bill of every service whose tokens were read over its tokens, largest first.

    `micro_usd` is each workload's bill, by its name.
    """
    rows = [
        token_charge(workload.name, micro_usd[workload.name], use)
        for workload in fleet.workloads
        if workload.name in micro_usd and (use := token_use(workload)) is not None
    ]
    return tuple(sorted(rows, key=lambda row: (-row.micro_usd, row.name)))


def summed(rows: Iterable[TokenCharge], key: Callable[[str], str]) -> tuple[TokenCharge, ...]:
    """Add services up by what `key` says of their names (a team, a model), largest first."""
    members: dict[str, list[TokenCharge]] = {}
    for row in rows:
        members.setdefault(key(row.name), []).append(row)
    found = [_sum(name, of_name) for name, of_name in members.items()]
    return tuple(sorted(found, key=lambda row: (-row.micro_usd, row.name)))


def _sum(name: str, rows: list[TokenCharge]) -> TokenCharge:
    return TokenCharge(
        name=name,
        services=tuple(service for row in rows for service in row.services),
        input_micro_usd=sum(row.input_micro_usd for row in rows),
        output_micro_usd=sum(row.output_micro_usd for row in rows),
        cached_micro_usd=sum(row.cached_micro_usd for row in rows),
        unread_micro_usd=sum(row.unread_micro_usd for row in rows),
        tokens=TokenAmounts(
            input=sum(row.tokens.input for row in rows),
            output=sum(row.tokens.output for row in rows),
            cached=sum(row.tokens.cached for row in rows),
        ),
        cached_known=all(row.cached_known for row in rows),
        rules=tuple(dict.fromkeys(rule for row in rows for rule in row.rules)),
        because="; ".join(dict.fromkeys(row.because for row in rows)),
    )
