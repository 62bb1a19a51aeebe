"""Prefill and decode on their own GPUs: which boards for each half, how many of each, over which link, and what it costs.

Serving in one place mixes prompts and answers in a step, so a long prompt delays every answer beside it. Apart, a decode
replica runs steps that only decode, and a prefill replica computes prompts alone (DistServe, arXiv 2401.09670; Splitwise,
2311.18677; Mooncake, 2407.00079). Both halves use the step times of `serving`. With R requests/s, i prompt and o answer tokens:

    prefill replica:  n = step tokens / i prompts share a step; rate = n / prefill(n)
    decode replica:   largest concurrency b whose steps keep the limit on the time per token; rate = b / ((o - 1) decode(b))
    transfer:         cache bytes of a prompt / min(share of the prefill node's network, share of the decode node's)

and each half has the replicas that R needs, with headroom. The cost is that of both halves' nodes. First tokens, which wait in
two queues, are known after a replay (`replay/disaggregated.py`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from trimtab.catalog import BuyingOption, Gpu
from trimtab.physics.fabrics import Fabric, between_nodes, within_node
from trimtab.physics.fitted import Floats
from trimtab.physics.footprint import kv_bytes
from trimtab.physics.formats import is_four_bit
from trimtab.physics.found_ways import Rejected, Unmet
from trimtab.physics.offers import USUAL, Caveat, Interruptions, NodeOffer, caveats_of, nodes_for, replicas_for
from trimtab.physics.predict import Quantity, calibrated, coefficients_of, with_interval
from trimtab.physics.search_serving import CONCURRENCIES
from trimtab.physics.serving import capacity, decode_s, default_step_tokens, prefill_s
from trimtab.physics.serving_demand import Demand, ServingWay
from trimtab.physics.serving_query import ServingQuery, serving_columns
from trimtab.provenance import Estimate
from trimtab.units import BYTES_PER_MB, S_PER_HR, TOKENS_PER_MTOK

HAND_OVER_S = 0.0
"""What a hand-over takes beside its bytes and the costs of a first token: nothing that measured runs show
(`benchmarks.disaggregation`)."""
MOST_PER_HALF = 6
"""Options of a half in one place, cheapest first, that are combined with those of the other; others only cost more."""
MOST_LINK_FRAC = 0.7
"""Share of a link that caches may use: beyond it they queue for longer than their prompts take."""
MOST_PREFILL_SEQUENCES = 64
"""Prompts that a prefill replica works on at once; its step is bounded by tokens long before."""

TIME_SHARES = (0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.98, 0.99, 0.995, 0.999)
"""Shares of requests at which a half's times by load are kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KvTransfer:
    """The hand-over of a prompt's cache: bytes a token, the link's bytes a second, and a fixed time."""

    token_bytes: float
    byte_s: float
    fixed_s: float = HAND_OVER_S
    label: str = ""
    """The link's speed in words."""
    source: str = ""
    """Where that figure was published."""

    def seconds(self, tokens: npt.NDArray[np.int64]) -> Floats:
        """Return how long caches of so many tokens occupy the link."""
        return np.asarray(tokens * self.token_bytes / self.byte_s)

    def prompt_mb(self, tokens: float) -> float:
        """Return what one hand-over carries, in megabytes."""
        return tokens * self.token_bytes / BYTES_PER_MB

    def prompt_s(self, tokens: float) -> float:
        """Return the time of one hand-over, the fixed part included."""
        return tokens * self.token_bytes / self.byte_s + self.fixed_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Half:
    """One side: its replicas, what one of them serves, where they run."""

    query: ServingQuery
    replicas: int
    concurrency: int
    replica_req_s: float
    time: Estimate
    """Of one prompt (prefill) or one step (decode), in seconds, with its 80 % interval."""
    offer: NodeOffer
    option: BuyingOption
    caveats: tuple[Caveat, ...] = ()

    @property
    def gpu(self) -> Gpu:
        """Return the board."""
        return self.query.gpu

    @property
    def gpus(self) -> int:
        """Return the GPUs of all replicas."""
        return self.replicas * self.query.tensor

    @property
    def nodes(self) -> int:
        """Return the nodes that the half takes alone."""
        return nodes_for(self.replicas, self.query.tensor, self.offer.gpus).nodes

    def busy_frac(self, rate_req_s: float) -> float:
        """Return the share of its capacity that a rate uses."""
        return rate_req_s / (self.replicas * self.replica_req_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class DisaggregatedOption:
    """Prefill and decode apart: both halves, the link between them, and what they cost together."""

    prefill: Half
    decode: Half
    transfer: KvTransfer
    nodes: int
    usd_hr: float
    usd_per_mtok: Estimate
    served_req_s: float

    @property
    def gpus(self) -> int:
        """Return the GPUs that serve."""
        return self.prefill.gpus + self.decode.gpus

    @property
    def caveats(self) -> tuple[Caveat, ...]:
        """Return why it must not come first; empty where both halves have none."""
        return tuple(dict.fromkeys((*self.prefill.caveats, *self.decode.caveats)))


def search_disaggregated(
    ways: Sequence[ServingWay],
    demand: Demand,
    *,
    option: BuyingOption = BuyingOption.ON_DEMAND,
    scale: float = 1.0,
    losses: Interruptions = USUAL,
    link: Fabric | None = None,
    accepted: frozenset[Caveat] = frozenset(),
) -> tuple[list[DisaggregatedOption], list[Rejected]]:
    """Return pairs of halves that serve the rate and keep the time per token, and the pairs without a link.

    Pairs without a caveat come first, each part cheapest first.

    Both halves are in one region, and store the weights and the cache in the same format: a cache is handed over as it is.
    `link` is the user's own figure for a node's network; without one, a pair needs published figures or one node that holds
    both halves.
    """
    if demand.rate_req_s is None or not ways:
        return [], []
    prefills = _by_place(_prefill_halves(ways, demand, option, scale, accepted), losses)
    decodes = _by_place(_decode_halves(ways, demand, option, scale, accepted), losses)
    found: list[DisaggregatedOption] = []
    unlinked: dict[tuple[str, str], Rejected] = {}
    for place, firsts in prefills.items():
        for first in firsts[:MOST_PER_HALF]:
            for second in _partners(decodes, place):
                pair = joined(first, second, demand, losses, link)
                if isinstance(pair, Rejected):
                    unlinked.setdefault((pair.gpu, pair.because), pair)
                else:
                    found.append(pair)
    found.sort(
        key=lambda pair: (
            bool(pair.caveats),
            pair.usd_per_mtok.value,
            pair.usd_hr,
            pair.gpus,
            pair.prefill.gpu.name,
            pair.decode.gpu.name,
        )
    )
    return found, list(unlinked.values())


def _partners(decodes: Mapping[_Place, list[Half]], place: _Place) -> list[Half]:
    """Return the decode halves that may stand beside a prefill half, with and without caveats."""
    return [half for caveat in (False, True) for half in decodes.get((*place[:4], caveat), [])[:MOST_PER_HALF]]


def joined(
    prefill: Half, decode: Half, demand: Demand, losses: Interruptions = USUAL, link: Fabric | None = None
) -> DisaggregatedOption | Rejected:
    """Return two halves as one option, or why it is unknown how fast the cache gets from one to the other."""
    found = _link(prefill, decode, link)
    if isinstance(found, NodeOffer):
        return Rejected(
            gpu=f"{prefill.gpu.name} + {decode.gpu.name}",
            what=f"prefill and decode apart, {prefill.query.stored.value}",
            reason=Unmet.UNKNOWN,
            because=f"no published network bandwidth of {found.where}; state it with --kv-gb-s",
        )
    byte_s, fabric = found
    prompt_bytes = kv_bytes(prefill.query.model, demand.input_tokens, prefill.query.kv_value_bytes)
    # each replica has its own share of the network: where that is too slow for the caches, more replicas share the work
    least = math.ceil((demand.rate_req_s or 0.0) * prompt_bytes / (byte_s * MOST_LINK_FRAC))
    prefill = replace(prefill, replicas=max(prefill.replicas, least))
    decode = replace(decode, replicas=max(decode.replicas, least))
    nodes = _nodes(prefill, decode)
    usd_hr = _usd_hr(prefill, decode, nodes, losses)
    served = demand.mean_req_s or demand.rate_req_s or 0.0
    tokens = demand.input_tokens + demand.output_tokens
    return DisaggregatedOption(
        prefill=prefill,
        decode=decode,
        transfer=KvTransfer(
            token_bytes=prompt_bytes / demand.input_tokens,
            byte_s=byte_s,
            label=fabric.label,
            source=fabric.source,
        ),
        nodes=sum(nodes),
        usd_hr=usd_hr,
        usd_per_mtok=_cost(usd_hr / (served * tokens * S_PER_HR / TOKENS_PER_MTOK), prefill, decode),
        served_req_s=served,
    )


def _link(prefill: Half, decode: Half, link: Fabric | None) -> tuple[float, Fabric] | NodeOffer:
    """Return the bytes a second between a replica of each half and the slower end, else the offer without a figure."""
    if _one_node(prefill, decode):
        ends = (within_node(prefill.gpu, prefill.offer.gpus), within_node(decode.gpu, decode.offer.gpus))
    else:
        sending, receiving = link or between_nodes(prefill.offer), link or between_nodes(decode.offer)
        if sending is None:
            return prefill.offer
        if receiving is None:
            return decode.offer
        ends = (sending, receiving)
    shares = [
        (fabric.of_gpus(half.query.tensor, half.offer.gpus), fabric)
        for fabric, half in zip(ends, (prefill, decode), strict=True)
    ]
    return min(shares, key=lambda share: share[0])


def _same_offer(prefill: Half, decode: Half) -> bool:
    return prefill.offer == decode.offer and prefill.option is decode.option


def _one_node(prefill: Half, decode: Half) -> bool:
    """Return whether one node holds all replicas of both halves, so that caches stay within it."""
    return _same_offer(prefill, decode) and prefill.gpus + decode.gpus <= prefill.offer.gpus


def _nodes(prefill: Half, decode: Half) -> tuple[int, int]:
    """Return the nodes of each half; replicas of one node shape share nodes, which are counted for the first half."""
    if not _same_offer(prefill, decode):
        return prefill.nodes, decode.nodes
    per_node, sizes = prefill.offer.gpus, (prefill.query.tensor, decode.query.tensor)
    if any(per_node % size for size in sizes):
        return prefill.nodes, decode.nodes
    # sizes are powers of two that divide a node: the larger first, the smaller fill what is left without gaps
    return math.ceil((prefill.gpus + decode.gpus) / per_node), 0


def _usd_hr(prefill: Half, decode: Half, nodes: tuple[int, int], losses: Interruptions) -> float:
    return sum(_node_usd_hr(half, losses) * count for half, count in zip((prefill, decode), nodes, strict=True))


def _node_usd_hr(half: Half, losses: Interruptions) -> float:
    """Return what an hour of one node costs, with the nodes that replace lost ones on spot."""
    rate = half.offer.usd_hr[half.option]
    return rate * (losses.serving_factor(half.offer.interruption) if half.option is BuyingOption.SPOT else 1)


def _cost(value: float, prefill: Half, decode: Half) -> Estimate:
    """Return a cost whose interval is that of the less certain half: both hold in full, since their errors go together."""
    slow = max(half.time.high / half.time.value for half in (prefill, decode))
    fast = min(half.time.low / half.time.value for half in (prefill, decode))
    return Estimate(
        value=value, low=value * fast, high=value * slow, basis=decode.time.basis, because=decode.time.because
    )


_Place = tuple[str, float, str, str, bool]
"""Formats of weights and cache, provider, region, and whether a half has a caveat."""


def _by_place(halves: Sequence[Half], losses: Interruptions) -> dict[_Place, list[Half]]:
    """Group halves by what they must share (formats of weights and cache, provider, region), cheapest first."""
    grouped: dict[_Place, list[Half]] = {}
    # halves without a caveat have a list of their own, so that cheaper ones with a caveat do not push them out;
    # of equal costs the one with fewer GPUs; the shape's name breaks ties, so that the same prices always give the same answer
    ranked = sorted(
        halves,
        key=lambda half: (half.nodes * _node_usd_hr(half, losses), half.gpus, half.gpu.name, half.offer.instance_type),
    )
    for half in ranked:
        query, offer = half.query, half.offer
        shared = (query.stored.value, query.kv_value_bytes, offer.provider, offer.region, bool(half.caveats))
        grouped.setdefault(shared, []).append(half)
    return grouped


def _prefill_halves(
    ways: Sequence[ServingWay], demand: Demand, option: BuyingOption, scale: float, accepted: frozenset[Caveat]
) -> list[Half]:
    """Return what computes the prompts, for every way: prompts share a step up to its tokens."""
    queries = [replace(way.query, requests=1) for way in ways]
    v, c = _columns(queries)
    budgets = np.array([default_step_tokens(query.gpu) for query in queries], dtype=np.float64)
    together = np.maximum(budgets / (demand.input_tokens - demand.found_tokens), 1)
    times_s = prefill_s(v, c, together) * c["glob"] * scale
    alone_s = prefill_s(v, c, np.ones_like(together)) * c["glob"] * scale
    halves = []
    for at, way in enumerate(ways):
        query = queries[at]
        estimate = _estimate(query, Quantity.PREFILL, float(alone_s[at]), scale)
        rate = float(together[at] / times_s[at])
        halves += _placed(way, query, rate, MOST_PREFILL_SEQUENCES, estimate, demand, option, accepted)
    return halves


def _decode_halves(
    ways: Sequence[ServingWay], demand: Demand, option: BuyingOption, scale: float, accepted: frozenset[Caveat]
) -> list[Half]:
    """Return what answers, for every way that keeps the limit on the time per token: at the largest such concurrency."""
    v, c = _columns([way.query for way in ways])
    fit = capacity(v)
    wide = {name: column[:, None] for name, column in v.items()}
    sizes = np.array(CONCURRENCIES, dtype=np.float64)[None, :]
    steps_s = decode_s({**wide, "requests": sizes}, {name: column[:, None] for name, column in c.items()}, sizes)
    steps_s = steps_s * c["glob"][:, None] * scale
    limit_s = demand.targets.tpot_s or math.inf
    halves = []
    for at, way in enumerate(ways):
        # `fit` is a quotient: half a request absorbs its rounding
        allowed = (sizes[0] <= fit[at] + 0.5) & (steps_s[at] <= limit_s)
        if not allowed.any():
            continue
        index = int(np.flatnonzero(allowed)[-1])
        query = replace(way.query, requests=CONCURRENCIES[index])
        step_s = float(steps_s[at, index])
        rate = CONCURRENCIES[index] / (max(demand.output_tokens - 1, 1) * step_s)
        estimate = _estimate(query, Quantity.TPOT, step_s, scale)
        halves += _placed(way, query, rate, CONCURRENCIES[index], estimate, demand, option, accepted)
    return halves


def _placed(
    way: ServingWay,
    query: ServingQuery,
    replica_req_s: float,
    concurrency: int,
    time: Estimate,
    demand: Demand,
    option: BuyingOption,
    accepted: frozenset[Caveat],
) -> list[Half]:
    """Return the half at every offer that sells the asked way of buying and holds a replica."""
    replicas = replicas_for(demand.rate_req_s or 0.0, replica_req_s, headroom_frac=demand.headroom_frac)
    halves = []
    for offer in way.offers:
        bought = BuyingOption.OWNED if BuyingOption.OWNED in offer.usd_hr else option
        if bought in offer.usd_hr and offer.gpus >= query.tensor:
            halves.append(
                Half(
                    query=query,
                    replicas=replicas,
                    concurrency=concurrency,
                    replica_req_s=replica_req_s,
                    time=time,
                    offer=offer,
                    option=bought,
                    caveats=caveats_of(query.gpu, offer, accepted, is_four_bit=is_four_bit(query.stored)),
                )
            )
    return halves


def _estimate(query: ServingQuery, asked: Quantity, value: float, scale: float) -> Estimate:
    return with_interval(query, asked, value) if scale == 1 else calibrated(value)


def _columns(queries: Sequence[ServingQuery]) -> tuple[dict[str, Floats], dict[str, Floats]]:
    v = serving_columns(queries)
    return v, coefficients_of(queries, v)
