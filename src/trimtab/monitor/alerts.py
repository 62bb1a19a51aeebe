"""Twelve alerts that every GPU fleet needs, whatever its plan: each says what it costs an hour and links to what to do.

Expressions read the recorded series of `monitor.series` alone, but for what Kubernetes and Karpenter themselves export. An
alert on a mean waits until there was something to take the mean of: a workload that just started is no waste.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from trimtab.emit.manifests.emission import Plain
from trimtab.monitor.series import (
    ACTIVITY,
    BOARD,
    COST,
    DAY_COST,
    EXPECTED,
    HELD,
    INSTANCE_TYPE_LABEL,
    KV_CACHE,
    MEMORY,
    OCCUPANCY,
    POWER,
    POWER_LIMIT,
    REGION_LABEL,
    RUN,
    SURPRISE,
    TEMPERATURE,
    THROTTLED,
    WORKLOAD,
    WORKLOAD_DAY,
)
from trimtab.monitor.watched import PaidNodes, Thresholds, Watched
from trimtab.units import HR_PER_DAY

_WORKLOAD = ", ".join(WORKLOAD)
_GPU = ", ".join((*BOARD, "model"))
_SPOT_MESSAGES = "spot_interrupted|SpotInterruption.*"
"""`message_type` of Karpenter v1 and of v0 (karpenter-provider-aws, pkg/controllers/interruption/messages)."""
_INTERRUPTIONS = ("karpenter_interruption_received_messages_total", "karpenter_interruption_received_messages")
"""As v1 and v0 call it."""
_MEAN_LASTS_MIN = 10
"""Minutes for which a mean of many minutes must stay beyond its limit: a workload that stops or starts passes it for less."""
_RECENT_MIN = 10
"""Minutes of a second, shorter mean: one that was low and is not any more, or a workload that stopped, is none."""
_IDLE_LASTS_MIN = 5
"""Minutes for which a GPU stays idle after its hour: one scrape more or less does not move it back."""
_GPU_RESOURCE = "nvidia_com_.*"


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertRule:
    """One alert: what it asks, for how long that must hold, what it costs, and what a person does."""

    name: str
    expression: str
    minutes: int
    severity: str
    summary: str
    cure: str
    cost: str = ""
    """A Go template's text that says the dollars an hour; empty where no money is lost."""

    def as_plain(self, runbooks: str) -> dict[str, Plain]:
        """Return it as a rule file has it; `runbooks` is the page with a part for each alert."""
        description = f"{self.cost} {self.cure}".strip()
        rule: dict[str, Plain] = {"alert": self.name, "expr": self.expression}
        if self.minutes:
            rule["for"] = f"{self.minutes}m"
        return {
            **rule,
            "labels": {"severity": self.severity},
            "annotations": {
                "summary": self.summary,
                "description": description,
                "runbook_url": f"{runbooks}#{self.name.lower()}",
            },
        }


def alert_rules(watched: Watched, limits: Thresholds) -> Iterator[AlertRule]:
    """Yield the alerts; that on commitments only where the fleet has any."""
    yield _underused(limits)
    yield _saturated(limits)
    yield _memory(limits)
    yield from _boards(limits)
    yield _occupancy(limits)
    yield _idle(limits)
    yield _interrupted(limits)
    for paid in watched.paid:
        yield _unused_commitment(paid, limits)
    yield _spend_jump(limits)
    yield _absent(limits)


def costs(series: str, labels: Sequence[str], *, what: str = "They cost") -> str:
    """Return a template that asks Prometheus for dollars an hour, and says so where no price is known."""
    places = ",".join(f"{label}=%q" for label in labels)
    values = " ".join(f"$labels.{label}" for label in labels)
    query = f'printf "sum({series}{{{places}}})" {values} | query'
    price = '{{ . | first | value | printf "$%.2f" }} an hour'
    return f"{what} {{{{ with {query} }}}}{price}{{{{ else }}}}an unknown price{{{{ end }}}}."


def _underused(limits: Thresholds) -> AlertRule:
    minutes, limit = limits.underused_min, limits.underused_frac
    recent = f"{_mean(ACTIVITY, _RECENT_MIN)} < {limit:g} >= {limits.idle_frac:g}"
    return AlertRule(
        name="TrimtabGpuUnderused",
        expression=f" and on ({_WORKLOAD}) ".join(
            (f"{_mean(ACTIVITY, minutes)} < {limit:g}", f"({recent})", _held_before(minutes))
        ),
        minutes=_MEAN_LASTS_MIN,
        severity="info",
        summary="{{ $labels.namespace }}/{{ $labels.workload }} uses {{ $value | humanizePercentage }} of its GPUs",
        cost=costs(COST, WORKLOAD),
        cure="Fewer replicas, a smaller GPU or a share of one may do: trimtab audit says which keeps the targets.",
    )


