"""What `benchmarks.gpu_measure` measures of the two runtimes on a GPU, and of two programs that share one."""

from __future__ import annotations

import multiprocessing
import os
import random
import shutil
import statistics
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import torch

from benchmarks.batcher_callers import Tasks, Threads
from benchmarks.gpu_models import (
    CUDA,
    GIB,
    INTERVAL_S,
    Record,
    Work,
    decode,
    encoder,
    free,
    language_model,
    means,
    now,
    trainer,
    wait,
)
from trimtab_runtime import BatchReport, Checkpointer, CheckpointSettings, batch
from trimtab_runtime.profile import Profile


@cache
def encoder_here() -> Any:
    """Return the model of this process."""
    return encoder(1, 128)[0]


def embed(items: list[torch.Tensor]) -> list[float]:
    """Return one number for each sequence of tokens."""
    longest = max(len(item) for item in items)
    padded = torch.zeros(len(items), longest, dtype=torch.long)
    mask = torch.zeros_like(padded)
    for row, item in enumerate(items):
        padded[row, : len(item)] = item
        mask[row, : len(item)] = 1
    with torch.inference_mode():
        out = encoder_here()(input_ids=padded.to(CUDA), attention_mask=mask.to(CUDA)).last_hidden_state[:, 0]
        return list(out.float().sum(dim=1).cpu().tolist())


REPORTS: list[BatchReport] = []


@batch(max_batch=64, worker="process", on_batch=REPORTS.append)
def embed_elsewhere(items: list[torch.Tensor]) -> list[float]:
    """Do the same in a process of its own."""
    return embed(items)


