"""Answer the questions of `trimtab fit`: gather the offers, search, rank, and lay out rows, rejects and what to paste."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from trimtab.catalog import Gpu
from trimtab.cli.fit_pictures import pareto_picture, roofline_picture, value_bars
from trimtab.cli.fit_sheets import (
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
from trimtab.cli.output import SCHEMA_VERSION, Format, write, write_sheet
from trimtab.cli.sheet import Sheet
from trimtab.emit.bench_jobs import bench_job, job_name
from trimtab.emit.launch import training_arguments, vllm_serve
from trimtab.errors import PlanError, UsageError
from trimtab.physics.ask import Market, serving_answer, training_answer
from trimtab.physics.boards import board
from trimtab.physics.formats import WeightFormat
from trimtab.physics.models import Architecture
from trimtab.physics.offers import owned_offer
from trimtab.physics.roofline import roofline
from trimtab.physics.search_serving import Demand, Rejected, ServingOption, sweep, ways_of
from trimtab.physics.search_training import TrainingDemand, TrainingOption, cheapest_change, search_training
from trimtab.physics.support import notes
from trimtab.units import MS_PER_S


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """Rows for people, the whole document for programs, and the nearest misses."""

    sheet: Sheet
    document: Mapping[str, object]
    nearest: tuple[str, ...]


def deliver(answer: Answer, form: Format, out: Path | None, fields: Sequence[str]) -> None:
    """Write an answer; raises PlanError with the nearest misses when nothing works."""
    if not answer.sheet.rows:
        raise PlanError("nothing works:\n" + "\n".join(answer.nearest))
    if form is Format.JSON and not fields:
        write(json.dumps(answer.document, indent=2, allow_nan=False, ensure_ascii=False), out)
        return
    write_sheet(answer.sheet, form, out=out, fields=fields)


def fit_serving_question(
    model: Architecture,
    demand: Demand,
    market: Market,
    *,
    engine: str,
    name: str | None,
    every: bool = False,
    limit: int = 12,
    measured: Mapping[str, object] | None = None,
    formats: Sequence[WeightFormat] = (),
    pictures: bool = False,
    bench: Path | None = None,
) -> Answer:
    """Answer `--serve` and `--offline`; `bench` is a folder that gets a benchmark Job per shown way."""
    scale = _time_scale(model, demand, engine, measured)
    answer = serving_answer(model, demand, market, engine=engine, formats=formats, scale=scale)
    ways = [one for one in answer.found if isinstance(one, ServingOption)]
    shown = best_per_gpu(ways, limit, every)
    lines = reject_lines(answer.rejected)
    paste = (
        vllm_serve(shown[0], name or model.name, math.ceil(demand.input_tokens + demand.output_tokens)) if shown else ""
    )
    remarks = [*_remarks(model, scale), *_quality(shown), *(notes(shown[0].gpu) if shown else ())]
    if bench is not None:
        remarks += _write_jobs(shown, bench, name or model.name, demand)
    drawn = _pictures(shown, demand, engine) if pictures else []
    sheet = sheet_of(shown, SERVING_COLUMNS, serving_row, [*drawn, *lines, *remarks, "paste for the first row:", paste])
    return _answer(sheet, [machine_serving_row(one) for one in shown], answer.rejected, paste, lines)


def fit_training_question(
    model: Architecture,
    demand: TrainingDemand,
    market: Market,
    *,
    name: str | None,
    every: bool = False,
    limit: int = 12,
    measured: Mapping[str, object] | None = None,
) -> Answer:
    """Answer `--finetune` and `--pretrain`."""
    scale = _speed_scale(model, demand, measured)
    answer = training_answer(model, demand, market, scale=scale)
    runs = [one for one in answer.found if isinstance(one, TrainingOption)]
    shown = best_per_gpu(runs, limit, every)
    lines = reject_lines(answer.rejected)
    if not shown and market.own is not None:
        card = board(market.own)
        change = cheapest_change(model, card, demand)
        lines.append(f"what makes it fit {card.name}: {change or 'nothing; it needs a larger card or several'}")
    paste = training_arguments(shown[0], name or model.name, demand.global_batch) if shown else ""
    remarks = [*_remarks(model, scale), *(notes(shown[0].gpu) if shown else ())]
    sheet = sheet_of(shown, TRAINING_COLUMNS, training_row, [*lines, *remarks, "paste for the first row:", paste])
    return _answer(sheet, [machine_training_row(one) for one in shown], answer.rejected, paste, lines)


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


def _pictures(shown: Sequence[ServingOption], demand: Demand, engine: str) -> list[str]:
    if not shown:
        return []
    first = shown[0]
    ways, _ = ways_of(first.model, first.gpu, (first.offer,), demand, engine, (first.stored,))
    query = next(way.query for way in ways if way.query.tensor == first.tensor)
    roof = roofline_picture(roofline(replace(query, requests=first.concurrency)))
    return [text for text in (pareto_picture(shown), value_bars(shown), roof) if text]


def _quality(shown: Sequence[ServingOption]) -> list[str]:
    """Warn where the first row narrows the weights: nothing is bought with quality unseen."""
    if not shown or shown[0].stored in (WeightFormat.BF16, WeightFormat.FP16):
        return []
    return [f"{shown[0].stored.value} weights change a model's answers: test quality first, or ask with --format bf16"]


def _remarks(model: Architecture, scale: float) -> list[str]:
    found = []
    if model.generic:
        found.append(
            f"architecture guessed from the size: {model.layers} layers of {model.hidden}; give a config.json to be surer"
        )
    if scale != 1.0:
        found.append(f"calibrated on your point: predictions scaled by {scale:.2f}")
    return found


def _answer(
    sheet: Sheet, rows: Sequence[Mapping[str, object]], rejected: Sequence[Rejected], paste: str, lines: Sequence[str]
) -> Answer:
    document = {"schema_version": SCHEMA_VERSION, "rows": rows, "rejected": reject_rows(rejected), "paste": paste}
    return Answer(sheet=sheet, document=document, nearest=tuple(lines))
