"""Run or watch what `trimtab profile` is asked to, then judge it and lay out the answer."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from trimtab.catalog import BuyingOption, Gpu, load_catalog
from trimtab.cli.fit_inputs import amount, seconds
from trimtab.cli.output import write
from trimtab.cli.profile_live import live_view
from trimtab.cli.profile_page import page, verdict_document
from trimtab.diagnose.profiled import judge
from trimtab.errors import InputError, UnknownName
from trimtab.physics.boards import board
from trimtab.physics.offers import Offer, offers_for
from trimtab.sources.traces.profiles import bundle_of, read_torch_trace
from trimtab.tables.bundle import write_bundle
from trimtab.tables.profile_file import ProfileFile, checked_profile, profile_values
from trimtab_runtime.profile.observation import INTERVAL_S
from trimtab_runtime.profile.program import observe_program


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """What is observed and how it is priced, as the command line gave it."""

    program: tuple[str, ...]
    pid: int | None
    span: str | None
    read_from: Path | None
    every: str
    usd_hr: float | None
    expect: str | None
    tokens: str | None
    workload: str
    live: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """What an hour of the machine costs, and why it is taken to."""

    usd_hr: float | None
    because: str
    offer: Offer | None = None


def observe(asked: Observed) -> tuple[dict[str, object], int]:
    """Observe until the program ends, the time is over or Ctrl-C; return the profile and the program's exit code."""
    if asked.read_from is not None:
        return profile_values(asked.read_from), 0
    return observe_program(
        asked.program,
        asked.pid,
        limit_s=seconds(asked.span),
        interval_s=seconds(asked.every) or INTERVAL_S,
        tokens=None if asked.tokens is None else amount(asked.tokens),
        view=lambda seen: live_view(
            seen, lambda document: rate_of(document, asked.usd_hr).usd_hr, _expected(asked), shown=asked.live
        ),
    )


def _expected(asked: Observed) -> float | None:
    return seconds(asked.expect) if asked.expect else seconds(asked.span)


def rate_of(document: Mapping[str, object], usd_hr: float | None) -> Rate:
    """Return what the machine costs an hour: as told, or the cheapest on-demand shape with its GPUs."""
    if usd_hr is not None:
        return Rate(usd_hr=usd_hr, because="as given with --usd-hr")
    name, gpus = document.get("gpu"), document.get("gpus")
    gpu = known_board(name if isinstance(name, str) else None)
    if gpu is None or not isinstance(gpus, int):
        return Rate(usd_hr=None, because="the catalog does not know this GPU; give --usd-hr")
    offers = offers_for(load_catalog(), gpu, at=date.today())
    priced = [(rate, one) for one in offers if (rate := one.gpu_usd_hr(BuyingOption.ON_DEMAND)) is not None]
    if not priced:
        return Rate(usd_hr=None, because=f"no cloud sells {gpu.name} on demand; give --usd-hr")
    exact = [(rate, one) for rate, one in priced if one.gpus == gpus] or priced
    rate, offer = min(exact, key=lambda pair: (pair[0], pair[1].where))
    because = f"{gpus} of the GPUs of {offer.where}, on demand: the cheapest that carries {gpu.name}"
    return Rate(usd_hr=rate * gpus, because=because, offer=offer)


def known_board(name: str | None) -> Gpu | None:
    """Return a board by the driver's name; None where no table has it."""
    with suppress(UnknownName):
        return None if name is None else board(name)
    return None


def report(document: Mapping[str, object], asked: Observed, *, trace: Path | None, out: Path | None, form: str) -> None:
    """Judge a profile, write it where that was asked for, and show the answer."""
    profile = checked_profile(document, str(asked.read_from or "the profile"))
    rate = rate_of(document, asked.usd_hr)
    verdict = judge(profile, known_board(profile.gpu), None if trace is None else read_torch_trace(trace))
    whole = {**document, **verdict_document(profile, verdict, rate.usd_hr, rate.because, _expected(asked))}
    if form == "json":
        write(json.dumps(whole, indent=1, allow_nan=False), None)
    else:
        write(page(profile, verdict, rate.usd_hr, rate.because, _expected(asked)), None)
    if out is not None:
        _write_out(out, whole, profile, rate, asked.workload)


def _write_out(out: Path, whole: Mapping[str, object], profile: ProfileFile, rate: Rate, workload: str) -> None:
    if out.suffix == ".json":
        write(json.dumps(whole, indent=1, allow_nan=False), out)
        return
    if not profile.devices:
        raise InputError(f"no bundle written to {out}: {profile.problem or 'no GPU was observed'}")
    gpu = known_board(profile.gpu)
    bundle = bundle_of(profile, gpu.name if gpu else profile.gpu or "unknown", rate.offer, workload=workload)
    write_bundle(out, bundle.tables, bundle.meta)
