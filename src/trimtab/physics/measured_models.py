"""Models that generate no text and whose speed was measured in public: speech, images, vision, encoders, recommenders.

`data/measured_models.csv` says under which names they go, what was measured with what, and in which unit. Encoders that share
BERT-large's layers, width and heads do its arithmetic on a sequence; their own speed was not measured. Limits at p99 are those
of MLPerf's Server scenario (mlcommons/inference, `mlperf.conf`), which its throughput keeps. The published rows of Whisper call
their unit samples; it is tokens of the transcript: 349 a second on an L4 would be about 6 times its peak rate if they were
clips of 30 s (2 TFLOP each).
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files

MLPERF = "mlp"
"""The domain of MLPerf's rows in the fit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredModel:
    """One such model."""

    name: str
    hub_id: str
    """On the Hugging Face hub; empty where it is not there."""
    kind: str
    task: str
    unit: str
    """What throughput counts."""
    has_server: bool
    server_p99_s: float | None
    formats: tuple[str, ...]
    """Precisions in which it was measured."""
    chips: frozenset[str]
    """On which it was measured."""
    transfers: bool
    """Whether its speed is told on other chips: intervals held on groups kept back (`python -m benchmarks.other_models`)."""
    least_gib: float
    """Memory of the smallest board on which it was measured."""
    measured_with: str
    source: str

    def mode(self, *, online: bool) -> str:
        """Return the scenario that answers: at the limit where requests come one by one and it was measured, else in bulk."""
        return "MLPerf Server" if online and self.has_server else "MLPerf Offline"


@lru_cache(maxsize=1)
def measured_models() -> Mapping[str, MeasuredModel]:
    """Return the models by name."""
    return {row["name"]: _from_row(row) for row in _rows()}


@lru_cache(maxsize=1)
def _by_alias() -> Mapping[str, str]:
    found = {}
    for row in _rows():
        for alias in (row["name"], row["hub_id"], *row["aliases"].split(";")):
            if alias:
                found[_folded(alias)] = row["name"]
    return found


def find_measured_model(name: str) -> MeasuredModel | None:
    """Return the model that a name means, or None; organisation and case are ignored, a suffix never.

    A suffix here is another network: `whisper-large-v3-turbo` has 4 decoder layers where `whisper-large-v3` has 32.
    """
    known = _by_alias().get(_folded(name))
    return measured_models()[known] if known else None


def _folded(name: str) -> str:
    return name.rsplit("/", 1)[-1].strip().casefold().replace("_", "-")


def _rows() -> list[dict[str, str]]:
    text = files("trimtab.physics").joinpath("data/measured_models.csv").read_text(encoding="utf-8")
    return list(csv.DictReader(text.splitlines()))


def _from_row(row: Mapping[str, str]) -> MeasuredModel:
    return MeasuredModel(
        name=row["name"],
        hub_id=row["hub_id"],
        kind=row["kind"],
        task=row["task"],
        unit=row["unit"],
        has_server=row["server"] == "1",
        server_p99_s=float(row["server_p99_s"]) if row["server_p99_s"] else None,
        formats=tuple(row["formats"].split(";")),
        chips=frozenset(row["chips"].split(";")),
        transfers=row["transfers"] == "1",
        least_gib=float(row["least_gib"]),
        measured_with=row["measured_with"],
        source=f"{row['source']} ({row['as_of']})",
    )
