"""Ready-to-paste commands for a chosen serving or training option, and Jobs that benchmark candidates on the user's own mix."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from typing import assert_never

import yaml

from trimtab.catalog import Precision
from trimtab.physics.formats import WeightFormat, native_precision
from trimtab.physics.found_ways import ServingOption
from trimtab.physics.search_training import TrainingOption
from trimtab.physics.training import NARROW_ADAPTER_BITS, Method, Optimizer, Recompute, Training
from trimtab.units import S_PER_DAY


def serve_format(stored: WeightFormat) -> tuple[str, ...]:
    """Return vLLM's flags for quantized weights."""
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


def vllm_serve(option: ServingOption, model: str, context: int, extra: Sequence[str] = ()) -> str:
    """Return the `vllm serve` command of one replica; `extra` are further flags."""
    flags = [
        f"vllm serve {model}",
        f"--tensor-parallel-size {option.tensor}",
        *_over_nodes(option),
        f"--max-model-len {context}",
        f"--max-num-seqs {option.concurrency}",
        "--gpu-memory-utilization 0.90",
        *extra,
        *serve_format(option.stored),
    ]
    plain, commented = [flag for flag in flags if "#" not in flag], [flag for flag in flags if "#" in flag]
    return " \\\n  ".join([*plain, *commented])


def _over_nodes(option: ServingOption) -> list[str]:
    """Return vLLM's flags for a replica that spans several nodes."""
    if option.expert > option.tensor:
        return [f"--data-parallel-size {option.expert}", "--enable-expert-parallel"]
    return [f"--pipeline-parallel-size {option.pipeline}"] if option.pipeline > 1 else []


def training_arguments(option: TrainingOption, model: str, global_batch: int | None) -> str:
    """Return transformers' TrainingArguments, with the adapter, quantization and FSDP settings of the plan."""
    plan = option.plan
    bf16 = native_precision(option.gpu) is Precision.BF16
    lines = [
        f"# {model} on {option.gpus} x {option.gpu.name}",
        f"# {_torchrun(option)} train.py",
        "args = TrainingArguments(",
        f"    per_device_train_batch_size={plan.micro_batch},",
        f"    gradient_accumulation_steps={_micro_batches(option, global_batch)},",
        f"    {'bf16' if bf16 else 'fp16'}=True,",
        f"    gradient_checkpointing={plan.recompute is Recompute.FULL},",
        f"    optim={trainer_optimizer(plan.optimizer)!r},",
        *(trainer_fsdp() if option.gpus > 1 else ()),
        f"    use_liger_kernel={plan.fused_loss},",
        '    output_dir="out",',
        ")",
        *_adapter(plan, "bfloat16" if bf16 else "float16", sharded=option.gpus > 1),
    ]
    return "\n".join(lines)


def _torchrun(option: TrainingOption) -> str:
    return f"torchrun --nnodes {option.nodes} --nproc-per-node {math.ceil(option.gpus / option.nodes)}"


def _micro_batches(option: TrainingOption, global_batch: int | None) -> int:
    """Return the micro-batches of a step on one rank; whole ones, so that a step may hold a few sequences more than asked."""
    return max(1, math.ceil((global_batch or 0) / (option.plan.micro_batch * option.gpus)))


def megatron_arguments(option: TrainingOption, model: str, global_batch: int | None) -> str:
    """Return Megatron-LM's command for a plan, without the model's shape, the data and the learning rate.

    The flags of sharded weights are those that NVIDIA requires (docs.nvidia.com/megatron-core, Megatron-FSDP User Guide, read
    2026-11-28); those of adapters are Megatron-Bridge's.
    """
    plan = option.plan
    step = plan.micro_batch * option.gpus * _micro_batches(option, global_batch)
    flags = [
        f"{_torchrun(option)} pretrain_gpt.py",
        f"--micro-batch-size {plan.micro_batch}",
        f"--global-batch-size {step}",
        f"--seq-length {plan.sequence}",
        "--bf16",
    ]
    if plan.recompute is Recompute.FULL:
        flags.append("--recompute-granularity full --recompute-method uniform --recompute-num-layers 1")
    if option.gpus > 1:
        flags += [
            "--use-megatron-fsdp --data-parallel-sharding-strategy optim_grads_params",
            "--use-distributed-optimizer --no-gradient-accumulation-fusion --ckpt-format fsdp_dtensor",
        ]
    if plan.optimizer is Optimizer.ADAMW_8BIT:
        flags.append("--use-precision-aware-optimizer --exp-avg-dtype fp8 --exp-avg-sq-dtype fp8")
    comments = [
        f"# {model} on {option.gpus} x {option.gpu.name}; add the model's shape, your data and learning rate",
        "# its speed was measured with tensor and pipeline parallelism too (Megatron-Bridge's recipes): time some steps first",
    ]
    if plan.method is not Method.FULL:
        comments.append(f"# in Megatron-Bridge: peft=LoRA(dim={plan.lora_rank}, alpha={2 * plan.lora_rank})")
    return "\n".join([*comments, " \\\n  ".join(flags)])


