"""The programs that `benchmarks.gpu_measure` runs on a GPU: models with random weights, a training step, prefill and decode.

All is plain PyTorch with Hugging Face's models, as most people run it. Needs PyTorch, transformers, peft and torchvision.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Mapping
from typing import Any

import torch

GIB = 2**30
INTERVAL_S = 0.1
CUDA = "cuda" if torch.cuda.is_available() else "cpu"
"""Without a GPU the parts can be rehearsed on tiny shapes; nothing they print then means anything."""

Work = Callable[[], float]
"""Does a bounded piece of work (some tens of milliseconds), waits for the GPU, and returns how much was done."""
Record = dict[str, Any]

LLAMAS: dict[str, dict[str, Any]] = {
    "qwen2.5-0.5b": {
        "hidden_size": 896, "intermediate_size": 4864, "num_hidden_layers": 24, "num_attention_heads": 14,
        "num_key_value_heads": 2, "vocab_size": 151936, "tie_word_embeddings": True,
    },
    "llama-3.2-1b": {
        "hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16, "num_attention_heads": 32,
        "num_key_value_heads": 8, "vocab_size": 128256, "tie_word_embeddings": True,
    },
    "llama-3.1-8b": {
        "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32,
        "num_key_value_heads": 8, "vocab_size": 128256, "tie_word_embeddings": False,
    },
    "tiny": {
        "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4,
        "num_key_value_heads": 2, "vocab_size": 256, "tie_word_embeddings": True,
    },
}  # fmt: skip
"""Shapes by the names of `trimtab.physics.models`; all are built as Llama, whose arithmetic is theirs."""


def now() -> float:
    """Return a monotonic time."""
    return time.perf_counter()


def wait() -> None:
    """Wait for the GPU."""
    if CUDA == "cuda":
        torch.cuda.synchronize()


def free() -> None:
    """Give all cached memory back and forget peaks."""
    gc.collect()
    if CUDA == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()


def means(document: Mapping[str, Any]) -> Record:
    """Return a profile's means by metric, with what was wrong."""
    if not document["devices"]:
        return {"problem": document["problem"]}
    device = document["devices"][0]
    found = {name: one["mean"] for name, one in device["metrics"].items() if one is not None}
    return {
        "means": found,
        "throttled_frac": device["throttled_frac"],
        "absent": device["absent"],
        "troubles": document["troubles"],
    }


def language_model(name: str, dtype: torch.dtype, **more: Any) -> Any:
    """Build a model of this shape with random weights on the GPU."""
    from transformers import AutoModelForCausalLM, LlamaConfig

    shape = LLAMAS[name if CUDA == "cuda" else "tiny"]
    config = LlamaConfig(**shape, max_position_embeddings=8192, **more)
    with torch.device(CUDA):
        return AutoModelForCausalLM.from_config(config, dtype=dtype, attn_implementation="sdpa")


def trainer(name: str, way: Mapping[str, Any]) -> Work:
    """Return the step of a plain PyTorch training loop; a piece of work is one step, counted in tokens."""
    master = way["master"]
    model = language_model(name, torch.float32 if master else torch.bfloat16, use_cache=False)
    model.train()
    if "lora_rank" in way:
        from peft import LoraConfig, get_peft_model

        targets = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
        config = LoraConfig(r=way["lora_rank"], target_modules=targets, task_type="CAUSAL_LM")
        model = get_peft_model(model, config, autocast_adapter_dtype=way.get("adapter_bits") != 16)
        model.enable_input_require_grads()
    if way["recompute"]:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    trained = [one for one in model.parameters() if one.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-5, fused=CUDA == "cuda")
    sequence = way["sequence"] if CUDA == "cuda" else 16
    tokens = torch.randint(0, 256, (way["micro_batch"], sequence), device=CUDA)

    def step() -> float:
        with torch.autocast(CUDA, torch.bfloat16, enabled=master):
            loss = model(input_ids=tokens, labels=tokens).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        wait()
        return float(tokens.numel())

    return step


