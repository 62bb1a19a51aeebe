"""What was measured on real GPUs beside what trimtab says of them: `python -m benchmarks.real_gpu [--data FILE ...]`.

Records of `python -m benchmarks.gpu_measure` (one H100 SXM and two H200, 2026-11-27) lie in `reference/data/`. None of our
constants was fitted on them. Five questions: do the profiler's counters agree with what the kernels did; do `physics` predict
speed and memory of plain PyTorch; do counters seen on one board predict the speed on the other; how much do two programs slow
one another; does the replay of an engine's scheduler tell the first tokens of one that is not ours. The last line is one JSON
object.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.real_engine import told_loads
from benchmarks.training_rows import RESNET_50_GFLOP
from trimtab.catalog import Gpu, Precision, load_catalog
from trimtab.physics.colocation import is_safe_pair, speed_beside
from trimtab.physics.formats import WeightFormat
from trimtab.physics.measured_models import MLPERF, WorkloadQuery, measured_models, predict_workload
from trimtab.physics.models import Architecture, model_named
from trimtab.physics.predict import predict_training, times_of
from trimtab.physics.serving_query import Load, ServingQuery
from trimtab.physics.training import (
    WIDE_ADAPTER_BITS,
    Method,
    Optimizer,
    Recompute,
    Training,
    TrainingQuery,
    training_footprint,
)
from trimtab.physics.transfer import DeviceActivity, speed_ratio
from trimtab.units import BYTES_PER_GB, BYTES_PER_GIB, FLOPS_PER_TFLOPS

RECORDS = Path(__file__).parent / "reference" / "data"
BOARDS = {"NVIDIA H100 80GB HBM3": "H100-SXM5-80GB", "NVIDIA H200": "H200-SXM-141GB"}
MEASURED_PARTS = ("trainings", "servings", "others")
WAITS_FOR_THE_HOST = ("resnet-50 inference, batch 1", "bert-large inference, 1 x 128")
"""Work of which the GPU is busy for less than a fifth of the time: no counter of it shows how fast the host is."""
Record = Mapping[str, Any]


class Row(NamedTuple):
    """One comparison: what was said, with its 80 % interval where it has one, and what was measured."""

    name: str
    said: float
    measured: float
    low: float | None = None
    high: float | None = None

    @property
    def error_frac(self) -> float:
        """Return how far off what was said is."""
        return self.said / self.measured - 1

    @property
    def holds(self) -> bool | None:
        """Say whether the measurement lies in the interval."""
        return None if self.low is None or self.high is None else self.low <= self.measured <= self.high


def counters(record: Record, board: Gpu) -> Iterator[Row]:
    """Yield the profiler's readings beside what the kernels did, both as shares of the board."""
    for name, run in record.get("kernels", {}).items():
        truth, seen = run["truth"], run["means"]
        if "busy_frac" in truth and truth["busy_frac"] > 0:
            yield Row(f"{name}: a kernel runs", seen["gpu_util_frac"], truth["busy_frac"])
        if "sms" in truth and board.sm_count:
            yield Row(f"{name}: SM activity", seen["sm_active_frac"], truth["sms"] / board.sm_count)
        if "dram_bytes_s" in truth:
            done = truth["dram_bytes_s"] / (board.mem_bw_gb_s * BYTES_PER_GB)
            yield Row(f"{name}: DRAM activity", seen["dram_active_frac"], done)
        if "pcie_rx_bytes_s" in truth:
            yield Row(f"{name}: GB/s received", seen["pcie_rx_gb_s"], truth["pcie_rx_bytes_s"] / BYTES_PER_GB)
        if "flop_s" in truth:
            # the rate of the data sheet is that of the clock it states: pipes that are always active do less at a lower one
            clock_frac = seen["sm_clock_mhz"] / HIGHEST_MHZ
            rate = (board.tflops(Precision.BF16) or 0.0) * FLOPS_PER_TFLOPS * CLOCK_OF_SHEET * clock_frac
            yield Row(f"{name}: tensor activity", seen["tensor_active_frac"], truth["flop_s"] / rate)


