"""Answer `trimtab fit` for models that generate no text: rows, what was measured, what is unknown."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from trimtab.catalog import BuyingOption
from trimtab.cli.fit import FitOptions
from trimtab.cli.fit.inputs import amount_per_second, market_of, seconds
from trimtab.cli.fit.tables import reject_lines, reject_rows
from trimtab.cli.output import SCHEMA_VERSION, Cell, Format, Sheet, SheetColumn, fixed, write, write_page, write_sheet
from trimtab.emit.blocks import Page, Section, bullets
from trimtab.emit.fit_document import SERVED_UNDER
from trimtab.errors import PlanError, Unpredictable, UsageError
from trimtab.fleet.settings import Assumptions
from trimtab.physics.found_ways import Rejected
from trimtab.physics.measured_models import (
    FITTED,
    MeasuredDemand,
    MeasuredModel,
    MeasuredOption,
    measured_answer,
)
from trimtab.physics.predict import packaged
from trimtab.provenance import Estimate
from trimtab.sources.traces.request_mix import read_request_mix
from trimtab.units import S_PER_DAY

_TEXT_ONLY = (
    "ttft", "tpot", "emit_bench", "explain", "pictures", "concurrency", "params", "longest", "prefix_hit",
    "offload_hit", "draft_tokens", "adapters", "disaggregated", "over_nodes", "emit_pools",
)  # fmt: skip
"""Options that mean nothing here, or that no measurement answers."""
_TOKENS = "transcript tokens"
_GROUPED = 1000
"""Numbers from here on are shown whole."""
_MEASURED_PERCENTILE = 99.0
"""At which latency was measured (MLPerf Inference, Server scenario); what holds there holds at lower percentiles too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredPresentation:
    """Rows for people, and the whole document for programs."""

    sheet: Sheet
    document: Mapping[str, object]


def answer_measured(options: FitOptions, model: MeasuredModel, assumed: Assumptions) -> None:
    """Write the answer; raises Unpredictable for what was not measured, PlanError where no GPU is left."""
    found, answer = measured_answered(options, model, assumed), options.answer
    if answer.output_format is Format.JSON and not answer.fields:
        write(json.dumps(found.document, indent=2, allow_nan=False, ensure_ascii=False), answer.out)
    elif answer.output_format is Format.HTML:
        sheet = found.sheet.only(answer.fields) if answer.fields else found.sheet
        write_page(_page(sheet, model), Format.HTML, answer.out)
    else:
        write_sheet(found.sheet, answer.output_format, out=answer.out, fields=answer.fields)


def _page(sheet: Sheet, model: MeasuredModel) -> Page:
    """Return the page: the table and what it takes for granted; there is no curve, since one load was measured."""
    return Page(
        brand="trimtab fit",
        title="GPUs for a model",
        subject=f"{model.hub_id or model.name} ({model.kind})",
        sections=(
            Section(name="gpus", title="GPUs that work", gloss="cheapest first", blocks=(sheet.table(),)),
            Section(name="notes", title="What this rests on", blocks=(bullets(sheet.notes),)),
        ),
    )


def measured_answered(options: FitOptions, model: MeasuredModel, assumed: Assumptions) -> MeasuredPresentation:
    """Return the answer; raises Unpredictable for what was not measured, PlanError where no GPU is left."""
    _check(options, model)
    found = measured_answer(model, _demand(options, model), market_of(options, assumed), formats=options.formats)
    if not found.found:
        raise PlanError("nothing works; the nearest misses:\n" + "\n".join(reject_lines(found.rejected)))
    shown = _best(found.found, options)
    remarks = [*_buying_lines(found.found), *_remarks(options, model, shown)]
    people = options.answer.output_format in (Format.TABLE, Format.MARKDOWN, Format.HTML) and not options.answer.fields
    columns = [
        column for column in _columns(model) if not (people and column.key == "format" and len(model.formats) == 1)
    ]
    document = {
        "schema_version": SCHEMA_VERSION,
        "model": model.name,
        "hub_id": model.hub_id or None,
        "kind": model.kind,
        "unit": model.unit,
        "measured_with": model.measured_with,
        "source": model.source,
        "rows": [_machine_row(way) for way in shown],
        "rejected": reject_rows(found.rejected),
        "remarks": remarks,
    }
    # a GPU that works in one format was not rejected, whatever it lacks for another
    works = {way.gpu.name for way in found.found}
    notes = [*_unknown_lines([reject for reject in found.rejected if reject.gpu not in works]), *remarks]
    return MeasuredPresentation(
        sheet=Sheet(columns=columns, rows=[_row(way) for way in shown], notes=notes), document=document
    )


