"""Five boards over the recorded series: fleet, workloads, GPUs, serving, money."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from trimtab.catalog import model_servers
from trimtab.catalog.model_servers import ServerMetrics
from trimtab.emit.manifests.emission import Plain
from trimtab.emit.manifests.grafana import DATASOURCE, board_text, panel
from trimtab.monitor.series import (
    ACTIVITY,
    COST,
    DAY_COST,
    DRAM,
    EXPECTED,
    FLEET_COST,
    HELD,
    KV_CACHE,
    MEMORY,
    OCCUPANCY,
    PLANNED,
    POWER,
    POWER_LIMIT,
    REALISED,
    TEMPERATURE,
    TENSOR,
    THROTTLED,
    WASTE,
    WORKLOAD_COST,
)
from trimtab.monitor.watched import Watched
from trimtab.units import HR_PER_MO

_OF_WORKLOAD = 'namespace=~"$namespace",workload=~"$workload"'
_OF_NODE = 'node=~"$node"'
_OF_NAMESPACE = 'namespace=~"$namespace"'
_BY_WORKLOAD = "namespace, workload"
_WORKLOAD = "{{namespace}}/{{workload}}"
_GPU = "{{node}} {{gpu}} {{mig}}"
_RATE = "$__rate_interval"


@dataclass(frozen=True, slots=True, kw_only=True)
class GrafanaBoard:
    """One board: its name in paths and links, and its JSON."""

    uid: str
    text: str


def boards(watched: Watched, runbooks: str = "", page: str = "") -> Iterator[GrafanaBoard]:
    """Yield the boards; each links to the others, to what to do and to the audits' pages, where those are addresses."""
    links = [_link("other boards", "dashboards", tags=["trimtab"])]
    for title, url in (("what to do", runbooks), ("the plan, in trimtab", page)):
        if url.startswith(("https://", "http://")):
            links.append(_link(title, "link", url=url))
    namespace = _variable("namespace", f"label_values({WORKLOAD_COST}, namespace)")
    workload = _variable("workload", f'label_values({WORKLOAD_COST}{{namespace=~"$namespace"}}, workload)')
    node = _variable("node", f"label_values({ACTIVITY}, node)")
    yield _board(links, "fleet", "what there is, who holds it, how busy it is", _fleet())
    yield _board(links, "workloads", "one team or workload", _workloads(), namespace, workload)
    yield _board(links, "gpus", "boards, MIG instances, memory, heat and power", _gpus(), node)
    yield _board(links, "serving", "requests, queues and latency of model servers", _serving(), namespace)
    yield _board(links, "money", "what it costs and what is wasted", _money(watched), namespace)


def _board(
    links: Sequence[Plain], name: str, about: str, panels: Iterator[dict[str, Plain]], *variables: Plain
) -> GrafanaBoard:
    title, told = f"trimtab: {name}", f"GPUs: {about}"
    return GrafanaBoard(uid=name, text=board_text(f"trimtab-{name}", title, told, list(panels), variables, links))


def _link(title: str, kind: str, *, url: str = "", tags: Sequence[str] = ()) -> Plain:
    """Return a link above a board: to boards with tags, or to an address."""
    return {
        "title": title,
        "type": kind,
        "icon": "doc" if url else "external link",
        "tooltip": "",
        "url": url,
        "tags": tags,
        "asDropdown": not url,
        "targetBlank": bool(url),
        "includeVars": False,
        "keepTime": not url,
    }


def _variable(name: str, query: str) -> Plain:
    return {
        "name": name,
        "type": "query",
        "datasource": DATASOURCE,
        "query": {"query": query, "refId": name},
        "refresh": 2,
        "includeAll": True,
        "multi": True,
        "allValue": ".*",
        "current": {"text": "All", "value": "$__all"},
        "sort": 1,
    }


def _fleet() -> Iterator[dict[str, Plain]]:
    yield panel(
        "GPUs",
        "short",
        {"held": f'sum({HELD}{{workload!=""}})', "held by no workload": f'sum({HELD}{{workload=""}}) or vector(0)'},
        stack=True,
    )
    yield panel("Spend per hour", "currencyUSD", {"fleet": FLEET_COST})
    yield panel("GPUs by model", "short", {"{{model}}": f"sum by (model) ({HELD})"}, stack=True)
    yield panel("Activity by signal", "percentunit", {"{{signal}}": f"avg by (signal) ({ACTIVITY})"})
    yield panel("GPUs by namespace", "short", {"{{namespace}}": f"sum by (namespace) ({HELD})"}, stack=True)
    yield panel("Waste per hour by kind", "currencyUSD", {"{{kind}}": f"sum by (kind) ({WASTE})"}, stack=True)


def _workloads() -> Iterator[dict[str, Plain]]:
    yield panel("Spend per hour", "currencyUSD", {_WORKLOAD: f"{WORKLOAD_COST}{{{_OF_WORKLOAD}}}"}, stack=True)
    yield panel("GPUs held", "short", {_WORKLOAD: f"sum by ({_BY_WORKLOAD}) ({HELD}{{{_OF_WORKLOAD}}})"}, stack=True)
    for title, name in (("Activity", ACTIVITY), ("Tensor cores active", TENSOR), ("Memory bandwidth active", DRAM)):
        yield panel(title, "percentunit", {_WORKLOAD: f"avg by ({_BY_WORKLOAD}) ({name}{{{_OF_WORKLOAD}}})"})
    yield panel(
        "Memory in use, fullest GPU",
        "percentunit",
        {_WORKLOAD: f"max by ({_BY_WORKLOAD}) ({MEMORY}{{{_OF_WORKLOAD}}})"},
    )
    yield panel("Waste per hour", "currencyUSD", {_WORKLOAD + " {{kind}}": f"{WASTE}{{{_OF_WORKLOAD}}}"}, stack=True)


