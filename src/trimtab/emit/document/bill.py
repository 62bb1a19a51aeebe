"""What was observed, where the money goes, what it buys, and what each workload's activity shows."""

from __future__ import annotations

from trimtab.emit.document.part import EvidencePart, Part, WindowPart


class CoveragePart(Part):
    """How much of the fleet and its history was observed."""

    summary: str
    """A one-line summary for people."""
    window: WindowPart
    """The history that was read."""
    asked_days: float
    """Days that were requested."""
    device_hours_seen_frac: float
    """Share of the GPU-hours in use that have readings."""
    sm_active_frac: float
    """Share of those that have SM activity, not only the coarser GPU_UTIL."""
    gpus: int
    """GPUs on them."""
    nodes: int
    """Nodes billed in the fit window, including those that came and went."""
    notes: tuple[str, ...]
    """What was missing, and how that reduces certainty."""
    counts: dict[str, int]
    """Reason -> number of readings or rows that were clamped or dropped."""


class SpendPart(Part):
    """A share of the bill."""

    name: str
    """Workload, team or workload type."""
    usd_mo: float
    """Dollars a month."""
    share_frac: float
    """Share of the bill."""
    gpu_hours: float
    """GPU-hours held over the fit window."""
    activity_frac: float | None
    """Mean activity of the GPUs held; null if not measured."""
    team: str | None = None
    """A workload's team; null in the other tables, and in documents made before it was recorded."""
    kind: str | None = None
    """A workload's type; null in the other tables, and in documents made before it was recorded."""


class SpendTables(Part):
    """The bill, split three ways; each table sums to the bill to the cent."""

    by_kind: tuple[SpendPart, ...]
    """By workload type."""
    by_team: tuple[SpendPart, ...]
    """By team."""
    by_workload: tuple[SpendPart, ...]
    """By workload."""


class TokenCostPart(Part):
    """A service's share of the bill by token; the dollars sum to its share to the cent."""

    service: str
    """Namespace and name."""
    team: str
    """Its team."""
    usd_mo: float
    """Dollars a month: the service's row in the bill by workload."""
    input_usd_mo: float
    """For prompt tokens that had to be computed."""
    output_usd_mo: float
    """For generated tokens."""
    cached_usd_mo: float
    """For prompt tokens found in the prefix cache."""
    unread_usd_mo: float
    """For hours without token readings."""
    input_mtok_mo: float
    """Million prompt tokens computed a month, as far as they were read."""
    output_mtok_mo: float
    """Million tokens generated a month."""
    cached_mtok_mo: float | None
    """Million prompt tokens found in the prefix cache a month; null if the server does not count them."""
    input_usd_per_mtok: float | None
    """Dollars per million prompt tokens computed; null if there were none."""
    output_usd_per_mtok: float | None
    """Dollars per million tokens generated."""
    cached_usd_per_mtok: float | None
    """Dollars per million prompt tokens found in the prefix cache."""
    rule: str
    """How the share was divided: measured (step times of the engine), modelled (step times of the model), blended (one price).
    """
    because: str
    """The basis of that rule."""


class ProductFormPart(Part):
    """The share of paid GPU-hours that did work, as a product of three shares."""

    allocation_frac: float
    """Share of the paid GPU-hours that a workload held."""
    busy_frac: float | None
    """Share of the held GPU-hours in which the GPU ran anything; null if not measured."""
    efficiency_frac: float | None
    """How much of the GPU was in use while it ran; null if not measured."""
    product_frac: float | None
    """The product of the three; null if one is."""


class WastePart(Part):
    """One kind of waste; all kinds, with useful work, sum to the bill to the cent."""

    kind: str
    """Kind of waste, or `useful work`."""
    usd_mo: float
    """Dollars a month."""
    share_frac: float
    """Share of the bill."""
    meaning: str
    """The kind in words."""
    where: tuple[str, ...]
    """The workloads that account for most of it."""


