"""Networks, caches, drafts and adapters in the answer of `trimtab fit`: what was assumed, and the flags that set it."""

from __future__ import annotations

import json

from trimtab.cli.fit import FitOptions
from trimtab.physics.found_ways import ServingOption
from trimtab.physics.serving_demand import Demand, query_of
from trimtab.physics.serving_query import adapters_bytes, serving_columns
from trimtab.units import BYTES_PER_GIB, MS_PER_S


def assumed_lines(way: ServingOption, demand: Demand, options: FitOptions) -> list[str]:
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


def serve_flags(demand: Demand) -> list[str]:
    """Return vLLM's flags for adapters and drafts."""
    flags = []
    if demand.adapters is not None:
        flags += ["--enable-lora", f"--max-loras {demand.adapters.number}", f"--max-lora-rank {demand.adapters.rank}"]
    if demand.speculation is not None:
        settings = json.dumps({"model": "DRAFT_MODEL", "num_speculative_tokens": demand.speculation.draft_tokens})
        flags.append(f"--speculative-config '{settings}'")
    return flags
