"""collect -> diagnose -> plan -> prove: functions that a person can read in one sitting."""

from trimtab.pipeline.afterwards import kept_plan, later_window, verify_plan
from trimtab.pipeline.auditing import SEED, Progress, audit, what_if
from trimtab.pipeline.opening import Split, open_demo, open_fleet, open_trace, priced_history, split_window

__all__ = [
    "SEED",
    "Progress",
    "Split",
    "audit",
    "kept_plan",
    "later_window",
    "open_demo",
    "open_fleet",
    "open_trace",
    "priced_history",
    "split_window",
    "verify_plan",
    "what_if",
]
