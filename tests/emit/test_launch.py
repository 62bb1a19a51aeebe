"""Benchmark Jobs and launch commands for a candidate."""

import json

import jsonschema
import pytest
import yaml

import trimtab as tt
from trimtab.catalog import load_catalog
from trimtab.emit.launch import bench_job, job_name, megatron_arguments, training_arguments, vllm_serve
from trimtab.physics.ask import FitMarket
from trimtab.physics.search_training import Stack, TrainingDemand
from trimtab.physics.serving_demand import Demand
from trimtab.physics.training import Method, Optimizer, Recompute


@pytest.fixture(scope="module")
def option():
    demand = Demand(input_tokens=1024, output_tokens=256, rate_req_s=5)
    return tt.fit("llama-3.1-8b", serve=demand, market=FitMarket(catalog=load_catalog(), gpus=("L40S",))).found[0]


def test_a_job_asks_for_the_gpu_and_replays_the_mix(option):
    job = yaml.safe_load(bench_job(option, "meta-llama/Llama-3.1-8B", 1024, 256))

    pod = job["spec"]["template"]["spec"]
    script = pod["containers"][0]["command"][2]
    assert job["metadata"]["name"] == job_name(option)
    assert pod["nodeSelector"]["nvidia.com/gpu.product"] == "NVIDIA-L40S"
    assert pod["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] == option.tensor
    assert "--random-input-len 1024 --random-output-len 256" in script
    assert f"--max-concurrency {option.concurrency}" in script


def test_a_jobs_name_is_a_dns_label(option):
    name = job_name(option)

    assert len(name) <= 63
    assert name == name.lower()
    assert name.replace("-", "").isalnum()


def test_the_serve_command_holds_the_context_and_the_concurrency(option):
    text = vllm_serve(option, "meta-llama/Llama-3.1-8B", 1280)

    assert text.startswith("vllm serve meta-llama/Llama-3.1-8B")
    assert "--max-model-len 1280" in text
    assert f"--max-num-seqs {option.concurrency}" in text


@pytest.mark.parametrize("method", list(Method))
def test_training_arguments_are_valid_python(method):
    demand = TrainingDemand(method=method, tokens=1e8, global_batch=64)
    found = tt.fit(
        "llama-3.1-8b", train=demand, market=FitMarket(catalog=load_catalog(), gpus=("H100-SXM5-80GB",))
    ).found

    for one in found:
        text = training_arguments(one, "llama-3.1-8b", 64)
        compile(text, "paste", "exec")
        assert f"per_device_train_batch_size={one.plan.micro_batch}," in text


def test_megatron_gets_flags_of_its_own_and_a_batch_that_its_ranks_share_evenly():
    demand = TrainingDemand(
        method=Method.FULL, tokens=1e11, global_batch=1000, pretrain=True, stack=Stack.MEGATRON, deadline_days=60
    )
    market = FitMarket(catalog=load_catalog(), gpus=("H100-SXM5-80GB",))

    for run in tt.fit("llama-3.1-8b", train=demand, market=market).found:
        flags = megatron_arguments(run, "meta-llama/Llama-3.1-8B", 1000).replace("\\\n", "").split()
        step = int(flags[flags.index("--global-batch-size") + 1])
        assert step >= 1000
        assert step % (run.plan.micro_batch * run.gpus) == 0
        assert ("--recompute-granularity" in flags) == (run.plan.recompute is Recompute.FULL)
        assert ("--exp-avg-dtype" in flags) == (run.plan.optimizer is Optimizer.ADAMW_8BIT)
        assert flags[flags.index("--data-parallel-sharding-strategy") + 1] == "optim_grads_params"


def test_a_job_is_valid_against_the_core_schema(option, shared_dir):
    schema = json.loads(
        (shared_dir / "data" / "k8s-schemas" / "core-v1.34-strict" / "job.json").read_text(encoding="utf-8")
    )
    job = yaml.safe_load(bench_job(option, "meta-llama/Llama-3.1-8B", 1024, 256))

    assert [error.message for error in jsonschema.Draft7Validator(schema).iter_errors(job)] == []
    assert job["spec"]["template"]["spec"]["restartPolicy"] == "Never"


def test_sharded_qlora_stores_its_4_bit_weights_in_the_dtype_of_the_rest():
    demand = TrainingDemand(method=Method.QLORA, tokens=1e8)
    found = tt.fit(
        "llama-3.1-8b", train=demand, market=FitMarket(catalog=load_catalog(), gpus=("H100-SXM5-80GB",))
    ).found
    texts = {one.gpus: training_arguments(one, "llama-3.1-8b", None) for one in found}

    assert "bnb_4bit_quant_storage=torch.bfloat16" in texts[8]
    assert "bnb_4bit_quant_storage" not in texts[1]
    assert "torchrun --nnodes 1 --nproc-per-node 8" in texts[8]
    assert 'fsdp="full_shard auto_wrap"' in texts[8]


def test_adapters_of_16_bits_are_pasted_as_peft_takes_them():
    demand = TrainingDemand(method=Method.LORA, tokens=1e8, adapter_bits=16)
    market = FitMarket(catalog=load_catalog(), gpus=("H100-SXM5-80GB",))
    narrow = tt.fit("llama-3.1-8b", train=demand, market=market).found[0]
    wide = tt.fit("llama-3.1-8b", train=TrainingDemand(method=Method.LORA, tokens=1e8), market=market).found[0]

    assert "autocast_adapter_dtype=False" in training_arguments(narrow, "llama-3.1-8b", None)
    assert "autocast_adapter_dtype" not in training_arguments(wide, "llama-3.1-8b", None)
    assert narrow.tok_s.value > wide.tok_s.value
