"""What every emitted object shares: DNS-1123 names, annotations that name the action and its saving, deterministic YAML."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence

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
"""An annotation of an autoscaler and its rules: what their capacity counts on that no object brings about."""
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
    """Return an object's metadata: who made it, for which actions, what each saves, and what it counts on."""
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
