"""What losing spot nodes costs: hours paid for an hour of work that counts."""

from __future__ import annotations

import math
from dataclasses import dataclass

from trimtab.catalog import InterruptionBucket
from trimtab.units import HR_PER_MO, S_PER_HR
from trimtab_runtime.policies.checkpointing import young_daly_interval_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Interruptions:
    """What a lost node takes with it; assumptions of ours, to be overridden (settings, `assumptions`)."""

    startup_s: float = 300.0
    """From asking for a node to a ready pod."""
    cold_start_s: float = 180.0
    """Loading a served model besides."""
    save_s: float = 60.0
    restore_s: float = 180.0
    notice_s: float = 120.0
    unknown_loss_per_hr: float = 1 / 6
    """Where no interruption rate is published, or only "> 20 % a month"."""

    def loss_per_hr(self, bucket: InterruptionBucket | None) -> float:
        """Return how often a node is lost per hour of life: the published monthly share at its upper edge."""
        share = bucket.high_frac if bucket else None
        # the constant hazard that loses this share of nodes within a month
        return self.unknown_loss_per_hr if share is None else -math.log1p(-share) / HR_PER_MO

    def serving_factor(self, bucket: InterruptionBucket | None) -> float:
        """Return node-hours paid per node-hour that serves: a lost node's successor starts and loads before it serves.

        The notice is time in which the successor starts already.
        """
        lost_s = max(0.0, self.startup_s + self.cold_start_s - self.notice_s)
        return 1 + self.loss_per_hr(bucket) * lost_s / S_PER_HR

    def training_factor(self, bucket: InterruptionBucket | None, nodes: int) -> float:
        """Return hours paid per hour of progress of a run that any lost node stops; infinite where it makes none.

        Saves at Young's interval T = sqrt(2 C M): an hour of work costs 1 + C / T, and each of the losses 1 / M costs
        half an interval of lost work, a restart and a restore (Daly 2006, first order).
        """
        # a run stops when any of its nodes is lost, so their rates add up
        per_s = self.loss_per_hr(bucket) * nodes / S_PER_HR
        if per_s == 0:
            return 1.0
        # an interval shorter than a save would leave no time for work
        interval_s = max(young_daly_interval_s(self.save_s, 1 / per_s), self.save_s)
        lost_s = interval_s / 2 + self.startup_s + self.restore_s
        # the share of time that is progress; where losses come faster than restarts there is none
        useful = 1 - per_s * lost_s
        return (1 + self.save_s / interval_s) / useful if useful > 0 else math.inf


USUAL = Interruptions()
