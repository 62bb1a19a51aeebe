"""Model architectures: what memory and speed formulas need to know of a network, by name or from its `config.json`.

`data/models.csv` holds well-known architectures, written from their publishers' configuration files. Symbols as in the
literature: L layers, h hidden size, a heads, n_kv key-value heads, d_head, f feed-forward width, V vocabulary.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib.resources import files

from trimtab.errors import Fault, InputError, UnknownName

PARAMS_PER_B = 10**9

_ORGANISATION = re.compile(r"^.*/")
_BRACKETS = re.compile(r"\(.*?\)")
_SUFFIX = re.compile(
    r"(?<!bert)[-_. ](instruct|chat|hf|base|it|fp8|fp4|nvfp4|mxfp4|bf16|fp16|int8|int4|awq|gptq|w4a16|w8a8|4bit|8bit"
    r"|preview|v0\.\d|dropless|tokendrop|dynamic|quantized|eagle\d?|a1b|distill|turbo)$"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Architecture:
    """A transformer's shape; counts are whole numbers, parameters are billions.

    A dense model has `experts == 0`; then `ffn` is its feed-forward width and every layer is dense. With experts, the first
    `dense_layers` layers use `ffn`, the others route each token to `experts_per_token` (+ `shared_experts`) of width
    `expert_ffn`. `kv_lora_rank > 0` means multi-head latent attention (arXiv 2405.04434). `kv_layers` are the layers whose
    cache grows with the context (fewer than `layers` in hybrids); of these `windowed_layers` keep at most `window` tokens.
    """

    name: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    vocab: int
    gated: bool = True
    tied: bool = False
    kv_layers: int = 0
    window: int = 0
    windowed_layers: int = 0
    experts: int = 0
    experts_per_token: int = 0
    shared_experts: int = 0
    expert_ffn: int = 0
    dense_layers: int = 0
    kv_lora_rank: int = 0
    rope_dim: int = 0
    encoder: bool = False
    params_b: float
    active_b: float
    source: str = ""
    generic: bool = False

    @property
    def params(self) -> float:
        """Return the total number of parameters."""
        return self.params_b * PARAMS_PER_B

    @property
    def active_params(self) -> float:
        """Return the parameters that one token uses."""
        return self.active_b * PARAMS_PER_B

    @property
    def is_moe(self) -> bool:
        """Say whether tokens are routed to experts."""
        return self.experts > 0

    @property
    def embedding_params(self) -> int:
        """Return the parameters of the input embedding, which a decode step does not read in whole."""
        return self.vocab * self.hidden

    @property
    def head_params(self) -> int:
        """Return the parameters of embedding and output head together; these usually stay in 16 bits when quantized."""
        return self.embedding_params * (1 if self.tied or self.encoder else 2)

    @property
    def expert_params(self) -> float:
        """Return the parameters that lie in routed experts."""
        if not self.is_moe:
            return 0.0
        moe_layers = self.layers - self.dense_layers
        by_shape = moe_layers * self.experts * (3 if self.gated else 2) * self.hidden * self.expert_ffn
        # the shape may overshoot the stated size: attention, embeddings and norms keep at least 1.5 % of it
        return min(by_shape, 0.985 * self.params)

    @property
    def kv_values_per_token(self) -> int:
        """Return the numbers a token adds to one cached layer: 2 n_kv d_head, or d_c + d_rope with latent attention."""
        if self.kv_lora_rank:
            return self.kv_lora_rank + self.rope_dim
        return 2 * self.kv_heads * self.head_dim


def shape_params(architecture: Architecture) -> float:
    """Count a dense or MoE transformer's parameters from its shape: attention, feed-forward, embeddings.

    Norms and biases are left out (under 0.1 %); latent attention and hybrid layers are not counted exactly.
    """
    shape = architecture
    # query and output projections span all heads, key and value projections the shared ones
    attention = shape.hidden * shape.head_dim * (2 * shape.heads + 2 * shape.kv_heads)
    matrices = 3 if shape.gated else 2
    dense_count = shape.dense_layers if shape.is_moe else shape.layers
    dense = dense_count * matrices * shape.hidden * shape.ffn
    experts_each = shape.experts + shape.shared_experts
    experts = (shape.layers - dense_count) * matrices * shape.hidden * shape.expert_ffn * experts_each
    return shape.layers * attention + dense + experts + shape.head_params


def _key(name: str) -> str:
    """Fold a model's name to what tells it apart: no organisation, brackets, case or tuning suffix."""
    bare = _ORGANISATION.sub("", _BRACKETS.sub("", name).strip())
    text = bare.casefold().replace("_", "-").replace(" ", "-").strip("-")
    text = text.removeprefix("meta-")
    # suffixes stack (`-instruct-awq`): cut one at a time until none is left
    while (shorter := _SUFFIX.sub("", text)) != text:
        text = shorter
    return re.sub(r"[^a-z0-9.]", "", text)


def _count(row: Mapping[str, str], column: str) -> int:
    return int(row[column] or 0)


