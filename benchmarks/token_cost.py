"""How well the rules that divide a service's bill between prompts and answers agree with its engine, step by step.

Recorded requests go through the step-by-step scheduler of an LLM engine (`benchmarks.reference.engine_steps`) whose step times
are those that the serving model gives a model on one H100. There every second is known: what a step would have taken without
its prompts is the answers', the rest the prompts'. Three rules are compared with that, as shares of the bill that prompts bear:

- `modelled`: what `trimtab` does where a model is declared: step times at the mean request and the usual concurrency, of which
  it sees what a Prometheus sees: mean tokens, and the requests running, averaged by minute;
- `request_seconds`: what `vllm:request_prefill_time_seconds` and `vllm:request_decode_time_seconds` would say;
- `blended`: one price for every token.

`off_points` is the rule's share less the true one, in points of the bill. The step times are the model's own in both, so this
measures the rule and not the model; how far step times are off is measured by `benchmarks.predict` and `benchmarks.ttft`.
`beyond_seen_loads` replays requests that come at random (Poisson) at the highest load that a history saw and at a higher one.
It says how many times as long as the scheduler the law of services takes the 95th percentile there to be: times at the load
seen, stretched by (1 - seen) / (1 - load), first tokens by load / seen besides, those per token by (load / seen)^2. Below 1 the
law promises too much. The square was chosen on the recorded lengths; the first drawn ones were looked at once, after that. The
power of first tokens is that of a wait in a queue, not fitted, and was looked at on all of those; `KEPT_BACK` was drawn after.

`bills_off` draws random bills and tokens: those whose token dollars do not sum to them to the micro-dollar.

Run: python -m benchmarks.token_cost
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from benchmarks.reference.engine_steps import Engine, Job, serve_step_by_step
from benchmarks.traces import data_argument
from trimtab.diagnose.token_cost import token_charge
from trimtab.fleet.service_law import STRETCH_EXPONENT
from trimtab.fleet.token_work import TokenAmounts, TokenRule, TokenUse
from trimtab.physics.formats import WeightFormat
from trimtab.physics.models import model_named
from trimtab.physics.offers import board
from trimtab.physics.predict import coefficients_of
from trimtab.physics.serving import StepTimes, step_times, token_seconds
from trimtab.physics.serving_query import Load, ServingQuery, serving_columns
from trimtab.replay.engine import EngineLimits, Requests, replay_engine
from trimtab.tables.workloads import TargetMetric
from trimtab.units import S_PER_MIN

REQUESTS = 3000
BILLS = 20_000
LIMITS = EngineLimits(256, 8192, 60_000)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One load of one trace on one engine."""

    trace: str
    model: str
    faster: float
    cached_frac: float = 0.0
    """Share of each prompt that the prefix cache holds; the traces do not say it."""


CASES = (
    Case(trace="azure2023_conv", model="llama-3.1-8b", faster=0.2),
    Case(trace="azure2023_conv", model="llama-3.1-8b", faster=1),
    Case(trace="azure2023_conv", model="llama-3.1-8b", faster=3),
    Case(trace="azure2023_conv", model="llama-3.1-8b", faster=3, cached_frac=0.6),
    Case(trace="mooncake_conversation", model="llama-3.1-8b", faster=0.2, cached_frac=0.4),
    Case(trace="azure2023_conv", model="mistral-7b", faster=1),
    Case(trace="azure2023_conv", model="gpt-oss-20b", faster=1),
)


