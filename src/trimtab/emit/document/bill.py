"""What was seen, where the money goes, what it buys, and what each workload's activity says."""

from __future__ import annotations

from trimtab.emit.document.part import EvidencePart, Part, WindowPart


class CoveragePart(Part):
    """What was seen of what there was."""

    summary: str
    """One line for people."""
    window: WindowPart
    """The history that was read."""
    asked_days: float
    """Days that were asked for."""
    device_hours_seen_frac: float
    """Share of the GPU-hours in use that have readings."""
    sm_active_frac: float
    """Share of those that carry SM activity, and not only the coarser GPU_UTIL."""
    gpus: int
    """GPUs on them."""
    nodes: int
    """Nodes billed in the fit window, those that came and went included."""
    notes: tuple[str, ...]
    """What was missing, and what that costs in certainty."""
    counts: dict[str, int]
    """Reason -> readings or rows that were clamped or dropped."""


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
    """Mean activity of the GPUs held; null where not measured."""
    team: str | None = None
    """A workload's team; null in the other tables, and in documents made before it was kept."""
    kind: str | None = None
    """A workload's type; null in the other tables, and in documents made before it was kept."""


class SpendTables(Part):
    """The bill, split three ways; each table sums to the bill to the cent."""

    by_kind: tuple[SpendPart, ...]
    """By workload type."""
    by_team: tuple[SpendPart, ...]
    """By team."""
    by_workload: tuple[SpendPart, ...]
    """By workload."""


class TokenCostPart(Part):
    """A service's share of the bill over its tokens; the dollars sum to its share to the cent."""

    service: str
    """Namespace and name."""
    team: str
    """Its team."""
    usd_mo: float
    """Dollars a month: the service's row in the bill by workload."""
    input_usd_mo: float
    """Of prompt tokens that had to be computed."""
    output_usd_mo: float
    """Of tokens answered."""
    cached_usd_mo: float
    """Of prompt tokens found in the prefix cache."""
    unread_usd_mo: float
    """Of hours of which no tokens were read."""
    input_mtok_mo: float
    """Million prompt tokens computed a month, as far as they were read."""
    output_mtok_mo: float
    """Million tokens answered a month."""
    cached_mtok_mo: float | None
    """Million prompt tokens found in the prefix cache a month; null where the server does not count them."""
    input_usd_per_mtok: float | None
    """Dollars per million prompt tokens computed; null where there were none."""
    output_usd_per_mtok: float | None
    """Dollars per million tokens answered."""
    cached_usd_per_mtok: float | None
    """Dollars per million prompt tokens found in the prefix cache."""
    rule: str
    """How the share was divided: measured (by the engine's step times), modelled (by the model's), blended (one price)."""
    because: str
    """What that rests on."""


class ProductFormPart(Part):
    """GPU-hours paid that did work, as a product of three shares."""

    allocation_frac: float
    """Share of the paid GPU-hours that a workload held."""
    busy_frac: float | None
    """Share of the held GPU-hours in which the GPU ran anything; null where not measured."""
    efficiency_frac: float | None
    """How much of the GPU was in use while it ran; null where not measured."""
    product_frac: float | None
    """The three multiplied; null where one is."""


class WastePart(Part):
    """One kind of waste; all kinds, with useful work, sum to the bill to the cent."""

    kind: str
    """Kind of waste, or `useful work`."""
    usd_mo: float
    """Dollars a month."""
    share_frac: float
    """Share of the bill."""
    meaning: str
    """The kind in plain words."""
    where: tuple[str, ...]
    """The workloads that carry most of it."""


class FoundPart(Part):
    """Something broken or untidy: what it is, of whom, where, what it cost, and who can end it."""

    kind: str
    """Of something broken, the kind of waste that its dollars of the fit window are counted under; else what is untidy."""
    subject: str
    """The workload, the node or the group of nodes."""
    nodes: tuple[str, ...]
    """Nodes on which it is or happened."""
    items: tuple[str, ...]
    """Runs, pods, nodes or GPUs, those that lost most first."""
    usd: float
    """Dollars over the whole history, the proof window included."""
    usd_mo: float
    """The same as dollars a month."""
    gpu_hours: float
    """GPU-hours that it took over the whole history."""
    usd_hr: float | None
    """Dollars an hour while it lasts; null where it does not cost without a break up to the end of the history."""
    call: str
    """Who can end it: workload owner, platform team or cloud provider's support."""
    evidence: str
    """What it rests on."""


class BrokenPart(FoundPart):
    """Something broken that took GPU time: failed runs, a crash loop, a node or a GPU out of order."""

    what: str
    """What it is."""
    retried: str
    """What failed attempts add to the cost of runs that completed; empty where it is no workload's."""


class HygienePart(FoundPart):
    """An offender: a workload or a group of nodes that is untidy. Its dollars are part of waste that is counted already."""

    owner_kind: str
    """Kubernetes kind that runs the workload's pods; empty for a group of nodes, or where nobody told."""
    counted_in: str
    """The kind of waste that its dollars are part of; empty where it costs nothing."""
    unschedulable: tuple[str, ...]
    """Workloads that its patch keeps off these nodes until they tolerate the taint."""
    daemons: tuple[str, ...]
    """DaemonSets on these nodes, which belong there."""


class VerdictPart(Part):
    """What a workload's activity says."""

    workload: str
    """Namespace and name."""
    headline: str
    """The verdict in one line."""
    evidence: tuple[EvidencePart, ...]
    """What it rests on."""


class UnjudgedPart(Part):
    """A workload that no plan was made for."""

    workload: str
    """Namespace and name."""
    usd_mo: float
    """Dollars a month."""
    reason: str
    """Why it could not be judged."""


class OwnedPart(Part):
    """A commitment that runs already, judged on the fit window's use."""

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
    """Paid a month for nodes that nothing ran on, whatever is planned, until it ends."""


class OwnedSpendPart(Part):
    """A commitment to spend that runs already, judged on the fit window's use."""

    name: str
    """Its name in the file."""
    provider: str
    """With whom."""
    usd_hr: float
    """What it pays an hour, used or not."""
    end: str
    """The first day after it."""
    used_frac: float
    """Share of the spend that bought node time."""
    sunk_usd_mo: float
    """Paid a month for nothing, until it ends."""