def trainer_optimizer(optimizer: Optimizer) -> str:
    """Return the name of an optimizer in transformers."""
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
    """Return the settings that shard weights, gradients and optimizer states over the GPUs of a run."""
    settings = {"transformer_layer_cls_to_wrap": None, "activation_checkpointing": False}
    wrapped = json.dumps({name: value for name, value in settings.items() if value is not None})
    return ('    fsdp="full_shard auto_wrap",', f"    fsdp_config={wrapped.replace('false', 'False')},")


def _adapter(plan: Training, dtype: str, *, sharded: bool) -> tuple[str, ...]:
    rank = plan.lora_rank
    lora = (
        f'peft_config = LoraConfig(r={rank}, lora_alpha={2 * rank}, target_modules="all-linear", task_type="CAUSAL_LM")'
    )
    match plan.method:
        case Method.FULL:
            return ()
        case Method.LORA if plan.adapter_bits == NARROW_ADAPTER_BITS:
            return (lora, "model = get_peft_model(model, peft_config, autocast_adapter_dtype=False)")
        case Method.LORA | Method.ADAPTER:
            return (lora,)
        case Method.QLORA:
            # FSDP flattens weights of one dtype only, so 4-bit weights must be stored in the dtype of the rest.
            storage = f", bnb_4bit_quant_storage=torch.{dtype}" if sharded else ""
            quantization = (
                "quantization_config = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type='nf4', "
                f"bnb_4bit_use_double_quant=True, bnb_4bit_compute_dtype=torch.{dtype}{storage})"
            )
            return (quantization, lora)
        case _:
            assert_never(plan.method)


IMAGE = "vllm/vllm-openai:v0.10.0"
PROMPTS_PER_SLOT = 10
"""Prompts per concurrent request: enough that the initial burst weighs little (InferenceX uses ten)."""


def job_name(option: ServingOption) -> str:
    """Return a DNS label for a candidate."""
    return re.sub(
        r"[^a-z0-9]+", "-", f"bench-{option.gpu.name}-{option.tensor}x-{option.stored.value}".casefold()
    ).strip("-")


def bench_script(option: ServingOption, model: str, input_tokens: int, output_tokens: int) -> str:
    """Return the script: serve, wait for health, replay the mix, print the result as JSON."""
    serve = " ".join(vllm_serve(option, model, input_tokens + output_tokens).replace("\\\n", " ").split())
    prompts = option.concurrency * PROMPTS_PER_SLOT
    bench = (
        f"vllm bench serve --model {model} --dataset-name random --random-input-len {input_tokens} "
        f"--random-output-len {output_tokens} --max-concurrency {option.concurrency} --num-prompts {prompts} "
        "--save-result --result-filename /tmp/result.json"
    )
    wait = "until curl -sf localhost:8000/health; do sleep 5; done"
    return f"set -e\n{serve.split(' #')[0]} &\n{wait}\n{bench}\ncat /tmp/result.json\n"


def bench_job(option: ServingOption, model: str, input_tokens: int, output_tokens: int) -> str:
    """Return a Job that benchmarks one candidate on a node with its GPU. Its log ends with the result."""
    container = {
        "name": "bench",
        "image": IMAGE,
        "command": ["bash", "-c", bench_script(option, model, input_tokens, output_tokens)],
        "resources": {"limits": {"nvidia.com/gpu": option.tensor}},
        "env": [{"name": "HF_HOME", "value": "/models"}],
        "volumeMounts": [{"name": "models", "mountPath": "/models"}, {"name": "shm", "mountPath": "/dev/shm"}],
    }
    pod = {
        "restartPolicy": "Never",
        "nodeSelector": {"nvidia.com/gpu.product": option.gpu.nvidia_smi_name.replace(" ", "-")},
        "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}],
        "containers": [container],
        "volumes": [{"name": "models", "emptyDir": {}}, {"name": "shm", "emptyDir": {"medium": "Memory"}}],
    }
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": job_name(option), "labels": {"app.kubernetes.io/created-by": "trimtab"}},
        "spec": {"backoffLimit": 0, "ttlSecondsAfterFinished": S_PER_DAY, "template": {"spec": pod}},
    }
    text: str = yaml.safe_dump(job, sort_keys=False)
    return text