HIGHEST_MHZ = 1980.0
"""The highest SM clock of both boards, as NVML shows it."""
CLOCK_OF_SHEET = 1980 / 1830
"""989.4 TFLOP/s are 132 SMs x 4,096 FLOP x 1,830 MHz (NVIDIA H100 architecture white paper): at 1,980 MHz it is more."""


def training_of(label: str, way: Mapping[str, Any]) -> tuple[Architecture, Training]:
    """Return the model and the way of training of a record."""
    model = model_named(label.split(",")[0])
    lora = "lora_rank" in way
    return model, Training(
        model=model,
        method=Method.LORA if lora else Method.FULL,
        optimizer=Optimizer.ADAMW if way["master"] else Optimizer.ADAMW_BF16,
        master_weights=way["master"],
        recompute=Recompute.FULL if way["recompute"] else Recompute.NONE,
        micro_batch=way["micro_batch"],
        sequence=way["sequence"],
        lora_rank=way.get("lora_rank", 16),
        # PEFT's default where the record does not say
        adapter_bits=way.get("adapter_bits", WIDE_ADAPTER_BITS),
    )


def training_speed(record: Record, board: Gpu, *, lora: bool) -> Iterator[Row]:
    """Yield tokens a second of training, as of the framework with measured runs that is nearest: Hugging Face's own trainer."""
    for label, run in record.get("trainings", {}).items():
        model, training = training_of(label, run["way"])
        if (training.method is Method.LORA) is not lora:
            continue
        said = predict_training(
            TrainingQuery(
                model=model,
                gpu=board,
                method=training.method,
                recompute=training.recompute,
                sequence=training.sequence,
                micro_batch=training.micro_batch,
                framework="HF SFTTrainer/fms-acceleration",
                lora_rank=training.lora_rank,
                adapter_bits=training.adapter_bits,
                # no LoRA run of the records is under autocast (benchmarks.gpu_models)
                autocast=False,
            )
        )
        yield Row(label, said.value, run["done_s"], said.low, said.high)


def training_memory(record: Record, _board: Gpu) -> Iterator[Row]:
    """Yield the peak that the device shows."""
    for label, run in record.get("trainings", {}).items():
        _, training = training_of(label, run["way"])
        yield Row(label, training_footprint(training).total_bytes / BYTES_PER_GIB, run["device_used_gib"])


RESNET = "resnet-50"


def other_model(label: str, board: Gpu) -> WorkloadQuery | None:
    """Return the question that is nearest to a record of ResNet-50 or BERT-large; None where nothing like it was ever fitted.

    ResNet-50: NVIDIA's DeepLearningExamples, PyTorch in mixed precision at a stated batch. BERT-large: MLPerf's Offline
    scenario in fp16, which `trimtab fit` answers with: TensorRT, questions of up to 384 tokens. It has no short batches.
    """
    if label.startswith(RESNET):
        trains, batch = "training" in label, int(label.rsplit(" ", 1)[1])
        gflop = RESNET_50_GFLOP * (3 if trains else 1)
        return WorkloadQuery(
            task="resnet50",
            gpu=board,
            gpus=1,
            precision="fp16",
            domain="dlepretrain" if trains else "dleinference",
            mode="training" if trains else "offline static batch",
            metric="train_throughput" if trains else "throughput",
            unit_gflop=gflop,
            step_gflop=gflop * batch,
        )
    if label == "bert-large inference, 32 x 384":
        bert = measured_models()["bert-large"]
        mode = bert.mode(online=False)
        return WorkloadQuery(
            task=bert.task, gpu=board, gpus=1, precision="fp16", domain=MLPERF, mode=mode, metric="throughput"
        )
    return None


def other_models(record: Record, board: Gpu) -> Iterator[Row]:
    """Yield images and sequences a second of models that generate no text."""
    for label, run in record.get("others", {}).items():
        query = other_model(label, board)
        if query is not None:
            said = predict_workload(query)
            yield Row(label, said.value, run["done_s"], said.low, said.high)


class Pass(Enum):
    """A pass of a model that serves: a prompt, or a token for each request."""

    PREFILL = "prefill"
    DECODE = "decode, keys and values copied for every head"
    GROUPED_DECODE = "decode, each key and value read once"


