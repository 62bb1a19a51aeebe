"""Train a small model on several CPU ranks, break off, resume, perhaps on another number of ranks, and compare.

    python -m benchmarks.distributed_resume FOLDER --wrap ddp|fsdp --ranks 2 --steps 8 --stop-after 3 [--resume-ranks 1]

Ranks are forked after torch has been imported, which takes most of the time of a start. Prints one JSON object: the
losses of rank 0 by step for an unbroken run and for the broken one, and whether the weights at the moment of resuming
equal those at the moment of saving.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import cast

import torch
import torch.distributed as dist
import torch.distributed.checkpoint.state_dict
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from trimtab_runtime import Checkpointer, CheckpointSettings, NoticeBoard, ResumableLoader

SETTINGS = CheckpointSettings(every_s=0.0, keep=2, asynchronous=False, rank_timeout_s=60.0)
SEED = 5

Run = dict[str, object]
"""What one run of the job reports."""
BATCH = 8


class Samples:
    """96 noisy points on a plane."""

    def __len__(self) -> int:
        return 96

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        point = torch.tensor([index % 8 / 8.0, index // 8 / 12.0]) + 0.01 * torch.randn(2)
        return point, point.sum().reshape(1)


def wrapped(model: nn.Module, wrap: str) -> nn.Module:
    """Return the model as DDP or FSDP 2 would have it."""
    if wrap == "ddp":
        ddp: nn.Module = nn.parallel.DistributedDataParallel(model)
        return ddp
    fully_shard(model, mesh=init_device_mesh("cpu", (dist.get_world_size(),)))
    return model


def weights_digest(model: nn.Module) -> str:
    """Return a digest of the whole weights, put together from all ranks."""
    digest = hashlib.sha256()
    for tensor in model.state_dict().values():
        whole = tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor
        digest.update(whole.detach().contiguous().numpy().tobytes())
    return digest.hexdigest()


def train(folder: Path, wrap: str, steps: int, stop_after: int) -> dict[str, object]:
    """Train on this rank from wherever the folder's checkpoint left off; break off after a step if told to."""
    torch.manual_seed(SEED + dist.get_rank())
    model = wrapped(nn.Sequential(nn.Linear(2, 33), nn.Dropout(0.1), nn.ReLU(), nn.Linear(33, 1)), wrap)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 3, gamma=0.7)
    loader = ResumableLoader(Samples(), BATCH, seed=SEED, rank=dist.get_rank(), world_size=dist.get_world_size())
    parts = {"model": model, "optimizer": optimizer, "scheduler": scheduler, "loader": loader}
    losses: dict[int, float] = {}
    with Checkpointer(folder, parts, SETTINGS, board=NoticeBoard()) as checkpointer:
        resumed = checkpointer.resume()
        first = weights_digest(model)
        batches = iter(loader)
        for step in range(checkpointer.next_step, steps):
            batch = next(batches, None)
            if batch is None:
                batches = iter(loader)
                batch = next(batches)
            points, targets = cast("tuple[torch.Tensor, torch.Tensor]", batch)
            loss = nn.functional.mse_loss(model(points), targets)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            scheduler.step()
            losses[step] = loss.item()
            checkpointer.step_done(step)
            if step == stop_after:
                break
    return {
        "losses": losses,
        "resumed_step": None if resumed is None else resumed.step,
        "notes": [] if resumed is None else list(resumed.notes),
        "first_digest": first,
        "last_digest": weights_digest(model),
    }


def on_ranks(world_size: int, job: Callable[[], dict[str, object]]) -> dict[str, object]:
    """Run a job on forked ranks and return rank 0's result."""
    with tempfile.TemporaryDirectory() as scratch:
        children = [_forked(rank, world_size, Path(scratch), job) for rank in range(world_size)]
        failed = [rank for rank, child in enumerate(children) if os.waitpid(child, 0)[1] != 0]
        if failed:
            raise SystemExit(f"rank(s) {failed} failed")
        result: dict[str, object] = json.loads((Path(scratch) / "result.json").read_text())
        return result


def _forked(rank: int, world_size: int, scratch: Path, job: Callable[[], dict[str, object]]) -> int:
    child = os.fork()
    if child == 0:
        code = 1
        try:
            dist.init_process_group("gloo", init_method=f"file://{scratch}/meet", rank=rank, world_size=world_size)
            result = job()
            if rank == 0:
                (scratch / "result.json").write_text(json.dumps(result))
            dist.barrier()
            code = 0
        finally:
            os._exit(code)
    return child


def compare(
    folder: Path, wraps: list[str], ranks: int, steps: int, stop_after: int, resume_ranks: int
) -> dict[str, dict[str, object]]:
    """Return for each wrap how the broken run's losses and weights compare with the unbroken one's.

    Starting ranks takes longest, so they are started twice: before the break and after it.
    """
    first = on_ranks(
        ranks,
        lambda: {
            wrap: [
                train(folder / wrap / "unbroken", wrap, steps, -1),
                train(folder / wrap / "broken", wrap, steps, stop_after),
            ]
            for wrap in wraps
        },
    )
    second = on_ranks(resume_ranks, lambda: {wrap: train(folder / wrap / "broken", wrap, steps, -1) for wrap in wraps})
    return {wrap: _compared(cast("list[Run]", first[wrap]), cast("Run", second[wrap])) for wrap in wraps}


def _compared(first: list[Run], after: Run) -> dict[str, object]:
    unbroken, before = first
    broken = {**_losses(before), **_losses(after)}
    return {
        "resumed_step": after["resumed_step"],
        "notes": after["notes"],
        "weights_equal": before["last_digest"] == after["first_digest"],
        "losses_equal": broken == _losses(unbroken),
        "steps": len(broken),
    }


def _losses(result: Run) -> dict[str, float]:
    losses = result["losses"]
    return dict(losses) if isinstance(losses, dict) else {}


def main() -> None:
    """Run one comparison and print it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--wrap", choices=("ddp", "fsdp"), action="append", required=True)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--resume-ranks", type=int)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--stop-after", type=int, default=3)
    arguments = parser.parse_args()
    torch.set_num_threads(1)  # the ranks are forked: no thread may be alive
    warnings.simplefilter("ignore")
    for wrap in arguments.wrap:
        shutil.rmtree(arguments.folder / wrap, ignore_errors=True)
    resume_ranks = arguments.resume_ranks or arguments.ranks
    results = compare(
        arguments.folder, arguments.wrap, arguments.ranks, arguments.steps, arguments.stop_after, resume_ranks
    )
    print(json.dumps(results))


if __name__ == "__main__":
    main()
