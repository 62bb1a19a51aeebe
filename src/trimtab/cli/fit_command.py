"""`trimtab fit`: which GPU, how many, what will it cost, how sure; ranked, with what was rejected and why."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import click

from trimtab.cli.output import Format, output_options
from trimtab.cli.price_options import prices_option
from trimtab.errors import UsageError

SHOWN = 12
FINETUNES = ("full", "lora", "qlora")
FORMATS = ("bf16", "fp16", "fp8", "int8", "int4", "fp4")
ENGINES = ("vllm", "sglang", "trtllm")
OPTIONS = ("on-demand", "spot", "reserved-1y", "reserved-3y")


@click.command()
@click.argument("model", required=False)
@click.option("--params", metavar="7B", help="Size of a model that has no name here.")
@click.option("--active", metavar="3B", help="Parameters a token uses, for a mixture of experts given by size.")
@click.option("--serve", is_flag=True, help="Serve requests as they come.")
@click.option("--offline", metavar="1M/day", help="Process requests in bulk.")
@click.option("--within", metavar="4h", help="With --offline: the time in which a day's requests must be done.")
@click.option("--finetune", type=click.Choice(FINETUNES), help="Fine-tune all weights, LoRA or QLoRA.")
@click.option("--pretrain", is_flag=True, help="Train from scratch.")
@click.option("--trace", type=click.Path(exists=True, path_type=Path), metavar="PATH",
              help="With --serve: rate, tokens and bursts from a request trace or a fleet bundle.")  # fmt: skip
@click.option("--workload", help="Which model or service of the trace.")
@click.option("--rate", metavar="20", help="Requests a second, 20 or 1M/day.")
@click.option("--concurrency", type=click.IntRange(min=1), help="Requests at once, instead of a rate.")
@click.option("--input", "input_tokens", type=click.IntRange(min=1), help="Tokens in; 1024 unless a trace tells.")
@click.option("--output-tokens", type=click.IntRange(min=1), help="Tokens out; 256 unless a trace tells.")
@click.option("--ttft", metavar="300ms", help="Time to first token, p95.")
@click.option("--tpot", metavar="40ms", help="Time per output token.")
@click.option("--latency", metavar="5s", help="Time of a whole request.")
@click.option(
    "--headroom", type=click.FloatRange(0, 9), default=0.2, show_default=True, help="Replicas kept over the need."
)
@click.option("--tokens", metavar="2B", help="Tokens to train on.")
@click.option("--deadline", metavar="14d", help="Days that training may take.")
@click.option(
    "--sequence", type=click.IntRange(min=1), default=2048, show_default=True, help="Training sequence length."
)
@click.option("--batch", type=click.IntRange(min=1), help="Global batch in sequences.")
@click.option("--on", "own", metavar="rtx4090", help="Make it fit on my card.")
@click.option("--gpu", "gpus", multiple=True, help="Only these GPUs.")
@click.option(
    "--format", "formats", multiple=True, type=click.Choice(FORMATS), help="Only these weights: bf16 keeps quality."
)
@click.option("--engine", type=click.Choice(ENGINES), default="vllm", show_default=True, help="Serving engine.")
@click.option("--provider", help="Only this provider.")
@click.option("--region", help="Only this region.")
@click.option(
    "--option", type=click.Choice(OPTIONS), default="on-demand", show_default=True, help="Way of buying to rank by."
)
@click.option("--calibrate", type=click.Path(exists=True, dir_okay=False, path_type=Path), metavar="FILE",
              help="Your measured point: JSON of vllm bench, genai-perf, k6, a profile, or one of our own.")  # fmt: skip
@click.option("--measured-on", metavar="GPU", help="Where that was measured, if the file does not say.")
@click.option("--driver", metavar="535.104", help="Driver of your nodes: GPUs that need a newer one are rejected.")
@click.option("--cuda", metavar="12.4", help="CUDA of your image, likewise.")
@prices_option("Own rates, owned hardware.")
@click.option(
    "--set", "flags", multiple=True, metavar="KEY=VALUE", help="One setting, such as ownership.egress_usd_gib=0."
)
@click.option(
    "--rank", type=click.Choice(("rent", "total")), default="rent", show_default=True, help="Cost to rank by."
)
@click.option("--explain", is_flag=True, help="Itemise what the first row costs all told.")
@click.option(
    "--pictures", is_flag=True, help="Draw cost against time, tokens for a dollar, and the first row's roofline."
)
@click.option("--emit-bench", type=click.Path(file_okay=False, path_type=Path), metavar="DIR",
              help="Write a Kubernetes Job per shown GPU that replays the mix; feed its result to --calibrate.")  # fmt: skip
@click.option("--all", "every", is_flag=True, help="All ways, not the best of each GPU.")
@click.option("--limit", type=click.IntRange(min=1), default=SHOWN, show_default=True, help="Most rows.")
@output_options(Format.TABLE, Format.JSON, Format.YAML, Format.CSV, Format.MARKDOWN, Format.HTML)
def command(
    model: str | None,
    params: str | None,
    active: str | None,
    serve: bool,
    offline: str | None,
    within: str | None,
    finetune: str | None,
    pretrain: bool,
    trace: Path | None,
    workload: str | None,
    rate: str | None,
    concurrency: int | None,
    input_tokens: int | None,
    output_tokens: int | None,
    ttft: str | None,
    tpot: str | None,
    latency: str | None,
    headroom: float,
    tokens: str | None,
    deadline: str | None,
    sequence: int,
    batch: int | None,
    own: str | None,
    gpus: tuple[str, ...],
    formats: tuple[str, ...],
    engine: str,
    provider: str | None,
    region: str | None,
    option: str,
    calibrate: Path | None,
    measured_on: str | None,
    driver: str | None,
    cuda: str | None,
    prices: Path | None,
    flags: tuple[str, ...],
    rank: str,
    explain: bool,
    pictures: bool,
    emit_bench: Path | None,
    every: bool,
    limit: int,
    output_format: Format,
    out: Path | None,
    fields: tuple[str, ...],
) -> None:
    """Find which GPU a model needs, how many, and what it costs.

    MODEL is a name (meta-llama/Llama-3.1-8B), or the path of a config.json.

    \b
    Examples:
      trimtab fit llama-3.1-8b --serve --rate 20 --ttft 500ms --tpot 40ms
      trimtab fit llama-3.1-8b --serve --trace requests.parquet --ttft 1s -o html --out fit.html
      trimtab fit qwen2.5-32b --offline 1M/day --within 4h
      trimtab fit llama-3.1-8b --finetune lora --tokens 200M --deadline 2d
      trimtab fit --params 7B --pretrain --tokens 140B --deadline 30d
      trimtab fit mistral-7b --finetune qlora --tokens 5M --on rtx4090
    """
    from trimtab.cli.fit_asked import market_of, serving_of, training_of
    from trimtab.cli.fit_calibrate import read_measured
    from trimtab.cli.fit_inputs import model_of
    from trimtab.cli.fit_run import Wishes, deliver, fit_serving_question, fit_training_question
    from trimtab.cli.settings import resolve
    from trimtab.physics.formats import WeightFormat
    from trimtab.sources.traces.request_mix import read_request_mix

    kinds = {"--serve": serve, "--offline": bool(offline), "--finetune": bool(finetune), "--pretrain": pretrain}
    asked = [name for name, given in kinds.items() if given]
    if len(asked) != 1:
        raise UsageError(f"give one of {', '.join(kinds)}" + (f", not {' and '.join(asked)}" if asked else ""))
    _refuse_strays(serve, bool(offline), {"--trace": trace, "--rate": rate, "--concurrency": concurrency}, within)
    architecture = model_of(model, params, active)
    settings = resolve(file=None, environ=os.environ, flags=flags).settings
    market = market_of(
        settings.assumptions,
        prices,
        gpus=gpus,
        own=own,
        provider=provider,
        region=region,
        option=option,
        driver=driver,
        cuda=cuda,
    )
    mix = read_request_mix(trace, workload=workload) if trace else None
    wishes = Wishes(
        name=model,
        settings=settings,
        every=every,
        limit=limit,
        by_total=rank == "total",
        measured=read_measured(calibrate, measured_on) if calibrate else None,
        pictures=pictures or output_format is Format.HTML,
        explain=explain,
        remarks=(mix.summary,) if mix else (),
    )
    if serve or offline:
        question = serving_of(
            mix,
            offline=offline,
            within=within,
            rate=rate,
            concurrency=concurrency,
            input_tokens=input_tokens,
            output_tokens=output_tokens,
            limits=(ttft, tpot, latency),
            headroom_frac=headroom,
        )
        answer = fit_serving_question(
            architecture,
            question.demand,
            market,
            wishes,
            engine=engine,
            formats=[WeightFormat(one) for one in formats],
            hours_per_day=question.hours_per_day,
            context=mix.longest_tokens if mix else None,
            bench=emit_bench,
        )
    else:
        training = training_of(finetune, pretrain, tokens=tokens, deadline=deadline, sequence=sequence, batch=batch)
        answer = fit_training_question(architecture, training, market, wishes)
    deliver(answer, output_format, out, fields)


def _refuse_strays(serve: bool, offline: bool, loads: Mapping[str, object], within: str | None) -> None:
    """Refuse options that contradict one another; raises UsageError."""
    given = [name for name, value in loads.items() if value is not None]
    if within is not None and not offline:
        raise UsageError("--within belongs to --offline: the time in which a day's requests must be done")
    if offline and given:
        raise UsageError(f"--offline states the amount: leave out {' and '.join(given)}")
    if "--concurrency" in given and len(given) > 1:
        raise UsageError(f"give one of {' and '.join(given)}: each states the load")
    if not serve and given:
        raise UsageError(f"{' and '.join(given)} belong to --serve")
