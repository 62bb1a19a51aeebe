"""Prefill and decode apart or together: `python -m benchmarks.disaggregation [--data measured.csv] [--runs FILE]`.

Runs of InferenceX and of NVIDIA, as published by ai-dynamo/aiconfigurator (`reference/data/disaggregated.csv`: commit 095f58a,
`aic-core/src/aiconfigurator_core/systems/silicon_sample.csv`, Apache-2.0): closed loops at a concurrency, with mean times to
first token and per token. Kept are runs whose GPUs are certain: replicas and their shape are stated for both halves, and runs
of the two newest dumps only, since older rows mix in speculative decoding without saying so, and label pools of a whole rack
(28 or 72 GPUs) as tensor parallelism.

A question is a group (model, GPU, format, engine, tokens in and out) that was run both ways, and a limit on the time per token.
The measured answer is the way whose best run within the limit has more tokens a second and GPU, interpolated along the frontier
of its runs; the predicted answer is the same from predicted times of the very same runs, both ways by the replay of the
scheduler. Times come from tables fitted on `--data` without any group (model family x chip) that is asked about; the fixed
time of a hand-over is chosen on runs of the other groups. Without `--data` the packaged tables answer, which saw some of the
runs together; the JSON says which.

A limit at which neither frontier has changed since the last one asks nothing new and is left out. `right_frac` is over all
questions, `clear_right_frac` over those whose two ways differ by 20 % or more; `regret_frac` is what the chosen way costs above
the better one, on average. Questions of one group are alike, so the true interval is wider than Wilson's: `right_groups` has
the groups whose questions are mostly answered right. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.fitted import fit_tables, kind_of
from benchmarks.perf_rows import read_rows
from benchmarks.ttft import FIRST_ROUND_FRACS, SPREAD_FRAC
from trimtab.physics.disaggregated import HAND_OVER_S, KvTransfer
from trimtab.physics.fitted import Floats, Terms
from trimtab.physics.footprint import kv_bytes
from trimtab.physics.formats import WeightFormat
from trimtab.physics.models import model_named
from trimtab.physics.offers import board
from trimtab.physics.predict import coefficients_of, packaged
from trimtab.physics.serving import FirstTokenCosts, default_step_tokens, first_token_fit
from trimtab.physics.serving_query import (
    Load,
    ServingQuery,
    chip_of,
    kv_value_bytes,
    link_gb_s,
    serving_columns,
    serving_keys,
)
from trimtab.replay.disaggregated import decode_pool, prefill_pool, replay_disaggregated
from trimtab.replay.engine import Requests
from trimtab.replay.first_token import replay_deployment, spread_lengths
from trimtab.units import BYTES_PER_GB, MS_PER_S

RUNS = Path(__file__).parent / "reference" / "data" / "disaggregated.csv"
YEAR = 2026
LIMITS_S = (0.008, 0.01, 0.015, 0.02, 0.03, 0.04, 0.05, 0.075, 0.1)
"""Limits on the time per token: 125 to 10 tokens a second for one user."""
ROUNDS = 6
"""Requests a client in the replay; the published runs send ten, of which the first round is `FIRST_ROUND`."""
SETTLED = 2
FIRST_ROUND = FIRST_ROUND_FRACS[0]
MEAN_LENGTH = 1 - SPREAD_FRAC / 2
"""InferenceX draws lengths from 0.8 of the nominal one up."""
HAND_OVERS_S = (0.0, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.5)
LEAST_SEQUENCES = 8
CLEAR = 1.2
"""A ratio from which on one way is clearly better: software of another week moves rates by as much as less."""
Z_95 = 1.96
FAMILIES = {"deepseek-v3": "DeepSeek", "kimi-k2": "Kimi", "qwen3-32b": "Qwen3", "qwen3-235b-a22b": "Qwen3"}
"""Model families as the groups of the measured rows name them."""

Group = tuple[str, str, str, str, float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """Replicas of one half, or of both together, and how each is spread over GPUs."""

    replicas: int
    tensor: int
    ranks: int
    expert: int

    @property
    def gpus(self) -> int:
        """Return the GPUs of one replica."""
        return self.tensor * self.ranks


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One measured run; `prefill` is None where one place did both."""

    id: str
    model: str
    gpu: str
    stored: WeightFormat
    engine: str
    concurrency: int
    input_tokens: float
    output_tokens: float
    prefill: Shape | None
    decode: Shape
    ttft_s: float
    tpot_s: float

    @property
    def group(self) -> Group:
        """Return what a question is about."""
        return self.model, self.gpu, self.stored.value, self.engine, self.input_tokens, self.output_tokens

    @property
    def family(self) -> str:
        """Return the group of measured rows that tables must not have seen."""
        return f"{FAMILIES[self.model]}|{chip_of(board(self.gpu))}"

    @property
    def gpus(self) -> int:
        """Return the GPUs of the whole run."""
        halves = [self.decode] if self.prefill is None else [self.prefill, self.decode]
        return sum(half.replicas * half.gpus for half in halves)

    def rate(self, ttft_s: float, tpot_s: float) -> float:
        """Return output tokens a second and GPU at these times."""
        return self.concurrency * self.output_tokens / (ttft_s + (self.output_tokens - 1) * tpot_s) / self.gpus


