"""Prefill and decode apart in the answer of `trimtab fit`: lines for people, cells for programs, files to apply."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from trimtab.cli.fit import FitOptions
from trimtab.cli.fit.tables import tail_cells
from trimtab.emit.manifests.disaggregated import pool_commands, pool_files
from trimtab.errors import UsageError
from trimtab.physics.ask import FitMarket
from trimtab.physics.disaggregated import DisaggregatedOption, Half
from trimtab.physics.formats import WeightFormat
from trimtab.physics.found_ways import Rejected, ServingOption
from trimtab.physics.models import Architecture
from trimtab.physics.serving_demand import Demand
from trimtab.pipeline.disaggregating import PoolsAnswer, pools_words, serve_disaggregated, why_words
from trimtab.pipeline.fitting import ReplayedLoad, served_in_time
from trimtab.units import BYTES_PER_GB, MS_PER_S

SHOWN_REJECTS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolPairSection:
    """The pair of pools beside the options in one place, as far as anybody asked."""

    answer: PoolsAnswer
    first: ServingOption | None
    """The cheapest option in one place."""
    there: ServingOption | None
    """The cheapest option in one place at the provider of the pools."""
    demand: Demand

    @property
    def wins(self) -> bool:
        """Return whether the pools cost less than every option in one place."""
        pair = self.answer.pair
        if pair is not None and self.first is not None and pair.caveats and not self.first.caveats:
            return False
        return pair is not None and (self.first is None or pair.usd_per_mtok.value < self.first.usd_per_mtok.value)


def pools_beside(
    options: FitOptions,
    model: Architecture,
    demand: Demand,
    market: FitMarket,
    first: ServingOption | None,
    formats: Sequence[WeightFormat],
    scale: float,
) -> PoolPairSection | None:
    """Search pools for a rate of requests; None where there is none, or where one's own card is asked about."""
    if not options.serve or demand.rate_req_s is None or market.own is not None:
        return None
    answer = serve_disaggregated(model, demand, market, engine=options.engine, formats=formats, scale=scale)
    there = None
    if answer.pair is not None and first is not None and answer.pair.decode.offer.provider != first.offer.provider:
        place = replace(market, provider=answer.pair.decode.offer.provider)
        ways = served_in_time(model, demand, place, engine=options.engine, formats=formats, scale=scale).found
        there = next((way for way in ways if isinstance(way, ServingOption)), None)
    return PoolPairSection(answer=answer, first=first, there=there, demand=demand)


def pools_lines(beside: PoolPairSection | None) -> list[str]:
    """Say what the pools cost, what requests see, and why they are or are not better than one place."""
    if beside is None:
        return []
    pair, load = beside.answer.pair, beside.answer.load
    if pair is None or load is None:
        return _none_lines(beside.answer.rejected)
    prompt_mb = pair.transfer.prompt_mb(beside.demand.input_tokens)
    carried_ms = (pair.transfer.prompt_s(beside.demand.input_tokens) - pair.transfer.fixed_s) * MS_PER_S
    cost = pair.usd_per_mtok
    return [
        f"prefill and decode apart: {pools_words(pair)}: ${cost.value:,.3f}/M tokens (80 %: {cost.low:,.3f}–{cost.high:,.3f}), "
        f"${pair.usd_hr:,.2f}/h, {_seen(load, beside.answer.tpot_s)}",
        f"apart, {_against(beside)}",
        f"apart, each prompt hands over {prompt_mb:,.0f} MB in {carried_ms:,.3g} ms over {pair.transfer.label}; on "
        f"{_places(pair)}",
    ]


def _none_lines(rejected: Sequence[Rejected]) -> list[str]:
    """Return the nearest pairs that missed a target; of pairs that could not be judged only one."""
    ranked = sorted(rejected, key=lambda reject: reject.miss_frac)
    seen = list(dict.fromkeys(f"{reject.what}: {reject.because}" for reject in ranked))[:SHOWN_REJECTS]
    return [f"prefill and decode apart: nothing works; {'; '.join(seen)}"] if seen else []


def _against(beside: PoolPairSection) -> str:
    pair = beside.answer.pair
    assert pair is not None
    told = why_words(pair, beside.first, beside.demand, beside.answer.tpot_s)
    if beside.there is None:
        return told
    ratio = pair.usd_per_mtok.value / beside.there.usd_per_mtok.value - 1
    return (
        f"{told}; at {pair.decode.offer.provider} alone {abs(ratio):.0%} {'more expensive' if ratio > 0 else 'cheaper'}"
    )


