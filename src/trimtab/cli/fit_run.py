"""Answer the questions of `trimtab fit`: gather the offers, search, rank, and lay out rows, rejects and what to paste."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from trimtab.cli.fit_sheets import (
    SERVING_COLUMNS,
    TRAINING_COLUMNS,
    best_per_gpu,
    reject_lines,
    reject_rows,
    serving_row,
    sheet_of,
    training_row,
)
from trimtab.cli.output import SCHEMA_VERSION, Format, write, write_sheet
from trimtab.cli.sheet import Sheet
from trimtab.emit.launch import training_arguments, vllm_serve
from trimtab.errors import PlanError, UsageError
from trimtab.physics.ask import Market, serving_answer, training_answer
from trimtab.physics.boards import board
from trimtab.physics.models import Architecture
from trimtab.physics.offers import owned_offer
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
) -> Answer:
    """Answer `--serve` and `--offline`."""
    scale = _time_scale(model, demand, engine, measured)
    answer = serving_answer(model, demand, market, engine=engine, scale=scale)
    ways = [one for one in answer.found if isinstance(one, ServingOption)]
    shown = best_per_gpu(ways, limit, every)
    lines = reject_lines(answer.rejected)
    paste = (
        vllm_serve(shown[0], name or model.name, math.ceil(demand.input_tokens + demand.output_tokens)) if shown else ""
    )
    remarks = [*_remarks(model, scale), *(notes(shown[0].gpu) if shown else ())]
    sheet = sheet_of(shown, SERVING_COLUMNS, serving_row, [*lines, *remarks, "", "paste for the first row:", paste])
    return _answer(sheet, [serving_row(one) for one in shown], answer.rejected, paste, lines)


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
    sheet = sheet_of(shown, TRAINING_COLUMNS, training_row, [*lines, *remarks, "", "paste for the first row:", paste])
    return _answer(sheet, [training_row(one) for one in shown], answer.rejected, paste, lines)


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


def _number(measured: Mapping[str, object], key: str) -> float | None:
    value = measured.get(key)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) and value > 0 else None


def _time_scale(model: Architecture, demand: Demand, engine: str, measured: Mapping[str, object] | None) -> float:
    """Return measured over predicted time per token of the user's own point."""
    if measured is None:
        return 1.0
    tpot_ms, gpu = _number(measured, "tpot_ms"), board(str(measured.get("gpu", "")))
    if tpot_ms is None:
        raise UsageError("a serving calibration needs tpot_ms above 0 beside gpu (and concurrency, tensor_parallel)")
    degree = int(_number(measured, "tensor_parallel") or 1)
    ways, _ = ways_of(model, gpu, (owned_offer(gpu, 8),), demand, engine)
    mine = next((way for way in ways if way.query.tensor == degree), None)
    if mine is None:
        raise UsageError(f"the calibration point cannot have run: {model.name} does not fit {degree} x {gpu.name}")
    predicted = float(sweep([mine.query], [int(_number(measured, "concurrency") or 1)]).tpot_s[0, 0])
    return tpot_ms / MS_PER_S / predicted


def _speed_scale(model: Architecture, demand: TrainingDemand, measured: Mapping[str, object] | None) -> float:
    """Return measured over predicted tokens a second of the user's own run."""
    if measured is None:
        return 1.0
    tok_s, gpu = _number(measured, "tok_s"), board(str(measured.get("gpu", "")))
    gpus = int(_number(measured, "gpus") or 1)
    if tok_s is None:
        raise UsageError("a training calibration needs tok_s above 0 beside gpu (and gpus)")
    found, _ = search_training(model, [(gpu, (owned_offer(gpu, gpus),))], demand)
    mine = next((one for one in found if one.gpus == gpus), None)
    if mine is None:
        raise UsageError(f"the calibration point cannot have run: {model.name} does not fit {gpus} x {gpu.name}")
    return tok_s / mine.tok_s.value