@dataclass(frozen=True, slots=True, kw_only=True)
class Predicted:
    """Times of a run: first tokens without the fixed part of a hand-over, and per token."""

    ttft_s: float
    tpot_s: float


def read_runs(path: Path) -> list[Run]:
    """Read the measured runs."""
    with path.open(encoding="utf-8", newline="") as stream:
        return [_run(row) for row in csv.DictReader(stream)]


def _run(row: Mapping[str, str]) -> Run:
    apart = row["mode"] == "apart"
    return Run(
        id=row["id"],
        model=row["model"],
        gpu=row["gpu"],
        stored=WeightFormat(row["format"]),
        engine=row["engine"],
        concurrency=int(row["concurrency"]),
        input_tokens=float(row["input_tokens"]),
        output_tokens=float(row["output_tokens"]),
        prefill=_shape(row, "prefill_") if apart else None,
        decode=_shape(row, ""),
        ttft_s=float(row["ttft_ms"]) / MS_PER_S,
        tpot_s=float(row["tpot_ms"]) / MS_PER_S,
    )


def _shape(row: Mapping[str, str], half: str) -> Shape:
    replicas, tensor, ranks, expert = (int(row[half + name]) for name in ("replicas", "tensor", "ranks", "expert"))
    return Shape(replicas=replicas, tensor=tensor, ranks=ranks, expert=expert)


def query_of(run: Run, shape: Shape) -> ServingQuery:
    """Return the question of one half of a run; attention is data parallel where it has several ranks."""
    gpu = board(run.gpu)
    return ServingQuery(
        model=model_named(run.model),
        gpu=gpu,
        stored=run.stored,
        engine=run.engine,
        year=YEAR,
        load=Load.ONLINE,
        requests=run.concurrency,
        input_tokens=run.input_tokens * MEAN_LENGTH,
        output_tokens=run.output_tokens * MEAN_LENGTH,
        kv_value_bytes=kv_value_bytes(run.stored, run.engine, YEAR, gpu),
        gpus=shape.gpus,
        tensor=shape.gpus if shape.ranks == 1 else 1,
        expert=shape.gpus if shape.ranks > 1 else min(shape.expert, shape.gpus),
    )


def requests_of(run: Run) -> Requests:
    """Return the requests of a run, in rounds of its clients."""
    number = ROUNDS * run.concurrency
    drawn = np.random.default_rng(0).random((2, number))
    prompts, answers = (
        spread_lengths(tokens * MEAN_LENGTH, SPREAD_FRAC / MEAN_LENGTH, column)
        for tokens, column in zip((run.input_tokens, run.output_tokens), drawn, strict=True)
    )
    return Requests(np.zeros(number), prompts, answers, np.zeros(number, dtype=np.int64))


def predicted(run: Run, tables: Mapping[str, Terms]) -> Predicted:
    """Replay a run and return its mean times as the published runs state them."""
    query = query_of(run, run.decode)
    v, c = _columns(query, tables)
    costs = first_token_fit().of(serving_keys(query))
    clients = run.concurrency
    if run.prefill is None:
        replayed = replay_deployment(
            v,
            c,
            requests_of(run),
            clients=clients,
            max_num_seqs=max(clients, LEAST_SEQUENCES),
            step_tokens=default_step_tokens(query.gpu),
        )
        return _means(replayed.ttft_s, replayed.tpot_s, clients, costs)
    before = query_of(run, run.prefill)
    sequences = max(math.ceil(2 * clients / run.decode.replicas), LEAST_SEQUENCES)
    transfer = KvTransfer(
        token_bytes=kv_bytes(query.model, run.input_tokens, query.kv_value_bytes) / run.input_tokens,
        # racks and nodes of these runs are joined by NVLink or one 400 Gbit/s adapter a GPU; the slower is 50 GB/s
        byte_s=min(link_gb_s(query.gpu), 50.0) * BYTES_PER_GB,
        fixed_s=0.0,
    )
    apart = replay_disaggregated(
        requests_of(run),
        prefill_pool(
            *_columns(before, tables), replicas=run.prefill.replicas, step_tokens=default_step_tokens(before.gpu)
        ),
        decode_pool(v, c, replicas=run.decode.replicas, max_num_seqs=sequences),
        transfer,
        clients=clients,
    )
    return _means(apart.ttft_s, apart.tpot_s, clients, costs)


