"""Fitted constants: read from the package's data files, each with its count of rows, error and source."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryFit:
    """What memory papers leave out, fitted on measured peaks (see `data/memory.json` for n, error and source)."""

    keep_none: float
    """Kept activations without recomputation, over the paper's."""
    keep_selective: float
    """The same under selective recomputation."""
    working_layers: float
    """Working set under full recomputation, in layers without recomputation."""
    sharded_upcast: float
    """Growth of activations under FSDP with full recomputation."""
    quantized_upcast: float
    """Growth of activations over a quantized base without fused kernels."""
    dequantized_bytes: float
    """Bytes per base parameter that quantized training holds besides the weights."""
    logits_eager: float
    """Bytes per logit alive at once with an unfused loss."""
    logits_fused: float
    """The same with a fused linear cross-entropy."""
    slack_frac: float
    """Reserved over allocated memory, less one."""
    low: float
    """10 % quantile of ln(predicted / measured) on models that were held back."""
    high: float
    """90 % quantile of the same."""


def read_fit(name: str) -> dict[str, object]:
    """Return a fitted file of the package by name."""
    text = files("trimtab.physics").joinpath(f"data/{name}").read_text(encoding="utf-8")
    content: dict[str, object] = json.loads(text)
    return content


@lru_cache(maxsize=1)
def memory_fit() -> MemoryFit:
    """Return the packaged constants of the memory model."""
    # the file states rows, error and source beside the constants; only these are needed to predict
    constants = read_fit("memory.json")["constants"]
    if not isinstance(constants, dict):
        raise TypeError("memory.json holds no table of constants")
    return MemoryFit(**{name: float(value) for name, value in constants.items()})