def _from_row(row: Mapping[str, str]) -> Architecture:
    params_b = float(row["params_b"])
    layers = int(row["layers"])
    return Architecture(
        name=row["name"],
        layers=layers,
        hidden=int(row["hidden"]),
        heads=int(row["heads"]),
        kv_heads=int(row["kv_heads"]),
        head_dim=int(row["head_dim"]),
        ffn=int(row["ffn"]),
        vocab=int(row["vocab"]),
        gated=row["gated"] == "1",
        tied=row["tied"] == "1",
        # an empty cell means that every layer keeps a cache
        kv_layers=_count(row, "kv_layers") or layers,
        window=_count(row, "window"),
        windowed_layers=_count(row, "windowed_layers"),
        experts=_count(row, "experts"),
        experts_per_token=_count(row, "experts_per_token"),
        shared_experts=_count(row, "shared_experts"),
        expert_ffn=_count(row, "expert_ffn"),
        dense_layers=_count(row, "dense_layers"),
        kv_lora_rank=_count(row, "kv_lora_rank"),
        rope_dim=_count(row, "rope_dim"),
        encoder=row["encoder"] == "1",
        params_b=params_b,
        active_b=float(row["active_b"] or params_b),
        source=f"{row['source']} ({row['as_of']})",
    )


@lru_cache(maxsize=1)
def known_models() -> Mapping[str, Architecture]:
    """Return the built-in architectures by name."""
    text = files("trimtab.physics").joinpath("data/models.csv").read_text(encoding="utf-8")
    return {row["name"]: _from_row(row) for row in csv.DictReader(text.splitlines())}


@lru_cache(maxsize=1)
def _by_key() -> Mapping[str, str]:
    text = files("trimtab.physics").joinpath("data/models.csv").read_text(encoding="utf-8")
    keys: dict[str, str] = {}
    for row in csv.DictReader(text.splitlines()):
        # later rows win where two spellings fold to one key
        for alias in (row["name"], *row["aliases"].split(";")):
            if alias:
                keys[_key(alias)] = row["name"]
    return keys


@lru_cache(maxsize=1)
def _hub_ids() -> Mapping[str, str]:
    text = files("trimtab.physics").joinpath("data/hub_ids.csv").read_text(encoding="utf-8")
    return {_key(row["name"]): row["hub_id"] for row in csv.DictReader(text.splitlines())}


def hub_id(name: str) -> str | None:
    """Return the id on the Hugging Face hub under which a model is served (the instruct variant where there is one), or None.

    >>> hub_id("llama-3.1-8b"), hub_id("no-such-model")
    ('meta-llama/Llama-3.1-8B-Instruct', None)
    """
    return _hub_ids().get(_key(name))


def find_model(name: str) -> Architecture | None:
    """Return the built-in architecture that a name means, or None; organisation, case and tuning suffixes are ignored."""
    known = _by_key().get(_key(name))
    return known_models()[known] if known else None


def model_named(name: str) -> Architecture:
    """Return the built-in architecture that a name means; raises UnknownName with the near matches."""
    found = find_model(name)
    if found is None:
        raise UnknownName("model", name, known_models())
    return found


def generic_model(params_b: float, *, active_b: float | None = None, name: str = "") -> Architecture:
    """Return a Llama-like architecture of a given size, for a model whose architecture is unknown.

    With h = 128 L and 12 h^2 parameters a layer, P = 12 * 128^2 * L^3 (the depth-to-width ratio of GPT-3 and Llama; 7B gives
    33 layers of 4,224). Raises InputError for a size that is not between a thousandth and 10,000 billion.
    """
    if not 0.001 <= params_b <= 10_000:
        raise InputError(f"a model of {params_b} billion parameters cannot be meant; give --params such as 7B")
    layers = max(2, round((params_b * PARAMS_PER_B / (12 * 128**2)) ** (1 / 3)))
    hidden = 128 * layers
    heads = max(1, hidden // 128)
    return Architecture(
        name=name or f"generic-{params_b:g}b",
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=heads if params_b < 7 else max(1, min(8, heads)),
        head_dim=128,
        # three gated matrices of width 8/3 h hold as much as two of 4 h: the 8 h^2 of the 12 h^2 a layer
        ffn=round(8 * hidden / 3),
        vocab=64_000,
        kv_layers=layers,
        params_b=params_b,
        active_b=active_b if active_b else params_b,
        source="derived from the parameter count",
        generic=True,
    )


def resolve_model(name: str, params_b: float | None = None) -> Architecture:
    """Return the named architecture, or a generic one of the given size; raises UnknownName when neither is known.

    A size that differs from the known one by more than 15 % wins over the name: then the name means another model.
    """
    found = find_model(name)
    if found is not None and (params_b is None or abs(found.params_b / params_b - 1) <= 0.15):
        return found
    if params_b is not None:
        return generic_model(params_b, name=name)
    return model_named(name)


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
        what = "hidden size is not a multiple of the heads, and no head_dim is given"
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
        what = "num_attention_heads is not a multiple of num_key_value_heads"
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
