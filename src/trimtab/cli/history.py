"""Which history an audit reads: a bundle on disk, a demonstration fleet, or a recorded trace."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from trimtab.errors import UsageError
from trimtab.pipeline import open_demo, open_trace
from trimtab.tables.bundle import Bundle
from trimtab.tables.checks import checked_bundle

DEFAULT_DEMO = "two-hundred-k"


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """A bundle and what to call it."""

    name: str
    bundle: Bundle
    demo: bool


def open_history(*, bundle: Path | None, demo: str | None, demo_trace: Path | None) -> History:
    """Open the one history that was named; raises UsageError where none or several were."""
    named = [option for option, value in (("BUNDLE", bundle), ("--demo", demo), ("--demo-trace", demo_trace)) if value]
    if len(named) != 1:
        raise UsageError(_choose(named))
    if bundle is not None:
        return History(name=str(bundle), bundle=checked_bundle(bundle), demo=False)
    if demo_trace is not None:
        return History(name=f"trace {demo_trace.name}", bundle=open_trace(demo_trace), demo=True)
    assert demo is not None
    return History(name=f"demo {demo}", bundle=open_demo(demo), demo=True)


def _choose(named: list[str]) -> str:
    if named:
        return f"{' and '.join(named)} name different histories: give one of them"
    return (
        "which fleet? give the folder of a bundle (trimtab audit fleet/), or try a demonstration (trimtab audit --demo)"
    )
