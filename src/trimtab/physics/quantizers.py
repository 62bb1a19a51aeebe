"""Methods that store weights in fewer bits, and what to try after one whose answers were too much worse.

What a method does to the answers depends on the model: only an evaluation tells. What it costs is known: bytes a weight
(`formats.FORMATS`), and what must be run to make the weights.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from trimtab.physics.formats import FORMATS, WeightFormat, weight_format


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantizer:
    """One method: the format that it stores, what it takes to make the weights, and where that is stated."""

    name: str
    stored: WeightFormat
    takes: str
    source: str


AWQ = Quantizer(
    name="AWQ",
    stored=WeightFormat.INT4,
    takes="a small calibration set; scales are searched layer by layer, without gradients",
    source="Lin et al., arXiv 2306.00978",
)
GPTQ = Quantizer(
    name="GPTQ",
    stored=WeightFormat.INT4,
    takes="128 calibration sequences of 2,048 tokens; about 4 hours on one A100 for 175 billion weights",
    source="Frantar et al., arXiv 2210.17323",
)
FP8 = Quantizer(
    name="FP8",
    stored=WeightFormat.FP8,
    takes="no calibration data with dynamic scales of activations",
    source="docs.vllm.ai, features/quantization/fp8",
)
QAT = Quantizer(
    name="QAT",
    stored=WeightFormat.INT4,
    takes="a fine-tuning run of all weights with rounding in the loop (8 billion weights: at least 6 GPUs of 80 GB)",
    source="pytorch/torchtune, recipes/qat_distributed",
)


def next_quantizers(rejected: str) -> tuple[Quantizer, ...]:
    """Return what to try after a method or format whose answers were refused, least work first.

    The same bytes rounded in another way come first, then more bits, then training in the refused format. Empty for training
    itself. Raises UnknownName for what is no format.

    >>> [method.name for method in next_quantizers("awq")], [method.name for method in next_quantizers("fp8")]
    (['GPTQ', 'FP8', 'QAT'], ['QAT'])
    """
    trained = replace(QAT, stored=weight_format(rejected.casefold().replace("qat", "int4")))
    if "qat" in rejected.casefold():
        return (FP8,)
    narrow = FORMATS[trained.stored].weight_bytes < FORMATS[WeightFormat.FP8].weight_bytes
    ladder = (AWQ, GPTQ, FP8, trained) if narrow else (FP8, trained)
    return tuple(
        method
        for method in ladder
        if method.name.casefold() not in rejected.casefold() and (method is not FP8 or trained.stored is not FP8.stored)
    )
