"""The one table of thresholds: what alerts warn of. Each may be set in a file; what is left out is as here."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from trimtab.errors import BundleError
from trimtab.inputs.files import read_text
from trimtab.tables.yaml_faults import load_mapping, validation_faults

Frac = Annotated[float, Field(gt=0, le=1)]
Minutes = Annotated[int, Field(ge=1, le=7 * 24 * 60)]


class Thresholds(BaseModel):
    """Limits of the alerts, and how long each must be passed."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    underused_frac: Frac = 0.40
    """Mean activity of a workload's GPUs below which they are more or larger than it needs."""
    underused_min: Minutes = 30
    """Minutes over which the mean is taken."""
    saturated_frac: Frac = 0.95
    """Activity of a service's busiest GPU above which requests queue; training is meant to be there."""
    saturated_min: Minutes = 60
    """Minutes for which it lasts."""
    memory_frac: Frac = 0.85
    """Memory in use above which the next batch may not fit; servers that take it at their start are judged by their cache."""
    kv_cache_frac: Frac = 0.95
    """Part of a model server's cache in use above which it preempts requests."""
    memory_min: Minutes = 30
    """Minutes for which it lasts."""
    hot_c: Annotated[float, Field(gt=0, le=120)] = 83.0
    """Temperature in degrees Celsius at which boards begin to slow down."""
    hot_min: Minutes = 10
    """Minutes for which it lasts."""
    throttled_frac: Frac = 0.10
    """Part of the time in which heat or the power supply holds clocks down."""
    throttled_min: Minutes = 10
    """Minutes over which the part is taken."""
    power_frac: Frac = 0.90
    """Power over the limit that the driver enforces (else the board's own)."""
    power_min: Minutes = 30
    """Minutes for which it lasts."""
    occupancy_frac: Frac = 0.50
    """SM occupancy in training below which kernels are too small for the GPU."""
    occupancy_min: Minutes = 30
    """Minutes over which the mean is taken."""
    idle_frac: Frac = 0.02
    """Activity below which a GPU does nothing."""
    idle_min: Minutes = 60
    """Minutes for which a GPU has done nothing, held or not."""
    interruptions: Annotated[int, Field(ge=1)] = 3
    """Spot interruptions within an hour that are more than bad luck."""
    commitment_used_frac: Frac = 0.90
    """Part of the nodes that are paid for in any case which runs."""
    commitment_min: Minutes = 60
    """Minutes for which less runs."""
    spend_jump_frac: Frac = 0.12
    """Rise of a day's spend over what the week before and the same weekday of former weeks let one expect."""
    spend_jump_usd_day: Annotated[float, Field(ge=0)] = 20.0
    """Rises of fewer dollars a day are not worth a message."""
    absent_min: Minutes = 15
    """Minutes without readings of a node that has GPUs."""
    runbooks: str = "docs/how-to/watch-a-cluster.md"
    """The page that alerts link to, with a part for each: where you serve it."""


def read_thresholds(path: Path) -> Thresholds:
    """Read a YAML file of thresholds; raises BundleError with every fault and near matches of misspelt keys."""
    where = str(path)
    raw = load_mapping(read_text(path), where)
    try:
        return Thresholds.model_validate(raw)
    except ValidationError as error:
        raise BundleError(validation_faults(error, Thresholds, where)) from error
