"""Answer the questions of `trimtab fit`: search, rank, and lay out rows, rejects, the total cost and what to paste."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from trimtab.cli.fit import FitOptions
from trimtab.cli.fit.inputs import check_fit_options, market_of, model_of, read_measured, serving_of, training_of
from trimtab.cli.fit.measured import answer_measured, measured_answered
from trimtab.cli.fit.pools import PoolPairSection, pools_beside, pools_document, pools_lines, pools_paste, write_pools
from trimtab.cli.fit.tables import (
    CLOSED_LOOP,
    FOR_PEOPLE,
    MORE,
    REPLAYED,
    SERVING_COLUMNS,
    TRAINING_COLUMNS,
    best_per_gpu,
    change_lines,
    cost_table,
    dollars,
    kernel_lines,
    machine_serving_row,
    machine_training_row,
    memory_line,
    model_lines,
    models_sheet,
    pareto_picture,
    quality_lines,
    reject_lines,
    reject_rows,
    replayed_cells,
    replayed_lines,
    replayed_row,
    roofline_picture,
    scenario_lines,
    scenario_rows,
    serving_row,
    serving_words,
    sheet_of,
    size_line,
    training_row,
    training_words,
    value_bars,
)
from trimtab.cli.output import SCHEMA_VERSION, Format, Sheet, SheetColumn, write, write_sheet
from trimtab.cli.settings import resolve
from trimtab.emit.fit_document import (
    SERVED_UNDER,
    TRAINED_UNDER,
    FitDocument,
    FitWay,
    scenarios,
    serving_ways,
    training_ways,
)
from trimtab.emit.html.fit_charts import STYLE as FIT_STYLE
from trimtab.emit.launch import bench_job, job_name, megatron_arguments, training_arguments, vllm_serve
from trimtab.emit.sections.fit import fit_page
from trimtab.emit.writers import html
from trimtab.errors import PlanError, UsageError
from trimtab.fleet.ownership import TotalCost, serving_cost, training_cost
from trimtab.fleet.settings import Settings
from trimtab.physics.ask import FitMarket, Measured, speed_scale, time_scale, training_answer
from trimtab.physics.formats import WeightFormat
from trimtab.physics.found_ways import Rejected, ServingOption, Unmet
from trimtab.physics.measured_models import MeasuredModel, find_measured_model
from trimtab.physics.models import Architecture, hub_id
from trimtab.physics.roofline import Roofline, roofline, training_roofline
from trimtab.physics.search_training import Stack, TrainingDemand, TrainingOption
from trimtab.physics.serving_demand import Demand, context_of, query_of
from trimtab.physics.serving_query import adapters_bytes, serving_columns
from trimtab.pipeline.fitting import (
    SPEED_STEPS,
    ReplayedLoad,
    faster_ways,
    replayed_load,
    served_in_time,
    usd_per_mtok_all_told,
)
from trimtab.sources.traces.request_mix import RequestMix, read_request_mix
from trimtab.units import BYTES_PER_GIB, MS_PER_S, TOKENS_PER_MTOK

PLACEHOLDER_ID = "YOUR_ORG/YOUR_MODEL"
"""Pasted where the model has no id on the hub."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Request:
    """What was asked, with what was read for it."""

    options: FitOptions
    model: Architecture
    market: FitMarket
    settings: Settings
    measured: Measured | None
    mix: RequestMix | None

    @property
    def name(self) -> str:
        """Return what the answer calls the model."""
        return self.options.model or self.model.name

    @property
    def pasted(self) -> str:
        """Return the model's name in what is pasted: its id on the hub, the user's folder, or a placeholder."""
        if self.model.generic:
            return PLACEHOLDER_ID
        if self.name.endswith(".json"):
            return str(Path(self.name).parent)
        return self.name if "/" in self.name else hub_id(self.name) or PLACEHOLDER_ID

    @property
    def drawn(self) -> bool:
        """Return whether pictures are wanted."""
        return self.options.pictures or self.options.answer.output_format is Format.HTML


@dataclass(frozen=True, slots=True, kw_only=True)
class FitPresentation:
    """Rows for people, the whole document for programs, the page, and the nearest misses."""

    sheet: Sheet
    document: Mapping[str, object]
    nearest: tuple[str, ...]
    page: FitDocument | None


