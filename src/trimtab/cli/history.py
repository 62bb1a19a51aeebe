"""What a command reads about a fleet: its history (a bundle, a demonstration, a trace, a server) and its commitments."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import click

from trimtab.catalog import Catalog
from trimtab.cli import say
from trimtab.cli.progress import Tell
from trimtab.cli.server_options import ServerOptions
from trimtab.errors import UsageError
from trimtab.pipeline import open_demo, open_trace
from trimtab.plan.commitments.inventory import Owned
from trimtab.safe_text import without_secrets
from trimtab.sources.bills.commitments import Inventory, read_inventory, types_in_bill
from trimtab.sources.collected import bundle_with_bills, with_bills
from trimtab.tables.bundle import Bundle, memory_bundle
from trimtab.tables.checks import check_bundle, checked_bundle
from trimtab.tables.workloads import read_workloads


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """A bundle and its display name."""

    name: str
    bundle: Bundle
    demo: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryChoice:
    """The histories that the arguments name; exactly one is needed."""

    bundle: Path | None
    demo: str | None
    demo_trace: Path | None
    source: ServerOptions

    def check(self) -> None:
        """Raise UsageError if no history or several are named. A server from the environment yields to an argument."""
        named = [
            option
            for option, value in (("BUNDLE", self.bundle), ("--demo", self.demo), ("--demo-trace", self.demo_trace))
            if value
        ]
        if len(named) > 1:
            raise UsageError(f"{' and '.join(named)} name different histories: give one of them")
        if named and self.source.is_windowed:
            raise UsageError(f"--from and --to choose the window of a server; {named[0]} is read whole: leave them out")
        if not named and not self.source.url:
            context = click.get_current_context(silent=True)
            command = context.command_path if context is not None else "trimtab audit"
            raise UsageError(
                f"which fleet? give the folder of a bundle ({command} fleet/) or a server (--prometheus URL), "
                f"or try a demonstration ({command} --demo)"
            )


def open_history(choice: HistoryChoice, tell: Tell) -> History:
    """Open the history that was named, with declarations and bills."""
    choice.check()
    history = _opened(choice, tell)
    bundle = history.bundle
    if choice.source.workloads is not None:
        bundle = replace(bundle, workloads=read_workloads(choice.source.workloads))
    if choice.source.bills and not _is_collected(choice):
        bundle = bundle_with_bills(bundle, choice.source.bills)
    return replace(history, bundle=bundle)


def _is_collected(choice: HistoryChoice) -> bool:
    return not (choice.bundle or choice.demo or choice.demo_trace)


def _opened(choice: HistoryChoice, tell: Tell) -> History:
    if choice.bundle is not None:
        return History(name=str(choice.bundle), bundle=checked_bundle(choice.bundle))
    if choice.demo_trace is not None:
        return History(name=f"trace {choice.demo_trace.name}", bundle=open_trace(choice.demo_trace), demo=True)
    if choice.demo is not None:
        return History(name=f"demo {choice.demo}", bundle=open_demo(choice.demo), demo=True)
    from trimtab.cli.collect.run import collect_servers  # heavy: clients of servers and clouds

    found = with_bills(collect_servers(choice.source, tell), choice.source.bills)
    return History(
        name=without_secrets(str(choice.source.url)), bundle=check_bundle(memory_bundle(found.tables, found.meta))
    )


def held_inventory(path: Path | None, catalog: Catalog, bundle: Bundle, *, region: str | None = None) -> Inventory:
    """Return the commitments in a file; instance types that it does not name come from the bundle's bill."""
    if path is None:
        return Inventory()
    costs = bundle.table("costs", ["CommitmentDiscountId", "instance_type"])
    return read_inventory(path, catalog, region=region, type_of=types_in_bill(costs))


def held_commitments(path: Path | None, catalog: Catalog, bundle: Bundle) -> tuple[Owned, ...]:
    """Return the commitments to machines and to spend in a file; report on stderr what is ignored."""
    held = held_inventory(path, catalog, bundle)
    for line in held.left_out:
        say(f"warning: left out: {line}", err=True)
    return held.owned
