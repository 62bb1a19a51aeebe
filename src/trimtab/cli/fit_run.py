"""Answer the questions of `trimtab fit`: search, rank, and lay out rows, rejects, the total cost and what to paste."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from trimtab.cli.fit_calibrate import Measured, speed_scale, time_scale
from trimtab.cli.fit_pictures import cost_table, pareto_picture, roofline_picture, value_bars
from trimtab.cli.fit_sheets import (
    MORE,
    SERVING_COLUMNS,
    TRAINING_COLUMNS,
    best_per_gpu,
    machine_serving_row,
    machine_training_row,
    reject_lines,
    reject_rows,
    serving_row,
    sheet_of,
    training_row,
)
from trimtab.cli.fit_words import (
    change_lines,
    kernel_lines,
    model_lines,
    quality_lines,
    serving_words,
    size_line,
    training_words,
)
from trimtab.cli.output import SCHEMA_VERSION, Format, write, write_sheet
from trimtab.cli.sheet import Column, Sheet
from trimtab.emit.fit_document import FitDocument, Way, serving_ways, training_ways
from trimtab.emit.html.fit_charts import STYLE as FIT_STYLE
from trimtab.emit.launch import training_arguments, vllm_serve
from trimtab.emit.manifests.bench_jobs import bench_job, job_name
from trimtab.emit.sections.fit import fit_page
from trimtab.emit.writers import html
from trimtab.errors import PlanError, UsageError
from trimtab.fleet.ownership import TotalCost, serving_cost, training_cost
from trimtab.fleet.settings import Settings
from trimtab.physics.ask import Market, serving_answer, training_answer
from trimtab.physics.formats import WeightFormat
from trimtab.physics.found_ways import ServingOption, Unmet
from trimtab.physics.models import Architecture
from trimtab.physics.roofline import Roofline, roofline, training_roofline
from trimtab.physics.search_training import TrainingDemand, TrainingOption
from trimtab.physics.serving_demand import Demand
from trimtab.physics.serving_ways import ways_of
from trimtab.units import HR_PER_DAY, HR_PER_MO, S_PER_HR, TOKENS_PER_MTOK

SPEED_STEPS = (0.7, 0.5, 0.35, 0.25)
"""Tighter limits on the time per token, as shares of the cheapest way's: what speed costs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """How the answer is to look, and what it is to be reckoned with."""

    name: str | None
    settings: Settings
    every: bool = False
    limit: int = 12
    by_total: bool = False
    measured: Measured | None = None
    pictures: bool = False
    explain: bool = False
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """Rows for people, the whole document for programs, the page, and the nearest misses."""

    sheet: Sheet
    document: Mapping[str, object]
    nearest: tuple[str, ...]
    page: FitDocument | None


def deliver(answer: Answer, form: Format, out: Path | None, fields: Sequence[str]) -> None:
    """Write an answer; raises PlanError with the nearest misses when nothing works."""
    if not answer.sheet.rows or answer.page is None:
        raise PlanError("nothing works; the nearest misses:\n" + "\n".join(answer.nearest))
    if form is Format.HTML:
        write(html.write_page(fit_page(answer.page), style=FIT_STYLE), out)
    elif form is Format.JSON and not fields:
        write(json.dumps(answer.document, indent=2, allow_nan=False, ensure_ascii=False), out)
    elif form in (Format.TABLE, Format.MARKDOWN) and not fields:
        write_sheet(_without_empty(answer.sheet), form, out=out)
    else:
        write_sheet(answer.sheet, form, out=out, fields=fields)


def _without_empty(sheet: Sheet) -> Sheet:
    """Return the sheet without the columns that no row fills: ways of buying that nobody sells here."""
    return replace(
        sheet, columns=[one for one in sheet.columns if any(row.get(one.key) is not None for row in sheet.rows)]
    )


def fit_serving_question(
    model: Architecture,
    demand: Demand,
    market: Market,
    wishes: Wishes,
    *,
    engine: str,
    formats: Sequence[WeightFormat] = (),
    hours_per_day: float = HR_PER_DAY,
    context: int | None = None,
    bench: Path | None = None,
) -> Answer:
    """Answer `--serve` and `--offline`; `bench` is a folder that gets a benchmark Job per shown way."""
    scale = time_scale(model, demand, engine, wishes.measured)
    answer = serving_answer(model, demand, market, engine=engine, formats=formats, scale=scale)

    def total(one: ServingOption) -> TotalCost:
        return serving_cost(one, wishes.settings, output_tokens=demand.output_tokens, hours_per_day=hours_per_day)

    def all_in(one: ServingOption) -> float:
        answered = one.served_req_s * HR_PER_MO * hours_per_day / HR_PER_DAY * S_PER_HR
        return total(one).usd / (answered * (demand.input_tokens + demand.output_tokens) / TOKENS_PER_MTOK)

    ways = [one for one in answer.found if isinstance(one, ServingOption)]
    if wishes.by_total:
        ways.sort(key=all_in)
    shown = best_per_gpu(ways, wishes.limit, wishes.every)
    lines = reject_lines(answer.rejected)
    if not shown:
        unfit = all(one.reason is not Unmet.TARGET for one in answer.rejected)
        return _nothing(SERVING_COLUMNS, [*lines, *(change_lines(model, demand, market, engine) if unfit else ())])
    first, name = shown[0], wishes.name or model.name
    paste = vllm_serve(first, name, context or math.ceil(demand.input_tokens + demand.output_tokens))
    remarks = [
        *wishes.remarks,
        size_line(first, demand),
        *model_lines(model, scale),
        *quality_lines(first),
        *kernel_lines(shown),
    ]
    if bench is not None:
        remarks += _write_jobs(shown, bench, name, demand)
    roof = _serving_roof(first, demand, engine)
    faster = _faster(model, demand, market, engine, formats, scale, first) if wishes.pictures else []
    page = FitDocument(
        title=f"{name}: {demand.input_tokens:,.0f} tokens in, {demand.output_tokens:,.0f} out",
        question=serving_words(demand, market),
        ways=serving_ways(shown),
        field=serving_ways([*ways, *faster]),
        total=total(first),
        rooflines=(roof,),
        rejected=answer.rejected,
        remarks=tuple(remarks),
        paste=paste,
    )
    rows = [{**serving_row(one), "total_usd_per_mtok": round(all_in(one), 4)} for one in shown]
    machine = [{**machine_serving_row(one), "total_usd_per_mtok": round(all_in(one), 4)} for one in shown]
    return _answer(page, sheet_of(rows, SERVING_COLUMNS, ()), machine, lines, wishes)