class FoundPart(Part):
    """Something broken or untidy: what and where it is, who owns it, what it cost, and who can fix it."""

    kind: str
    """If broken, the kind of waste that its dollars of the fit window are counted under; else what is untidy."""
    subject: str
    """The workload, the node or the group of nodes."""
    nodes: tuple[str, ...]
    """Affected nodes."""
    items: tuple[str, ...]
    """Affected runs, pods, nodes or GPUs, largest loss first."""
    usd: float
    """Dollars over the whole history, including the proof window."""
    usd_mo: float
    """The same as dollars a month."""
    gpu_hours: float
    """GPU-hours lost over the whole history."""
    usd_hr: float | None
    """Dollars an hour while it lasts; null if it does not continue to the end of the history."""
    call: str
    """Who can fix it: workload owner, platform team or cloud provider's support."""
    evidence: str
    """The evidence."""


class BrokenPart(FoundPart):
    """Something broken that took GPU time: failed runs, a crash loop, a node or a GPU out of order."""

    what: str
    """What it is."""
    retried: str
    """What failed attempts add to the cost of runs that completed; empty if it belongs to no workload."""


class HygienePart(FoundPart):
    """An offender: a workload or a group of nodes that is untidy. Its dollars are already counted as waste."""

    owner_kind: str
    """Kubernetes kind that runs the workload's pods; empty for a group of nodes, or if unknown."""
    counted_in: str
    """The kind of waste that its dollars are part of; empty if it costs nothing."""
    unschedulable: tuple[str, ...]
    """Workloads that its patch keeps off these nodes until they tolerate the taint."""
    daemons: tuple[str, ...]
    """DaemonSets on these nodes, which are expected there."""


class LongTailPart(Part):
    """A cost beside the GPUs: traffic of their nodes, volumes that no pod mounts, GPUs that wait for images or load."""

    kind: str
    """What it is."""
    subject: str
    """Nodes, regions, a namespace or a workload."""
    usd_mo: float | None
    """Dollars a month; null if nothing says what it costs."""
    tied: bool
    """Whether the bill or the cluster ties it to GPU nodes; else it is that of everything in their regions."""
    evidence: str
    """The evidence."""
    advice: str
    """What reduces it."""


class VerdictPart(Part):
    """What a workload's activity shows."""

    workload: str
    """Namespace and name."""
    headline: str
    """The verdict in one line."""
    evidence: tuple[EvidencePart, ...]
    """The evidence."""


class UnjudgedPart(Part):
    """A workload that could not be planned for."""

    workload: str
    """Namespace and name."""
    usd_mo: float
    """Dollars a month."""
    reason: str
    """Why it could not be judged."""


class CommittedRatesPart(Part):
    """How much of the fit window's use on demand has a committed rate that is known."""

    on_demand_usd_mo: float
    """What that use costs a month on demand, at the prices of the plan."""
    unjudged_usd_mo: float
    """The part on nodes of which no committed rate is known: whether a commitment pays there could not be judged."""
    unjudged_pools: tuple[str, ...]
    """Those nodes, most expensive first: type, region and provider."""


class OwnedPart(Part):
    """An active commitment, judged on usage in the fit window."""

    name: str
    """Its name in the file."""
    pool: str
    """The nodes that it covers."""
    count: int
    """How many nodes."""
    end: str
    """The first day after it."""
    used_frac: float
    """Share of what it pays for that was in use."""
    sunk_usd_mo: float
    """Paid a month for nodes that nothing ran on, until it ends; no plan can change that."""


class OwnedSpendPart(Part):
    """An active commitment to spend, judged on usage in the fit window."""

    name: str
    """Its name in the file."""
    provider: str
    """The provider."""
    usd_hr: float
    """Cost an hour, used or not."""
    end: str
    """The first day after it."""
    used_frac: float
    """Share of the commitment that paid for node time."""
    sunk_usd_mo: float
    """Paid a month without use, until it ends."""
