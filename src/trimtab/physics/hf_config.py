"""Read an architecture from a Hugging Face `config.json`, whatever family wrote it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from trimtab.errors import Fault, InputError
from trimtab.physics.models import PARAMS_PER_B, Architecture, shape_params

MOST = 10**7
"""No dimension of a network is larger."""
_NAMES: Mapping[str, tuple[str, ...]] = {
    "layers": ("num_hidden_layers", "n_layer", "num_layers", "n_layers"),
    "hidden": ("hidden_size", "n_embd", "d_model", "dim"),
    "heads": ("num_attention_heads", "n_head", "n_heads"),
    "kv_heads": ("num_key_value_heads", "n_head_kv", "num_kv_heads", "multi_query_group_num"),
    "head_dim": ("head_dim",),
    "ffn": ("intermediate_size", "ffn_dim", "n_inner", "ffn_hidden_size"),
    "vocab": ("vocab_size", "padded_vocab_size"),
    "experts": ("num_local_experts", "num_experts", "n_routed_experts"),
    "experts_per_token": ("num_experts_per_tok", "num_experts_per_token", "moe_topk"),
    "shared_experts": ("n_shared_experts", "num_shared_experts"),
    "expert_ffn": ("moe_intermediate_size",),
    "dense_layers": ("first_k_dense_replace",),
    "kv_lora_rank": ("kv_lora_rank",),
    "rope_dim": ("qk_rope_head_dim",),
    "window": ("sliding_window",),
}
_PLAIN_FFN = frozenset(
    {"gpt2", "gptj", "gpt_neox", "opt", "bloom", "falcon", "mpt", "phi", "gpt_bigcode", "bert", "roberta"}
)
"""Model types whose feed-forward has two matrices and not three."""
_STRANGE = ("mamba", "ssm_", "state_size", "rwkv", "linear_key", "linear_value", "linear_conv", "recurrent", "lru_")
"""Words of fields that describe layers other than attention and feed-forward: state spaces, linear attention."""
_ENCODERS = frozenset({"bert", "roberta", "xlm-roberta", "distilbert", "electra", "deberta-v2"})


def architecture_from_config(config: Mapping[str, object], *, name: str) -> Architecture:
    """Return the architecture that a parsed config.json describes.

    Nested text configurations of multimodal models are followed. Raises InputError with all faults at once: missing fields,
    sizes that are not positive whole numbers, heads that do not divide the hidden size, experts without a choice per token.
    """
    nested = config.get("text_config")
    fields: Mapping[str, object] = nested if isinstance(nested, Mapping) else config
    found = {ours: _whole(fields, names) for ours, names in _NAMES.items()}
    faults = _faults(found, name)
    if faults:
        raise InputError(f"{name} describes no architecture:\n" + "\n".join(f"  - {fault}" for fault in faults))
    return _build(fields, {key: value or 0 for key, value in found.items()}, name)


def _whole(fields: Mapping[str, object], names: tuple[str, ...]) -> int | None:
    for key in names:
        value = fields.get(key)
        # to Python `true` is an int, and would be read as 1
        if isinstance(value, int) and not isinstance(value, bool):
            return value
    return None


def _faults(found: Mapping[str, int | None], where: str) -> list[Fault]:
    faults = []
    for key in ("layers", "hidden", "heads", "vocab"):
        if found[key] is None:
            cure = f"add {_NAMES[key][0]}, or describe the model by size with --params"
            faults.append(Fault(what=f"no {_NAMES[key][0]}", where=where, cure=cure))
    for key, value in found.items():
        if value is not None and not 0 <= value <= MOST:
            faults.append(
                Fault(what=f"{_NAMES[key][0]} is absurd", where=where, value=str(value), cure="correct the file")
            )
    hidden, heads = found["hidden"], found["heads"]
    faults += [
        Fault(what=f"{_NAMES[key][0]} is 0", where=where, value="0", cure="correct the file")
        for key in ("layers", "hidden", "heads", "vocab")
        if found[key] == 0
    ]
    # without head_dim it is the quotient, which must be whole
    if hidden and heads and found["head_dim"] is None and hidden % heads:
        what = "hidden size is no multiple of the heads, and no head_dim is given"
        faults.append(Fault(what=what, where=where, value=f"{hidden} / {heads}", cure="add head_dim"))
    if found["experts"] and not found["experts_per_token"]:
        what = "experts without a number chosen per token"
        faults.append(Fault(what=what, where=where, value=str(found["experts"]), cure="add num_experts_per_tok"))
    # faults of single fields first, then pairs that contradict each other: the user sees all of them at once
    return faults + _contradictions(found, where)


def _contradictions(found: Mapping[str, int | None], where: str) -> list[Fault]:
    """Return pairs of fields that cannot both be right."""
    heads, kv_heads = found["heads"], found["kv_heads"]
    experts, chosen = found["experts"], found["experts_per_token"]
    layers, dense = found["layers"], found["dense_layers"]
    faults = []
    if heads and kv_heads and heads % kv_heads:
        what = "num_attention_heads is no multiple of num_key_value_heads"
        faults.append(Fault(what=what, where=where, value=f"{heads} / {kv_heads}", cure="correct the file"))
    if experts and chosen and chosen > experts:
        what = "more experts are chosen per token than there are"
        faults.append(Fault(what=what, where=where, value=f"{chosen} of {experts}", cure="correct the file"))
    if layers and dense and dense > layers:
        what = "more dense layers than layers"
        faults.append(Fault(what=what, where=where, value=f"{dense} of {layers}", cure="correct the file"))
    return faults


def _build(fields: Mapping[str, object], n: Mapping[str, int], name: str) -> Architecture:
    kind = str(fields.get("model_type", ""))
    expert_ffn = n["expert_ffn"] or n["ffn"] if n["experts"] else 0
    built = Architecture(
        name=name,
        layers=n["layers"],
        hidden=n["hidden"],
        heads=n["heads"],
        # some families state multi-query attention by a flag and not by a count of heads
        kv_heads=1 if fields.get("multi_query") is True else n["kv_heads"] or n["heads"],
        head_dim=n["head_dim"] or n["hidden"] // n["heads"],
        # GPT-2's convention: where no width is stated it is four times the hidden size
        ffn=n["ffn"] or 4 * n["hidden"],
        vocab=n["vocab"],
        gated=kind not in _PLAIN_FFN,
        tied=fields.get("tie_word_embeddings") is True,
        kv_layers=_full_attention_layers(fields, n["layers"]),
        window=n["window"] if _windows(fields) else 0,
        windowed_layers=_windowed_layers(fields, n["layers"]) if n["window"] and _windows(fields) else 0,
        experts=n["experts"],
        experts_per_token=n["experts_per_token"],
        shared_experts=n["shared_experts"],
        expert_ffn=expert_ffn,
        dense_layers=n["dense_layers"] if n["experts"] else 0,
        kv_lora_rank=n["kv_lora_rank"],
        rope_dim=n["rope_dim"],
        encoder=kind in _ENCODERS,
        # placeholders: the parameters are counted from the shape below
        params_b=1.0,
        active_b=1.0,
        source=_source(fields),
    )
    total = shape_params(built)
    # experts that a token is not sent to are stored, and not used by it
    idle = (built.layers - built.dense_layers) * max(built.experts - built.experts_per_token, 0)
    # a gated expert has gate, up and down matrices, a plain one two
    unused = idle * (3 if built.gated else 2) * built.hidden * built.expert_ffn
    return replace(built, params_b=total / PARAMS_PER_B, active_b=(total - unused) / PARAMS_PER_B)


def _source(fields: Mapping[str, object]) -> str:
    """Return where the architecture is from, and the fields that say something of it which is not understood."""
    unread = sorted(name for name, value in fields.items() if value and any(word in name for word in _STRANGE))
    return f"config.json; not understood: {', '.join(unread)}" if unread else "config.json"


def _layer_types(fields: Mapping[str, object]) -> list[str]:
    kinds = fields.get("layer_types")
    return [str(kind) for kind in kinds] if isinstance(kinds, list) else []


def _full_attention_layers(fields: Mapping[str, object], layers: int) -> int:
    """Return the layers that keep a cache: hybrids name their linear-attention layers."""
    kinds = _layer_types(fields)
    # hybrids list their layers; without a list every layer keeps a cache
    return sum("linear" not in kind and "mamba" not in kind for kind in kinds) if kinds else layers


def _windows(fields: Mapping[str, object]) -> bool:
    # some configurations (Qwen2) state a window and switch it off
    return fields.get("use_sliding_window", True) is not False


def _windowed_layers(fields: Mapping[str, object], layers: int) -> int:
    kinds = _layer_types(fields)
    # without a list the window holds in every layer
    return sum("sliding" in kind for kind in kinds) if kinds else layers
