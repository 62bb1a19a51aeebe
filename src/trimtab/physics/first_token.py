"""What a first token takes besides the steps of the engine that a replay adds up: three constants an engine, fitted.

`data/first_token.json` holds them by engine and kind of model, with the held-out errors that make the interval. They are fitted
by `benchmarks.ttft` on public closed-loop runs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from trimtab.catalog import Gpu
from trimtab.physics.calibration import read_fit
from trimtab.physics.serving_query import chip_of
from trimtab.physics.terms import Keys
from trimtab.provenance import Basis, Estimate

STEP_TOKENS, SMALL_STEP_TOKENS = 8192, 2048
"""Tokens of a step on large and on smaller boards: vLLM's defaults for a server (`max_num_batched_tokens`)."""
LARGE_BOARD_GIB = 70
"""From here on vLLM takes the larger default, but for the A100 (`vllm/engine/arg_utils.py`, `get_batch_defaults`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstTokenCosts:
    """A first token takes `wait_scale` of what the replay says, and `fixed_s` and `delay_steps` steps of decoding more."""

    wait_scale: float
    fixed_s: float
    delay_steps: float


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstTokenFit:
    """The constants by engine and kind of model (`vllm|moe`), and the quantiles of ln(predicted / measured) when held out."""

    costs: Mapping[str, FirstTokenCosts]
    low: float
    high: float
    source: str

    def of(self, keys: Keys) -> FirstTokenCosts:
        """Return the constants of a query's `serving_keys`: of the engine with this kind of model, else of the nearest."""
        engine = keys["engine"]
        for name in (level_of(keys), f"{engine}|", "vllm|"):
            if name in self.costs:
                return self.costs[name]
        raise KeyError(f"first_token.json holds no constants of {engine} or vllm")

    def estimate(self, first_s: float) -> Estimate:
        """Return a replayed time to first token with its 80 % interval."""
        low, high = first_s * math.exp(-max(self.high, 0.0)), first_s * math.exp(-min(self.low, 0.0))
        return Estimate(value=first_s, low=low, high=high, basis=Basis.MODELLED, because=self.source)


def default_step_tokens(gpu: Gpu) -> int:
    """Return the tokens of a step that an engine takes by itself on a board."""
    is_large = gpu.memory_gib >= LARGE_BOARD_GIB and chip_of(gpu) != "A100"
    return STEP_TOKENS if is_large else SMALL_STEP_TOKENS


def level_of(keys: Keys) -> str:
    """Return the level by which constants differ: engine and kind of model."""
    return f"{keys['engine']}|{keys['kind']}"


@lru_cache(maxsize=1)
def first_token_fit() -> FirstTokenFit:
    """Return the packaged constants."""
    content = read_fit("first_token.json")
    costs, low, high = content["costs"], content["low"], content["high"]
    if not isinstance(costs, dict) or not isinstance(low, float) or not isinstance(high, float):
        raise TypeError("first_token.json must hold costs, low and high")
    return FirstTokenFit(
        costs={str(name): FirstTokenCosts(**values) for name, values in costs.items()},
        low=low,
        high=high,
        source=str(content["source"]),
    )
