"""The live view of `trimtab profile`: a row a GPU, and the dollars so far and to the end, on stderr."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from rich.console import Console
from rich.live import Live
from rich.table import Table

from trimtab.cli.profile_page import cost_line, percent
from trimtab.tables.profile_file import ProfileFile, checked_profile
from trimtab_runtime.profile import Profile

REFRESH_S = 2.0
_COLUMNS = ("GPU", "state", "busy", "SM", "tensor", "DRAM", "memory", "power", "throttled")


@contextmanager
def live_view(
    seen: Profile, rate: Callable[[Mapping[str, object]], float | None], expected_s: float | None, *, shown: bool
) -> Iterator[None]:
    """Show the view while the block runs, where stderr is a terminal."""
    if not shown or not sys.stderr.isatty() or seen.problem is not None:
        yield
        return
    ended = threading.Event()
    usd_hr = rate(seen.document())
    with Live(console=Console(stderr=True), transient=True, auto_refresh=False) as live:

        def refresh() -> None:
            while not ended.wait(REFRESH_S):
                live.update(live_table(checked_profile(seen.document()), usd_hr, expected_s), refresh=True)

        thread = threading.Thread(target=refresh, name="trimtab-live", daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join(REFRESH_S)


def live_table(profile: ProfileFile, usd_hr: float | None, expected_s: float | None) -> Table:
    """Return the view at one moment: means since the start."""
    table = Table(*_COLUMNS, caption=cost_line(profile.wall_s, usd_hr, expected_s), title=profile.gpu)
    for device in profile.devices:
        memory, power = device.metrics.get("memory_used_gib"), device.mean("power_w")
        throttled = device.throttled_frac
        table.add_row(
            str(device.index) if device.parent is None else f"{device.index}/{device.mig_profile}",
            device.state,
            *(
                percent(device.mean(f"{name}_frac"))
                for name in ("gpu_util", "sm_active", "tensor_active", "dram_active")
            ),
            "–" if memory is None else f"{memory.max:.1f} GiB",
            "–" if power is None else f"{power:.0f} W",
            "–" if throttled is None else percent(max(throttled.values(), default=0.0)),
        )
    return table
