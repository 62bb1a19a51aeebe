"""What an emission is: files with their place in a safe order, and what had to be left to a person."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum


class ApplyStage(IntEnum):
    """The safe order: see before you act, have nodes before pods ask for them, give back before you commit."""

    DECIDE = 1
    MEASURE = 2
    NODES = 3
    WORKLOADS = 4
    SCALE = 5
    RELEASE = 6
    COMMIT = 7
    UNDO = 8
    TIDY = 9


STAGE_MEANING = {
    ApplyStage.DECIDE: "read and agree",
    ApplyStage.MEASURE: "recording rules, alerts, dashboard; wait until the recorded series are there",
    ApplyStage.NODES: "node pools; nothing moves yet",
    ApplyStage.WORKLOADS: "changes to workloads' own manifests, one canary first",
    ApplyStage.SCALE: "autoscalers, timetables and disruption budgets; the first day with --add-only",
    ApplyStage.RELEASE: "give back nodes",
    ApplyStage.COMMIT: "buy commitments on the days of their orders",
    ApplyStage.UNDO: "only to go back: what was there before",
    ApplyStage.TIDY: "apart from the plan: what is untidy, one patch at a time, as hygiene/README.md says",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestFile:
    """One file to write: its path under the output folder, what it is, for which actions."""

    path: str
    text: str
    kind: str
    actions: tuple[str, ...]
    stage: ApplyStage


@dataclass(frozen=True, slots=True, kw_only=True)
class Withheld:
    """A change that no file could carry, with the reason and so what a person must do."""

    action: str
    subject: str
    reason: str


Piece = ManifestFile | Withheld


@dataclass(frozen=True, slots=True, kw_only=True)
class Emission:
    """All of it, files in the order in which to apply them."""

    files: tuple[ManifestFile, ...]
    withheld: tuple[Withheld, ...]

    def stages(self) -> dict[ApplyStage, int]:
        """Return the stages that hold files, numbered from 1 in their order."""
        held = sorted({file.stage for file in self.files})
        return {stage: number for number, stage in enumerate(held, start=1)}

    def grouped(self) -> tuple[tuple[str, tuple[str, ...], str], ...]:
        """Return what was withheld as (action, subjects, reason), subjects of one action and reason together."""
        groups: dict[tuple[str, str], list[str]] = {}
        for left in self.withheld:
            groups.setdefault((left.action, left.reason), []).append(left.subject)
        return tuple((action, tuple(subjects), reason) for (action, reason), subjects in groups.items())

    def of_action(self, action: str) -> tuple[ManifestFile, ...]:
        """Return the files that enact an action."""
        return tuple(file for file in self.files if action in file.actions)
