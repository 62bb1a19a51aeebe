"""What `trimtab collect` does: read the places that were named, and put together what they told."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from trimtab.cli.collect_clouds import collect_clouds
from trimtab.cli.collect_servers import collect_servers
from trimtab.cli.moments import parse_window
from trimtab.cli.place_options import CURRENT, Places
from trimtab.cli.progress import Tell
from trimtab.cli.server_options import ServerOptions, is_typed
from trimtab.errors import UsageError
from trimtab.sources.collected import Collected, with_bills
from trimtab.sources.kubernetes.api import cluster_api
from trimtab.sources.kubernetes.objects import Objects, read_dumps
from trimtab.sources.kubernetes.snapshot import collect_snapshot, snapshot_moment, with_snapshot
from trimtab.sources.prometheus.journal import Journal
from trimtab.sources.slurm import collect_slurm, read_slurm
from trimtab.sources.slurm.dumps import zone_of
from trimtab.sources.traces import read_trace, repeated
from trimtab.sources.traces.runs import machine_of


def gather(source: ServerOptions, places: Places, tell: Tell, journal: Journal | None = None) -> Collected:
    """Collect from everything that was named; raises UsageError where nothing was. A journal keeps what is there so far."""
    elsewhere = bool(places.slurm or places.trace or places.clouds)
    places.check(source.url if is_typed("urls") or not elsewhere else None)
    return with_bills(_fleet(source, places, tell, journal), source.bills)


def _fleet(source: ServerOptions, places: Places, tell: Tell, journal: Journal | None) -> Collected:
    if places.slurm:
        return _slurm(source, places)
    if places.trace is not None:
        return _trace(places.trace, places)
    if places.clouds:
        return _clouds(source, places, tell)
    found = collect_servers(source, tell, journal) if source.url else None
    if not places.kubernetes and found is not None:
        return found
    objects, name = _cluster(places, tell)
    if found is not None:
        return with_snapshot(found, objects, source=name)
    newest = snapshot_moment(objects) if places.kube_dumps else datetime.now(UTC)
    return collect_snapshot(objects, *parse_window(source.start, source.end, newest), source=name)


def _clouds(source: ServerOptions, places: Places, tell: Tell) -> Collected:
    """Read the clouds' monitors, completed from a cluster where one was named."""
    found = collect_clouds(places, parse_window(source.start, source.end, datetime.now(UTC)), tell)
    if not places.kubernetes:
        return found
    objects, name = _cluster(places, tell)
    return with_snapshot(found, objects, source=name)


def _slurm(source: ServerOptions, places: Places) -> Collected:
    """Read Slurm's dumps over all that they cover, unless a window was asked for."""
    boards = places.boards()
    dump = read_slurm(places.slurm, zone_of(places.timezone))
    first, last = dump.span
    start, end = parse_window(source.start if is_typed("start") else first.isoformat(), source.end, last)
    name = "Slurm " + ", ".join(path.name for path in places.slurm)
    return collect_slurm(dump, start, end, gpu_names=boards, source=name)


def _trace(path: Path, places: Places) -> Collected:
    """Make a fleet of a recorded trace; it covers what the trace does. Raises UsageError where a window was asked for."""
    if is_typed("start") or is_typed("end"):
        raise UsageError("a --trace is taken whole, on its own clock: leave --from and --to out")
    made = read_trace(path, machine_of(places.machine) if places.machine else None)
    return repeated(made, places.repeat) if places.repeat else made


def _cluster(places: Places, tell: Tell) -> tuple[Objects, str]:
    if places.kube_dumps:
        return read_dumps(places.kube_dumps), "Kubernetes dump " + ", ".join(path.name for path in places.kube_dumps)
    context = None if places.context in (None, CURRENT) else places.context
    with cluster_api(context, places.kubeconfig) as api:
        return api.read(tell), f"Kubernetes {context or 'current context'}"
