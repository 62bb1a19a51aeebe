"""Runs or watches a program for `trimtab profile`, judges the profile, and shows it: as a page, as JSON, and live on stderr."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import date
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.live import Live
from rich.table import Table

from trimtab.catalog import BuyingOption, Gpu, load_catalog
from trimtab.cli.fit.inputs import amount, seconds
from trimtab.cli.output import Format, Sheet, SheetColumn, fixed, write, write_page
from trimtab.cli.profile import ProfileOptions
from trimtab.diagnose.profiled import RooflinePoint, RunVerdict, judge, mean_of, timeline_of
from trimtab.diagnose.verdicts import Cause, CauseFinding
from trimtab.emit.blocks import Chart, Page, Paragraph, Section, Words, bullets, strong
from trimtab.emit.html.charts import STYLES, activity_chart
from trimtab.emit.html.markup import PHONE_WIDTH
from trimtab.emit.money import percent
from trimtab.errors import InputError, UnknownName
from trimtab.physics.offers import NodeOffer, board, offers_for
from trimtab.sources.traces.profiles import bundle_of, read_torch_trace
from trimtab.tables.bundle import write_bundle
from trimtab.tables.profile_file import ProfileDevice, ProfileFile, checked_profile, profile_values
from trimtab.units import S_PER_HR, S_PER_MIN
from trimtab_runtime.profile import Profile
from trimtab_runtime.profile.observation import INTERVAL_S
from trimtab_runtime.profile.program import observe_program

_SHARES = {"gpu_util_frac": "busy", "sm_active_frac": "SM", "tensor_active_frac": "tensor", "dram_active_frac": "DRAM"}

_FEW_SLOTS = 3
"""A line of fewer steps shows nothing that the phases do not say."""
REFRESH_S = 2.0
_COLUMNS = ("GPU", "state", "busy", "SM", "tensor", "DRAM", "memory", "power", "throttled")


def span(seconds: float) -> str:
    """Format a duration."""
    if seconds < 2 * S_PER_MIN:
        return f"{seconds:.1f} s"
    if seconds < 2 * S_PER_HR:
        return f"{seconds / S_PER_MIN:.1f} min"
    return f"{seconds / S_PER_HR:.1f} h"


def cost_line(wall_s: float, usd_hr: float | None, expected_s: float | None) -> str:
    """Give the cost so far, and the total if the duration is known."""
    if usd_hr is None:
        return f"{span(wall_s)}; no price is known: give --usd-hr"
    line = f"{span(wall_s)} at ${usd_hr:,.2f} an hour: ${usd_hr * wall_s / S_PER_HR:,.4f} so far"
    if expected_s is None:
        return f"{line} (--expect SPAN shows the whole run's)"
    return f"{line}, ${usd_hr * max(expected_s, wall_s) / S_PER_HR:,.4f} to the end"


def profile_page(
    profile: ProfileFile, verdict: RunVerdict, usd_hr: float | None, because: str, expected_s: float | None
) -> Page:
    """Return the page: devices, cost, phases, roofline, verdict, gaps in the data."""
    sections = (
        Section(title="GPUs", name="gpus", blocks=(_sheet(profile.devices).table(),)),
        Section(
            title="Cost",
            name="cost",
            gloss=because,
            blocks=(Paragraph(words=cost_line(profile.wall_s, usd_hr, expected_s)),),
        ),
        Section(title="Phases", name="phases", blocks=(*_activity(profile), bullets(_phases(verdict)))),
        Section(title="Roofline", name="roofline", blocks=(bullets(_roofline(verdict.roofline)),)),
        Section(title="Verdict", name="verdict", blocks=(bullets(_findings(verdict.findings)),)),
        Section(title="Not seen", name="not-seen", blocks=(bullets(_unseen(profile)),)),
    )
    return Page(
        brand="trimtab profile",
        title="Profile",
        subject=profile.gpu or "",
        seen=f"{span(profile.wall_s)}, sampled every {profile.interval_s:g} s",
        headline="" if profile.devices else f"no GPU was observed: {profile.problem or 'the driver shows none'}",
        sections=sections if profile.devices else (),
    )


def _sheet(devices: Sequence[ProfileDevice]) -> Sheet:
    columns = [
        SheetColumn(key="device", title="GPU", whole=True, repeat=True),
        *(SheetColumn(key=key, title=title, show=_as_percent, right=True) for key, title in _SHARES.items()),
        *(SheetColumn(key=f"{key}_p95", title=f"{title} p95", show=_as_percent, right=True)
          for key, title in list(_SHARES.items())[:2]),
        SheetColumn(key="memory_peak_gib", title="peak GiB", show=fixed(1), right=True),
        SheetColumn(key="power_w", title="W", show=fixed(0), right=True),
        SheetColumn(key="energy_kwh", title="kWh", show=fixed(4), right=True),
        SheetColumn(key="throttled", title="throttled"),
        SheetColumn(key="state", title="state"),
    ]  # fmt: skip
    return Sheet(columns=columns, rows=[_row(device) for device in devices])


def _activity(profile: ProfileFile) -> tuple[Chart, ...]:
    """Return the chart of the means over the GPUs that the program used; none where the run was too short for one."""
    slots = timeline_of(profile)
    if len(slots) < _FEW_SLOTS:
        return ()
    step_s = max((row["width_s"] or 0.0 for rows in slots.values() for row in rows), default=0.0)
    series = {title: [mean_of(rows, key) for rows in slots.values()] for key, title in _SHARES.items()}
    return (
        Chart(
            draw=partial(activity_chart, series, step_s),
            on_phone=partial(activity_chart, series, step_s, width=PHONE_WIDTH),
            title="Active, mean over the GPUs that the program used",
            keys=tuple((f"key-{style}", title) for style, title in zip(STYLES, series, strict=True)),
        ),
    )


def _as_percent(cell: object) -> str:
    return percent(cell if isinstance(cell, float | int) else None)


def _row(device: ProfileDevice) -> dict[str, str | float | None]:
    memory = device.metrics.get("memory_used_gib")
    row: dict[str, str | float | None] = {
        "device": f"{device.index}" if device.parent is None else f"{device.index} {device.mig_profile or 'MIG'}",
        **{key: device.mean(key) for key in _SHARES},
        **{f"{key}_p95": None if (metric := device.metrics.get(key)) is None else metric.p95 for key in _SHARES},
        "memory_peak_gib": None if memory is None else memory.max,
        "power_w": device.mean("power_w"),
        "energy_kwh": device.energy_kwh,
        "throttled": _throttled(device),
        "state": device.state if not device.lost_times else f"{device.state}, gone {span(device.lost_s)}",
    }
    return row


def _throttled(device: ProfileDevice) -> str | None:
    if device.throttled_frac is None:
        return None
    return ", ".join(f"{reason} {share:.0%}" for reason, share in device.throttled_frac.items()) or "no"


def _phases(verdict: RunVerdict) -> list[str]:
    return [f"{span(phase.start_s)} to {span(phase.end_s)}: {phase.kind.value}" for phase in verdict.phases]


def _roofline(point: RooflinePoint | None) -> list[str]:
    if point is None:
        return []
    where = "no bytes were moved"
    if point.flop_per_byte is not None:
        side = "left (bandwidth)" if point.flop_per_byte < point.ridge_flop_per_byte else "right (compute)"
        where = f"{point.flop_per_byte:,.0f} FLOP a byte, {side} of the ridge at {point.ridge_flop_per_byte:,.0f}"
    return [f"at most {point.tflops:,.0f} TFLOP/s, {point.dram_gb_s:,.0f} GB/s; {where}"]


def _findings(findings: Sequence[CauseFinding]) -> list[Words]:
    lines: list[Words] = []
    for finding in findings:
        lead = "undetermined" if finding.cause is Cause.UNDETERMINED else finding.cause.value
        lines.append((strong(lead), f": {'; '.join(finding.evidence)}"))
        lines.extend(f"try: {advice}" for advice in finding.try_next)
    return lines


def _unseen(profile: ProfileFile) -> list[str]:
    """Report what was not observed: absent readings, failed calls, lost time."""
    absent: dict[str, list[str]] = {}
    for device in profile.devices:
        for what, why in device.absent.items():
            absent.setdefault(f"{what}: {why}", []).append(str(device.index))
    lines = [profile.problem] if profile.problem else []
    lines += [f"{what} (GPU {', '.join(sorted(set(where)))})" for what, where in absent.items()]
    lines += [
        f"{trouble.device}: {trouble.what} failed {trouble.times} x: {trouble.answer}" for trouble in profile.troubles
    ]
    lines += [
        f"GPU {device.index}: {device.counter_resets} counter reset(s)"
        for device in profile.devices
        if device.counter_resets
    ]
    if profile.samples_missed:
        lines.append(f"{profile.samples_missed} samples missed; the slowest took {profile.longest_sample_s:.2f} s")
    if profile.unobserved_s and profile.unobserved_s > profile.interval_s:
        lines.append(f"{span(profile.unobserved_s)} without any observation")
    return lines


def verdict_document(
    profile: ProfileFile, verdict: RunVerdict, usd_hr: float | None, because: str, expected_s: float | None
) -> dict[str, object]:
    """Return the verdict and the cost as plain values."""
    point = verdict.roofline
    return {
        "cost": {
            "usd_hr": usd_hr,
            "because": because,
            "so_far_usd": None if usd_hr is None else usd_hr * profile.wall_s / S_PER_HR,
            "to_end_usd": None if usd_hr is None or expected_s is None else usd_hr * expected_s / S_PER_HR,
        },
        "verdict": {
            "phases": [
                {"kind": phase.kind.value, "start_s": phase.start_s, "end_s": phase.end_s} for phase in verdict.phases
            ],
            "roofline": None
            if point is None
            else {
                "tflops_at_most": point.tflops,
                "dram_gb_s": point.dram_gb_s,
                "flop_per_byte": point.flop_per_byte,
                "ridge_flop_per_byte": point.ridge_flop_per_byte,
            },
            "findings": [
                {"cause": finding.cause.value, "evidence": list(finding.evidence), "try": list(finding.try_next)}
                for finding in verdict.findings
            ],
        },
    }


@contextmanager
def live_view(
    seen: Profile, rate: Callable[[Mapping[str, object]], float | None], expected_s: float | None, *, shown: bool
) -> Iterator[None]:
    """Show the live view while the block runs, if stderr is a terminal."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """What an hour of the machine costs, and where that figure comes from."""

    usd_hr: float | None
    because: str
    offer: NodeOffer | None = None


def observe(options: ProfileOptions) -> tuple[dict[str, object], int]:
    """Observe until the program ends, the time is over or Ctrl-C; return the profile and the program's exit code."""
    if options.read_from is not None:
        return profile_values(options.read_from), 0
    return observe_program(
        options.program,
        options.pid,
        limit_s=seconds(options.span),
        interval_s=seconds(options.every) or INTERVAL_S,
        tokens=None if options.tokens is None else amount(options.tokens),
        view=lambda seen: live_view(
            seen, lambda document: rate_of(document, options.usd_hr).usd_hr, _expected(options), shown=not options.quiet
        ),
    )


