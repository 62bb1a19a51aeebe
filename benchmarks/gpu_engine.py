"""What `benchmarks.gpu_measure` measures of a serving engine on a GPU: the continuous batching of transformers (Hugging Face).

Its scheduler and cache are another project's (`transformers/generation/continuous_batching`, 5.17): first come first served,
running requests before waiting ones, prompts in chunks of what is left of a step's budget. The times of steps are measured
on requests that are alone or all alike. Loads of mixed lengths and arrivals follow, for `benchmarks.real_gpu` to predict.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch

from benchmarks.gpu_models import CUDA, Record, free, language_model, now

STEP_TOKENS = 1024 if CUDA == "cuda" else 64
CACHE_BLOCK_TOKENS = 256
CACHE_TOKENS = 200_000 if CUDA == "cuda" else 8192
RUN_S = 14.0 if CUDA == "cuda" else 2.0
CLIENTS = 48 if CUDA == "cuda" else 4
LONGEST_INPUT = 3000 if CUDA == "cuda" else 100
LONGEST_OUTPUT = 250 if CUDA == "cuda" else 12


class Asked(NamedTuple):
    """One request: when it is sent, how long its prompt and its answer are."""

    arrival_s: float
    input_tokens: int
    output_tokens: int


def packed_attention(
    module: Any, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, _mask: object, **more: Any
) -> tuple[torch.Tensor, None]:
    """Attend over packed requests by PyTorch's own FlashAttention; the signature is transformers'."""
    key, value = more["cache"].update(
        key_states=key,
        value_states=value,
        layer_idx=module.layer_idx,
        read_index=more["read_index"],
        write_index=more["write_index"],
    )
    ends_k, longest_k = more["cu_seq_lens_k"], more["max_seqlen_k"]
    if isinstance(ends_k, dict):
        ends_k, longest_k = ends_k["full_attention"], longest_k["full_attention"]
    out = torch.ops.aten._flash_attention_forward(
        query.transpose(1, 2).squeeze(0).contiguous(),
        key.contiguous(),
        value.contiguous(),
        more["cu_seq_lens_q"].to(torch.int32),
        ends_k.to(torch.int32).clone(),
        int(more["max_seqlen_q"]),
        int(longest_k),
        0.0,
        True,
        False,
        scale=module.scaling,
    )[0]
    return out.unsqueeze(0), None


@contextmanager
def engine(model: Any, *, max_requests: int = 256) -> Iterator[Any]:
    """Run the engine without CUDA graphs, without a prefix cache, one step after another."""
    from transformers import GenerationConfig
    from transformers.generation.configuration_utils import ContinuousBatchingConfig

    config = ContinuousBatchingConfig(
        block_size=CACHE_BLOCK_TOKENS,
        num_blocks=CACHE_TOKENS // CACHE_BLOCK_TOKENS,
        max_batch_tokens=STEP_TOKENS,
        max_requests_per_batch=max_requests,
        allow_block_sharing=False,
        use_async_batching=False,
        use_cuda_graph=False,
    )
    generation = GenerationConfig(do_sample=False, eos_token_id=-1, max_new_tokens=LONGEST_OUTPUT)
    with model.continuous_batching_context_manager(
        generation_config=generation, continuous_batching_config=config, timeout=20
    ) as manager:
        deadline = now() + 60
        while getattr(manager, "batch_processor", None) is None and now() < deadline:
            time.sleep(0.01)
        yield manager


def asked_of(manager: Any, requests: Sequence[Asked], *, clients: int = 0, seconds: float = 0.0) -> Record:
    """Send requests when they are due, or by clients that send the next when one is answered; return what became of them."""
    rng = random.Random(5)
    results: dict[str, Any] = {}
    by_name = {f"r{place}": one for place, one in enumerate(requests)}
    waiting = iter(by_name.items())
    began = now()

    def send(name: str, one: Asked) -> None:
        prompt = [rng.randrange(256) for _ in range(one.input_tokens)]
        manager.add_request(prompt, request_id=name, max_new_tokens=one.output_tokens, record_timestamps=True)

    sent = 0
    if clients:
        for name, one in (next(waiting) for _ in range(clients)):
            send(name, one)
            sent += 1
    else:
        sent = len(requests)

        def sender() -> None:
            for name, one in waiting:
                time.sleep(max(0.0, began + one.arrival_s - now()))
                send(name, one)

        threading.Thread(target=sender, daemon=True).start()
    idle_since = now()
    while len(results) < sent and now() - idle_since < 30:
        output = manager.get_result(timeout=0.5)
        if output is None:
            continue
        idle_since = now()
        results[output.request_id] = output
        if clients and now() - began < seconds:
            send(*next(waiting))
            sent += 1
    answered = sorted(results.items(), key=lambda pair: pair[1].created_time)
    return {
        "requests": [
            [
                round(output.created_time - began, 5),
                by_name[name].input_tokens,
                len(output.generated_tokens),
                round(output.timestamps[0] - began, 5),
                round(output.timestamps[-1] - began, 5),
            ]
            for name, output in answered
            if output.timestamps
        ],
        "sent": sent,
        "wall_s": now() - began,
        "errors": sorted({output.error for output in results.values() if output.error}),
    }


def drawn(rate_req_s: float, *, seconds: float, seed: int, burst: float = 1.0) -> list[Asked]:
    """Draw requests of lengths that are lognormal, as in recorded chats; gaps are exponential, or burstier by a gamma law."""
    rng = random.Random(seed)
    at, found = 0.0, []
    while at < seconds:
        at += rng.gammavariate(1 / burst, burst / rate_req_s)
        scale = 1.0 if CUDA == "cuda" else 0.05
        prompt = min(LONGEST_INPUT, max(4, round(scale * rng.lognormvariate(6.0, 0.9))))
        answer = min(LONGEST_OUTPUT, max(2, round(scale * rng.lognormvariate(4.6, 0.7))))
        found.append(Asked(at, prompt, answer))
    return found


def engines() -> Iterator[tuple[str, Record]]:
    """Measure steps, then a closed loop, then arrivals at shares of its rate."""
    from transformers import AttentionInterface

    free()
    AttentionInterface.register("paged|packed", packed_attention)
    model = language_model("llama-3.1-8b", torch.bfloat16).eval()
    model.set_attn_implementation("paged|packed" if CUDA == "cuda" else "paged|sdpa")
    limits = {"step_tokens": STEP_TOKENS, "cache_tokens": CACHE_TOKENS, "block_tokens": CACHE_BLOCK_TOKENS}
    short = CUDA != "cuda"
    with engine(model) as manager:
        asked_of(manager, [Asked(0.0, 32, 4)] * 8)
        for prompt in (16, 48) if short else (64, 256, 512, 1000, 2000, 3000):
            gap = 0.05 if short else 0.3
            yield f"alone {prompt}", asked_of(manager, [Asked(place * gap, prompt, 6) for place in range(4)])
        for number in (1, 4) if short else (1, 8, 32, 96):
            for prompt in (16,) if short else (128, 1500):
                yield f"alike {number} x {prompt}", asked_of(manager, [Asked(0.0, prompt, 40)] * number)
        many = drawn(1000.0, seconds=RUN_S, seed=11)
        closed = asked_of(manager, many, clients=CLIENTS, seconds=RUN_S)
        yield "closed loop", closed | {"clients": CLIENTS, "limits": limits | {"max_requests": 256}}
        settled = [row for row in closed["requests"] if row[4] <= RUN_S]
        rate = len(settled) / RUN_S
        for share, burst in ((0.6, 1.0), (0.85, 1.0), (0.6, 4.0), (0.3, 1.0)):
            requests = drawn(share * rate, seconds=RUN_S, seed=round(100 * share + burst), burst=burst)
            name = f"arrivals at {share:.0%}" + (f", {burst:.0f} x as bursty" if burst > 1 else "")
            yield name, asked_of(manager, requests) | {"limits": limits | {"max_requests": 256}}
    with engine(model, max_requests=12) as manager:
        asked_of(manager, [Asked(0.0, 32, 4)] * 8)
        requests = drawn(0.45 * rate, seconds=RUN_S, seed=77)
        yield "arrivals at 45%, 12 places", asked_of(manager, requests) | {"limits": limits | {"max_requests": 12}}
