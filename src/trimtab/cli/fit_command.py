"""`trimtab fit`: which GPU, how many, what will it cost, how sure; ranked, with what was rejected and why."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import date
from pathlib import Path

import click

from trimtab.cli.output import Format, output_options
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
@click.option("--rate", metavar="20", help="Requests a second, 20 or 1M/day.")
@click.option("--concurrency", type=click.IntRange(min=1), help="Requests at once, instead of a rate.")
@click.option("--input", "input_tokens", type=click.IntRange(min=1), default=1024, show_default=True, help="Tokens in.")
@click.option("--output-tokens", type=click.IntRange(min=1), default=256, show_default=True, help="Tokens out.")
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
              help="Your own measured point (JSON with gpu, and tpot_ms or tok_s; vllm bench, genai-perf).")  # fmt: skip
@click.option(
    "--pictures", is_flag=True, help="Draw cost against time, tokens for a dollar, and the first row's roofline."
)
@click.option("--emit-bench", type=click.Path(file_okay=False, path_type=Path), metavar="DIR",
              help="Write a Kubernetes Job per shown GPU that replays the mix; feed its result to --calibrate.")  # fmt: skip
@click.option("--all", "every", is_flag=True, help="All ways, not the best of each GPU.")
@click.option("--limit", type=click.IntRange(min=1), default=SHOWN, show_default=True, help="Most rows.")
@output_options(Format.TABLE, Format.JSON, Format.YAML, Format.CSV, Format.MARKDOWN)
def command(
    model: str | None,
    params: str | None,
    active: str | None,
    serve: bool,
    offline: str | None,
    within: str | None,
    finetune: str | None,
    pretrain: bool,
    rate: str | None,
    concurrency: int | None,
    input_tokens: int,
    output_tokens: int,
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
      trimtab fit qwen2.5-32b --offline 1M/day --within 4h
      trimtab fit llama-3.1-8b --finetune lora --tokens 200M --deadline 2d
      trimtab fit --params 7B --pretrain --tokens 140B --deadline 30d
      trimtab fit mistral-7b --finetune qlora --tokens 5M --on rtx4090
    """
    from trimtab.catalog import BuyingOption
    from trimtab.cli.fit_inputs import amount, amount_per_second, model_of, seconds
    from trimtab.cli.fit_run import deliver, fit_serving_question, fit_training_question
    from trimtab.physics.ask import Market
    from trimtab.physics.formats import WeightFormat
    from trimtab.physics.search_serving import Demand, Targets
    from trimtab.physics.search_training import TrainingDemand
    from trimtab.physics.training_memory import Method
    from trimtab.units import S_PER_DAY

    kinds = {"--serve": serve, "--offline": bool(offline), "--finetune": bool(finetune), "--pretrain": pretrain}
    asked = [name for name, given in kinds.items() if given]
    if len(asked) != 1:
        raise UsageError(f"give one of {', '.join(kinds)}" + (f", not {' and '.join(asked)}" if asked else ""))
    architecture = model_of(model, params, active)
    market = Market(gpus=gpus, own=own, provider=provider, region=region, option=BuyingOption(option), at=date.today())
    measured = _measured(calibrate)
    if serve or offline:
        needed = amount_per_second(offline) * S_PER_DAY / (seconds(within) or S_PER_DAY) if offline else None
        arrivals = needed if needed is not None else amount_per_second(rate) if rate else None
        demand = Demand(
            input_tokens=input_tokens,
            output_tokens=output_tokens,
            rate_req_s=arrivals if concurrency is None or arrivals is not None else None,
            concurrency=None if arrivals is not None else concurrency or 16,
            targets=Targets(ttft_s=seconds(ttft), tpot_s=seconds(tpot), latency_s=seconds(latency)),
            headroom_frac=0.0 if offline else headroom,
        )
        answer = fit_serving_question(
            architecture,
            demand,
            market,
            engine=engine,
            name=model,
            every=every,
            limit=limit,
            measured=measured,
            pictures=pictures,
            formats=[WeightFormat(one) for one in formats],
            bench=emit_bench,
        )
    else:
        if tokens is None:
            raise UsageError("training needs --tokens, such as --tokens 2B")
        limit_s = seconds(deadline)
        training = TrainingDemand(
            method=Method(finetune) if finetune else Method.FULL,
            tokens=amount(tokens),
            sequence=sequence,
            global_batch=batch,
            deadline_days=None if limit_s is None else limit_s / S_PER_DAY,
            pretrain=pretrain,
        )
        answer = fit_training_question(
            architecture, training, market, name=model, every=every, limit=limit, measured=measured
        )
    deliver(answer, output_format, out, fields)


def _measured(path: Path | None) -> Mapping[str, object] | None:
    if path is None:
        return None
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise UsageError(f"cannot read {path}: {error}") from error
    if not isinstance(content, dict):
        raise UsageError(f"{path} must hold one JSON object with gpu and tpot_ms or tok_s")
    return content
