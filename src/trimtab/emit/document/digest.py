"""The document of a weekly digest: what a fleet or a team cost, what changed, what to do, and what was realised."""

from __future__ import annotations

from typing import Literal

from trimtab.emit.document.part import Part, WindowPart

DIGEST_SCHEMA_VERSION: Literal[1] = 1


class FormerWeekPart(Part):
    """The week before."""

    week: str
    """ISO 8601: 2026-W43."""
    window: WindowPart
    """Its hours that history covers."""
    whole: bool
    """Whether these are all of it."""
    usd: float
    """What it cost, at its rate over as many hours as this week covers."""
    gpu_hours: float
    """GPU-hours held, scaled alike."""


class MovedPart(Part):
    """What a workload or shared row has in a cause."""

    name: str
    """Workload, of a fleet with its team, or shared row."""
    usd: float
    """What it added; negative where it saved."""


class CausePart(Part):
    """One cause of the change; all of them sum to it to the cent."""

    cause: str
    """GPU-hours held, other nodes, price, workloads that began or ended, idle nodes and the like."""
    usd: float
    """What it added; negative where it saved."""
    mostly: tuple[MovedPart, ...]
    """Who it is owed to, the most first."""


class PayerPart(Part):
    """A team of the fleet, a workload of a team, or a row of shared cost."""

    name: str
    """Team, workload or shared row."""
    shared: bool
    """True for what is nobody's: idle nodes, tax, credits."""
    usd: float
    """What it cost; the rows sum to the whole to the cent."""
    micro_usd: int
    """The same exactly."""
    share_frac: float | None
    """Share of the whole; null where the whole is nothing."""
    former_usd: float | None
    """The week before, over as many hours; null where there is none to compare with."""
    gpu_hours: float
    """GPU-hours held."""
    idle_frac: float | None
    """Share of its measured GPU-hours in which its GPUs did nothing; null where none was measured."""


class TodoPart(Part):
    """An action of the plan."""

    id: str
    """As `trimtab explain` takes it."""
    subject: str
    """What it is done to."""
    effect: str
    """What to do, in words."""
    saving_usd_mo: float
    """Its share of the plan's saving, dollars a month, other teams' part included."""
    effort_weeks: float
    """Engineer-weeks."""
    risk: str
    """low, medium or high."""
    others: bool
    """Whether it touches workloads of other teams too."""


class TodosPart(Part):
    """What to do first, of the plan of a kept audit."""

    fleet: str
    """The history that was audited."""
    until: str
    """The last day of that history."""
    saving_usd_mo: float
    """What all that is left to do saves, dollars a month."""
    actions: tuple[TodoPart, ...]
    """The first ones, in the plan's order; those that are on track are not repeated."""
    left: int
    """How many more there are."""


class RealisedActionPart(Part):
    """An action of the plan, afterwards."""

    id: str
    """As `trimtab explain` takes it."""
    subject: str
    """What it was done to."""
    status: str
    """on track, short or not enacted."""
    predicted_usd_mo: float
    """What the plan said that it would save, dollars a month."""
    realised_usd_mo: float
    """What it saved."""
    cause: str
    """Why it is short; empty where it is not."""


class RealisedPart(Part):
    """What the plan saved since, as `trimtab verify` found it."""

    window: WindowPart
    """The history that was verified."""
    predicted_usd_mo: float
    """The sum over the actions."""
    realised_usd_mo: float
    """The sum over the actions."""
    on_track: int
    """Actions that save what they should."""
    actions: tuple[RealisedActionPart, ...]
    """Each of them, the largest prediction first."""


class DigestPart(Part):
    """One digest: the fleet's, or a team's."""

    team: str | None
    """Null for the fleet."""
    fleet: str
    """Where the history came from."""
    week: str
    """ISO 8601: 2026-W44, Monday to Sunday in UTC."""
    window: WindowPart
    """Its hours that history covers."""
    whole: bool
    """Whether these are all of it."""
    basis: str
    """What was charged: a bill's charges, or list prices."""
    usd: float
    """What it cost."""
    micro_usd: int
    """The same exactly."""
    share_frac: float | None
    """A team's share of the fleet's bill; null for the fleet."""
    gpu_hours: float
    """GPU-hours held."""
    idle_nodes_usd: float | None
    """What nodes cost that nobody held; null for a team."""
    idle_frac: float | None
    """Share of the measured GPU-hours held in which the GPUs did nothing; null where none was measured."""
    measured_frac: float | None
    """Share of the GPU-hours held that have readings; null where none was held."""
    former: FormerWeekPart | None
    """The week before; null where there is none to compare with."""
    no_former: str
    """Why there is none; empty where there is one."""
    causes: tuple[CausePart, ...]
    """What changed, the largest first; empty without a former week."""
    payers: tuple[PayerPart, ...]
    """Teams of the fleet, or workloads of the team, the most expensive first."""
    todos: TodosPart | None
    """What to do; null where no audit is kept."""
    no_todos: str
    """Why there is nothing, and how to get it; empty where there is something."""
    realised: RealisedPart | None
    """What was realised; null where nothing was verified."""
    no_realised: str
    """How to get it; empty where it is there."""

    @property
    def change_usd(self) -> float | None:
        """Return what it cost more than the week before; None where there is none."""
        return None if self.former is None else round(self.usd - self.former.usd, 2)


class DigestDocument(Part):
    """What `trimtab digest` found: the digests that were asked for."""

    schema_version: Literal[1]
    """Version of this layout; a key is never renamed or removed within a version."""
    trimtab_version: str
    """The program that wrote it."""
    digests: tuple[DigestPart, ...]
    """The fleet's first."""
