"""Which history an audit reads: a bundle on disk, a demonstration fleet, a recorded trace, or a Prometheus server."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from trimtab.cli.collect_servers import collect_servers
from trimtab.cli.progress import Tell
from trimtab.cli.server_options import ServerOptions
from trimtab.errors import UsageError
from trimtab.pipeline import open_demo, open_trace
from trimtab.safe_text import without_secrets
from trimtab.sources.collected import bundle_with_bills, with_bills
from trimtab.tables.bundle import Bundle, memory_bundle
from trimtab.tables.checks import check_bundle, checked_bundle
from trimtab.tables.workloads import read_workloads


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """A bundle and what to call it."""

    name: str
    bundle: Bundle
    demo: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    """The histories that the arguments name; one of them must be."""

    bundle: Path | None
    demo: str | None
    demo_trace: Path | None
    source: ServerOptions

    def check(self) -> None:
        """Raise UsageError where no history or several are named. A server from the environment gives way to an argument."""
        named = [
            option
            for option, value in (("BUNDLE", self.bundle), ("--demo", self.demo), ("--demo-trace", self.demo_trace))
            if value
        ]
        if len(named) > 1:
            raise UsageError(f"{' and '.join(named)} name different histories: give one of them")
        if not named and not self.source.url:
            raise UsageError(
                "which fleet? give the folder of a bundle (trimtab audit fleet/) or a server (--prometheus URL), "
                "or try a demonstration (trimtab audit --demo)"
            )


def open_history(named: Named, tell: Tell) -> History:
    """Open the one history that was named, with what people declared and the bills that were given."""
    named.check()
    history = _opened(named, tell)
    bundle = history.bundle
    if named.source.workloads is not None:
        bundle = replace(bundle, workloads=read_workloads(named.source.workloads))
    if named.source.bills and not _is_collected(named):
        bundle = bundle_with_bills(bundle, named.source.bills)
    return replace(history, bundle=bundle)


def _is_collected(named: Named) -> bool:
    return not (named.bundle or named.demo or named.demo_trace)


def _opened(named: Named, tell: Tell) -> History:
    if named.bundle is not None:
        return History(name=str(named.bundle), bundle=checked_bundle(named.bundle))
    if named.demo_trace is not None:
        return History(name=f"trace {named.demo_trace.name}", bundle=open_trace(named.demo_trace), demo=True)
    if named.demo is not None:
        return History(name=f"demo {named.demo}", bundle=open_demo(named.demo), demo=True)
    found = with_bills(collect_servers(named.source, tell), named.source.bills)
    return History(
        name=without_secrets(str(named.source.url)), bundle=check_bundle(memory_bundle(found.tables, found.meta))
    )
