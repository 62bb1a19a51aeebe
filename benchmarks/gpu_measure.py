"""Measure on the GPU of this machine what trimtab claims about GPUs: `python -m benchmarks.gpu_measure --out FILE`.

Needs PyTorch, transformers and peft, and of trimtab only the runtime (`PYTHONPATH=packages/runtime/src`). Every workload runs
alone under `trimtab_runtime.profile`; what it did is counted by the program itself (products, bytes, tokens, kernel time
between CUDA events), so that the readings and the predictions meet a truth that is not theirs. Weights and data are random.
`python -m benchmarks.real_gpu` holds the records in `reference/data/` against the predictions.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import torch

from benchmarks.gpu_engine import engines
from benchmarks.gpu_models import (
    CUDA,
    GIB,
    INTERVAL_S,
    Record,
    Work,
    decode,
    encoder,
    free,
    grouped,
    language_model,
    means,
    now,
    prefill,
    resnet,
    trainer,
    wait,
)
from benchmarks.gpu_runtimes import batching, checkpoints, pairs, pairs_under_mps
from trimtab_runtime.profile import Profile

RUN_S = 3.0
MS_PER_S = 1000


def observed(work: Work, seconds: float = RUN_S, *, warm: int = 2) -> Record:
    """Run pieces of work one after another for some time under the profiler; return rates, memory and readings."""
    for _ in range(warm):
        work()
    wait()
    done, pieces, cpu = 0.0, 0, time.process_time()
    profile = Profile(interval_s=INTERVAL_S).start()
    began = now()
    while now() - began < seconds:
        done += work()
        pieces += 1
    wait()
    wall = now() - began
    profile.stop()
    record = {"wall_s": wall, "pieces": pieces, "done": done, "done_s": done / wall, "cpu_s": time.process_time() - cpu}
    if CUDA == "cuda":
        record["allocated_gib"] = torch.cuda.max_memory_allocated() / GIB
        record["reserved_gib"] = torch.cuda.max_memory_reserved() / GIB
        left_bytes, total_bytes = torch.cuda.mem_get_info()
        record["device_used_gib"] = (total_bytes - left_bytes) / GIB
    return record | means(profile.document())


def timed_kernels(kernels: Callable[[], None], busy: list[float]) -> None:
    """Run kernels between two events and note the time between them."""
    first, last = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    first.record()
    kernels()
    last.record()
    last.synchronize()
    busy.append(first.elapsed_time(last) / MS_PER_S)


def kernel_works() -> Iterator[tuple[str, Callable[[], tuple[Work, Callable[[Record], Record]]]]]:
    """Yield works whose demand on the GPU is known from what they do."""
    size = 8192
    flop = 2 * size**3

    def matmul(sleep_s: float = 0.0, times: int = 20, spin: bool = False) -> tuple[Work, Callable[[Record], Record]]:
        a, b, c = (torch.randn(size, size, device=CUDA, dtype=torch.bfloat16) for _ in range(3))
        busy: list[float] = []

        def products() -> None:
            for _ in range(times):
                torch.mm(a, b, out=c)

        def work() -> float:
            timed_kernels(products, busy)
            if spin:
                until = now() + sleep_s
                while now() < until:
                    math.sqrt(2.0)
            elif sleep_s:
                time.sleep(sleep_s)
            return times * flop

        return work, lambda record: {
            "busy_frac": sum(busy[-record["pieces"] :]) / record["wall_s"],
            "flop_s": record["done_s"],
        }

    def copy() -> tuple[Work, Callable[[Record], Record]]:
        source = torch.randn(2 * GIB // 4, device=CUDA)
        target = torch.empty_like(source)

        def work() -> float:
            for _ in range(20):
                target.copy_(source)
            wait()
            return float(20 * 2 * source.numel() * 4)

        return work, lambda record: {"busy_frac": 1.0, "dram_bytes_s": record["done_s"]}

    def upload() -> tuple[Work, Callable[[Record], Record]]:
        source = torch.empty(GIB // 2, dtype=torch.uint8, pin_memory=True)
        target = torch.empty(GIB // 2, dtype=torch.uint8, device=CUDA)

        def work() -> float:
            for _ in range(4):
                target.copy_(source, non_blocking=True)
            wait()
            return float(4 * source.numel())

        return work, lambda record: {"pcie_rx_bytes_s": record["done_s"]}

    def one_block() -> tuple[Work, Callable[[Record], Record]]:
        import triton
        import triton.language as tl

        @triton.jit
        def spin(out, turns):  # type: ignore[no-untyped-def]
            value = tl.arange(0, 128).to(tl.float32)
            for _ in range(turns):
                value = value * 1.0001 + 0.5
            tl.store(out + tl.arange(0, 128), value)

        out = torch.empty(128, device=CUDA)

        def work() -> float:
            spin[(1,)](out, 20_000_000)
            wait()
            return 1.0

        return work, lambda record: {"busy_frac": 1.0, "sms": 1}

    def launches() -> tuple[Work, Callable[[Record], Record]]:
        one = torch.ones(64, device=CUDA)

        def work() -> float:
            for _ in range(5000):
                one.add_(1.0)
            wait()
            return 5000.0

        return work, lambda _record: {}

    def idle() -> tuple[Work, Callable[[Record], Record]]:
        held = torch.empty(GIB, dtype=torch.uint8, device=CUDA)

        def work() -> float:
            time.sleep(0.05)
            return float(held.numel() > 0)

        return work, lambda _record: {"busy_frac": 0.0}

    yield "idle, 1 GiB held", idle
    yield "matrix product", matmul
    yield "matrix product, 30 ms of 100", lambda: matmul(0.07)
    yield "matrix product, host busy 45 ms of 50", lambda: matmul(0.045, 3, spin=True)
    yield "copy in device memory", copy
    yield "upload over PCIe", upload
    yield "one block on one multiprocessor", one_block
    yield "tiny kernels", launches


def kernels() -> Iterator[tuple[str, Record]]:
    """Measure works of known demand."""
    for name, make in kernel_works():
        free()
        work, truth = make()
        record = observed(work, 3.0)
        yield name, record | {"truth": truth(record)}
        del work, truth


TRAININGS: dict[str, Record] = {
    "llama-3.2-1b": {"micro_batch": 4, "sequence": 2048, "recompute": False, "master": True},
    "llama-3.2-1b, recomputed": {"micro_batch": 8, "sequence": 2048, "recompute": True, "master": True},
    "qwen2.5-0.5b, 16 bits": {"micro_batch": 2, "sequence": 4096, "recompute": True, "master": False},
    "llama-3.1-8b, LoRA": {"micro_batch": 2, "sequence": 2048, "recompute": True, "master": False, "lora_rank": 16},
    "llama-3.1-8b, LoRA, adapters of 16 bits": {
        "micro_batch": 2, "sequence": 2048, "recompute": True, "master": False, "lora_rank": 16, "adapter_bits": 16,
    },
    "llama-3.1-8b, LoRA, not recomputed": {
        "micro_batch": 1, "sequence": 2048, "recompute": False, "master": False, "lora_rank": 16,
    },
}  # fmt: skip


def trainings() -> Iterator[tuple[str, Record]]:
    """Measure training steps."""
    for label, way in TRAININGS.items():
        free()
        work = trainer(label.split(",")[0], way)
        record = observed(work, 4.0, warm=3)
        del work
        yield label, record | {"way": dict(way)}


def servings() -> Iterator[tuple[str, Record]]:
    """Measure prefill and decode of a model."""
    model = language_model("llama-3.1-8b", torch.bfloat16).eval()
    for requests, tokens in ((1, 2048), (4, 2048), (1, 8192)):
        free()
        yield (
            f"prefill {requests} x {tokens}",
            observed(prefill(model, requests, tokens)) | {"way": {"requests": requests, "tokens": tokens}},
        )
    for requests in (1, 16, 64):
        free()
        yield (
            f"decode {requests} at 1024",
            observed(decode(model, requests, 1024)) | {"way": {"requests": requests, "tokens": 1024}},
        )
    grouped(model)
    for requests, tokens in ((1, 1024), (16, 1024), (64, 1024), (16, 4096)):
        free()
        yield (
            f"decode {requests} at {tokens}, grouped",
            observed(decode(model, requests, tokens)) | {"way": {"requests": requests, "tokens": tokens}},
        )


def others() -> Iterator[tuple[str, Record]]:
    """Measure networks that generate no text."""
    networks: tuple[tuple[str, Callable[[], Work]], ...] = (
        ("resnet-50 training, batch 256", lambda: resnet(256, train=True)),
        ("resnet-50 inference, batch 1", lambda: resnet(1, train=False)),
        ("resnet-50 inference, batch 128", lambda: resnet(128, train=False)),
        ("bert-large inference, 1 x 128", lambda: encoder(1, 128)[1]),
        ("bert-large inference, 32 x 384", lambda: encoder(32, 384)[1]),
    )
    for name, make in networks:
        free()
        work = make()
        record = observed(work, 3.0, warm=4)
        del work
        yield name, record


PARTS: dict[str, Callable[[], Iterator[tuple[str, Record]]]] = {
    "kernels": kernels,
    "trainings": trainings,
    "servings": servings,
    "others": others,
    "batching": batching,
    "checkpoints": checkpoints,
    "pairs": pairs,
    "pairs under MPS": pairs_under_mps,
    "engine": engines,
}


def main() -> None:
    """Run the parts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--parts", default=",".join(PARTS))
    options = parser.parse_args()
    began = now()
    records: Record = {"torch": torch.__version__, "date": time.strftime("%Y-%m-%d")}
    if torch.cuda.is_available():
        records["gpu"] = torch.cuda.get_device_name(0)
        records["total_gib"] = torch.cuda.get_device_properties(0).total_memory / GIB
    for part in options.parts.split(","):
        found: Record = {}
        records[part] = found
        try:
            for name, record in PARTS[part]():
                found[name] = record
                # at once: whoever ends this program keeps what it has measured so far
                options.out.write_text(json.dumps(records), encoding="utf-8")
                print(f"{now() - began:6.1f} s {part}/{name}: {_short(record)}", flush=True)
        # CUDA's errors are RuntimeErrors; a part that fails must not cost the others their time on the machine
        except (RuntimeError, ImportError, OSError):
            found["failed"] = traceback.format_exc()
            options.out.write_text(json.dumps(records), encoding="utf-8")
            print(found["failed"], file=sys.stderr, flush=True)


def _short(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_short(one)}" for key, one in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_short(one) for one in value) + "]"
    return str(value)


if __name__ == "__main__":
    main()
