"""collect -> diagnose -> plan -> prove: functions that a person can read in one sitting.

Names load on first use, so that `trimtab.fit` does not wait for the planner.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # so that a type checker sees the functions and not what `__getattr__` returns
    from trimtab.pipeline.afterwards import later_window, verify_plan
    from trimtab.pipeline.auditing import SEED, PlanningInput, Progress, audit, kept_plan, plan_and_prove, what_if
    from trimtab.pipeline.fitting import fit
    from trimtab.pipeline.opening import HistorySplit, open_demo, open_fleet, open_trace, priced_history, split_window
    from trimtab.pipeline.reviewing import review

_LAZY: dict[str, str] = {
    "SEED": "trimtab.pipeline.auditing",
    "PlanningInput": "trimtab.pipeline.auditing",
    "Progress": "trimtab.pipeline.auditing",
    "HistorySplit": "trimtab.pipeline.opening",
    "audit": "trimtab.pipeline.auditing",
    "fit": "trimtab.pipeline.fitting",
    "kept_plan": "trimtab.pipeline.auditing",
    "later_window": "trimtab.pipeline.afterwards",
    "open_demo": "trimtab.pipeline.opening",
    "open_fleet": "trimtab.pipeline.opening",
    "open_trace": "trimtab.pipeline.opening",
    "plan_and_prove": "trimtab.pipeline.auditing",
    "priced_history": "trimtab.pipeline.opening",
    "review": "trimtab.pipeline.reviewing",
    "split_window": "trimtab.pipeline.opening",
    "verify_plan": "trimtab.pipeline.afterwards",
    "what_if": "trimtab.pipeline.auditing",
}
"""Public name -> module that defines it."""

__all__ = [
    "SEED",
    "HistorySplit",
    "PlanningInput",
    "Progress",
    "audit",
    "fit",
    "kept_plan",
    "later_window",
    "open_demo",
    "open_fleet",
    "open_trace",
    "plan_and_prove",
    "priced_history",
    "review",
    "split_window",
    "verify_plan",
    "what_if",
]


def __getattr__(name: str) -> object:
    if name in _LAZY:
        return getattr(import_module(_LAZY[name]), name)
    raise AttributeError(f"module 'trimtab.pipeline' has no attribute {name!r}")