def _mean(series: str, minutes: int) -> str:
    """Return the mean of a series over each workload's GPUs and the last minutes; a pod counts by how long it was there."""
    selected = f'{series}{{workload!=""}}[{minutes}m]'
    total, samples = (f"sum by ({_WORKLOAD}) ({over}_over_time({selected}))" for over in ("sum", "count"))
    return f"{total} / {samples}"


def _held_before(minutes: int) -> str:
    return f'count by ({_WORKLOAD}) ({HELD}{{workload!=""}} offset {minutes}m)'


def _saturated(limits: Thresholds) -> AlertRule:
    peak = f'max by ({_WORKLOAD}) ({ACTIVITY}{{workload!=""}})'
    return AlertRule(
        name="TrimtabGpuSaturated",
        expression=f"{peak} > {limits.saturated_frac:g} unless on ({_WORKLOAD}) {RUN}",
        minutes=limits.saturated_min,
        severity="warning",
        summary="{{ $labels.namespace }}/{{ $labels.workload }}: a GPU is {{ $value | humanizePercentage }} busy",
        cost=costs(COST, WORKLOAD),
        cure="Requests wait: add replicas, or let an autoscaler do it.",
    )


def _memory(limits: Thresholds) -> AlertRule:
    used = f'max by ({_WORKLOAD}) ({MEMORY}{{workload!=""}}) > {limits.memory_frac:g}'
    return AlertRule(
        name="TrimtabGpuMemoryNearlyFull",
        expression=f"({used} unless on ({_WORKLOAD}) {KV_CACHE}) or {KV_CACHE} > {limits.kv_cache_frac:g}",
        minutes=limits.memory_min,
        severity="warning",
        summary="{{ $labels.namespace }}/{{ $labels.workload }}: {{ $value | humanizePercentage }} of the memory is in use",
        cost=costs(COST, WORKLOAD),
        cure="A larger batch or a longer prompt fails or is preempted: shorten, quantize, or take a larger GPU.",
    )


def _boards(limits: Thresholds) -> Iterator[AlertRule]:
    where = "GPU {{ $labels.gpu }} ({{ $labels.model }}) on {{ $labels.node }}"
    by_board = f"max by ({_GPU})"
    cost = costs(COST, BOARD, what="It costs")
    yield AlertRule(
        name="TrimtabGpuHot",
        expression=f"{by_board} ({TEMPERATURE}) > {limits.hot_c:g}",
        minutes=limits.hot_min,
        severity="warning",
        summary=f"{where} is at {{{{ $value }}}} C",
        cost=cost,
        cure="Look at air flow, fans and neighbours; move work away before it slows down.",
    )
    yield AlertRule(
        name="TrimtabGpuThrottled",
        expression=f"{by_board} (avg_over_time({THROTTLED}[{limits.throttled_min}m])) > {limits.throttled_frac:g}",
        minutes=limits.throttled_min,
        severity="warning",
        summary=f"{where} is slowed down {{{{ $value | humanizePercentage }}}} of the time, by heat or its power supply",
        cost=cost,
        cure="The same work takes longer at the same price: cordon the node and have it looked at.",
    )
    yield AlertRule(
        name="TrimtabGpuPower",
        expression=f"{by_board} ({POWER}) / {by_board} ({POWER_LIMIT}) > {limits.power_frac:g}",
        minutes=limits.power_min,
        severity="info",
        summary=f"{where} draws {{{{ $value | humanizePercentage }}}} of its power limit",
        cost=cost,
        cure="At the limit clocks fall. Raise it where the rack allows; else lower it for all and compare work per watt.",
    )


def _occupancy(limits: Thresholds) -> AlertRule:
    minutes = limits.occupancy_min
    low = [f"{_mean(OCCUPANCY, over)} < {limits.occupancy_frac:g}" for over in (minutes, _RECENT_MIN)]
    busy = [f"{_mean(ACTIVITY, over)} >= {limits.underused_frac:g}" for over in (minutes, _RECENT_MIN)]
    return AlertRule(
        name="TrimtabTrainingOccupancyLow",
        expression=f" and on ({_WORKLOAD}) ".join((*low, RUN, *busy, _held_before(minutes))),
        minutes=_MEAN_LASTS_MIN,
        severity="info",
        summary="{{ $labels.namespace }}/{{ $labels.workload }} trains at {{ $value | humanizePercentage }} SM occupancy",
        cost=costs(COST, WORKLOAD),
        cure="Kernels are small for this GPU: a larger batch, fused kernels or a smaller GPU; trimtab profile shows which.",
    )