def fit_training_question(model: Architecture, demand: TrainingDemand, market: Market, wishes: Wishes) -> Answer:
    """Answer `--finetune` and `--pretrain`."""
    scale = speed_scale(model, demand, wishes.measured)
    answer = training_answer(model, demand, market, scale=scale)

    def total(one: TrainingOption) -> TotalCost:
        return training_cost(one, wishes.settings, setup_hr=demand.setup_hr, tokens=demand.tokens)

    runs = [one for one in answer.found if isinstance(one, TrainingOption)]
    if wishes.by_total:
        runs.sort(key=lambda one: total(one).usd)
    shown = best_per_gpu(runs, wishes.limit, wishes.every)
    lines = reject_lines(answer.rejected)
    if not shown:
        return _nothing(TRAINING_COLUMNS, [*lines, *change_lines(model, demand, market)])
    first, name = shown[0], wishes.name or model.name
    page = FitDocument(
        title=f"{name}: {'pre-training' if demand.pretrain else demand.method.value} on {demand.tokens:,.0f} tokens",
        question=training_words(demand, market),
        ways=training_ways(shown),
        field=training_ways(runs),
        total=total(first),
        rooflines=(training_roofline(first.plan, first.gpu),),
        rejected=answer.rejected,
        remarks=(*wishes.remarks, *model_lines(model, scale), *kernel_lines(shown)),
        paste=training_arguments(first, name, demand.global_batch),
    )
    rows = [{**training_row(one), "total_usd": round(total(one).usd, 2)} for one in shown]
    machine = [{**machine_training_row(one), "total_usd": round(total(one).usd, 2)} for one in shown]
    return _answer(page, sheet_of(rows, TRAINING_COLUMNS, ()), machine, lines, wishes)


def _faster(
    model: Architecture,
    demand: Demand,
    market: Market,
    engine: str,
    formats: Sequence[WeightFormat],
    scale: float,
    first: ServingOption,
) -> list[ServingOption]:
    """Return the cheapest ways under tighter and tighter times per token: what speed costs."""
    found = []
    for share in SPEED_STEPS:
        tighter = replace(demand, targets=replace(demand.targets, tpot_s=first.tpot_s.value * share))
        ways = serving_answer(model, tighter, market, engine=engine, formats=formats, scale=scale).found
        found += [one for one in ways if isinstance(one, ServingOption)]
    return found


def _write_jobs(shown: Sequence[ServingOption], folder: Path, name: str, demand: Demand) -> list[str]:
    """Write a benchmark Job per shown way and say where; raises UsageError when the folder cannot be written."""
    tokens = math.ceil(demand.input_tokens), math.ceil(demand.output_tokens)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for one in shown:
            (folder / f"{job_name(one)}.yaml").write_text(bench_job(one, name, *tokens), encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot write benchmark Jobs to {folder}: {error}") from error
    return [f"{len(shown)} benchmark Jobs written to {folder}; each prints its result as JSON"]


def _serving_roof(first: ServingOption, demand: Demand, engine: str) -> Roofline:
    ways, _ = ways_of(first.model, first.gpu, (first.offer,), demand, engine, (first.stored,))
    query = next(way.query for way in ways if way.query.tensor == first.tensor)
    return roofline(replace(query, requests=first.concurrency))


def _nothing(columns: Sequence[Column], lines: Sequence[str]) -> Answer:
    told = tuple(line for line in lines if not line.endswith(MORE))
    return Answer(sheet=sheet_of([], columns, ()), document={}, nearest=told, page=None)


def _answer(
    page: FitDocument, sheet: Sheet, rows: Sequence[Mapping[str, object]], lines: Sequence[str], wishes: Wishes
) -> Answer:
    drawn = _drawn(page.ways, page.rooflines) if wishes.pictures else []
    costs = [cost_table(page.total)] if wishes.explain else []
    cost = f"all told ${page.total.usd:,.0f} a {page.total.per} for the first row (--explain itemises it)"
    told = [*drawn, *costs, *lines, *page.remarks, *([] if costs else [cost]), "paste for the first row:", page.paste]
    document = {
        "schema_version": SCHEMA_VERSION,
        "rows": rows,
        "rejected": reject_rows(page.rejected),
        "total_cost": {
            "per": page.total.per,
            "usd": round(page.total.usd, 2),
            "lines": [
                {"item": line.item.value, "usd": round(line.usd, 2), "how": line.how} for line in page.total.lines
            ],
        },
        "remarks": page.remarks,
        "paste": page.paste,
    }
    return Answer(sheet=replace(sheet, notes=told), document=document, nearest=tuple(lines), page=page)


def _drawn(shown: Sequence[Way], roofs: Sequence[Roofline]) -> list[str]:
    pictures = (pareto_picture(shown), value_bars(shown), *(roofline_picture(one) for one in roofs))
    return [text for text in pictures if text]
