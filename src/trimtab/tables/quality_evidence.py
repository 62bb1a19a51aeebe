"""The verdict file of `trimtab quality`: the result of evaluating a format, as evidence in `workloads.yaml`."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from trimtab.errors import BundleError, Fault, InputError
from trimtab.inputs.documents import read_json_object
from trimtab.tables.yaml_faults import validation_faults

Finite = Annotated[float, Field(allow_inf_nan=False)]


class QualityEvidence(BaseModel):
    """The result of one look at a candidate; scores and losses are shares of the scale."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: Literal["trimtab-quality"] = "trimtab-quality"
    schema_version: Literal[1] = 1
    verdict: Literal["accept", "reject", "more samples"]
    because: str
    format: str | None = None
    """The candidate's format, as it was named: fp8, awq."""
    model: str | None = None
    decided_on: date
    look: Annotated[int, Field(ge=1)]
    alpha_frac: Annotated[float, Field(gt=0, lt=1)]
    """The error that this look could spend."""
    margin_frac: Annotated[float, Field(gt=0, lt=1)]
    pairs: Annotated[int, Field(ge=1)]
    tasks: tuple[str, ...]
    baseline_frac: Finite
    candidate_frac: Finite
    loss_frac: Finite
    low_frac: Finite
    high_frac: Finite
    method: str
    seen: tuple[str, ...] = ()
    """Digests of the questions of all looks so far, where a further look is needed."""

    @model_validator(mode="after")
    def _verdict_follows_from_its_figures(self) -> Self:
        if abs(self.baseline_frac - self.candidate_frac - self.loss_frac) > 1e-6:
            raise ValueError("the loss is not baseline less candidate: the file was changed, judge again")
        if not self.low_frac <= self.loss_frac <= self.high_frac:
            raise ValueError("the loss lies outside its interval: the file was changed, judge again")
        if self.verdict == "accept" and not self.high_frac < self.margin_frac:
            raise ValueError(
                f"accepted, but the loss may be {self.high_frac:.4f}, not below {self.margin_frac:g}: judge again"
            )
        return self

    @property
    def words(self) -> str:
        """Return the finding in one clause."""
        points = [f"{100 * share:+.2f}" for share in (-self.loss_frac, -self.high_frac, -self.low_frac)]
        return (
            f"{points[0]} points ({points[1]} to {points[2]}) on {self.pairs:,} questions of {', '.join(self.tasks[:3])}"
            f"{' and others' if len(self.tasks) > 3 else ''}, {self.decided_on}"
        )


def read_evidence(path: Path) -> QualityEvidence:
    """Return what a verdict file holds. Raises InputError if it cannot be read or its verdict does not follow."""
    content = read_json_object(path)
    try:
        return QualityEvidence.model_validate(content)
    except ValidationError as error:
        faults = "; ".join(str(fault) for fault in validation_faults(error, QualityEvidence, str(path)))
        raise InputError(f"{faults}; write it again with trimtab quality --verdict") from error


def with_evidence(raw: Mapping[str, object], folder: Path, where: str) -> dict[str, object]:
    """Return the mapping of a workloads.yaml with the verdict files that it names read into it.

    Raises BundleError with every file that cannot be read.
    """
    workloads = raw.get("workloads")
    if not isinstance(workloads, Mapping):
        return dict(raw)
    faults: list[Fault] = []
    found: dict[object, object] = {}
    for name, spec in workloads.items():
        named = spec.get("quality") if isinstance(spec, Mapping) else None
        if isinstance(spec, Mapping) and isinstance(named, Mapping):
            read = {
                form: _read(folder, value, f"{where}: {name}.quality.{form}", faults) for form, value in named.items()
            }
            spec = {**spec, "quality": read}
        found[name] = spec
    if faults:
        raise BundleError(faults)
    return {**raw, "workloads": found}


def _read(folder: Path, value: object, where: str, faults: list[Fault]) -> object:
    """Return a verdict as plain values; what is not a path stays as it is, and is checked with the rest."""
    if not isinstance(value, str):
        return value
    try:
        return read_evidence(folder / value).model_dump(mode="json")
    except InputError as error:
        faults.append(
            Fault(what=str(error), where=where, value=value, cure="give the path of a verdict file, from this file on")
        )
        return None
