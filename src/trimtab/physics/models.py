"""Model architectures: what the memory and speed formulas need to know of a network, by name or from its size.

`data/models.csv` holds well-known architectures, written from their publishers' configuration files. Symbols as in the
literature: L layers, h hidden size, a heads, n_kv key-value heads, d_head, f feed-forward width, V vocabulary.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files

from trimtab.errors import InputError, UnknownName

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
    """Return a Llama-like architecture of a given size, for a model nobody described.

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
