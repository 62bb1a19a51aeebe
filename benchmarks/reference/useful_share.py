"""How much of a machine's time ends up as saved work under a checkpoint rule: what intervals are scored by."""

from __future__ import annotations

from collections.abc import Sequence

from trimtab_runtime.policies.checkpointing import CheckpointRule, interval_s


def useful_frac(
    lifetimes_s: Sequence[float], restore_s: float, rule: CheckpointRule, save_s: float, noticed: Sequence[bool]
) -> float:
    """Return the share of machine time that ends up as saved work when synchronous saves follow the rule.

    Each life begins with a restore, then alternates training and saving, and ends in an interruption. Where
    `noticed[i]` is true the work since the last save is saved on the notice, minus the time of that save, if it fits.
    """
    saved_s, paid_s = 0.0, 0.0
    for index in range(len(lifetimes_s)):
        life_s = lifetimes_s[index]
        paid_s += life_s
        age_s = restore_s
        while True:
            span_s = interval_s(rule, age_s, save_s, save_s, 0.0)
            if age_s + span_s + save_s > life_s:
                break
            saved_s += span_s
            age_s += span_s + save_s
        if noticed[index] and save_s <= rule.notice_s:
            saved_s += max(0.0, life_s - age_s - save_s)
    return saved_s / paid_s
