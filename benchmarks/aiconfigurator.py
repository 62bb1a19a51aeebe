"""AIConfigurator beside ours on the same rows: `python -m benchmarks.aiconfigurator --data measured.csv --ours predicted.csv`.

`--ours` is what `python -m benchmarks.predict --data measured.csv --out predicted.csv` wrote: groups that never saw their fit.
The peer must be importable (`pip install aiconfigurator`); without it the script says so and ends. Rows are those of boards,
engines and models that it has tables and configurations for; what it cannot answer is counted, with its reason. `--every N`
takes each N-th question of a board, engine and model.
"""

from __future__ import annotations

import argparse
import csv
import importlib
import importlib.util
import json
import logging
import statistics
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, cast

SYSTEMS = {
    "H100-80GB-SXM": "h100_sxm",
    "H200-141GB-SXM": "h200_sxm",
    "B200-180GB": "b200_sxm",
    "GB200-186GB": "gb200",
}
BACKENDS = {"vllm": "vllm", "vLLM": "vllm", "trtllm": "trtllm", "TensorRT-LLM": "trtllm", "sglang": "sglang"}
MODELS = {
    "Meta-Llama-3-8B": "meta-llama/Meta-Llama-3.1-8B",
    "Meta-Llama-3-70B": "meta-llama/Meta-Llama-3.1-70B",
    "Llama-3.1-8B-Instruct": "meta-llama/Meta-Llama-3.1-8B",
    "Llama-3.1-70B": "meta-llama/Meta-Llama-3.1-70B",
    "Qwen3-32B": "Qwen/Qwen3-32B",
    "Qwen3-235B-A22B-FP8": "Qwen/Qwen3-235B-A22B-FP8",
    "DeepSeek-R1": "deepseek-ai/DeepSeek-R1",
    "DeepSeek-V3": "deepseek-ai/DeepSeek-V3",
    "gpt-oss-120b": "openai/gpt-oss-120b",
}
"""Names of the data and the configurations that the peer ships; Llama 3 and 3.1 have one shape."""
FP8_CONFIGS = {
    "Llama-3.1-70B": "nvidia/Llama-3.1-70B-Instruct-FP8",
    "Qwen3-32B": "Qwen/Qwen3-32B-FP8",
}
"""Where weights of 8 bits have a configuration of their own; DeepSeek's and gpt-oss's are narrow as they come."""
EXPERTS = {MODELS[name] for name in ("Qwen3-235B-A22B-FP8", "DeepSeek-R1", "DeepSeek-V3", "gpt-oss-120b")}
"""Mixtures of experts, for which the peer wants the expert-parallel degree."""
NATIVELY_FP4 = {"gpt-oss-120b"}
CLOSED_LOOP = {"ttft_mean", "tpot_mean"}
STATIC = "total_throughput"


class Result(Protocol):
    """What the peer answers, in milliseconds."""

    ttft: float
    tpot: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One configuration that was measured."""

    system: str
    backend: str
    model: str
    mode: str
    batch: int
    input_len: int
    output_len: int
    tensor: int
    pipeline: int
    expert: int
    fp4: bool

    def arguments(self) -> dict[str, object]:
        """Return the question in the peer's words."""
        spread: dict[str, object] = {"moe_ep_size": self.expert} if self.model in EXPERTS else {}
        return {
            "model_path": self.model,
            "system_name": self.system,
            "backend_name": self.backend,
            "mode": self.mode,
            "isl": self.input_len,
            "osl": self.output_len,
            "batch_size": self.batch,
            "tp_size": self.tensor,
            "pp_size": self.pipeline,
            **spread,
            **({"gemm_quant_mode": "nvfp4", "moe_quant_mode": "nvfp4"} if self.fp4 else {}),
        }


def question_of(cells: dict[str, str]) -> Question | None:
    """Return the question behind a row; None where the peer has no tables for its board, engine, model or metric."""
    system, backend, model = (
        table.get(cells[column]) for table, column in ((SYSTEMS, "gpu"), (BACKENDS, "framework"), (MODELS, "model"))
    )
    if system is None or backend is None or model is None or cells["metric"] not in {*CLOSED_LOOP, STATIC}:
        return None
    if not (cells["value"] and cells["batch_or_concurrency"] and cells["input_len"] and cells["output_len"]):
        return None
    precision = cells["precision"]
    return Question(
        system=system,
        backend=backend,
        model=FP8_CONFIGS.get(cells["model"], model) if precision == "fp8" else model,
        fp4=precision == "fp4" and cells["model"] not in NATIVELY_FP4,
        mode="static" if cells["metric"] == STATIC else "agg",
        batch=_whole(cells["batch_or_concurrency"]),
        input_len=_whole(cells["input_len"]),
        output_len=_whole(cells["output_len"]),
        tensor=_whole(cells["tp"] or cells["n_gpus"]),
        pipeline=_whole(cells["pp"] or "1"),
        expert=_whole(cells["ep"] or "1"),
    )


