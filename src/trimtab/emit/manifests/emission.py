"""What is emitted: objects that share names, labels and annotations, and files with their place in a safe order."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum

import yaml

from trimtab.plan.model import Action

Plain = str | int | float | bool | None | Sequence["Plain"] | Mapping[str, "Plain"]
"""A value as YAML and JSON know it."""

ACTION = "trimtab.dev/action"
SAVING = "trimtab.dev/saving-usd-mo"
INTERVAL = "trimtab.dev/saving-interval-usd-mo"
APPLIES_ONCE = "trimtab.dev/applies-once"
"""An annotation of a Component that is not to be applied before something else is so, which it says."""
ASSUMES = "trimtab.dev/assumes"
"""An annotation of an autoscaler and its rules: what their capacity relies on and no object brings about."""
MANAGED_BY = {"app.kubernetes.io/managed-by": "trimtab"}
NAME_LENGTH = 63
CRON_JOB_LENGTH = 52
"""A CronJob's name leaves eleven letters for that of its Jobs (Kubernetes, pkg/apis/batch/validation)."""
_HASH_LENGTH = 6
_WIDTH = 120


def dns_name(*parts: str, length: int = NAME_LENGTH) -> str:
    """Return parts joined as a DNS-1123 label; a name that had to be changed ends in a hash, so that no two become one."""
    wanted = "-".join(part for part in parts if part)
    name = re.sub(r"[^a-z0-9]+", "-", wanted.lower()).strip("-")
    if name == wanted and len(name) <= length:
        return name
    mark = hashlib.sha256(wanted.encode()).hexdigest()[:_HASH_LENGTH]
    stem = name[: length - _HASH_LENGTH - 1].strip("-")
    return f"{stem}-{mark}" if stem else f"trimtab-{mark}"


def node_name(*parts: str) -> str:
    """Return a DNS-1123 label for an instance type and its like, in which dots and underscores are only spelling."""
    return dns_name(*(re.sub(r"[._ ]", "-", part.lower()) for part in parts))


def metadata(
    name: str, actions: Sequence[Action], *, namespace: str | None = None, assumes: str = ""
) -> dict[str, Plain]:
    """Return an object's metadata: who made it, for which actions, what each saves, and what it relies on."""
    body: dict[str, Plain] = {"name": name}
    if namespace is not None:
        body["namespace"] = namespace
    body["labels"] = dict(MANAGED_BY)
    body["annotations"] = {**action_notes(actions), **({ASSUMES: assumes} if assumes else {})}
    return body


def action_notes(actions: Sequence[Action]) -> dict[str, Plain]:
    """Return the action ids and their savings with intervals, in the same order."""
    return {
        ACTION: ",".join(action.id for action in actions),
        SAVING: ",".join(f"{action.saving_usd_mo.value:.2f}" for action in actions),
        INTERVAL: ",".join(f"{action.saving_usd_mo.low:.2f}..{action.saving_usd_mo.high:.2f}" for action in actions),
    }


class _Dumper(yaml.SafeDumper):
    """Writes texts of several lines as blocks and never an alias."""

    def ignore_aliases(self, data: object) -> bool:
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _text)


def yaml_text(*objects: Mapping[str, Plain], comment: str = "") -> str:
    """Return objects as YAML documents under a comment; the same objects give the same bytes."""
    head = "".join(f"# {line}\n" for line in comment.splitlines())
    bodies = [
        yaml.dump(dict(body), Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=_WIDTH) for body in objects
    ]
    return head + "---\n".join(bodies)


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
        """Return what was withheld as (actions, subjects, reason), once where several actions leave the same."""
        subjects: dict[tuple[str, str], list[str]] = {}
        for left in self.withheld:
            subjects.setdefault((left.action, left.reason), []).append(left.subject)
        actions: dict[tuple[tuple[str, ...], str], list[str]] = {}
        for (action, reason), found in subjects.items():
            actions.setdefault((tuple(found), reason), []).append(action)
        return tuple((", ".join(found), named, reason) for (named, reason), found in actions.items())

    def of_action(self, action: str) -> tuple[ManifestFile, ...]:
        """Return the files that enact an action."""
        return tuple(file for file in self.files if action in file.actions)