def _expected(options: ProfileOptions) -> float | None:
    return seconds(options.expect) if options.expect else seconds(options.span)


def rate_of(document: Mapping[str, object], usd_hr: float | None) -> Rate:
    """Return the machine's cost per hour: as given, or the cheapest on-demand shape with its GPUs."""
    if usd_hr is not None:
        return Rate(usd_hr=usd_hr, because="as given with --usd-hr")
    name, gpus = document.get("gpu"), document.get("gpus")
    gpu = known_board(name if isinstance(name, str) else None)
    if gpu is None or not isinstance(gpus, int):
        return Rate(usd_hr=None, because="the catalog does not know this GPU; give --usd-hr")
    offers = offers_for(load_catalog(), gpu, at=date.today())
    priced = [
        (rate, candidate) for candidate in offers if (rate := candidate.gpu_usd_hr(BuyingOption.ON_DEMAND)) is not None
    ]
    if not priced:
        return Rate(usd_hr=None, because=f"no cloud sells {gpu.name} on demand; give --usd-hr")
    exact = [(rate, candidate) for rate, candidate in priced if candidate.gpus == gpus] or priced
    rate, offer = min(exact, key=lambda pair: (pair[0], pair[1].where))
    because = f"{gpus} of the GPUs of {offer.where}, on demand: the cheapest with {gpu.name}"
    return Rate(usd_hr=rate * gpus, because=because, offer=offer)