def _gpus() -> Iterator[dict[str, Plain]]:
    for title, name in (
        ("Activity", ACTIVITY),
        ("Tensor cores active", TENSOR),
        ("Memory bandwidth active", DRAM),
        ("SM occupancy", OCCUPANCY),
        ("Memory in use", MEMORY),
    ):
        yield panel(title, "percentunit", {_GPU: f"max by (node, gpu, mig) ({name}{{{_OF_NODE}}})"})
    yield panel("Temperature", "celsius", {_GPU: f"max by (node, gpu) ({TEMPERATURE}{{{_OF_NODE}}})"})
    yield panel(
        "Power",
        "watt",
        {
            _GPU: f"max by (node, gpu) ({POWER}{{{_OF_NODE}}})",
            _GPU + " limit": f"max by (node, gpu) ({POWER_LIMIT}{{{_OF_NODE}}})",
        },
    )
    yield panel(
        "Slowed down by heat or power supply",
        "percentunit",
        {_GPU: f"max by (node, gpu) (avg_over_time({THROTTLED}{{{_OF_NODE}}}[10m]))"},
    )
    yield panel("MIG instances", "short", {"{{node}} {{gpu}}": f'count by (node, gpu) ({HELD}{{{_OF_NODE},mig!=""}})'})


def _serving() -> Iterator[dict[str, Plain]]:
    servers = model_servers.SERVERS
    yield panel(
        "Requests per second",
        "reqps",
        {_legend(s): _by_pod_rate(name, s) for s in servers for name in s.completed[:1]},
    )
    for title, gauge in (("Waiting requests", "waiting"), ("Running requests", "running")):
        gauges = [(server, names[0]) for server in servers if (names := getattr(server, gauge))]
        yield panel(title, "short", {_legend(server): _by_namespace(name, server) for server, name in gauges})
    for title, histogram in (("Latency, p95", "latency"), ("Time to first token, p95", "ttft")):
        found = [(server, getattr(server, histogram)) for server in servers if getattr(server, histogram)]
        yield panel(title, "s", {_legend(server): _p95(name, server) for server, name in found})
    yield panel("Cache in use", "percentunit", {_WORKLOAD: f"{KV_CACHE}{{{_OF_NAMESPACE}}}"})


def _legend(server: ServerMetrics) -> str:
    return server.title + " {{namespace}}"


def _selected(server: ServerMetrics) -> str:
    return "{" + ",".join((_OF_NAMESPACE, *server.only)) + "}"


def _by_pod_rate(counter: str, server: ServerMetrics) -> str:
    return f"sum by (namespace) (rate({counter}{_selected(server)}[{_RATE}]))"


def _by_namespace(gauge: str, server: ServerMetrics) -> str:
    return f"sum by (namespace) ({gauge}{_selected(server)})"


def _p95(histogram: str, server: ServerMetrics) -> str:
    buckets = f"sum by (namespace, le) (rate({histogram}_bucket{_selected(server)}[{_RATE}]))"
    quantile = f"histogram_quantile(0.95, {buckets})"
    return quantile if server.bucket_s == 1 else f"{quantile} * {server.bucket_s:g}"


def _money(watched: Watched) -> Iterator[dict[str, Plain]]:
    yield panel("Spend per hour", "currencyUSD", {"{{namespace}}": _spend("namespace")}, stack=True)
    yield panel("A month at this rate", "currencyUSD", {"fleet": f"{FLEET_COST} * {HR_PER_MO:g}"})
    yield panel(
        "Waste per hour by kind", "currencyUSD", {"{{kind}}": f"sum by (kind) ({WASTE}{{{_OF_NAMESPACE}}})"}, stack=True
    )
    yield panel("Last day against what was expected", "currencyUSD", {"last day": DAY_COST, "expected": EXPECTED})
    yield panel("Spend per hour by model of GPU", "currencyUSD", {"{{model}}": f"sum by (model) ({COST})"}, stack=True)
    if watched.teams:
        yield panel("Spend per hour by team", "currencyUSD", _by_team(watched), stack=True)
    if watched.verified is not None and watched.verified.rows:
        window = watched.verified.window
        found = f"verified {window.start:%Y-%m-%d} to {window.end:%Y-%m-%d}"
        both = {"planned": f"sum({PLANNED})", "realised": f"sum({REALISED})"}
        yield panel(f"Saving a month, {found}", "currencyUSD", both, signed=True)
        by_action = {"{{action}} {{lever}}, {{status}}": f"sum by (action, lever, status) ({REALISED} - {PLANNED})"}
        yield panel("Saving a month, realised less planned, by action", "currencyUSD", by_action, signed=True)


def _spend(by: str) -> str:
    return f"sum by ({by}) ({WORKLOAD_COST}{{{_OF_NAMESPACE}}})"


def _by_team(watched: Watched) -> dict[str, str]:
    spaces: dict[str, list[str]] = {}
    for namespace, team in watched.teams.items():
        spaces.setdefault(team, []).append(namespace)
    return {team: f'sum({WORKLOAD_COST}{{namespace=~"{"|".join(names)}"}})' for team, names in sorted(spaces.items())}