def _columns(query: ServingQuery, tables: Mapping[str, Terms]) -> tuple[dict[str, Floats], dict[str, Floats]]:
    v = serving_columns([query])
    return v, coefficients_of([query], v, tables)


def _means(ttft_s: Floats, tpot_s: Floats, clients: int, costs: FirstTokenCosts) -> Predicted:
    """Weigh the first round, in which all clients start at once, as the published runs do."""
    first, later = ttft_s[:clients].mean(), ttft_s[SETTLED * clients :].mean()
    step_s = float(np.nanmean(tpot_s[clients:]))
    waited_s = float(FIRST_ROUND * first + (1 - FIRST_ROUND) * later)
    return Predicted(
        ttft_s=costs.wait_scale * waited_s + costs.fixed_s + costs.delay_steps * step_s,
        tpot_s=step_s,
    )


def first_token_s(run: Run, times: Predicted, hand_over_s: float) -> float:
    """Return a run's time to first token with the fixed part of its hand-over."""
    return times.ttft_s + (0.0 if run.prefill is None else hand_over_s)


def chosen_hand_over_s(runs: Sequence[Run], answers: Mapping[str, Predicted]) -> float:
    """Return the fixed time of a hand-over that is nearest to the runs, by the median error of the logarithm."""

    def error(seconds: float) -> float:
        return float(
            np.median([abs(math.log(first_token_s(run, answers[run.id], seconds) / run.ttft_s)) for run in runs])
        )

    return min(HAND_OVERS_S, key=error)


def frontier_rate(points: Sequence[tuple[float, float]], limit_s: float) -> float | None:
    """Return the best rate within a limit on the time per token, along the frontier of runs; None where none keeps it."""
    best, kept = 0.0, list[tuple[float, float]]()
    for time_s, rate in sorted(points):
        if rate > best:
            best = rate
            kept.append((time_s, rate))
    if not kept or limit_s < kept[0][0]:
        return None
    times, rates = zip(*kept, strict=True)
    return float(np.exp(np.interp(math.log(limit_s), np.log(times), np.log(rates))))


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A group and a limit, with the ratio of rates apart to together, measured and predicted."""

    group: Group
    limit_s: float
    measured: float
    predicted: float

    @property
    def is_right(self) -> bool:
        """Say whether the prediction chooses as the measurement does."""
        return (self.measured > 1) == (self.predicted > 1)

    @property
    def is_clear(self) -> bool:
        """Say whether one way is clearly better."""
        return not 1 / CLEAR < self.measured < CLEAR

    @property
    def regret_frac(self) -> float:
        """Return what the chosen way costs above the better one."""
        return 0.0 if self.is_right else max(self.measured, 1 / self.measured) - 1


def questions_of(runs: Sequence[Run], answers: Mapping[str, Predicted], hand_over_s: float) -> list[Question]:
    """Return the questions of one group: one a limit that some run of each way keeps."""
    found = []
    before: tuple[float | None, float | None] = (None, None)
    for limit_s in LIMITS_S:
        rates: dict[tuple[bool, bool], float | None] = {}
        for apart in (False, True):
            mine = [run for run in runs if (run.prefill is not None) == apart]
            told = [(run.tpot_s, run.rate(run.ttft_s, run.tpot_s)) for run in mine]
            guessed = [
                (
                    answers[run.id].tpot_s,
                    run.rate(first_token_s(run, answers[run.id], hand_over_s), answers[run.id].tpot_s),
                )
                for run in mine
            ]
            rates[apart, False], rates[apart, True] = frontier_rate(told, limit_s), frontier_rate(guessed, limit_s)
        apart_rate, together_rate = rates[True, False], rates[False, False]
        if apart_rate is None or together_rate is None or (apart_rate, together_rate) == before:
            continue
        before = (apart_rate, together_rate)
        # a way that is predicted to miss the limit with every run is not chosen
        ratio = (rates[True, True] or 0.0) / (rates[False, True] or 1e-9)
        found.append(
            Question(group=runs[0].group, limit_s=limit_s, measured=apart_rate / together_rate, predicted=ratio)
        )
    return found


def wilson(right: int, number: int) -> tuple[float, float]:
    """Return Wilson's 95 % interval of a share."""
    if not number:
        return math.nan, math.nan
    share, spread = right / number, Z_95**2 / number
    middle = (share + spread / 2) / (1 + spread)
    half = math.sqrt(share * (1 - share) * spread + spread**2 / 4) / (1 + spread)
    return middle - half, middle + half


