"""What money is split by: a team, a workload, a namespace, a kind, a model, or any label."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Self, assert_never

from trimtab.errors import UsageError
from trimtab.fleet.model import Workload

UNNAMED = "unnamed"
LABEL_PREFIX = "label:"


class SplitBy(Enum):
    """What the bill is split by."""

    TEAM = "team"
    WORKLOAD = "workload"
    NAMESPACE = "namespace"
    KIND = "kind"
    MODEL = "model"
    LABEL = "label"


_TAG_KEYS = {
    SplitBy.TEAM: ("team", "owner", "cost_center", "cost-center", "costcenter"),
    SplitBy.WORKLOAD: ("workload",),
    SplitBy.NAMESPACE: ("namespace", "kubernetes_namespace", "kubernetes.io/namespace"),
    SplitBy.MODEL: ("model",),
}
"""Tags of a bill that say the same as Kubernetes does, in the order in which they are believed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CostSplit:
    """A way of splitting; `label` is the key where it is by label."""

    by: SplitBy
    label: str = ""

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `team`, `workload`, `namespace`, `kind`, `model` or `label:KEY`; raises UsageError."""
        if text.startswith(LABEL_PREFIX) and text != LABEL_PREFIX:
            return cls(by=SplitBy.LABEL, label=text.removeprefix(LABEL_PREFIX))
        plain = [way.value for way in SplitBy if way is not SplitBy.LABEL]
        if text not in plain:
            raise UsageError(f"cannot split by {text!r}; write {', '.join(plain)} or label:KEY (label:cost-center)")
        return cls(by=SplitBy(text))

    def of(self, workload: Workload) -> str:
        """Return a workload's value."""
        match self.by:
            case SplitBy.TEAM:
                return workload.team
            case SplitBy.WORKLOAD:
                return workload.name
            case SplitBy.NAMESPACE:
                return workload.namespace
            case SplitBy.KIND:
                return workload.kind.value
            case SplitBy.MODEL:
                return workload.spec.model or UNNAMED
            case SplitBy.LABEL:
                return (workload.spec.labels or {}).get(self.label, UNNAMED)
            case _:
                assert_never(self.by)

    def of_tags(self, tags: Iterable[tuple[str, str]]) -> str | None:
        """Return the value that a charge's tags name, None where they name none. Keys compare without case and prefix."""
        keys = (self.label.casefold(),) if self.by is SplitBy.LABEL else _TAG_KEYS.get(self.by, ())
        found = {_plain(key): value for key, value in tags if value}
        return next((found[key] for key in keys if key in found), None)


def _plain(key: str) -> str:
    """Return a tag's key without the prefixes that clouds put before it (`user:team`, `aws:eks:namespace`, `user_team`)."""
    return key.rpartition(":")[2].casefold().removeprefix("user_")