@dataclass(slots=True)
class Watched(Engine):
    """An engine that notes whose each second of its steps is, and how many requests ran in each minute."""

    prompts_s: float = 0.0
    answers_s: float = 0.0
    running_s: dict[int, float] = field(default_factory=dict)

    def run(self, chosen: dict[Job, int]) -> list[Job]:
        """Run a step and note what its answers would have taken alone."""
        decoding = [job for job in chosen if job.decodes]
        alone_s = float(self.times.decode_s[len(decoding)]) + self.times.context_s * sum(job.tokens for job in decoding)
        before_s, running = self.now_s, len(self.running)
        ended = Engine.run(self, chosen)
        step_s = self.now_s - before_s
        minute = int(before_s // S_PER_MIN)
        self.running_s[minute] = self.running_s.get(minute, 0.0) + running * step_s
        self.answers_s += min(alone_s, step_s)
        self.prompts_s += step_s - min(alone_s, step_s)
        return ended


def recorded(folder: Path, case: Case) -> Requests:
    """Read the first requests of a trace."""
    columns = ["t_s", "input_tokens", "output_tokens"]
    table = pq.read_table(folder / "requests" / f"{case.trace}.parquet", columns=columns)
    t_s, prompt, answer = (table[name].to_numpy() for name in columns)
    first = np.argsort(t_s, kind="stable")[:REQUESTS]
    prompt = np.maximum(prompt[first], 1).astype(np.int64)
    return Requests(
        (t_s[first] - t_s[first[0]]) / case.faster,
        prompt,
        np.maximum(answer[first], 1).astype(np.int64),
        np.floor(prompt * case.cached_frac).astype(np.int64),
    )


def times_of(case: Case, requests: Requests) -> StepTimes:
    """Return the step times of the case's model on one H100 under vLLM."""
    query = ServingQuery(
        model=model_named(case.model), gpu=board("H100-SXM"), stored=WeightFormat.BF16, engine="vllm", year=2026,
        load=Load.ONLINE, requests=1, input_tokens=float(requests.input_tokens.mean()),
        output_tokens=float(requests.output_tokens.mean()),
    )  # fmt: skip
    columns = serving_columns([query])
    coefficients = coefficients_of([query], columns)
    return step_times(columns, coefficients, max_num_seqs=LIMITS.max_num_seqs, step_tokens=LIMITS.step_tokens)


def usual_requests(engine: Watched) -> float:
    """Return the requests running as a request meets them, from means by minute."""
    means = np.array(list(engine.running_s.values())) / S_PER_MIN
    return float((means**2).sum() / means.sum())


def measure(folder: Path, case: Case) -> dict[str, str | float]:
    """Return the share of prompts in the bill as it is, and how many points each rule is off."""
    requests = recorded(folder, case)
    times = times_of(case, requests)
    jobs, engine = serve_step_by_step(requests, LIMITS, times, kind=Watched)
    assert isinstance(engine, Watched)
    true = engine.prompts_s / (engine.prompts_s + engine.answers_s)
    computed = requests.input_tokens - requests.cached_tokens
    spent = token_seconds(
        times,
        input_tokens=float(requests.input_tokens.mean()),
        cached_tokens=float(requests.cached_tokens.mean()),
        output_tokens=float(requests.output_tokens.mean()),
        requests=usual_requests(engine),
    )
    prefill_s = sum(job.first_s - job.admitted_s for job in jobs)
    decode_s = sum(job.end_s - job.first_s for job in jobs)
    rules = {
        "modelled": (spent.input_s + spent.cached_s) / sum(spent),
        "request_seconds": prefill_s / (prefill_s + decode_s),
        "blended": float(requests.input_tokens.sum() / (requests.input_tokens.sum() + requests.output_tokens.sum())),
    }
    return {
        "trace": case.trace,
        "model": case.model,
        "faster": case.faster,
        "cached_frac": case.cached_frac,
        "computed_tokens_mean": round(float(computed.mean())),
        "output_tokens_mean": round(float(requests.output_tokens.mean())),
        "usual_requests": round(usual_requests(engine), 1),
        "prompts_frac": round(true, 4),
        **{f"{name}_off_points": round(100 * (share - true), 1) for name, share in rules.items()},
    }


def bills_off() -> int:
    """Return how many of many random bills the dollars of their tokens do not sum to."""
    rng = np.random.default_rng(20)
    off = 0
    for bill in rng.integers(0, 10**13, BILLS).tolist():
        tokens, weights = (
            TokenAmounts(**dict(zip(_KINDS, 10 ** rng.uniform(-3, 12, 3), strict=True))) for _ in range(2)
        )
        use = TokenUse(
            tokens=tokens, cached_known=True, weights=weights, rule=TokenRule.MODELLED, because="drawn",
            read_frac=float(rng.random()),
        )  # fmt: skip
        off += token_charge("drawn", bill, use).micro_usd != bill
    return off


SEEN_AND_HIGHER = ((0.15, 0.18), (0.2, 0.4), (0.3, 0.36), (0.3, 0.5), (0.4, 0.48), (0.5, 0.7), (0.7, 0.8))


def drawn(prompt: float, spread: float, answer: float) -> Requests:
    """Return requests of lengths that are lognormal around medians, prompts of a spread, cut at 60,000 tokens."""
    rng = np.random.default_rng(31)
    tokens = (
        prompt * np.exp(spread * rng.standard_normal(REQUESTS)),
        answer * np.exp(0.8 * rng.standard_normal(REQUESTS)),
    )
    input_tokens, output_tokens = (np.clip(np.rint(count), 2, 60_000).astype(np.int64) for count in tokens)
    return Requests(np.zeros(REQUESTS), input_tokens, output_tokens, np.zeros(REQUESTS, dtype=np.int64))


def beyond_seen_loads(name: str, requests: Requests, times: StepTimes) -> list[dict[str, str | float]]:
    """Return, by pair of loads, foretold over replayed 95th percentiles of first tokens and of times per token."""
    busiest = replay_engine(requests, LIMITS, times, clients=LIMITS.max_num_seqs)
    full_req_s = len(requests.arrival_s) / float(busiest.served.end_s.max())

    def p95_s(load: float) -> tuple[float, float]:
        gaps = np.random.default_rng(7).standard_exponential(len(requests.arrival_s)) / (full_req_s * load)
        replayed = replay_engine(requests._replace(arrival_s=np.cumsum(gaps)), LIMITS, times)
        return float(np.quantile(replayed.ttft_s, 0.95)), float(np.nanquantile(replayed.tpot_s, 0.95))

    rows: list[dict[str, str | float]] = []
    for seen, load in SEEN_AND_HIGHER:
        (first_s, token_s), (true_first_s, true_token_s) = p95_s(seen), p95_s(load)
        stretch = (1 - seen) / (1 - load)
        rise = {metric: (load / seen) ** power for metric, power in STRETCH_EXPONENT.items()}
        rows.append({
            "requests": name, "seen": seen, "load": load,
            "ttft_foretold_over_replayed": round(first_s * stretch * rise[TargetMetric.TTFT] / true_first_s, 2),
            "tpot_foretold_over_replayed": round(token_s * stretch * rise[TargetMetric.TPOT] / true_token_s, 2),
        })  # fmt: skip
    return rows


_KINDS = ("input", "output", "cached")


DRAWN = {
    "drawn: prompts 500 x/: 7, answers 150": drawn(500, 2.0, 150),
    "drawn: prompts 4,000 x/: 3, answers 80": drawn(4000, 1.1, 80),
    "drawn: prompts 200 x/: 2, answers 600": drawn(200, 0.7, 600),
}
"""Lengths around their medians; `x/:` is what one standard deviation multiplies or divides prompts by."""
KEPT_BACK = {
    "kept back: prompts 1,000 x/: 4, answers 300": drawn(1000, 1.4, 300),
    "kept back: prompts 8,000 x/: 2, answers 40": drawn(8000, 0.7, 40),
    "kept back: prompts 150 x/: 12, answers 60": drawn(150, 2.5, 60),
    "kept back: prompts 2,000 x/: 1, answers 1,000": drawn(2000, 0.0, 1000),
}


def main() -> None:
    arguments = data_argument(__doc__).parse_args()
    cases = []
    for case in CASES:
        cases.append(measure(arguments.data, case))
        print(cases[-1])
    worst = {
        f"{rule}_worst_points": max(abs(float(found[f"{rule}_off_points"])) for found in cases)
        for rule in ("modelled", "request_seconds", "blended")
    }
    beyond = []
    for case in (CASES[1], CASES[4], CASES[6]):
        requests = recorded(arguments.data, case)
        beyond += beyond_seen_loads(f"{case.trace}, {case.model}", requests, times_of(case, requests))
    for words, requests in (DRAWN | KEPT_BACK).items():
        beyond += beyond_seen_loads(words, requests, times_of(CASES[0], requests))
    for row in beyond:
        print(row)
    whole = {"benchmark": "token_cost", "bills": BILLS, "bills_off": bills_off(), **worst}
    print(json.dumps({**whole, "cases": cases, "beyond_seen_loads": beyond}))


if __name__ == "__main__":
    main()