def run_fit(options: FitOptions) -> None:
    """Run the command."""
    if options.list_models:
        write_sheet(models_sheet(), _row_format(options.answer.output_format), out=options.answer.out)
        return
    check_fit_options(options)
    settings = resolve(file=None, environ=os.environ, flags=options.flags).settings
    measured = _measured_alone(options)
    if measured is not None:
        answer_measured(options, measured, settings.assumptions)
        return
    answer = _answered(options, settings)
    _deliver(answer, options.answer.output_format, options.answer.out, options.answer.fields)


def fit_answered(options: FitOptions) -> Mapping[str, object]:
    """Return what `-o json` writes; raises TrimtabError, PlanError with the nearest misses where nothing works."""
    check_fit_options(options)
    settings = resolve(file=None, environ=os.environ, flags=options.flags).settings
    measured = _measured_alone(options)
    if measured is not None:
        return measured_answered(options, measured, settings.assumptions).document
    answer = _answered(options, settings)
    _check_found(answer)
    return answer.document


def _measured_alone(options: FitOptions) -> MeasuredModel | None:
    """Return the model where it generates no text, and its speed is known by measurements alone."""
    return find_measured_model(options.model) if options.model and (options.serve or options.offline) else None


def _answered(options: FitOptions, settings: Settings) -> FitPresentation:
    model = model_of(options.model, options.params, options.active)
    request = _Request(
        options=options,
        model=model,
        settings=settings,
        market=market_of(options, settings.assumptions),
        mix=read_request_mix(options.trace, workload=options.workload) if options.trace else None,
        measured=read_measured(options.calibrate, options.measured_on) if options.calibrate else None,
    )
    return _serving(request) if options.serve or options.offline else _training(request)


def _row_format(form: Format) -> Format:
    """Return the form in which models are listed: there is no page of them."""
    return Format.TABLE if form is Format.HTML else form


def _deliver(answer: FitPresentation, form: Format, out: Path | None, fields: Sequence[str]) -> None:
    """Write an answer; raises PlanError with the nearest misses when nothing works."""
    _check_found(answer)
    if form is Format.HTML and answer.page is not None:
        write(html.write_page(fit_page(answer.page), style=FIT_STYLE), out)
    elif form is Format.JSON and not fields:
        write(json.dumps(answer.document, indent=2, allow_nan=False, ensure_ascii=False), out)
    elif form in (Format.TABLE, Format.MARKDOWN) and not fields:
        write_sheet(_without_empty(answer.sheet), form, out=out)
    else:
        write_sheet(answer.sheet, form, out=out, fields=fields)


def _check_found(answer: FitPresentation) -> None:
    if not answer.sheet.rows or answer.page is None:
        raise PlanError("nothing works; the nearest misses:\n" + "\n".join(answer.nearest))


def _without_empty(sheet: Sheet) -> Sheet:
    """Return the sheet with the columns that people compare options by, as far as any row fills them."""
    filled = [column for column in sheet.columns if any(row.get(column.key) is not None for row in sheet.rows)]
    # a replay knows what requests that arrive at random wait for, the closed formula only the mean of a closed loop
    hidden = CLOSED_LOOP if any(column.key in REPLAYED for column in filled) else frozenset[str]()
    return replace(sheet, columns=[column for column in filled if column.key in FOR_PEOPLE - hidden])


@dataclass(frozen=True, slots=True, kw_only=True)
class _FoundServing:
    """The ways of serving that were found, and what was replayed and searched beside them."""

    request: _Request
    demand: Demand
    formats: Sequence[WeightFormat]
    scale: float
    """Measured over predicted time of the user's own point; 1 without one."""
    ways: Sequence[ServingOption]
    """All that work, ranked."""
    shown: Sequence[ServingOption]
    """Those that are answered, at least one."""
    loads: Sequence[ReplayedLoad | None]
    """What the replay of each shown way says."""
    pools: PoolPairSection | None

    @property
    def first(self) -> ServingOption:
        """Return the way that remarks, cost and paste are about."""
        return self.shown[0]

    @property
    def context(self) -> int:
        """Return the tokens that a replica of it has room for in one request."""
        return context_of(self.first, self.demand, self.request.options.engine)


