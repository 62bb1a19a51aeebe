"""Run or watch what `trimtab profile` is asked to, then judge it and lay out the answer."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from trimtab.catalog import BuyingOption, Gpu, load_catalog
from trimtab.cli.fit.inputs import amount, seconds
from trimtab.cli.output import Format, write, write_page
from trimtab.cli.profile import ProfileOptions
from trimtab.cli.profile.view import live_view, profile_page, verdict_document
from trimtab.diagnose.profiled import judge
from trimtab.errors import InputError, UnknownName
from trimtab.physics.boards import board
from trimtab.physics.offers import NodeOffer, offers_for
from trimtab.sources.traces.profiles import bundle_of, read_torch_trace
from trimtab.tables.bundle import write_bundle
from trimtab.tables.profile_file import ProfileFile, checked_profile, profile_values
from trimtab_runtime.profile.observation import INTERVAL_S
from trimtab_runtime.profile.program import observe_program


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """What an hour of the machine costs, and why it is taken to."""

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
    """Return what the machine costs an hour: as told, or the cheapest on-demand shape with its GPUs."""
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
    because = f"{gpus} of the GPUs of {offer.where}, on demand: the cheapest that carries {gpu.name}"
    return Rate(usd_hr=rate * gpus, because=because, offer=offer)


def known_board(name: str | None) -> Gpu | None:
    """Return a board by the driver's name; None where no table has it."""
    with suppress(UnknownName):
        return None if name is None else board(name)
    return None


def report(document: Mapping[str, object], options: ProfileOptions) -> None:
    """Judge a profile, write it where that was asked for, and show the answer."""
    profile = checked_profile(document, str(options.read_from or "the profile"))
    rate = rate_of(document, options.usd_hr)
    verdict = judge(
        profile, known_board(profile.gpu), None if options.trace is None else read_torch_trace(options.trace)
    )
    whole = {**document, **verdict_document(profile, verdict, rate.usd_hr, rate.because, _expected(options))}
    if options.form is Format.JSON:
        write(json.dumps(whole, indent=1, allow_nan=False), None)
    else:
        write_page(profile_page(profile, verdict, rate.usd_hr, rate.because, _expected(options)), options.form, None)
    if options.out is not None:
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