def _seen(load: ReplayedLoad, tpot_s: float) -> str:
    first = load.ttft_p95_s
    told = "no first token is said"
    if first is not None:
        low_ms, p95_ms, high_ms = (value * MS_PER_S for value in (first.low, first.value, first.high))
        told = f"first token p95 {p95_ms:,.0f} ms (80 %: {low_ms:,.0f}–{high_ms:,.0f})"
    return told if math.isnan(tpot_s) else f"{told}, {tpot_s * MS_PER_S:,.3g} ms a token"


def _places(pair: DisaggregatedOption) -> str:
    places = dict.fromkeys((pair.prefill.offer.where, pair.decode.offer.where))
    return f"{pair.nodes} nodes: {' and '.join(places)}"


def pools_document(beside: PoolPairSection | None) -> Mapping[str, object] | None:
    """Return the pools for programs; None where they were not asked for, `found: false` where nothing works."""
    if beside is None:
        return None
    pair, load = beside.answer.pair, beside.answer.load
    if pair is None or load is None:
        return {"found": False, "because": _none_lines(beside.answer.rejected)}
    first = load.ttft_p95_s
    return {
        "found": True,
        "wins": beside.wins,
        "prefill": _half(pair.prefill, beside.demand),
        "decode": _half(pair.decode, beside.demand),
        "caveats": [caveat.value for caveat in pair.caveats],
        "gpus": pair.gpus,
        "nodes": pair.nodes,
        "usd_hr": round(pair.usd_hr, 4),
        "usd_per_mtok": round(pair.usd_per_mtok.value, 4),
        "usd_per_mtok_low": round(pair.usd_per_mtok.low, 4),
        "usd_per_mtok_high": round(pair.usd_per_mtok.high, 4),
        "together_usd_per_mtok": None if beside.first is None else round(beside.first.usd_per_mtok.value, 4),
        "together_there_usd_per_mtok": None if beside.there is None else round(beside.there.usd_per_mtok.value, 4),
        "ttft_p95_ms": None if first is None else round(first.value * MS_PER_S, 1),
        "ttft_p95_low_ms": None if first is None else round(first.low * MS_PER_S, 1),
        "ttft_p95_high_ms": None if first is None else round(first.high * MS_PER_S, 1),
        **tail_cells(load),
        "tpot_ms": None if math.isnan(beside.answer.tpot_s) else round(beside.answer.tpot_s * MS_PER_S, 2),
        "tpot_p95_ms": None if math.isnan(load.tpot_p95_s) else round(load.tpot_p95_s * MS_PER_S, 2),
        "transfer_bytes_per_token": round(pair.transfer.token_bytes, 1),
        "transfer_gb_s": round(pair.transfer.byte_s / BYTES_PER_GB, 3),
        "transfer_ms": round(pair.transfer.prompt_s(beside.demand.input_tokens) * MS_PER_S, 1),
        "transfer_link": pair.transfer.label,
        "transfer_source": pair.transfer.source or None,
        "why": _against(beside),
    }


def _half(half: Half, demand: Demand) -> Mapping[str, object]:
    return {
        "gpu": half.gpu.name,
        "tensor": half.query.tensor,
        "replicas": half.replicas,
        "format": half.query.stored.value,
        "concurrency": half.concurrency,
        "replica_req_s": round(half.replica_req_s, 4),
        "busy_frac": round(half.busy_frac(demand.rate_req_s or 0.0), 4),
        "offering": half.offer.where,
    }


def pools_paste(beside: PoolPairSection | None, model: str, context: int, *, asked: bool) -> str:
    """Return the commands of both pools where they win or were asked for; empty otherwise."""
    if beside is None or beside.answer.pair is None or not (asked or beside.wins):
        return ""
    return pool_commands(beside.answer.pair, model, context)


def write_pools(beside: PoolPairSection | None, folder: Path, model: str, context: int) -> list[str]:
    """Write the files of both pools and say where; raises UsageError when there are none, or the folder cannot be written."""
    if beside is None or beside.answer.pair is None:
        raise UsageError("--emit-pools: no pools of prefill and decode keep the targets; a rate and --serve are needed")
    files = pool_files(beside.answer.pair, model, context, beside.demand)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (folder / name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot write the pools to {folder}: {error}") from error
    advice = "LeaderWorkerSets with their autoscalers, or the graph: apply one, after setting its image"
    return [f"pools written to {folder}: {', '.join(files)} ({advice})"]