def _idle(limits: Thresholds) -> AlertRule:
    minutes = limits.idle_min
    idle = f"{HELD} and ignoring (signal) (max_over_time({ACTIVITY}[{minutes}m]) < {limits.idle_frac:g})"
    return AlertRule(
        name="TrimtabGpuIdle",
        expression=f"sum by (node, {_WORKLOAD}) ({idle} and {HELD} offset {minutes}m)",
        minutes=_IDLE_LASTS_MIN,
        severity="warning",
        summary='{{ $value | printf "%.1f" }} GPUs of {{ $labels.node }} have done nothing for '
        + f"{minutes} minutes; held by "
        + "{{ if $labels.workload }}{{ $labels.namespace }}/{{ $labels.workload }}{{ else }}no workload{{ end }}",
        cost=costs(COST, ("node", *WORKLOAD)),
        cure="Give the node back, or end what holds it.",
    )


def _interrupted(limits: Thresholds) -> AlertRule:
    seen = " or ".join(f'increase({name}{{message_type=~"{_SPOT_MESSAGES}"}}[1h])' for name in _INTERRUPTIONS)
    return AlertRule(
        name="TrimtabSpotInterruptionBurst",
        expression=f"sum({seen}) >= {limits.interruptions}",
        minutes=0,
        severity="warning",
        summary='{{ $value | printf "%.0f" }} spot interruptions within an hour',
        cost=costs(COST, (), what="The fleet's GPUs cost"),
        cure="Allow more instance types and zones, or move what must not stop to nodes on demand until it is over.",
    )


def _unused_commitment(paid: PaidNodes, limits: Thresholds) -> AlertRule:
    nodes = f'kube_node_labels{{{INSTANCE_TYPE_LABEL}="{paid.instance_type}",{REGION_LABEL}="{paid.region}"}}'
    running = f"(count({nodes}) or vector(0))"
    price = (
        "an unknown price"
        if paid.usd_node_hr is None
        else f'{{{{ $value | printf "%.0f" }}}} x ${paid.usd_node_hr:.2f} an hour'
    )
    least = limits.commitment_used_frac * paid.nodes
    return AlertRule(
        name="TrimtabCommitmentUnused",
        expression=f"{paid.nodes} - ({running} < {least:g})",
        minutes=limits.commitment_min,
        severity="warning",
        summary=f'{{{{ $value | printf "%.0f" }}}} of {paid.nodes} paid {paid.instance_type} in {paid.region} do not run',
        cost=f"They cost {price}.",
        cure="Move work from nodes on demand to them.",
    )


def _spend_jump(limits: Thresholds) -> AlertRule:
    enough_usd_hr = limits.spend_jump_usd_day / HR_PER_DAY
    least = f"{SURPRISE} > {limits.spend_jump_frac:g} and {DAY_COST} - {EXPECTED} > {enough_usd_hr:.6g}"
    riser = f"topk(1, {WORKLOAD_DAY} - ({WORKLOAD_DAY} offset 1d or 0 * {WORKLOAD_DAY}))"
    told = '{{ .Labels.namespace }}/{{ .Labels.workload }} rose most, by {{ .Value | printf "$%.2f" }} an hour.'
    cause = f'{{{{ with query "{riser}" }}}}{{{{ with . | first }}}}{told}{{{{ end }}}}{{{{ end }}}}'
    return AlertRule(
        name="TrimtabSpendJump",
        expression=least,
        minutes=0,
        severity="warning",
        summary="the fleet's last day cost {{ $value | humanizePercentage }} more than expected",
        cost=f"{costs(COST, (), what='It costs')} {cause}",
        cure="See what was deployed or scaled in the last day.",
    )


def _absent(limits: Thresholds) -> AlertRule:
    expected = f'count by (node) (kube_node_status_allocatable{{resource=~"{_GPU_RESOURCE}"}} > 0)'
    return AlertRule(
        name="TrimtabGpuTelemetryAbsent",
        expression=f"({expected} unless on (node) {ACTIVITY}) or absent({ACTIVITY})",
        minutes=limits.absent_min,
        severity="warning",
        summary="no readings of the GPUs{{ if $labels.node }} of {{ $labels.node }}{{ end }}",
        cure="Its waste and its faults are unseen: look at dcgm-exporter and its scrape.",
    )
