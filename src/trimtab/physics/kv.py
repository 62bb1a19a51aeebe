"""The key-value cache: bytes per token, windows, and how many requests a budget holds."""

from __future__ import annotations

import math

from trimtab.physics.models import Architecture


def kv_bytes(model: Architecture, context: float, value_bytes: float = 2) -> float:
    """Return the bytes of the cache of one request at a context length; windowed layers keep at most their window.

    A token adds 2 L n_kv d_head values in MHA and GQA, and one latent per layer, L (d_c + d_rope), in latent attention, so
    that DeepSeek-V3 in bf16 needs 61 x 576 x 2 = 70 kB (arXiv 2405.04434).
    """
    full = (model.kv_layers - model.windowed_layers) * context
    # a window of 0 means none: then the whole context stays
    windowed = model.windowed_layers * min(context, model.window or context)
    return (full + windowed) * model.kv_values_per_token * value_bytes


def kv_copies(model: Architecture, tensor_parallel: int) -> float:
    """Return what tensor parallelism multiplies the cache of all GPUs by.

    Heads are split over GPUs; with more GPUs than key-value heads they are repeated, and a latent cache is repeated on each.
    """
    if model.kv_lora_rank:
        return float(tensor_parallel)
    return max(1.0, tensor_parallel / model.kv_heads)


def requests_that_fit(budget_bytes: float, request_bytes: float) -> int:
    """Return how many requests of a size a budget holds; 0 when not even one."""
    if request_bytes <= 0:
        raise ValueError("a request's cache must be positive")
    return max(0, math.floor(budget_bytes / request_bytes))


def waves(requests: int, resident: int) -> int:
    """Return in how many waves requests run when `resident` fit at once; raises ValueError when none does."""
    if resident < 1:
        raise ValueError("not even one request fits")
    return math.ceil(requests / resident)
