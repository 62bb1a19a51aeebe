"""Paste-ready commands for a chosen way of serving or training."""

from __future__ import annotations

import json
import math
from typing import assert_never

from trimtab.catalog import Precision
from trimtab.physics.formats import WeightFormat
from trimtab.physics.found_ways import ServingOption
from trimtab.physics.search_training import TrainingOption
from trimtab.physics.support import native_precision
from trimtab.physics.training_memory import Method, Optimizer, Recompute


def serve_format(stored: WeightFormat) -> tuple[str, ...]:
    """Return vLLM's flags for stored weights."""
    match stored:
        case WeightFormat.BF16:
            return ("--dtype bfloat16",)
        case WeightFormat.FP16:
            return ("--dtype float16",)
        case WeightFormat.FP8:
            return ("--quantization fp8", "--kv-cache-dtype fp8")
        case WeightFormat.INT8:
            return ("--quantization compressed-tensors  # point the model at its W8A8 weights",)
        case WeightFormat.INT4:
            return ("--quantization awq_marlin  # point the model at its AWQ or GPTQ weights",)
        case WeightFormat.FP4:
            return ("--quantization modelopt_fp4  # point the model at its NVFP4 weights",)
        case _:
            return ()


def vllm_serve(option: ServingOption, model: str, context: int) -> str:
    """Return the `vllm serve` command of one replica."""
    flags = [
        f"vllm serve {model}",
        f"--tensor-parallel-size {option.tensor}",
        f"--max-model-len {context}",
        f"--max-num-seqs {option.concurrency}",
        "--gpu-memory-utilization 0.90",
        *serve_format(option.stored),
    ]
    plain, commented = [flag for flag in flags if "#" not in flag], [flag for flag in flags if "#" in flag]
    return " \\\n  ".join([*plain, *commented])


def training_arguments(option: TrainingOption, model: str, global_batch: int | None) -> str:
    """Return transformers' TrainingArguments, with the adapter, quantization and FSDP settings that the plan needs."""
    plan = option.plan
    accumulate = max(1, math.ceil((global_batch or 0) / (plan.micro_batch * option.gpus))) if global_batch else 1
    bf16 = native_precision(option.gpu) is Precision.BF16
    lines = [
        f"# {model} on {option.gpus} x {option.gpu.name}",
        f"# torchrun --nnodes {option.nodes} --nproc-per-node {math.ceil(option.gpus / option.nodes)} train.py",
        "args = TrainingArguments(",
        f"    per_device_train_batch_size={plan.micro_batch},",
        f"    gradient_accumulation_steps={accumulate},",
        f"    {'bf16' if bf16 else 'fp16'}=True,",
        f"    gradient_checkpointing={plan.recompute is Recompute.FULL},",
        f"    optim={trainer_optimizer(plan.optimizer)!r},",
        *(trainer_fsdp() if option.gpus > 1 else ()),
        f"    use_liger_kernel={plan.fused_loss},",
        '    output_dir="out",',
        ")",
        *_adapter(plan.method, plan.lora_rank, "bfloat16" if bf16 else "float16", sharded=option.gpus > 1),
    ]
    return "\n".join(lines)


def trainer_optimizer(optimizer: Optimizer) -> str:
    """Return the name that transformers gives an optimizer."""
    match optimizer:
        case Optimizer.ADAMW | Optimizer.ADAMW_BF16:
            return "adamw_torch_fused"
        case Optimizer.ADAMW_8BIT:
            return "adamw_bnb_8bit"
        case Optimizer.ADAFACTOR:
            return "adafactor"
        case Optimizer.LION:
            return "lion_32bit"
        case Optimizer.SGD:
            return "sgd"
        case _:
            assert_never(optimizer)


def trainer_fsdp() -> tuple[str, ...]:
    """Return the lines that share weights, gradients and states over the GPUs of a run."""
    settings = {"transformer_layer_cls_to_wrap": None, "activation_checkpointing": False}
    wrapped = json.dumps({name: value for name, value in settings.items() if value is not None})
    return ('    fsdp="full_shard auto_wrap",', f"    fsdp_config={wrapped.replace('false', 'False')},")


def _adapter(method: Method, rank: int, dtype: str, *, sharded: bool) -> tuple[str, ...]:
    lora = (
        f'peft_config = LoraConfig(r={rank}, lora_alpha={2 * rank}, target_modules="all-linear", task_type="CAUSAL_LM")'
    )
    match method:
        case Method.FULL:
            return ()
        case Method.LORA | Method.ADAPTER:
            return (lora,)
        case Method.QLORA:
            # FSDP flattens weights of one dtype only: 4-bit weights must be stored in that of the rest
            storage = f", bnb_4bit_quant_storage=torch.{dtype}" if sharded else ""
            quantization = (
                "quantization_config = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type='nf4', "
                f"bnb_4bit_use_double_quant=True, bnb_4bit_compute_dtype=torch.{dtype}{storage})"
            )
            return (quantization, lora)
        case _:
            assert_never(method)
