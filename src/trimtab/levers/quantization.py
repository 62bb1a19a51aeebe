"""Store a served model's weights in fewer bits, where the team has found that its answers stay good enough."""

from __future__ import annotations

from dataclasses import dataclass

from trimtab.catalog import Gpu
from trimtab.errors import UnknownName
from trimtab.fleet.effects import SetPrecision
from trimtab.fleet.model import Workload
from trimtab.fleet.served_model import ServedModel, need_on, served_model
from trimtab.fleet.settings import Assumptions, Lever
from trimtab.physics.formats import FORMATS, WeightFormat, weight_format
from trimtab.physics.support import why_not
from trimtab.physics.transfer import fits_memory

LEVER = Lever.QUANTIZATION
FORMATS_TRIED = (WeightFormat.FP8, WeightFormat.INT8, WeightFormat.INT4)
EVALUATE = "what it does to the answers is unknown: evaluate it, then declare quantize: in workloads.yaml"


@dataclass(frozen=True, slots=True, kw_only=True)
class Formats:
    """The formats with fewer bits than today's that the team accepts, and those that nobody has evaluated yet."""

    model: ServedModel
    accepted: tuple[WeightFormat, ...]
    unknown: tuple[WeightFormat, ...]


def formats_of(workload: Workload) -> Formats | str:
    """Return which formats may be offered to a service, or why none can be judged."""
    model = served_model(workload)
    if isinstance(model, str):
        return model
    try:
        said = {weight_format(text) for text in workload.spec.quantize or ()}
    except UnknownName as error:
        return f"quantize: {error}"
    narrower = [one for one in FORMATS_TRIED if FORMATS[one].weight_bytes < FORMATS[model.stored].weight_bytes]
    if not narrower:
        return f"its weights are stored in {model.stored.value} already"
    return Formats(
        model=model,
        accepted=tuple(one for one in narrower if one in said),
        unknown=tuple(one for one in narrower if one not in said),
    )


def propose(
    workload: Workload, model: ServedModel, stored: WeightFormat, home: Gpu, there: Gpu, assumptions: Assumptions
) -> SetPrecision | str:
    """Return the change of format for a service on a GPU, or why it cannot be.

    Its speed is that of the new format over the present one on the same GPU, at home and there.
    """
    for gpu in {home.name: home, there.name: there}.values():
        if reason := why_not(gpu, stored):
            return reason
    need_gib = need_on(workload, model, there, stored)
    if need_gib is None or not fits_memory(need_gib, there, margin_frac=assumptions.memory_headroom_frac).fits:
        return "not enough memory"
    after_gib = model.need_gib(home, stored)
    return SetPrecision(
        before=model.stored,
        after=stored,
        speed=model.change_of_format(home, stored),
        speed_there=model.change_of_format(there, stored),
        saved_gib=model.need_gib(home, model.stored) - after_gib,
        model=workload.spec.model or model.architecture.name,
        work_speed=model.change_of_further_work(home, stored),
        work_speed_there=model.change_of_further_work(there, stored),
    )