def pass_of(label: str) -> Pass:
    """Return which pass a record is of."""
    if label.startswith("prefill"):
        return Pass.PREFILL
    return Pass.GROUPED_DECODE if label.endswith("grouped") else Pass.DECODE


def serving_speed(record: Record, board: Gpu, *, which: Pass) -> Iterator[Row]:
    """Yield the times of a pass of an 8B model, told as a plain engine of this year."""
    decodes = which is not Pass.PREFILL
    for label, run in record.get("servings", {}).items():
        way = run["way"]
        if pass_of(label) is not which:
            continue
        times = times_of(
            [
                ServingQuery(
                    model=model_named("llama-3.1-8b"),
                    gpu=board,
                    stored=WeightFormat.BF16,
                    engine="transformers",
                    year=2026,
                    load=Load.DECODE if decodes else Load.PREFILL,
                    requests=way["requests"],
                    input_tokens=way["tokens"],
                    output_tokens=1,
                )
            ]
        )
        said = float((times.decode_s if decodes else times.prefill_batch_s)[0])
        tokens = way["requests"] * (1 if decodes else way["tokens"])
        yield Row(label, said, tokens / run["done_s"])


def activity(run: Record) -> DeviceActivity | None:
    """Return the counters of a run; None where they were not read."""
    seen = run.get("means") or {}
    if "dram_active_frac" not in seen:
        return None
    return DeviceActivity(
        sm_active=seen["sm_active_frac"],
        tensor_active=seen["tensor_active_frac"],
        dram_active=seen["dram_active_frac"],
        gpu_util=seen["gpu_util_frac"],
    )


def transfers(source: Record, target: Record) -> Iterator[Row]:
    """Yield the speed on another board, predicted from the counters on this one."""
    for part in MEASURED_PARTS:
        for label, run in source.get(part, {}).items():
            seen = activity(run)
            other = target.get(part, {}).get(label)
            if seen is None or other is None:
                continue
            said = speed_ratio(observed=seen, source=board_of(source), target=board_of(target))
            yield Row(f"{label}", said.value, other["done_s"] / run["done_s"], said.low, said.high)


def pairs(record: Record, _board: Gpu) -> Iterator[Row]:
    """Yield the speed of a program beside another, 1 = alone."""
    runs = record.get("pairs", {})
    busy = {
        name.removeprefix("alone: "): run["means"]["gpu_util_frac"]
        for name, run in runs.items()
        if name.startswith("alone: ")
    }
    for name, run in runs.items():
        if not name.startswith("pair: "):
            continue
        one, other = name.removeprefix("pair: ").split(" | ")
        for (own, beside), measured in zip(((one, other), (other, one)), run["speeds"], strict=True):
            said = speed_beside(busy[own], busy[beside])
            yield Row(f"{own} beside {beside}", said.expected, measured, said.low, said.high)


def repeats(record: Record, again: Record) -> Iterator[Row]:
    """Yield what a board did in one session beside what the other one of its kind did in another: how far readings repeat."""
    for part in MEASURED_PARTS:
        for label, run in record.get(part, {}).items():
            if label in again.get(part, {}):
                yield Row(label, run["done_s"], again[part][label]["done_s"])


def under_mps(record: Record, slices: Record) -> Iterator[Row]:
    """Yield the speed beside another program under MPS (no limit on processors) in place of time slices, 1 = alone."""
    for name, run in record.get("pairs under MPS", {}).items():
        if not name.startswith("pair: "):
            continue
        one, other = name.removeprefix("pair: ").split(" | ")
        for own, beside, there, here in zip(
            (one, other), (other, one), slices["pairs"][name]["speeds"], run["speeds"], strict=True
        ):
            yield Row(f"{own} beside {beside}", there, here)


def engine_loads(record: Record, _board: Gpu, *, at_its_pace: bool) -> Iterator[Row]:
    """Yield first tokens and times per token under load, by the replay of the scheduler."""
    if "engine" in record:
        for name, is_at_pace, told, measured in told_loads(record["engine"]):
            if is_at_pace is at_its_pace:
                yield Row(name, told, measured)