def _serving(request: _Request) -> FitPresentation:
    """Answer `--serve` and `--offline`; with `--emit-bench` write a benchmark Job per shown way."""
    options, model, market = request.options, request.model, request.market
    question = serving_of(options, request.mix)
    demand, hours_per_day = question.demand, question.hours_per_day
    formats = [WeightFormat(name) for name in options.formats]
    scale = time_scale(model, demand, options.engine, request.measured)
    answer = served_in_time(model, demand, market, engine=options.engine, formats=formats, scale=scale)

    def all_told(way: ServingOption) -> float:
        return usd_per_mtok_all_told(way, request.settings, demand, hours_per_day)

    ways = [way for way in answer.found if isinstance(way, ServingOption)]
    if options.rank == "total":
        ways.sort(key=all_told)
    shown = best_per_gpu(ways, options.limit, options.every)
    lines = reject_lines(answer.rejected)
    if not shown:
        unfit = all(reject.reason is not Unmet.TARGET for reject in answer.rejected)
        return _nothing(
            SERVING_COLUMNS, [*lines, *(change_lines(model, demand, market, options.engine) if unfit else ())]
        )
    in_one_place = min((way for way in ways if bool(way.caveats) == bool(shown[0].caveats)), key=_usd_per_mtok)
    found = _FoundServing(
        request=request,
        demand=demand,
        formats=formats,
        scale=scale,
        ways=ways,
        shown=shown,
        # a bulk that has a window of hours has no first tokens that anybody waits for
        loads=[None if options.offline else replayed_load(way, demand, options.engine, scale=scale) for way in shown],
        pools=pools_beside(options, model, demand, market, in_one_place, formats, scale),
    )
    total = serving_cost(found.first, request.settings, output_tokens=demand.output_tokens, hours_per_day=hours_per_day)
    page = _serving_page(found, answer.rejected, total)
    total_usd_per_mtok = [round(all_told(way), 4) for way in shown]
    rows = [
        {**serving_row(way), **replayed_row(load), "total_usd_per_mtok": usd}
        for way, load, usd in zip(shown, found.loads, total_usd_per_mtok, strict=True)
    ]
    machine = [
        {**machine_serving_row(way), **replayed_cells(load), "total_usd_per_mtok": usd}
        for way, load, usd in zip(shown, found.loads, total_usd_per_mtok, strict=True)
    ]
    answered = _answer(page, sheet_of(rows, SERVING_COLUMNS, ()), machine, lines, request)
    return replace(answered, document={**answered.document, "disaggregated": pools_document(found.pools)})


def _serving_page(found: _FoundServing, rejected: Sequence[Rejected], total: TotalCost) -> FitDocument:
    request, demand, first = found.request, found.demand, found.first
    options, pasted = request.options, request.pasted
    apart = pools_paste(found.pools, pasted, found.context, asked=options.disaggregated)
    served = vllm_serve(first, pasted, found.context, _serve_flags(demand))
    faster = faster_ways(
        first,
        request.model,
        demand,
        request.market,
        engine=options.engine,
        formats=found.formats,
        scale=found.scale,
        steps=SPEED_STEPS if request.drawn else SPEED_STEPS[-1:],
    )
    return FitDocument(
        title=f"{request.name}: {demand.input_tokens:,.0f} tokens in, {demand.output_tokens:,.0f} out",
        question=serving_words(demand, request.market),
        ways=serving_ways(found.shown),
        field=serving_ways([*found.ways, *faster]),
        total=total,
        rooflines=(roofline(query_of(first, demand, options.engine)),),
        rejected=rejected,
        remarks=(*_serving_remarks(found), *_written_lines(found)),
        paste="\n".join([apart, served] if apart else [served]),
        scenarios=scenarios(serving_ways(found.ways), serving_ways(faster), SERVED_UNDER),
    )


def _serving_remarks(found: _FoundServing) -> Iterator[str]:
    request, demand, first = found.request, found.demand, found.first
    if request.mix:
        yield request.mix.summary
    yield size_line(first, demand)
    yield memory_line(first)
    yield from _assumed_lines(first, demand, request.options)
    yield from replayed_lines(found.loads[0], demand)
    yield from pools_lines(found.pools)
    yield from model_lines(request.model, found.scale)
    yield from quality_lines(first)
    yield from _default_lines(request.options, demand, found.context)
    yield from kernel_lines(found.shown)