def _whole(cell: str) -> int:
    return max(1, round(float(cell)))


def answer_of(question: Question, metric: str, result: Result) -> float:
    """Return the peer's answer in the row's own metric and unit."""
    if metric == "ttft_mean":
        return result.ttft
    if metric == "tpot_mean":
        return result.tpot
    seconds = (result.ttft + (question.output_len - 1) * result.tpot) / 1e3
    return question.batch * (question.input_len + question.output_len) / seconds


def every(questions: Iterable[Question], step: int) -> list[Question]:
    """Return each step-th question of every board, engine and model, in their own order."""
    groups: dict[tuple[str, str, str, str], list[Question]] = defaultdict(list)
    for one in questions:
        groups[one.system, one.backend, one.model, one.mode].append(one)
    return [one for group in groups.values() for one in group[step // 2 :: step]]


def estimates(questions: Sequence[Question], ask: Callable[..., Result]) -> dict[Question, Result | str]:
    """Ask the peer each question; a refusal is kept with its first words."""
    found: dict[Question, Result | str] = {}
    for at, one in enumerate(questions, start=1):
        try:
            found[one] = ask(**one.arguments())
        except (
            RuntimeError,
            ValueError,
            KeyError,
            TypeError,
            AttributeError,
            LookupError,
            OSError,
            ArithmeticError,
        ) as error:
            found[one] = f"{type(error).__name__}: {str(error)[:60]}"
        print(f"{at}/{len(questions)} {one.system} {one.backend} {one.model}", flush=True)
    return found


def table(rows: Sequence[tuple[str, float, float | None, float | None]]) -> list[dict[str, object]]:
    """Return errors by metric: rows tried, and on those that both answer MAPE and MdAPE of each."""
    lines: list[dict[str, object]] = []
    for metric in sorted({row[0] for row in rows}):
        mine = [row for row in rows if row[0] == metric]
        both = [(value, peer, ours) for _, value, peer, ours in mine if peer is not None and ours is not None]
        theirs = [abs(peer / value - 1) for value, peer, _ in both]
        own = [abs(ours / value - 1) for value, _, ours in both]
        lines.append(
            {
                "metric": metric,
                "rows": len(mine),
                "peer_abstains_frac": _share(row[2] is None for row in mine),
                "ours_abstains_frac": _share(row[3] is None for row in mine),
                "both": len(both),
                "peer_mape_frac": _rounded(statistics.fmean, theirs),
                "peer_mdape_frac": _rounded(statistics.median, theirs),
                "ours_mape_frac": _rounded(statistics.fmean, own),
                "ours_mdape_frac": _rounded(statistics.median, own),
            }
        )
    return lines


def _share(facts: Iterable[bool]) -> float:
    return round(statistics.fmean(facts), 4)


def _rounded(measure: Callable[[list[float]], float], values: list[float]) -> float | None:
    return round(measure(values), 4) if values else None


def main() -> None:
    """Compare; the last line is one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--ours", type=Path, required=True)
    parser.add_argument("--every", type=int, default=1)
    options = parser.parse_args()
    if importlib.util.find_spec("aiconfigurator") is None:
        print(
            json.dumps({"benchmark": "aiconfigurator", "skipped": "the package is absent: pip install aiconfigurator"})
        )
        return
    logging.disable(logging.CRITICAL)
    peer = importlib.import_module("aiconfigurator.cli.api")
    measured = list(csv.DictReader(options.data.open(encoding="utf-8", newline="")))
    ours = {
        row["id"]: float(row["predicted"]) for row in csv.DictReader(options.ours.open(encoding="utf-8", newline=""))
    }
    asked = [(cells, one) for cells in measured if (one := question_of(cells)) is not None]
    chosen = every(dict.fromkeys(one for _, one in asked), options.every)
    answered = estimates(chosen, cast("Callable[..., Result]", peer.cli_estimate))
    rows = []
    for cells, one in asked:
        if (result := answered.get(one)) is not None:
            answer = None if isinstance(result, str) else answer_of(one, cells["metric"], result)
            rows.append((cells["metric"], float(cells["value"]), answer, ours.get(cells["id"])))
    refusals = Counter(result for result in answered.values() if isinstance(result, str))
    print(
        json.dumps(
            {
                "benchmark": "aiconfigurator",
                "data": str(options.data),
                "questions": len(chosen),
                "by_metric": table(rows),
                "refusals": dict(refusals.most_common(8)),
            }
        )
    )


if __name__ == "__main__":
    main()