def _check(options: FitOptions, model: MeasuredModel) -> None:
    if options.calibrate:
        raise UsageError(
            f"--calibrate scales a model of how tokens are made, and {model.name} ({model.kind}) has none: its speeds are "
            f"measurements in {model.unit} a second. If yours on a GPU is another, multiply the speeds by yours over the one "
            "shown for that GPU"
        )
    given = [f"--{name.replace('_', '-')}" for name in _TEXT_ONLY if getattr(options, name)]
    if options.rank != "rent":
        given.append("--rank total")
    if given:
        raise UsageError(
            f"{', '.join(given)} cannot be answered for {model.name} ({model.kind}): it was measured in {model.unit} a second"
        )
    if options.percentile is not None and options.percentile > _MEASURED_PERCENTILE:
        raise Unpredictable(
            f"{model.name} was measured at p{_MEASURED_PERCENTILE:g}: its latency at p{options.percentile:g} is unknown. "
            f"Give --percentile {_MEASURED_PERCENTILE:g} or less"
        )
    if options.input_tokens is not None and model.task == "bert-large" and options.input_tokens > 384:
        raise Unpredictable(
            f"{model.name} was measured with {model.measured_with}: its speed on {options.input_tokens} tokens is unknown"
        )
    if model.unit == _TOKENS and (options.rate or options.offline or options.trace) and not options.output_tokens:
        raise UsageError(
            f"{model.name} was measured in tokens of the transcript: give --output-tokens, the mean of a request of yours"
        )


def _demand(options: FitOptions, model: MeasuredModel) -> MeasuredDemand:
    """Return the load in the model's own unit: a request is one of them, of speech as many as it has tokens."""
    each = float(options.output_tokens or 1) if model.unit == _TOKENS else 1.0
    mix = read_request_mix(options.trace, workload=options.workload) if options.trace else None
    rate = amount_per_second(options.rate) if options.rate else mix.peak_req_s if mix else None
    mean = mix.mean_req_s if mix and options.rate is None else None
    if options.offline:
        rate = amount_per_second(options.offline) * S_PER_DAY / (seconds(options.within) or S_PER_DAY)
    return MeasuredDemand(
        online=not options.offline,
        rate_units_s=None if rate is None else rate * each,
        mean_units_s=None if mean is None else mean * each,
        latency_s=seconds(options.latency),
        headroom_frac=0.0 if options.offline else options.headroom,
    )


def _best(found: Sequence[MeasuredOption], options: FitOptions) -> list[MeasuredOption]:
    """Return the cheapest way on each GPU, all of them where asked."""
    kept: dict[str, MeasuredOption] = {}
    for way in found:
        kept.setdefault(f"{len(kept)}" if options.every else way.gpu.name, way)
    return list(kept.values())[: options.limit]


def _unknown_lines(rejected: Sequence[Rejected]) -> list[str]:
    """Return the rejected GPUs, those with the same reason in one line."""
    by_reason: dict[str, list[str]] = {}
    for reject in rejected:
        by_reason.setdefault(f"{reject.reason.value}: {reject.because}", []).append(reject.gpu)
    return [f"rejected: {', '.join(dict.fromkeys(names))}: {why}" for why, names in by_reason.items()]


def _columns(model: MeasuredModel) -> tuple[SheetColumn, ...]:
    def number(key: str, title: str, digits: int) -> SheetColumn:
        return SheetColumn(key=key, title=title, show=fixed(digits), right=True, whole=True)

    return (
        SheetColumn(key="gpu", title="GPU", whole=True, repeat=True),
        number("gpus", "GPUs", 0),
        SheetColumn(key="format", title="format", whole=True),
        SheetColumn(
            key="units_s",
            title=f"{_unit(model)}/s",
            show=_three_figures,
            right=True,
            whole=True,
        ),
        SheetColumn(key="units_s_interval", title="80 %", right=True, whole=True),
        SheetColumn(key="usd_per_munit", title=f"$/M {_unit(model)}", show=_three_figures, right=True, whole=True),
        number("usd_hr", "$/h", 2),
        SheetColumn(key="measured_on", title="measured", whole=True),
        SheetColumn(key="offering", title="cheapest offering"),
    )


