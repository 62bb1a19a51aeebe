"""What a user may choose about checkpoints, with the reasons for the defaults."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from trimtab_runtime.errors import UsageError
from trimtab_runtime.policies.checkpointing import (
    REQUEUE_EXIT_CODE,
    CheckpointRule,
    Hazard,
    constant_hazard,
    hazard_from_lifetimes,
)
from trimtab_runtime.units import S_PER_HR


class Choices(NamedTuple):
    """The settings as they come. Checked as `CheckpointSettings`; no dataclass: `inspect` would be imported for it alone."""

    every_s: float | None = None
    mean_life_s: float = 6.0 * S_PER_HR
    lifetimes_s: tuple[float, ...] = ()
    notice_s: float = 30.0
    notice_missing_frac: float = 0.1
    min_interval_s: float = 5.0
    max_interval_s: float = 1.0 * S_PER_HR
    save_slack: float = 1.5
    margin_s: float = 2.0
    keep: int = 2
    asynchronous: bool = True
    upload_to: str | None = None
    upload_keep: int = 2
    exit_code: int = REQUEUE_EXIT_CODE
    lock_wait_s: float = 5.0
    rank_timeout_s: float = 600.0


class CheckpointSettings(Choices):
    """How often to save, how many to keep, how to behave when a machine is taken.

    `every_s` fixes the interval; without it the interval follows from the measured time of a save and the market's
    life times (`lifetimes_s` if there are any, else `mean_life_s`). `notice_s` is the lead time to expect: 120 s on
    AWS, 30 s elsewhere. `upload_to` is any fsspec address. `rank_timeout_s` bounds how long rank 0 waits for the
    slowest rank's bytes.
    """

    __slots__ = ()

    if not TYPE_CHECKING:  # type checkers see the arguments of `Choices`

        def __new__(cls, *values: object, **settings: object) -> CheckpointSettings:
            """Raise `UsageError` for settings that cannot be meant."""
            checked = super().__new__(cls, *values, **settings)
            checked._check()
            return checked

    def rule(self) -> CheckpointRule:
        """Return the decision rule that these settings describe."""
        fixed = self.every_s
        return CheckpointRule(
            hazard=self._hazard(),
            notice_s=self.notice_s,
            notice_missing_frac=self.notice_missing_frac,
            min_interval_s=self.min_interval_s if fixed is None else fixed,
            max_interval_s=self.max_interval_s if fixed is None else fixed,
            save_slack=self.save_slack,
            margin_s=self.margin_s,
        )

    def _check(self) -> None:
        """Raise `UsageError` for what cannot be meant, all of it at once."""
        faults = [
            f"{name} must be above zero (saw {getattr(self, name)})"
            for name in ("mean_life_s", "max_interval_s", "save_slack", "keep", "upload_keep", "rank_timeout_s")
            if not getattr(self, name) > 0
        ]
        if not 0.0 <= self.notice_missing_frac <= 1.0:
            faults.append(f"notice_missing_frac must lie in 0..1 (saw {self.notice_missing_frac})")
        if self.every_s is not None and not self.every_s >= 0:
            faults.append(f"every_s must not be negative (saw {self.every_s})")
        if faults:
            raise UsageError("checkpoint settings: " + "; ".join(faults))

    def _hazard(self) -> Hazard:
        return hazard_from_lifetimes(self.lifetimes_s) if self.lifetimes_s else constant_hazard(self.mean_life_s)
