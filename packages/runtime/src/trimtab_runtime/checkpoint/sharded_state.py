"""The state of a job of several ranks: plain, DDP, FSDP or DTensor, planned by torch.distributed.checkpoint (DCP).

DCP decides who writes what (a replicated tensor is written once, the work is spread) and, at loading, which parts of
which shards make up a tensor on this number of ranks. Only its planners are used: the bytes go into this package's
own durable, verified, pickle-free files, and the plan is made once, so that a save needs no collective but one small
all-reduce.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Protocol, cast

from trimtab_runtime.checkpoint import arrays, components, distributed_parts
from trimtab_runtime.checkpoint.commit import Commit, read_manifest
from trimtab_runtime.checkpoint.files import FileOperations
from trimtab_runtime.checkpoint.ranks import TorchRanks
from trimtab_runtime.checkpoint.reading import SavedState, part_of_values, read_records, with_tensors
from trimtab_runtime.checkpoint.records import LOCAL_KEY, PARTS_KEY, Extent, Manifest
from trimtab_runtime.checkpoint.resharding import read_resharded
from trimtab_runtime.checkpoint.sealed import JsonObject
from trimtab_runtime.checkpoint.snapshot import Piece
from trimtab_runtime.checkpoint.tree import Leaf, encode, tensor_kinds


class _Planner(Protocol):
    """What is asked of DCP's save planner."""

    def resolve_data(self, item: object) -> object: ...


class ShardedState:
    """Captures this rank's share of the parts, and restores it on any number of ranks."""

    def __init__(self, parts: Mapping[str, object], ranks: TorchRanks) -> None:
        components.require_components(parts)
        self._parts = distributed_parts.with_full_names(parts)
        self._ranks = ranks
        self._plan = _SavePlan(ranks)

    def capture(self, local: Mapping[str, object]) -> tuple[Sequence[Piece], JsonObject]:
        """Return this rank's share of the tensors, what is its alone, and all other values as JSON. Every rank calls it."""
        body, leaves = encode({PARTS_KEY: components.capture(self._parts), LOCAL_KEY: dict(local)})
        shared = [leaf for leaf in leaves if leaf.name.startswith(f"{PARTS_KEY}/")]
        own = [leaf for leaf in leaves if not leaf.name.startswith(f"{PARTS_KEY}/")]
        pieces = self._plan.pieces(shared)
        return [*pieces, *(Piece(arrays.extent(leaf.name, leaf.value), leaf.value) for leaf in own)], cast(
            JsonObject, body
        )

    def read(self, files: FileOperations, folder: Path, marker: Commit) -> SavedState:
        """Read and verify this rank's share without touching the job. Every rank calls it."""
        manifests = [read_manifest(files, folder, rank, marker) for rank in range(marker.world_size)]
        same_size = marker.world_size == self._ranks.world_size
        mine = manifests[self._ranks.rank if same_size else 0]
        _, leaves = encode({PARTS_KEY: components.capture(self._parts)})
        present = {leaf.name: leaf.value for leaf in leaves}
        values = part_of_values(mine, PARTS_KEY, str(folder))
        wanted = tensor_kinds(values)
        tensors = read_resharded(files, folder, manifests, wanted, present, is_first=self._ranks.rank == 0)
        notes = () if same_size else (_resharded_note(marker.world_size, self._ranks.world_size),)
        return SavedState(
            parts=with_tensors(values, tensors, str(folder)),
            local=_local(files, folder, mine) if same_size else {},
            notes=notes,
        )

    def apply(self, saved: SavedState) -> list[str]:
        """Give the verified state to the parts and return notes on what differs. Every rank calls it."""
        return components.apply(self._parts, saved.parts)


def _local(files: FileOperations, folder: Path, manifest: Manifest) -> dict[str, object]:
    values = part_of_values(manifest, LOCAL_KEY, str(folder))
    tensors = read_records(files, folder, manifest, set(tensor_kinds(values)))
    return with_tensors(values, tensors, str(folder))


def _resharded_note(before: int, now: int) -> str:
    return f"saved by {before} ranks, resumed on {now}: random generators start afresh, so the loss curve is not bitwise equal"


class _SavePlan:
    """DCP's decision on who writes what, made again only when names, types or shapes have changed on some rank."""

    def __init__(self, ranks: TorchRanks) -> None:
        self._ranks = ranks
        self._signature: tuple[object, ...] | None = None
        self._planner: _Planner | None = None
        self._items: Sequence[object] = ()

    def pieces(self, leaves: Sequence[Leaf]) -> list[Piece]:
        """Return the pieces that this rank writes."""
        flat = {leaf.name: leaf.value for leaf in leaves}
        signature = tuple(arrays.extent(leaf.name, leaf.value) for leaf in leaves)
        if self._ranks.highest([float(signature != self._signature)])[0]:
            self._make(flat)
            self._signature = signature
        assert self._planner is not None
        self._planner.state_dict = flat  # type: ignore[attr-defined]  # DCP resolves data from this attribute
        return [_piece(item, self._planner.resolve_data(item)) for item in self._items]

    def _make(self, flat: dict[str, object]) -> None:
        planning = import_module("torch.distributed.checkpoint.default_planner")
        planner = planning.DefaultSavePlanner(flatten_state_dict=False, flatten_sharded_tensors=False)
        planner.set_up_planner(flat, is_coordinator=self._ranks.rank == 0)
        plans = self._ranks.gathered(planner.create_local_plan())
        agreed = planner.create_global_plan(plans)[0] if plans is not None else None
        self._items = planner.finish_plan(self._ranks.scattered(agreed)).items
        self._planner = cast(_Planner, planner)


class _Chunk(Protocol):
    offsets: Sequence[int]
    sizes: Sequence[int]


class _TensorData(Protocol):
    chunk: _Chunk
    size: Sequence[int]


class _Index(Protocol):
    fqn: str


class _WriteItem(Protocol):
    """What is asked of an item of DCP's save plan."""

    index: _Index
    tensor_data: _TensorData


def _piece(item: object, tensor: object) -> Piece:
    planned = cast(_WriteItem, item)
    extent = arrays.extent(planned.index.fqn, tensor)
    return Piece(
        Extent(
            name=extent.name,
            dtype=extent.dtype,
            shape=extent.shape,
            size_bytes=extent.size_bytes,
            whole_shape=tuple(int(length) for length in planned.tensor_data.size),
            piece_offset=tuple(int(offset) for offset in planned.tensor_data.chunk.offsets),
        ),
        tensor,
    )
