"""`trimtab fit`: which GPU, how many, what will it cost, how sure; ranked, with what was rejected and why."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from pathlib import Path

import click

from trimtab.cli.options import (
    FILE,
    FILE_OR_FOLDER,
    NEW_FOLDER,
    AnswerOptions,
    answer_options,
    argument,
    option,
    options_from,
    prices_option,
    set_option,
)
from trimtab.cli.output import Format

SHOWN = 12
FINETUNES = ("full", "lora", "qlora")
FORMATS = ("bf16", "fp16", "fp8", "int8", "int4", "fp4")
ENGINES = ("vllm", "sglang", "trtllm")
STACKS = ("fsdp", "megatron")
OPTIONS = ("on-demand", "spot", "reserved-1y", "reserved-3y", "savings-plan-1y", "savings-plan-3y")
ACCEPTED = ("marketplace", "consumer", "4-bit")
"""Caveats that `--accept` takes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FitOptions:
    """Arguments of `trimtab fit`."""

    model: str | None = argument(required=False)
    list_models: bool = option("--list-models", help="List the models known by name, then exit.")
    params: str | None = option("--params", metavar="7B", help="Size of a model that is not in the list.")
    active: str | None = option(
        "--active", metavar="3B", help="Parameters a token uses, for a mixture of experts given by size."
    )
    serve: bool = option("--serve", help="Serve requests as they come.")
    offline: str | None = option("--offline", metavar="1M/day", help="Process requests in bulk.")
    within: str | None = option(
        "--within", metavar="4h", help="With --offline: the time in which a day's requests must be done."
    )
    finetune: str | None = option(
        "--finetune", type=click.Choice(FINETUNES), help="Fine-tune all weights, LoRA or QLoRA."
    )
    adapter_bits: int = option(
        "--adapter-bits", type=click.Choice((16, 32)), default=32, show_default=True,
        help="Width of LoRA's weights in training. PEFT takes 32; 16 is faster, and less exact in small updates.",
    )  # fmt: skip
    pretrain: bool = option("--pretrain", help="Train from scratch.")
    trace: Path | None = option(
        "--trace", type=FILE_OR_FOLDER, metavar="PATH",
        help="With --serve: rate, tokens and bursts from a request trace or a fleet bundle.",
    )  # fmt: skip
    workload: str | None = option("--workload", help="The model or service in the trace to use.")
    rate: str | None = option("--rate", metavar="20", help="Requests per second (20), or per day (1M/day).")
    concurrency: int | None = option(
        "--concurrency", type=click.IntRange(min=1), help="Requests at once, instead of a rate."
    )
    input_tokens: int | None = option(
        "--input", type=click.IntRange(min=1), help="Tokens in; 1024 unless a trace gives them."
    )
    output_tokens: int | None = option(
        "--output-tokens", type=click.IntRange(min=1), help="Tokens out; 256 unless a trace gives them."
    )
    longest: int | None = option(
        "--longest", type=click.IntRange(min=2),
        help="Tokens in and out of the longest request, for --max-model-len; read from a trace.",
    )  # fmt: skip
    ttft: str | None = option("--ttft", metavar="300ms", help="Time to first token, p95.")
    tpot: str | None = option(
        "--tpot",
        metavar="40ms",
        help="Time per output token; 100ms with --serve unless --latency is given; `none` for no limit.",
    )
    latency: str | None = option("--latency", metavar="5s", help="Time of a whole request.")
    percentile: float | None = option(
        "--percentile", type=click.FloatRange(50, 99.9), metavar="99",
        help="Keep --ttft, --tpot and --latency at this percentile of randomly arriving requests.",
    )  # fmt: skip
    headroom: float = option(
        "--headroom",
        type=click.FloatRange(0, 9),
        default=0.2,
        show_default=True,
        help="Spare replicas, as a share of those needed.",
    )
    tokens: str | None = option("--tokens", metavar="2B", help="Tokens to train on.")
    deadline: str | None = option("--deadline", metavar="14d", help="Days that training may take.")
    sequence: int = option(
        "--sequence", type=click.IntRange(min=1), default=2048, show_default=True, help="Training sequence length."
    )
    stack: str = option(
        "--stack",
        type=click.Choice(STACKS),
        default="fsdp",
        show_default=True,
        help="Framework that trains, and whose launch command is shown: PyTorch FSDP or Megatron.",
    )
    batch: int | None = option(
        "--batch",
        type=click.IntRange(min=1),
        help="Global batch in sequences; 4M tokens with --pretrain, else what the GPUs hold.",
    )
    own: str | None = option("--on", metavar="rtx4090", help="Find how to fit the model on this card.")
    gpus: tuple[str, ...] = option("--gpu", help="Only these GPUs.")
    formats: tuple[str, ...] = option(
        "--format", type=click.Choice(FORMATS), help="Only this weight format; bf16 keeps quality."
    )
    engine: str = option(
        "--engine", type=click.Choice(ENGINES), default="vllm", show_default=True, help="Serving engine."
    )
    provider: str | None = option("--provider", help="Only this provider.")
    region: str | None = option("--region", help="Only this region.")
    buying: str = option(
        "--option", type=click.Choice(OPTIONS), default="on-demand", show_default=True, help="Buying option to rank by."
    )
    calibrate: Path | None = option(
        "--calibrate", type=FILE, metavar="FILE",
        help="A measurement of your own, from vllm bench, genai-perf, k6, GuideLLM, inference-perf, llm-d, MLPerf, a profile.",
    )  # fmt: skip
    measured_on: str | None = option(
        "--measured-on", metavar="GPU", help="The GPU that it was measured on, if the file does not say."
    )
    driver: str | None = option(
        "--driver", metavar="535.104", help="Driver of your nodes: GPUs that need a newer one are rejected."
    )
    cuda: str | None = option(
        "--cuda", metavar="12.4", help="CUDA version of your image; GPUs that need a newer one are rejected."
    )
    prices: Path | None = prices_option("Your own rates and hardware that you own.")
    flags: tuple[str, ...] = set_option("ownership.egress_usd_gib=0")
    rank: str = option(
        "--rank", type=click.Choice(("rent", "total")), default="rent", show_default=True, help="Cost to rank by."
    )
    explain: bool = option("--explain", help="Itemise the total cost of the first row.")
    pictures: bool = option(
        "--pictures", help="Draw cost against time, tokens per dollar, and the first row's roofline."
    )
    emit_bench: Path | None = option(
        "--emit-bench", type=NEW_FOLDER, metavar="DIR",
        help="Write a Kubernetes Job per shown GPU that replays the mix; feed its result to --calibrate.",
    )  # fmt: skip
    accept: tuple[str, ...] = option(
        "--accept", type=click.Choice(ACCEPTED),
        help="Rank these by cost as well; otherwise they are listed last, unless --provider, --gpu or --format names them.",
    )  # fmt: skip
    prefix_hit: str | None = option(
        "--prefix-hit", metavar="0.4",
        help="Share of prompt tokens found in the prefix cache; `measured`: as the trace or the fleet\'s counters have it.",
    )  # fmt: skip
    offload_hit: float = option(
        "--offload-hit", type=click.FloatRange(0, 1), default=0.0,
        help="Share of further prompt tokens loaded from host memory (KV offload).",
    )  # fmt: skip
    draft_tokens: int | None = option(
        "--draft-tokens", type=click.IntRange(min=1), help="Speculative decoding: tokens drafted for each step."
    )
    acceptance: float | None = option(
        "--acceptance", type=click.FloatRange(0, 1), metavar="0.8", help="How often a drafted token is accepted."
    )
    draft_cost: float = option(
        "--draft-cost", type=click.FloatRange(min=0), default=0.05, show_default=True,
        help="Time to draft a token, relative to a step of the model.",
    )  # fmt: skip
    adapters: int | None = option(
        "--adapters", type=click.IntRange(min=1), help="LoRA adapters that a server holds at once on one base model."
    )
    adapter_rank: int = option(
        "--adapter-rank", type=click.IntRange(min=1), default=16, show_default=True, help="Rank of the adapters."
    )
    adapter_slowdown: float | None = option(
        "--adapter-slowdown", type=click.FloatRange(min=0), metavar="0.1",
        help="Measured slowdown of a step with adapters, beyond the time to read them; published figures by default.",
    )  # fmt: skip
    disaggregated: bool = option(
        "--disaggregated", help="Show prefill and decode on GPUs of their own even where one pool for both is cheaper."
    )
    over_nodes: bool = option(
        "--over-nodes",
        help="Also try replicas that span several nodes: pipelines, and expert parallelism for mixtures of experts.",
    )
    kv_gb_s: float | None = option(
        "--kv-gb-s", type=click.FloatRange(min=0, min_open=True), metavar="50",
        help="Network bandwidth of one node in GB/s, for caches and replicas that span nodes; published figures by default.",
    )  # fmt: skip
    emit_pools: Path | None = option(
        "--emit-pools", type=NEW_FOLDER, metavar="DIR",
        help="Write prefill and decode pools as LeaderWorkerSets for llm-d and as a graph for Dynamo.",
    )  # fmt: skip
    every: bool = option("--all", help="Show every way, not only the best on each GPU.")
    limit: int = option(
        "--limit", type=click.IntRange(min=1), default=SHOWN, show_default=True, help="Maximum number of rows."
    )
    answer: AnswerOptions = answer_options(
        Format.TABLE, Format.JSON, Format.YAML, Format.CSV, Format.MARKDOWN, Format.HTML
    )