def prefill(model: Any, requests: int, tokens: int) -> Work:
    """Return a prefill of some prompts at once; done counts prompts' tokens."""
    prompts = torch.randint(0, 256, (requests, tokens if CUDA == "cuda" else 16), device=CUDA)

    def work() -> float:
        with torch.inference_mode():
            model(input_ids=prompts, use_cache=True, logits_to_keep=1)
        wait()
        return float(prompts.numel())

    return work


def grouped(model: Any) -> None:
    """Let decode steps read each key and value once for all the heads that share it, as serving engines do."""
    from transformers import AttentionInterface

    def attend(
        module: Any, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, _mask: object, **_: object
    ) -> tuple[torch.Tensor, None]:
        out = torch.nn.functional.scaled_dot_product_attention(query, key, value, scale=module.scaling, enable_gqa=True)
        return out.transpose(1, 2).contiguous(), None

    AttentionInterface.register("grouped", attend)
    model.set_attn_implementation("grouped")


def fixed_cache(model: Any, requests: int, context: int) -> Any:
    """Return a full cache of random keys and values whose last place every step writes anew."""
    from transformers import DynamicCache
    from transformers.cache_utils import DynamicLayer

    shape = (requests, model.config.num_key_value_heads, context, model.config.head_dim)

    class Fixed(DynamicLayer):  # type: ignore[misc]  # transformers is not typed here
        def __init__(self) -> None:
            super().__init__()
            self.keys, self.values = (torch.randn(shape, device=CUDA, dtype=model.dtype) for _ in range(2))
            self.is_initialized = True

        def update(self, key_states: Any, value_states: Any, *_: object, **__: object) -> tuple[Any, Any]:
            self.keys[:, :, -1:] = key_states
            self.values[:, :, -1:] = value_states
            return self.keys, self.values

        def get_seq_length(self) -> int:
            return context - 1

    cache = DynamicCache(config=model.config)
    cache.layers = [Fixed() for _ in range(model.config.num_hidden_layers)]
    return cache


def decode(model: Any, requests: int, context: int) -> Work:
    """Return 16 decode steps at a fixed context, replayed as a CUDA graph; done counts tokens."""
    context = context if CUDA == "cuda" else 48
    cache = fixed_cache(model, requests, context)
    token = torch.randint(0, 256, (requests, 1), device=CUDA)
    place = torch.full((requests, 1), context - 1, device=CUDA)

    def step() -> None:
        with torch.inference_mode():
            model(input_ids=token, past_key_values=cache, use_cache=True, position_ids=place)

    graph = None
    if CUDA == "cuda":
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                step()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            step()

    def work() -> float:
        for _ in range(16):
            if graph is None:
                step()
            else:
                graph.replay()
        wait()
        return 16.0 * requests

    return work


def encoder(batch_size: int, tokens: int) -> tuple[Any, Work]:
    """Return BERT-large and one forward pass of it; done counts sequences."""
    from transformers import BertConfig, BertModel

    width, layers = (1024, 24) if CUDA == "cuda" else (64, 2)
    config = BertConfig(
        hidden_size=width, num_hidden_layers=layers, num_attention_heads=16, intermediate_size=4 * width
    )
    model = BertModel(config).to(CUDA, torch.float16 if CUDA == "cuda" else torch.float32).eval()
    ids = torch.randint(0, 1000, (batch_size, tokens), device=CUDA)

    def work() -> float:
        with torch.inference_mode():
            for _ in range(4):
                model(input_ids=ids)
        wait()
        return 4.0 * batch_size

    return model, work


def resnet(batch_size: int, *, train: bool) -> Work:
    """Return one step or pass of ResNet-50 in mixed precision, channels last; done counts images."""
    from torchvision.models import resnet50

    model = resnet50().to(CUDA, memory_format=torch.channels_last).train(train)
    images = torch.randn(batch_size, 3, 224, 224, device=CUDA).to(memory_format=torch.channels_last)
    labels = torch.randint(0, 1000, (batch_size,), device=CUDA)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    loss_of = torch.nn.CrossEntropyLoss()

    def work() -> float:
        with torch.autocast(CUDA, torch.bfloat16), torch.inference_mode(not train):
            out = model(images)
            loss = loss_of(out, labels)
        if train:
            loss.backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        wait()
        return float(batch_size)

    return work
