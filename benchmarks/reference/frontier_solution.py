"""The solution file that Frontier-CS's `cant_be_late` evaluator loads: this project's policy behind its interface.

`python -m benchmarks.cant_be_late` learns the markets elsewhere, keeps a mixture for each variant in the folder that
`kept_mixture.FOLDER_VARIABLE` names, and starts the evaluator, which puts its simulator `sky_spot` on the path.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import numpy as np
from sky_spot.strategies.strategy import Strategy  # type: ignore[import-not-found]
from sky_spot.utils import ClusterType  # type: ignore[import-not-found]

from benchmarks.reference import spot_mixture
from benchmarks.reference.kept_mixture import FOLDER_VARIABLE, open_mixture
from benchmarks.reference.spot_mixture import IDLE, ON_DEMAND, ON_DEMAND_PENDING, SPOT, SPOT_PENDING

GUARD_STEPS = 1
"""We aim that many steps before the deadline. Where nothing is to spare the simulator's own guard keeps a job on spot until
that is lost, and then loses one step more than it left."""


class Solution(Strategy):  # type: ignore[misc]
    """Follow the mixture; mode and progress are read back from the simulator at each step."""

    NAME = "trimtab_mixture"

    def solve(self, spec_path: str) -> Solution:
        """Return itself: what the specification says is known to the simulator too."""
        del spec_path
        return self

    def reset(self, env: object, task: object) -> None:
        """Begin a run: nothing was seen of its zone."""
        super().reset(env, task)
        gap_s, prices = self.env.gap_seconds, self.env.get_constant_cost_map()
        self.plan = open_mixture(
            Path(os.environ[FOLDER_VARIABLE]),
            work=round(self.task_duration / gap_s),
            deadline=round(self.deadline / gap_s),
            spot_price=prices[ClusterType.SPOT] / prices[ClusterType.ON_DEMAND],
            launch_steps=self.restart_overhead / gap_s,
        )
        self.weight = self.plan.prior.copy()
        self.age, self.was_up = 0, False

    def _step(self, last_cluster_type: ClusterType, has_spot: bool) -> ClusterType:
        plan, gap_s = self.plan, self.env.gap_seconds
        self._watch(has_spot)
        remaining = (self.task_duration - sum(self.task_done_time)) / gap_s
        if remaining <= 1e-9:
            return ClusterType.NONE
        left = int((self.deadline - self.env.elapsed_seconds) / gap_s + 1e-6)
        if left <= 0:
            raise RuntimeError(f"the deadline passed with {remaining:.2f} steps of work to do")
        wanted = spot_mixture.choose(
            plan.ahead,
            self.weight,
            self._mode(last_cluster_type, has_spot),
            self._bin() + (len(plan.age_edges) if has_spot else 0),
            remaining,
            max(left - GUARD_STEPS, 1),
            plan.spot_price,
            plan.launch_steps,
        )
        return {SPOT: ClusterType.SPOT, ON_DEMAND: ClusterType.ON_DEMAND}.get(wanted, ClusterType.NONE)

    def _mode(self, last: ClusterType, has_spot: bool) -> int:
        """Return where the job is after the last step, which the simulator's own guard may have changed."""
        pending = self.remaining_restart_overhead > 1e-3
        if last == ClusterType.ON_DEMAND:
            return ON_DEMAND_PENDING if pending else ON_DEMAND
        if last == ClusterType.SPOT and has_spot:
            return SPOT_PENDING if pending else SPOT
        return IDLE

    def _watch(self, has_spot: bool) -> None:
        """Move the markets' weights by what spot did since the last step."""
        turned = bool(self.age) and has_spot != self.was_up
        if self.age:
            forget = spot_mixture.FORGET_FRAC
            spot_mixture.weigh(self.weight, self.plan.turning, int(self.was_up), self._bin(), turned, forget)
        self.age = 1 if turned else self.age + 1
        self.was_up = has_spot

    def _bin(self) -> int:
        return int(np.searchsorted(self.plan.age_edges, self.age, side="right")) - 1

    @classmethod
    def _from_args(cls, parser: argparse.ArgumentParser) -> Solution:
        return cls(parser.parse_known_args()[0])