class _FitCommand(click.Command):
    """The command, whose help ends with the names of all models, read only where help is asked for."""

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        from trimtab.physics.measured_models import measured_models
        from trimtab.physics.models import known_models

        with formatter.section("Models known by name (--list-models also has their size, and their id on the hub)"):
            names = ", ".join(dict.fromkeys((*measured_models(), *known_models())))
            # click would break names at their hyphens; \b keeps our lines
            lines = textwrap.wrap(names, formatter.width - formatter.current_indent, break_on_hyphens=False)
            formatter.write_text("\n".join(["\b", *lines]))


@click.command(cls=_FitCommand)
@options_from(FitOptions)
def command(options: FitOptions) -> None:
    """Find which GPU a model needs, how many, and what it costs.

    MODEL is a name (meta-llama/Llama-3.1-8B, openai/whisper-large-v3; all are below), or the path of a config.json. Besides
    language models: speech, images, vision, encoders, rerankers and recommenders whose speed was measured in public.

    \b
    Examples:
      trimtab fit llama-3.1-8b --serve --rate 20 --ttft 500ms --tpot 40ms
      trimtab fit llama-3.1-8b --serve --rate 20 --latency 8s --percentile 99
      trimtab fit llama-3.1-8b --serve --trace requests.parquet --ttft 1s -o html --out fit.html
      trimtab fit llama-3.1-70b --serve --rate 50 --input 8192 --output-tokens 512 --tpot 25ms --emit-pools pools/
      trimtab fit llama-3.1-8b --serve --rate 20 --prefix-hit 0.4 --draft-tokens 4 --acceptance 0.7
      trimtab fit llama-3.1-8b --serve --rate 20 --adapters 32 --adapter-rank 16
      trimtab fit qwen2.5-32b --offline 1M/day --within 4h
      trimtab fit whisper-large-v3 --serve --rate 20 --output-tokens 90
      trimtab fit sdxl --serve --rate 2 --latency 30s
      trimtab fit llama-3.1-8b --finetune lora --tokens 200M --deadline 2d
      trimtab fit --params 7B --pretrain --tokens 140B --deadline 30d
      trimtab fit mistral-7b --finetune qlora --tokens 5M --on rtx4090
    """
    from trimtab.cli.fit.run import run_fit

    run_fit(options)