def _clear(asked: Sequence[Question]) -> dict[str, float]:
    clear = [question.is_right for question in asked if question.is_clear]
    low, high = wilson(sum(clear), len(clear))
    return {
        "clear_questions": len(clear),
        "clear_right_frac": round(sum(clear) / len(clear), 4) if clear else math.nan,
        "clear_right_low_frac": round(low, 4),
        "clear_right_high_frac": round(high, 4),
    }


def errors(runs: Sequence[Run], answers: Mapping[str, Predicted], hand_over_s: float) -> dict[str, float]:
    """Return the median relative errors of runs: per token, first token, tokens a second and GPU."""
    ratios = []
    for run in runs:
        times = answers[run.id]
        first_s = first_token_s(run, times, hand_over_s)
        rate = run.rate(first_s, times.tpot_s) / run.rate(run.ttft_s, run.tpot_s)
        ratios.append([times.tpot_s / run.tpot_s, first_s / run.ttft_s, rate])
    middle = np.median(np.abs(np.array(ratios).reshape(-1, 3) - 1), axis=0) if ratios else np.full(3, np.nan)
    return {
        name: round(float(value), 4)
        for name, value in zip(("tpot_mdape_frac", "ttft_mdape_frac", "tok_s_gpu_mdape_frac"), middle, strict=True)
    }


def held_out_tables(data: Path | None, families: frozenset[str]) -> Mapping[str, Terms]:
    """Return tables fitted without some groups; the packaged ones without data."""
    if data is None:
        return packaged("serving").tables
    rows = [row for row in read_rows(data) if kind_of(row) == "serving" and row.group not in families]
    return fit_tables("serving", rows)


def main() -> None:
    """Ask every question and print the answers."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="measured rows to fit on, without the groups that are asked about")
    parser.add_argument("--runs", type=Path, default=RUNS, help="measured runs, apart and together")
    options = parser.parse_args()
    runs = read_runs(options.runs)
    groups: dict[Group, list[Run]] = {}
    for run in runs:
        groups.setdefault(run.group, []).append(run)
    paired = {key for key, mine in groups.items() if len({run.prefill is None for run in mine}) > 1}
    families = frozenset(run.family for run in runs if run.group in paired)
    tables = held_out_tables(options.data, families)
    answers = {run.id: predicted(run, tables) for run in runs}
    # of groups in which nothing is asked
    others = [run for run in runs if run.family not in families]
    hand_over_s = chosen_hand_over_s(others, answers) if others else HAND_OVER_S
    asked: list[Question] = []
    for key in sorted(paired):
        found = questions_of(groups[key], answers, hand_over_s)
        asked += found
        for question in found:
            told = "right" if question.is_right else "WRONG"
            print(f"{' '.join(map(str, key))} <= {question.limit_s * MS_PER_S:g} ms: apart / together "
                  f"{question.measured:.2f} measured, {question.predicted:.2f} predicted: {told}")  # fmt: skip
    right = sum(question.is_right for question in asked)
    low, high = wilson(right, len(asked))
    by_group = [[question.is_right for question in asked if question.group == key] for key in sorted(paired)]
    apart = [run for run in runs if run.prefill is not None]
    tested = [run for run in apart if run.group in paired]
    print(
        json.dumps(
            {
                "benchmark": "disaggregation",
                "data": str(options.data) if options.data else "packaged tables",
                "held_out": options.data is not None,
                "runs": len(runs),
                "runs_in_questions": sum(len(groups[key]) for key in paired),
                "runs_apart_in_questions": len(tested),
                "questions": len(asked),
                "right_frac": round(right / len(asked), 4) if asked else None,
                "right_low_frac": round(low, 4),
                "right_high_frac": round(high, 4),
                **_clear(asked),
                "regret_frac": round(float(np.mean([question.regret_frac for question in asked])), 4),
                "groups": len(by_group),
                "right_groups": sum(sum(group) * 2 > len(group) for group in by_group),
                "always_together_frac": round(float(np.mean([question.measured <= 1 for question in asked])), 4),
                "always_apart_frac": round(float(np.mean([question.measured > 1 for question in asked])), 4),
                "hand_over_s": hand_over_s,
                "apart_in_questions": errors(tested, answers, hand_over_s),
                "together_in_questions": errors(
                    [run for run in runs if run.prefill is None and run.group in paired], answers, hand_over_s
                ),
                "apart_all": errors(apart, answers, hand_over_s),
            }
        )
    )


if __name__ == "__main__":
    main()
