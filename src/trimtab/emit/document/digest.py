"""The document of a weekly digest: cost of a fleet or a team, changes, open actions, realised savings."""

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
    """True if these are all of its hours."""
    usd: float
    """Its cost, scaled to as many hours as this week covers."""
    gpu_hours: float
    """GPU-hours held, scaled the same way."""


class MovedPart(Part):
    """The contribution of a workload or shared row to a cause."""

    name: str
    """Workload (with its team in the fleet's digest), or shared row."""
    usd: float
    """What it added; negative where it saved."""


class CausePart(Part):
    """One cause of the change. The causes sum to the change to the cent."""

    cause: str
    """GPU-hours held, other nodes, price, workloads that began or ended, idle nodes and the like."""
    usd: float
    """What it added; negative where it saved."""
    mostly: tuple[MovedPart, ...]
    """Main contributors, largest first."""


class PayerPart(Part):
    """A team of the fleet, a workload of a team, or a row of shared cost."""

    name: str
    """Team, workload or shared row."""
    shared: bool
    """True for costs without an owner: idle nodes, tax, credits."""
    usd: float
    """Its cost; the rows sum to the total to the cent."""
    micro_usd: int
    """The same, exactly."""
    share_frac: float | None
    """Share of the total; null if the total is zero."""
    former_usd: float | None
    """Cost in the previous week, scaled to as many hours; null if there is nothing to compare with."""
    gpu_hours: float
    """GPU-hours held."""
    idle_frac: float | None
    """Share of its measured GPU-hours in which its GPUs did nothing; null if none was measured."""


class TodoPart(Part):
    """An action of the plan."""

    id: str
    """As `trimtab explain` takes it."""
    subject: str
    """What it changes."""
    effect: str
    """What to do, in words."""
    saving_usd_mo: float
    """Its share of the plan's saving, dollars a month, including other teams' part."""
    effort_weeks: float
    """Engineer-weeks."""
    risk: str
    """low, medium or high."""
    others: bool
    """True if it also changes workloads of other teams."""


class TodosPart(Part):
    """The first open actions of the last audit's plan."""

    fleet: str
    """The history that was audited."""
    until: str
    """The last day of that history."""
    saving_usd_mo: float
    """What all open actions save, dollars a month."""
    actions: tuple[TodoPart, ...]
    """The first ones, in the plan's order, without those already on track."""
    left: int
    """How many more there are."""


class RealisedActionPart(Part):
    """A verified action of the plan."""

    id: str
    """As `trimtab explain` takes it."""
    subject: str
    """What it changed."""
    status: str
    """on track, short or not enacted."""
    predicted_usd_mo: float
    """The predicted saving, dollars a month."""
    realised_usd_mo: float
    """The realised saving."""
    cause: str
    """Why it is short; empty if it is not."""


class RealisedPart(Part):
    """What the plan has saved since, as found by `trimtab verify`."""

    window: WindowPart
    """The history that was verified."""
    predicted_usd_mo: float
    """The sum over the actions."""
    realised_usd_mo: float
    """The sum over the actions."""
    on_track: int
    """Number of actions on track."""
    actions: tuple[RealisedActionPart, ...]
    """The actions, largest prediction first."""


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
    """True if these are all of its hours."""
    basis: str
    """What was charged: a bill's charges, or list prices."""
    usd: float
    """Its cost."""
    micro_usd: int
    """The same, exactly."""
    share_frac: float | None
    """A team's share of the fleet's bill; null for the fleet."""
    gpu_hours: float
    """GPU-hours held."""
    idle_nodes_usd: float | None
    """Cost of nodes that no workload held; null for a team."""
    idle_frac: float | None
    """Share of the measured GPU-hours held in which the GPUs did nothing; null if none was measured."""
    measured_frac: float | None
    """Share of the GPU-hours held that have readings; null if none was held."""
    former: FormerWeekPart | None
    """The previous week; null if there is nothing to compare with."""
    no_former: str
    """Why there is none; empty if there is one."""
    causes: tuple[CausePart, ...]
    """Causes of the change, largest first; empty without a previous week."""
    payers: tuple[PayerPart, ...]
    """Teams of the fleet, or workloads of the team, the most expensive first."""
    todos: TodosPart | None
    """Open actions; null if no audit was kept."""
    no_todos: str
    """Why there are none, and how to get them; empty if there are some."""
    realised: RealisedPart | None
    """Realised savings; null if nothing was verified."""
    no_realised: str
    """How to get them; empty if they are there."""

    @property
    def change_usd(self) -> float | None:
        """Return the change against the previous week; None if there is none."""
        return None if self.former is None else round(self.usd - self.former.usd, 2)


class DigestDocument(Part):
    """What `trimtab digest` found: the requested digests."""

    schema_version: Literal[1]
    """Version of this layout; a key is never renamed or removed within a version."""
    trimtab_version: str
    """The program that wrote it."""
    digests: tuple[DigestPart, ...]
    """The fleet's digest first."""