def _written_lines(found: _FoundServing) -> Iterator[str]:
    """Write the files that were asked for, and say where they are."""
    options, pasted = found.request.options, found.request.pasted
    if options.emit_bench is not None:
        yield from _write_jobs(found.shown, options.emit_bench, pasted, found.demand)
    if options.emit_pools is not None:
        yield from write_pools(found.pools, options.emit_pools, pasted, found.context)


def _usd_per_mtok(way: ServingOption) -> float:
    return way.usd_per_mtok.value


def _default_lines(options: FitOptions, demand: Demand, context: int) -> list[str]:
    """Return what was assumed because it was not stated."""
    found = []
    if options.tpot is None and demand.targets.tpot_s is not None:
        found.append(
            f"time per token kept within {demand.targets.tpot_s * MS_PER_S:,.0f} ms by default; --tpot sets another limit, "
            "--tpot none lifts it"
        )
    if demand.longest_tokens is None:
        times = context / (demand.input_tokens + demand.output_tokens)
        found.append(
            f"--max-model-len {context:,} is assumed, {times:.0f} times the mean request; --longest or --trace sets it"
        )
    return found


def _assumed_lines(way: ServingOption, demand: Demand, options: FitOptions) -> list[str]:
    """Say what was assumed of networks, caches, drafts and adapters, and what it means for the first row."""
    lines = []
    if way.network_gb_s:
        nodes = way.replica_gpus // way.offer.gpus
        lines.append(
            f"each replica spans {nodes} nodes ({way.layout}), {way.network_gb_s:,.3g} GB/s a GPU between them; no public run "
            "over several nodes without NVLink was fitted on, so measure one before you rely on it"
        )
    if demand.cached_frac:
        origin = "as measured" if options.prefix_hit == "measured" else "as stated"
        lines.append(f"prefix cache: {demand.cached_frac:.0%} of the prompt tokens are not computed ({origin})")
    if demand.loaded_frac:
        load_s = float(serving_columns([query_of(way, demand, options.engine)])["load_s"][0])
        lines.append(
            f"KV offload: {demand.loaded_frac:.0%} of the prompt tokens are loaded from host memory, "
            f"{load_s * MS_PER_S:,.3g} ms a prompt; vLLM needs a KV connector for it"
        )
    if demand.speculation is not None:
        draft = demand.speculation
        lines.append(
            f"speculative decoding: {draft.draft_tokens} drafted and {draft.acceptance_frac:.0%} accepted give "
            f"{draft.step_tokens:.2f} tokens a step, which takes {draft.draft_tokens * draft.draft_cost_frac:.0%} longer for "
            "the draft; acceptance falls where requests differ from those it was measured on"
        )
    if demand.adapters is not None:
        held = adapters_bytes(way.model, demand.adapters) / BYTES_PER_GIB
        longer = demand.adapters.steps_longer
        measured = f"; steps take {longer.value - 1:.0%} longer " + (
            f"(published: {longer.low - 1:.0%} to {longer.high - 1:.0%}, by engine and year): measure yours and state "
            "--adapter-slowdown"
            if demand.adapters.slowdown_frac is None
            else "beyond reading them, as stated"
        )
        lines.append(
            f"{demand.adapters.number} adapters of rank {demand.adapters.rank} hold {held:,.2f} GiB on a replica{measured}"
        )
    return lines


def _serve_flags(demand: Demand) -> list[str]:
    """Return vLLM's flags for adapters and drafts."""
    flags = []
    if demand.adapters is not None:
        flags += ["--enable-lora", f"--max-loras {demand.adapters.number}", f"--max-lora-rank {demand.adapters.rank}"]
    if demand.speculation is not None:
        settings = json.dumps({"model": "DRAFT_MODEL", "num_speculative_tokens": demand.speculation.draft_tokens})
        flags.append(f"--speculative-config '{settings}'")
    return flags


