"""Train a small model on CPU through interruptions of every kind, and end with the loss curve of an unbroken run, bit for bit.

    python examples/spot_training.py                       60 steps, a notice or a hard kill every 7 to 15 steps
    python examples/spot_training.py --steps 500 --seed 3

Everything that a real job has and a resume must carry over is here: dropout, a shuffled loader that is left in the
middle of an epoch, gradient accumulation, momentum, a learning-rate schedule, loss scaling and an averaged copy of
the weights.
"""

from __future__ import annotations

import argparse
import copy
import random
import tempfile
from pathlib import Path

import torch
from torch import nn

from trimtab_runtime import Checkpointer, CheckpointSettings, NoticeBoard, ResumableLoader

ACCUMULATE = 2
SETTINGS = CheckpointSettings(every_s=0.0, keep=2, margin_s=0.0)


class Killed(Exception):
    """Stands for a machine that is gone without a word."""


class Samples:
    """512 points of a noisy spiral; every look at one adds noise, as augmentation does."""

    def __init__(self) -> None:
        generator = torch.Generator().manual_seed(0)
        self.angles = torch.rand(512, generator=generator) * 9
        self.labels = torch.randint(0, 2, (512,), generator=generator)

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        angle = self.angles[index] + 3.14159 * self.labels[index]
        point = torch.stack([angle.cos(), angle.sin()]) * self.angles[index] / 9
        return point + 0.02 * torch.randn(2), self.labels[index]


class Average:
    """An exponentially averaged copy of a model's weights."""

    def __init__(self, model: nn.Module, decay: float = 0.99) -> None:
        self.model = copy.deepcopy(model)
        self.decay = decay

    def update(self, model: nn.Module) -> None:
        with torch.no_grad():
            for mine, new in zip(self.model.parameters(), model.parameters(), strict=True):
                mine.lerp_(new, 1 - self.decay)

    def state_dict(self) -> dict[str, torch.Tensor]:
        return self.model.state_dict()

    def load_state_dict(self, state: dict[str, torch.Tensor]) -> None:
        self.model.load_state_dict(state)


class Job:
    """All the parts of one training job, made afresh on every (simulated) machine."""

    def __init__(self, seed: int) -> None:
        torch.manual_seed(seed)
        random.seed(seed)
        self.model = nn.Sequential(
            nn.Linear(2, 64), nn.Tanh(), nn.Dropout(0.2), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 2)
        )
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=3e-3)
        self.scheduler = torch.optim.lr_scheduler.OneCycleLR(self.optimizer, max_lr=1e-2, total_steps=10_000)
        self.scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=20)
        self.average = Average(self.model)
        self.loader = ResumableLoader(Samples(), batch_size=24, seed=seed)
        self.batches = iter(self.loader)

    def parts(self) -> dict[str, object]:
        names = ("model", "optimizer", "scheduler", "scaler", "average", "loader")
        return {name: getattr(self, name) for name in names}

    def next_batch(self) -> tuple[torch.Tensor, torch.Tensor]:
        for batch in self.batches:
            return batch
        self.batches = iter(self.loader)
        return next(self.batches)

    def step(self) -> float:
        total = 0.0
        for _ in range(ACCUMULATE):
            points, labels = self.next_batch()
            loss = nn.functional.cross_entropy(self.model(points), labels) / ACCUMULATE
            self.scaler.scale(loss).backward()
            total += loss.item()
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.optimizer.zero_grad()
        self.scheduler.step()
        self.average.update(self.model)
        return total


def train(folder: Path, steps: int, seed: int, *, notice_at: int = -1, kill_at: int = -1) -> dict[int, float]:
    """Train until done or interrupted, and return the loss of every step that this machine ran."""
    job, board, losses = Job(seed), NoticeBoard(), {}
    with Checkpointer(folder, job.parts(), SETTINGS, board=board) as checkpointer:
        checkpointer.resume()
        for step in range(checkpointer.next_step, steps):
            losses[step] = job.step()
            if step == notice_at:
                board.interrupt(lead_s=0.05, source="simulated")
            if step == kill_at:
                raise Killed(losses)
            if checkpointer.step_done(step):
                break
    return losses


def train_through_interruptions(
    folder: Path, steps: int, seed: int, rng: random.Random
) -> tuple[dict[int, float], int]:
    """Train on one machine after another until all steps are done; return the loss curve and the number of interruptions."""
    curve: dict[int, float] = {}
    interruptions = 0
    while len(curve) < steps or max(curve) < steps - 1:
        at = (max(curve) if curve else 0) + rng.randint(7, 15)
        kind = rng.choice(("notice_at", "kill_at"))
        try:
            curve |= train(folder, steps, seed, **{kind: at})
        except Killed as killed:
            curve |= killed.args[0]
        interruptions += at < steps
    return curve, interruptions


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(1)  # a model this small is faster on one
    with tempfile.TemporaryDirectory() as scratch:
        unbroken = train(Path(scratch) / "unbroken", arguments.steps, arguments.seed)
        rng = random.Random(arguments.seed)
        broken, interruptions = train_through_interruptions(
            Path(scratch) / "spot", arguments.steps, arguments.seed, rng
        )
    same = sum(broken[step] == loss for step, loss in unbroken.items())
    print(f"{interruptions} interruptions; {same} of {arguments.steps} losses equal to the last bit")
    print(
        f"last loss: unbroken {unbroken[arguments.steps - 1]:.17g}, through interruptions {broken[arguments.steps - 1]:.17g}"
    )
    raise SystemExit(0 if same == arguments.steps else 1)


if __name__ == "__main__":
    main()