def batching() -> Iterator[tuple[str, Record]]:
    """Serve BERT-large to closed-loop and Poisson clients, without a batcher, greedily and as the batcher decides."""
    free()
    rng = random.Random(1)
    inputs = [torch.randint(0, 1000, (rng.choice((32, 64, 128)),)) for _ in range(512)]

    seconds = {size: _median_s(lambda size=size: embed(inputs[:size])) for size in (1, 2, 4, 8, 16, 32, 64)}  # type: ignore[misc]
    yield "batch times", {"seconds": seconds}
    lock = threading.Lock()

    def alone(item: torch.Tensor) -> float:
        with lock:
            return embed([item])[0]

    limit = 64 / seconds[64]
    yield "no batcher, threads", {"closed_req_s": Threads(alone).closed_req_s(inputs, clients=64, seconds=2.0)}
    batched: Any
    for name, learn, in_threads in (
        ("greedy, threads", False, True),
        ("batcher, threads", True, True),
        ("batcher, asyncio", True, False),
        ("batcher, worker process, asyncio", None, False),
    ):
        if learn is None:
            batched = embed_elsewhere
            batched.call(inputs[0])
        else:
            batched = batch(max_batch=64, learn=learn, on_batch=REPORTS.append)(embed)
        asking = Threads(batched.call) if in_threads else Tasks(batched)
        REPORTS.clear()
        record: Record = {"closed_req_s": asking.closed_req_s(inputs, clients=64, seconds=2.0), "limit_req_s": limit}
        record["closed_runs"] = _runs()
        record["poisson"] = {}
        for share in (0.1, 0.5, 0.8):
            REPORTS.clear()
            found = _summary(share * limit, asking.latencies_s(inputs, share * limit, 2.0))
            record["poisson"][f"{share:.0%}"] = found | {"runs": _runs()}
        yield name, record
        batched.close()
    expected = [embed([item])[0] for item in inputs[:64]]
    seen: list[int] = []

    def greedy_for_memory(items: list[torch.Tensor]) -> list[float]:
        # a quarter of the board for each item: more than three at a time cannot be allocated
        total = torch.cuda.get_device_properties(0).total_memory
        held = torch.empty(len(items) * total // 4, dtype=torch.uint8, device=CUDA)
        seen.append(len(items))
        answers = embed(items)
        del held
        return answers

    batched = batch(max_batch=64)(greedy_for_memory)
    with ThreadPoolExecutor(64) as pool:
        answers = list(pool.map(batched.call, inputs[:64]))
    batched.close()
    # half precision: a batch's rows differ from those alone in the last bits
    off = max(abs(one - two) for one, two in zip(answers, expected, strict=True))
    yield "out of memory", {"answered": len(answers), "largest_run": max(seen), "runs": len(seen), "most_off": off}


def _runs() -> Record:
    """Return how long the runs took that were reported, and how many items they had."""
    runs_s = sorted(one.run_s for one in REPORTS)
    if not runs_s:
        return {"runs": 0}
    return {
        "runs": len(runs_s),
        "run_p50_s": runs_s[len(runs_s) // 2],
        "run_p95_s": runs_s[int(len(runs_s) * 0.95)],
        "waited_p50_s": statistics.median(one.waited_s for one in REPORTS),
        "items": statistics.mean(one.items for one in REPORTS),
    }


def _median_s(run: Callable[[], object]) -> float:
    for _ in range(3):
        run()
    took = []
    for _ in range(8):
        began = now()
        run()
        took.append(now() - began)
    return statistics.median(took)


def _summary(rate_req_s: float, took_s: list[float]) -> Record:
    return {
        "rate_req_s": rate_req_s,
        "p50_s": took_s[len(took_s) // 2],
        "p95_s": took_s[int(len(took_s) * 0.95)],
        "requests": len(took_s),
    }


def checkpoints() -> Iterator[tuple[str, Record]]:
    """Save and restore a training state of about 6 GiB that lies on the GPU."""
    free()
    name = "qwen2.5-0.5b" if CUDA == "cuda" else "tiny"
    folder = Path(tempfile.mkdtemp(prefix="checkpoints-"))
    model = language_model(name, torch.float32, use_cache=False)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=CUDA == "cuda")
    tokens = torch.randint(0, 256, (4, 1024 if CUDA == "cuda" else 16), device=CUDA)

    def step() -> float:
        began = now()
        with torch.autocast(CUDA, torch.bfloat16):
            loss = model(input_ids=tokens, labels=tokens).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        wait()
        return now() - began

    usual = statistics.median([step() for _ in range(12)][2:])
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
    saves = []
    for turn in range(1):
        began = now()
        with (folder / f"peer-{turn}").open("wb") as file:
            torch.save(state, file)
            file.flush()
            os.fsync(file.fileno())
        saves.append(now() - began)
        (folder / f"peer-{turn}").unlink()
    size = sum(one.numel() * one.element_size() for one in model.parameters()) * 3
    parts = {"model": model, "optimizer": optimizer}
    rounds = []
    with Checkpointer(folder / "ours", parts, CheckpointSettings(keep=2)) as ours:
        ours.resume()
        number = 0
        for _ in range(3):
            began = now()
            pending = ours.save(number, wait=False)
            blocked = now() - began
            slowed = []
            while not pending.done:
                slowed.append(step())
                number += 1
            rounds.append({"blocked_s": blocked, "durable_s": now() - began, "steps_meanwhile_s": slowed})
            ours.settle()
            number += 1
        ours.save(number, wait=True)
        kept = [tensor.clone() for tensor in states_of(model, optimizer)]
    for _ in range(2):
        step()
    moved = not same_bits(states_of(model, optimizer), kept)
    began = now()
    with Checkpointer(folder / "ours", parts, CheckpointSettings(keep=2)) as again:
        resumed = again.resume()
        restored_s = now() - began
        same = same_bits(states_of(model, optimizer), kept)
    shutil.rmtree(folder)
    yield "checkpoints", {
        "state_gib": size / GIB, "step_s": usual, "torch_save_s": saves, "rounds": rounds, "restored_s": restored_s,
        "bit_equal": same, "had_moved": moved, "resumed_step": getattr(resumed, "step", None),
    }  # fmt: skip


def states_of(model: Any, optimizer: Any) -> list[torch.Tensor]:
    """Return the weights and the optimizer's tensors."""
    kept = [value for slots in optimizer.state.values() for value in slots.values() if torch.is_tensor(value)]
    return [tensor.detach() for tensor in (*model.parameters(), *kept)]


def same_bits(some: list[torch.Tensor], others: list[torch.Tensor]) -> bool:
    """Return whether all tensors are equal to the bit: numbers that are none, and signs of zeros, too."""
    return len(some) == len(others) and all(
        torch.equal(one.reshape(-1).view(torch.uint8), other.reshape(-1).view(torch.uint8))
        for one, other in zip(some, others, strict=True)
    )


def pair_works() -> dict[str, Callable[[], Work]]:
    """Return what shares a GPU in pairs."""

    def products(sleep_s: float) -> Work:
        size = 4096 if CUDA == "cuda" else 64
        a, b = (torch.randn(size, size, device=CUDA, dtype=torch.bfloat16) for _ in range(2))

        def work() -> float:
            for _ in range(20):
                torch.mm(a, b)
            wait()
            if sleep_s:
                time.sleep(sleep_s)
            return 20.0

        return work

    def steps() -> Work:
        model = language_model("llama-3.2-1b", torch.bfloat16).eval()
        return decode(model, 8, 512)

    def encodes(sleep_s: float) -> Work:
        _, one = encoder(8, 128)

        def work() -> float:
            done = one()
            time.sleep(sleep_s)
            return done

        return work

    way = {"micro_batch": 2, "sequence": 1024, "recompute": False, "master": False}
    return {
        "matrix products": lambda: products(0.0),
        "matrix products, some": lambda: products(0.01),
        "decode": steps,
        "encoder, little": lambda: encodes(0.1),
        "encoder, half": lambda: encodes(0.02),
        "training": lambda: trainer("qwen2.5-0.5b", way),
    }


def pair_worker(name: str, pipe: Any) -> None:
    """Hold one work and run it for as long as told, from a common moment on."""
    work = pair_works()[name]()
    for _ in range(3):
        work()
    pipe.send("ready")
    while (order := pipe.recv()) is not None:
        start, seconds = order
        done = 0.0
        while time.time() < start:
            work()
        while time.time() < start + seconds:
            done += work()
        # go on past the end, so that the other one is never alone inside its own window
        until = time.time() + 0.3
        while time.time() < until:
            work()
        pipe.send(done / seconds)


def pairs() -> Iterator[tuple[str, Record]]:
    """Measure programs alone, with the profiler, and then in pairs, in time slices."""
    context = multiprocessing.get_context("spawn")
    free()
    workers = {}
    for name in pair_works():
        here, there = context.Pipe()
        process = context.Process(target=pair_worker, args=(name, there), daemon=True)
        process.start()
        workers[name] = (process, here)
    for process, pipe in workers.values():
        if not pipe.poll(90):
            raise RuntimeError(f"{process.name} did not start")
        pipe.recv()
    seconds = 2.0
    alone = {}
    for name, (_, pipe) in workers.items():
        profile = Profile(interval_s=INTERVAL_S)
        start = time.time() + 0.7
        pipe.send((start, seconds))
        time.sleep(max(0.0, start - time.time()))
        with profile:
            time.sleep(seconds)
        alone[name] = pipe.recv()
        yield f"alone: {name}", {"done_s": alone[name]} | means(profile.document())
    names = list(workers)
    for place, one in enumerate(names):
        for other in names[place + 1 :]:
            start = time.time() + 0.7
            for name in (one, other):
                workers[name][1].send((start, seconds))
            speeds = [workers[name][1].recv() / alone[name] for name in (one, other)]
            yield f"pair: {one} | {other}", {"speeds": speeds}
    for process, pipe in workers.values():
        pipe.send(None)
        process.join(10)


@contextmanager
def mps_server() -> Iterator[None]:
    """Run the driver's Multi-Process Service for the processes that are started meanwhile."""
    folder = tempfile.mkdtemp(prefix="mps-")
    os.environ |= {"CUDA_MPS_PIPE_DIRECTORY": folder, "CUDA_MPS_LOG_DIRECTORY": folder}
    control = shutil.which("nvidia-cuda-mps-control") or "/usr/local/nvidia/bin/nvidia-cuda-mps-control"
    subprocess.run([control, "-d"], check=True, timeout=20)
    try:
        yield
    finally:
        subprocess.run([control], input="quit\n", text=True, check=False, timeout=30)
        for log in ("control.log", "server.log"):
            if (file := Path(folder, log)).exists():
                print(file.read_text(encoding="utf-8")[-1500:], flush=True)
        del os.environ["CUDA_MPS_PIPE_DIRECTORY"], os.environ["CUDA_MPS_LOG_DIRECTORY"]
        shutil.rmtree(folder)


def pairs_under_mps() -> Iterator[tuple[str, Record]]:
    """Measure the same programs where kernels of both run at once."""
    with mps_server():
        yield from pairs()