def unsafe_pairs(record: Record) -> list[str]:
    """Return the pairs that are called safe and lost more than a quarter."""
    runs = record.get("pairs", {})
    busy = {name.removeprefix("alone: "): run["means"]["gpu_util_frac"] for name, run in runs.items() if "means" in run}
    found = []
    for name, run in runs.items():
        if name.startswith("pair: "):
            one, other = name.removeprefix("pair: ").split(" | ")
            if is_safe_pair(busy[one], busy[other]) and min(run["speeds"]) < 0.75:
                found.append(name)
    return found


def board_of(record: Record) -> Gpu:
    """Return the board of a record."""
    return load_catalog().gpu(BOARDS[record["gpu"]])


QUESTIONS: dict[str, Callable[[Record, Gpu], Iterator[Row]]] = {
    "counters": counters,
    "training of all weights, tokens/s": partial(training_speed, lora=False),
    "training of LoRA by PEFT, tokens/s": partial(training_speed, lora=True),
    "training memory, GiB": training_memory,
    "prefill, s": partial(serving_speed, which=Pass.PREFILL),
    "decode step, s": partial(serving_speed, which=Pass.DECODE),
    "decode step with grouped heads, s": partial(serving_speed, which=Pass.GROUPED_DECODE),
    "models that generate no text, a second": other_models,
    "two programs on one GPU": pairs,
    "loads on an engine, s": partial(engine_loads, at_its_pace=False),
    "loads on an engine at the pace of the run, s": partial(engine_loads, at_its_pace=True),
}


def shown(title: str, rows: Sequence[Row]) -> dict[str, float | int]:
    """Print the rows and return their scores."""
    print(f"\n{title}")
    for row in rows:
        interval = "" if row.low is None else f"  [{row.low:.3g}, {row.high:.3g}] {'holds' if row.holds else 'MISSES'}"
        print(
            f"  {row.name:<62} said {row.said:>10.4g}  measured {row.measured:>10.4g}  {row.error_frac:+7.1%}{interval}"
        )
    return scores_of(rows)


def scores_of(rows: Sequence[Row]) -> dict[str, float | int]:
    """Return how far off the rows are and how often their intervals hold."""
    errors = [abs(row.error_frac) for row in rows]
    logs = [math.log(row.said / row.measured) for row in rows if row.said > 0]
    scores: dict[str, float | int] = {
        "rows": len(rows),
        "mape_frac": round(statistics.mean(errors), 4),
        "worst_frac": round(max(errors), 4),
        "median_frac": round(statistics.median(errors), 4),
        "bias_frac": round(math.exp(statistics.mean(logs)) - 1, 4),
    }
    held = [row.holds for row in rows if row.holds is not None]
    if held:
        scores["interval_holds_frac"] = round(statistics.mean(held), 4)
    return scores


def main() -> None:
    """Run the comparison."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, nargs="*", default=sorted(RECORDS.glob("gpu_*.json")))
    options = parser.parse_args()
    records = [json.loads(path.read_text(encoding="utf-8")) for path in options.data]
    found: dict[str, object] = {"benchmark": "real_gpu", "gpus": [record["gpu"] for record in records]}
    for question, ask in QUESTIONS.items():
        rows = [row for record in records for row in ask(record, board_of(record))]
        if rows:
            found[question.split(",")[0]] = shown(question, rows)
    for source in records:
        for target in records:
            if source["gpu"] != target["gpu"] and "others" in source and "others" in target:
                title = f"from {board_of(source).name} to {board_of(target).name}, by counters"
                rows = list(transfers(source, target))
                found[title] = shown(title, rows)
                busy = [row for row in rows if row.name not in WAITS_FOR_THE_HOST]
                found[f"{title}, busy alone"] = scores_of(busy)
    for again in (record for record in records if "others" not in record):
        first = next((one for one in records if one["gpu"] == again["gpu"] and one is not again), None)
        if first is not None:
            found["the same again"] = shown(
                f"on {again['gpu']}, said = the first time, measured = again", list(repeats(first, again))
            )
        slices = next((one for one in records if "pairs" in one), None)
        if slices is not None:
            found["MPS for time slices"] = shown(
                "speed beside another program, said = in time slices, measured = under MPS",
                list(under_mps(again, slices)),
            )
    found["called safe, lost over 25 %"] = [name for record in records for name in unsafe_pairs(record)]
    print(json.dumps(found))


if __name__ == "__main__":
    main()