def _training(request: _Request) -> FitPresentation:
    """Answer `--finetune` and `--pretrain`."""
    options, model, market = request.options, request.model, request.market
    demand = training_of(options)
    scale = speed_scale(model, demand, request.measured)
    answer = training_answer(model, demand, market, scale=scale)

    def total(way: TrainingOption) -> TotalCost:
        return training_cost(way, request.settings, setup_hr=demand.setup_hr, tokens=demand.tokens)

    runs = [way for way in answer.found if isinstance(way, TrainingOption)]
    if options.rank == "total":
        runs.sort(key=lambda way: total(way).usd)
    shown = best_per_gpu(runs, options.limit, options.every)
    lines = reject_lines(answer.rejected)
    if not shown:
        return _nothing(TRAINING_COLUMNS, [*lines, *change_lines(model, demand, market)])
    first, name = shown[0], request.name
    arguments = megatron_arguments if demand.stack is Stack.MEGATRON else training_arguments
    page = FitDocument(
        title=f"{name}: {'pre-training' if demand.pretrain else demand.method.value} on {demand.tokens:,.0f} tokens",
        question=training_words(demand, market),
        ways=training_ways(shown),
        field=training_ways(runs),
        total=total(first),
        rooflines=(training_roofline(first.plan, first.gpu),),
        rejected=answer.rejected,
        remarks=(memory_line(first), *_step_lines(demand), *model_lines(model, scale), *kernel_lines(shown)),
        paste=arguments(first, request.pasted, demand.step_sequences),
        scenarios=scenarios(training_ways(runs), (), TRAINED_UNDER),
    )
    rows = [{**training_row(way), "total_usd": round(total(way).usd, 2)} for way in shown]
    machine = [{**machine_training_row(way), "total_usd": round(total(way).usd, 2)} for way in shown]
    return _answer(page, sheet_of(rows, TRAINING_COLUMNS, ()), machine, lines, request)


def _step_lines(demand: TrainingDemand) -> list[str]:
    """Return the batch that was assumed because none was stated."""
    if demand.global_batch is not None or demand.step_sequences is None:
        return []
    tokens_m = demand.step_sequences * demand.sequence / TOKENS_PER_MTOK
    return [
        f"a step of {demand.step_sequences:,} sequences ({tokens_m:.1f}M tokens, as Llama's pre-training began) is assumed; "
        "--batch sets it"
    ]


def _write_jobs(shown: Sequence[ServingOption], folder: Path, name: str, demand: Demand) -> list[str]:
    """Write a benchmark Job per shown way and say where; raises UsageError when the folder cannot be written."""
    tokens = math.ceil(demand.input_tokens), math.ceil(demand.output_tokens)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for way in shown:
            (folder / f"{job_name(way)}.yaml").write_text(bench_job(way, name, *tokens), encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot write benchmark Jobs to {folder}: {error}") from error
    return [f"{len(shown)} benchmark Jobs written to {folder}; each prints its result as JSON"]


def _nothing(columns: Sequence[SheetColumn], lines: Sequence[str]) -> FitPresentation:
    told = tuple(line for line in lines if not line.endswith(MORE))
    return FitPresentation(sheet=sheet_of([], columns, ()), document={}, nearest=told, page=None)


def _answer(
    page: FitDocument, sheet: Sheet, rows: Sequence[Mapping[str, object]], lines: Sequence[str], request: _Request
) -> FitPresentation:
    drawn = _drawn(page.ways, page.rooflines) if request.drawn else []
    costs = [cost_table(page.total)] if request.options.explain else []
    cost = f"all told ${dollars(page.total.usd)} a {page.total.per} for the first row (--explain itemises it)"
    named = scenario_lines(page.scenarios)
    told = [
        *named,
        *drawn,
        *costs,
        *lines,
        *page.remarks,
        *([] if costs else [cost]),
        "paste for the first row:",
        page.paste,
    ]
    document = {
        "schema_version": SCHEMA_VERSION,
        "rows": rows,
        "scenarios": scenario_rows(page.scenarios),
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
    return FitPresentation(sheet=replace(sheet, notes=told), document=document, nearest=tuple(lines), page=page)


def _drawn(shown: Sequence[FitWay], roofs: Sequence[Roofline]) -> list[str]:
    pictures = (pareto_picture(shown), value_bars(shown), *(roofline_picture(roof) for roof in roofs))
    return [text for text in pictures if text]
