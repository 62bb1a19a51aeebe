"""A data loader that goes on at the very batch where training stopped, in the same order, with the same augmentations.

The order of an epoch follows from the seed and the epoch alone, so a position is three numbers. What counts is the
batches that training has taken, not those that workers have prefetched. Nothing is drawn from the global random
generators, since making an ordinary iterator does (it draws a base seed), and a resumed run makes one iterator more
than an unbroken one.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Protocol, cast

from trimtab_runtime.errors import CheckpointMismatch, UsageError


class _Dataset(Protocol):
    def __len__(self) -> int: ...
    def __getitem__(self, index: int, /) -> object: ...


class SeededDataset:
    """A dataset whose samples draw their randomness from (seed, epoch, index): the same in any worker, at any time.

    It is asked with (epoch, index) pairs. In the main process, where the global generators belong to the training, it
    leaves them alone.
    """

    def __init__(self, dataset: _Dataset, seed: int) -> None:
        self._dataset = dataset
        self._seed = seed

    def __len__(self) -> int:
        return len(self._dataset)

    def __getitem__(self, place: tuple[int, int]) -> object:
        epoch, index = place
        if import_module("torch.utils.data").get_worker_info() is not None:
            _seed_everything(derived_seed(self._seed, epoch, index) % 2**32)
        return self._dataset[index]


def derived_seed(*parts: int) -> int:
    """Return a seed below 2**63 that is the same for the same parts on every machine and Python version."""
    digest = hashlib.blake2b("/".join(map(str, parts)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1


def _seed_everything(seed: int) -> None:
    import_module("random").seed(seed)
    import_module("torch").manual_seed(seed)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(seed)


class EpochBatches:
    """The batches of one epoch from a position on, as lists of (epoch, index), for one rank."""

    def __init__(
        self, length: int, batch_size: int, *, shuffle: bool, seed: int, rank: int, world_size: int, drop_last: bool
    ) -> None:
        self._length = length
        self._batch_size = batch_size
        self._shuffle = shuffle
        self._seed = seed
        self._rank = rank
        self._world_size = world_size
        self._drop_last = drop_last
        self.epoch = 0
        self.samples_taken = 0
        """Samples of this epoch that all ranks together have trained on."""

    @property
    def global_batch(self) -> int:
        """Samples that all ranks together take at one step."""
        return self._batch_size * self._world_size

    def __len__(self) -> int:
        """Return the number of batches in a whole epoch, wherever in it the position is."""
        return self._length // self.global_batch if self._drop_last else -(-self._length // self.global_batch)

    def __iter__(self) -> Iterator[list[tuple[int, int]]]:
        epoch, order = self.epoch, self.order()
        for start in range(self.samples_taken, self._end(), self.global_batch):
            whole = order[start : start + self.global_batch]
            yield [(epoch, index) for index in self._own_part(whole, order)]

    def _end(self) -> int:
        """Return the sample before which the last batch begins."""
        return self._length - self.global_batch + 1 if self._drop_last else self._length

    def take(self) -> None:
        """Move on by a batch; after an epoch's last one the position is the next epoch's start."""
        self.samples_taken += self.global_batch
        if self.samples_taken >= self._end():
            self.epoch += 1
            self.samples_taken = 0

    def _own_part(self, whole: list[int], order: list[int]) -> list[int]:
        """Return this rank's samples; a short last batch is filled up from the epoch's start, for every rank to have some."""
        missing = -len(whole) % self._world_size
        padded = whole + [order[index % len(order)] for index in range(missing)]
        share = len(padded) // self._world_size
        return padded[self._rank * share : (self._rank + 1) * share]

    def order(self) -> list[int]:
        """Return the order of this epoch's samples."""
        if not self._shuffle:
            return list(range(self._length))
        torch = import_module("torch")
        generator = torch.Generator()
        generator.manual_seed(derived_seed(self._seed, self.epoch))
        order: list[int] = torch.randperm(self._length, generator=generator).tolist()
        return order


class ResumableLoader:
    """Iterates over epochs of a map-style dataset; hand it to the checkpointer like a model.

    `options` go to `torch.utils.data.DataLoader` (workers, collate_fn, pin_memory, ...). Iterating yields the rest of
    the current epoch; the next iteration is the next epoch. With another number of ranks it goes on after the samples
    that were taken, whatever the batch size.
    """

    def __init__(
        self,
        dataset: _Dataset,
        batch_size: int,
        *,
        shuffle: bool = True,
        seed: int = 0,
        rank: int = 0,
        world_size: int = 1,
        drop_last: bool = False,
        **options: object,
    ) -> None:
        clash = sorted({"sampler", "batch_sampler", "generator"} & set(options))
        if clash:
            raise UsageError(f"the loader sets {', '.join(clash)} itself; leave it out")
        self._batches = EpochBatches(
            len(dataset),
            batch_size,
            shuffle=shuffle,
            seed=seed,
            rank=rank,
            world_size=world_size,
            drop_last=drop_last,
        )
        self.dataset = dataset
        self.batch_size = batch_size
        self._seed = seed
        torch = import_module("torch")
        self._generator = torch.Generator()
        self._loader = torch.utils.data.DataLoader(
            SeededDataset(dataset, seed), batch_sampler=self._batches, generator=self._generator, **options
        )

    @property
    def epoch(self) -> int:
        """The epoch that is under way or comes next."""
        return self._batches.epoch

    def __len__(self) -> int:
        """Return the number of batches in a whole epoch, as training frameworks expect, wherever in it the position is."""
        return len(self._batches)

    def __iter__(self) -> Iterator[object]:
        for batch in self._loader:
            self._batches.take()
            yield batch

    def state_dict(self) -> dict[str, object]:
        """Return the position after the batch that was handed out last."""
        return {
            "epoch": self._batches.epoch,
            "samples_taken": self._batches.samples_taken,
            "seed": self._seed,
            "length": len(self.dataset),
        }

    def load_state_dict(self, state: Mapping[str, object]) -> None:
        """Go to a position; raise `CheckpointMismatch` if it is one in other data or another order."""
        for name, own in (("seed", self._seed), ("length", len(self.dataset))):
            if state[name] != own:
                raise CheckpointMismatch(
                    f"the data loader's {name} was {state[name]!r} and is {own!r} now: the order of the samples differs"
                )
        self._batches.epoch = cast(int, state["epoch"])
        self._batches.samples_taken = cast(int, state["samples_taken"])
