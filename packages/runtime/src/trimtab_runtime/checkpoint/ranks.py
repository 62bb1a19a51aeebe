"""What the processes of one job must agree on, and how they do."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Protocol


class Ranks(Protocol):
    """The processes of one job. Every call is made by all of them at the same step boundary."""

    @property
    def rank(self) -> int: ...
    @property
    def world_size(self) -> int: ...
    def highest(self, values: Sequence[float]) -> list[float]: ...
    def from_first(self, value: list[str]) -> list[str]: ...


class OneRank:
    """A job of one process, which agrees with itself."""

    rank = 0
    world_size = 1

    def highest(self, values: Sequence[float]) -> list[float]:
        """Return the values themselves."""
        return list(values)

    def from_first(self, value: list[str]) -> list[str]:
        """Return the value itself."""
        return value


class TorchRanks:
    """The ranks of torch.distributed, agreeing over gloo on the CPU so that no GPU queue is waited for."""

    def __init__(self) -> None:
        self._distributed = import_module("torch.distributed")
        self.rank: int = self._distributed.get_rank()
        self.world_size: int = self._distributed.get_world_size()
        self.group: object = self._distributed.new_group(backend="gloo")

    def highest(self, values: Sequence[float]) -> list[float]:
        """Return the elementwise maximum over all ranks."""
        torch = import_module("torch")
        tensor = torch.tensor(list(values), dtype=torch.float64)
        self._distributed.all_reduce(tensor, op=self._distributed.ReduceOp.MAX, group=self.group)
        agreed: list[float] = tensor.tolist()
        return agreed

    def from_first(self, value: list[str]) -> list[str]:
        """Return rank 0's value on every rank."""
        box = [value]
        self._distributed.broadcast_object_list(box, src=0, group=self.group)
        return box[0]

    def gathered(self, value: object) -> list[object] | None:
        """Return every rank's value on rank 0, None on the others."""
        box: list[object] | None = [None] * self.world_size if self.rank == 0 else None
        self._distributed.gather_object(value, box, dst=0, group=self.group)
        return box

    def scattered(self, values: Sequence[object] | None) -> object:
        """Return on each rank its own of the values that rank 0 has."""
        box: list[object] = [None]
        self._distributed.scatter_object_list(
            box, list(values) if values is not None else None, src=0, group=self.group
        )
        return box[0]


def current_ranks() -> Ranks:
    """Return the ranks of torch.distributed if the job has set it up, else a single one."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return TorchRanks()
    return OneRank()