def known_board(name: str | None) -> Gpu | None:
    """Return a GPU by the driver's name; None if no table has it."""
    with suppress(UnknownName):
        return None if name is None else board(name)
    return None


def report(document: Mapping[str, object], options: ProfileOptions) -> None:
    """Judge a profile, write it if requested, and show the answer."""
    profile = checked_profile(document, str(options.read_from or "the profile"))
    rate = rate_of(document, options.usd_hr)
    verdict = judge(
        profile, known_board(profile.gpu), None if options.trace is None else read_torch_trace(options.trace)
    )
    whole = {**document, **verdict_document(profile, verdict, rate.usd_hr, rate.because, _expected(options))}
    if options.form is Format.JSON:
        write(json.dumps(whole, indent=1, allow_nan=False), None)
    else:
        page = profile_page(profile, verdict, rate.usd_hr, rate.because, _expected(options))
        write_page(page, options.form, options.page_file)
    if options.out is not None and options.page_file is None:
        _write_out(options.out, whole, profile, rate, options.workload)


def _write_out(out: Path, whole: Mapping[str, object], profile: ProfileFile, rate: Rate, workload: str) -> None:
    if out.suffix == ".json":
        write(json.dumps(whole, indent=1, allow_nan=False), out)
        return
    if not profile.devices:
        raise InputError(f"no bundle written to {out}: {profile.problem or 'no GPU was observed'}")
    gpu = known_board(profile.gpu)
    bundle = bundle_of(profile, gpu.name if gpu else profile.gpu or "unknown", rate.offer, workload=workload)
    write_bundle(out, bundle.tables, bundle.meta)