def _unit(model: MeasuredModel) -> str:
    return "tokens" if model.unit == _TOKENS else model.unit


def _three_figures(cell: Cell) -> str:
    return f"{cell:,.3g}" if isinstance(cell, int | float) and abs(cell) < _GROUPED else f"{cell:,.0f}"


def _row(way: MeasuredOption) -> dict[str, Cell]:
    speed = way.units_s
    return {
        "gpu": way.gpu.name,
        "gpus": way.gpus,
        "format": way.format,
        "units_s": speed.value,
        "units_s_interval": f"{_three_figures(speed.low)}–{_three_figures(speed.high)}",
        "usd_per_munit": way.usd_per_munit.value,
        "usd_hr": round(way.usd_hr, 4),
        "measured_on": "here" if way.on_this_chip else "others",
        "offering": way.offer.where,
    }


def _machine_row(way: MeasuredOption) -> Mapping[str, object]:
    row = {key: value for key, value in _row(way).items() if not key.endswith("_interval") and key != "measured_on"}
    return {
        **row,
        **_estimate("units_s", way.units_s),
        **_estimate("usd_per_munit", way.usd_per_munit),
        "measured_on_this_chip": way.on_this_chip,
        "stranded_gpus": way.stranded_gpus,
        "usd_hr_by_option": {option.value: round(rate, 4) for option, rate in way.usd_hr_by_option.items()},
        "basis": way.units_s.basis.value,
    }


def _estimate(key: str, figure: Estimate) -> dict[str, float]:
    ends = {key: figure.value, f"{key}_low": figure.low, f"{key}_high": figure.high}
    # six digits, wherever the point is: an image may cost a millionth of a cent
    return {name: float(f"{value:.6g}") for name, value in ends.items()}


def _buying_lines(found: Sequence[MeasuredOption]) -> list[str]:
    """Return the least money over all ways of buying; and how often spot nodes are interrupted wherever they are named."""
    first = found[0]
    priced = [
        (usd_hr, option, way)
        for way in found
        if bool(way.caveats) == bool(first.caveats)
        for option, usd_hr in way.usd_hr_by_option.items()
        if option in SERVED_UNDER
    ]
    usd_hr, bought, least = min(priced, key=lambda priced: (priced[0], priced[2].offer.where))
    spot = f"; {least.offer.spot_words}" if bought is BuyingOption.SPOT else ""
    return [
        f"Cheapest over all ways of buying: {bought.value}, ${usd_hr:,.2f}/h, {least.gpus}x {least.gpu.name}; "
        f"{least.offer.where}{spot}."
    ]


def _remarks(options: FitOptions, model: MeasuredModel, shown: Sequence[MeasuredOption]) -> list[str]:
    mode = model.mode(online=not options.offline)
    kept = (
        f"{mode}: p99 within {model.server_p99_s:g} s"
        if mode.endswith("Server")
        else f"{mode}: in bulk, latency is unknown"
    )
    found = [
        f"Speeds are of one GPU, in {model.unit} a second and {' or '.join(model.formats)}.",
        f"{model.hub_id or model.name} ({model.kind}): measured with {model.measured_with}; {kept} ({model.source}).",
        "Measured engines were tuned TensorRT. How much slower another server is, and other sizes or lengths, is unknown: "
        "measure one GPU before you buy many.",
    ]
    if any(not way.on_this_chip for way in shown):
        rows = packaged(FITTED).rows
        found.append(
            f"Measured on others: transferred from the {len(model.chips)} chips on which it was measured, by how {rows:,} rows "
            "of such models differ between boards; whether it fits is taken from the smallest board that ran it."
        )
    if not options.rate and not options.offline and not options.trace:
        found.append("No load was given: one GPU at full load; --rate sizes it.")
    return found
