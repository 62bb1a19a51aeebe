"""Demonstration fleets: generated bundles whose truth is known. Nothing here knows how plans are made.

A fleet's parameters stand at the head of its module, set once, before planning code was tuned on it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa

from trimtab.errors import UnknownName
from trimtab.sources.demo import quad_a100, small_fleets, trace, two_hundred_k

Fleet = tuple[dict[str, pa.Table], dict[str, object], dict[str, object]]
"""Tables of the bundle, content of workloads.yaml, content of bundle.yaml."""

DEMO_FLEETS: dict[str, str] = {
    two_hundred_k.NAME: "$200k a month on AWS, all on demand: three services, experiments, training, batch, notebooks",
    small_fleets.NINETY_K_PEAK: "$90k a month on GCP: a shop's inference cluster sized for its peak, 30 % used",
    quad_a100.NAME: "$10.7k a month: four A100s answering one request at a time, in bursts, 15 % used",
    small_fleets.THREE_SMALL_MODELS: "$8k a month: three models of 1,000 requests a day, each alone on an A100",
    small_fleets.FINETUNE_7B: "$16k a month: eight A100s fine-tuning a 7B model by day, idle at night",
    small_fleets.MODERATION: "$5.9k a month: a million images a day in real time, though four hours would do",
}
_BUILDERS: dict[str, Callable[[int], Fleet]] = {
    two_hundred_k.NAME: two_hundred_k.build,
    small_fleets.NINETY_K_PEAK: small_fleets.build_ninety_k_peak,
    quad_a100.NAME: quad_a100.build,
    small_fleets.THREE_SMALL_MODELS: small_fleets.build_three_small_models,
    small_fleets.FINETUNE_7B: small_fleets.build_finetune_7b,
    small_fleets.MODERATION: small_fleets.build_moderation,
}


def demo_fleet(name: str, *, seed: int = 7) -> Fleet:
    """Generate a demonstration fleet; the same seed gives the same tables. Raises UnknownName with near matches.

    The second and third value validate as `tables.workloads.Workloads` and `tables.bundle.BundleMeta`.
    """
    if name not in _BUILDERS:
        raise UnknownName("demo fleet", name, _BUILDERS)
    return _BUILDERS[name](seed)


def trace_fleet(path: Path | str, *, seed: int = 7) -> Fleet:
    """Generate a fleet of fixed size that served a recorded trace (Parquet, see `trace`). Raises InputError."""
    return trace.build(Path(path), seed)
