"""The comparison with AIConfigurator: which rows are asked, in whose words, and how errors are counted."""

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from benchmarks.aiconfigurator import answer_of, estimates, every, question_of, table

ROOT = Path(__file__).resolve().parents[2]
CELLS = {
    "gpu": "H100-80GB-SXM", "framework": "vllm", "model": "Qwen3-32B", "metric": "tpot_mean", "value": "20", "precision": "",
    "batch_or_concurrency": "16", "input_len": "1024", "output_len": "129", "tp": "2", "n_gpus": "2", "pp": "1", "ep": "1",
}  # fmt: skip


def asked(**changes):
    return question_of({**CELLS, **changes})


def test_a_row_becomes_a_question_in_the_peers_words():
    arguments = asked().arguments()

    assert arguments["system_name"] == "h100_sxm"
    assert arguments["model_path"] == "Qwen/Qwen3-32B"
    assert (arguments["isl"], arguments["osl"], arguments["batch_size"], arguments["tp_size"]) == (1024, 129, 16, 2)
    assert arguments["mode"] == "agg"
    assert "moe_ep_size" not in arguments


def test_narrow_weights_and_experts_are_told():
    assert asked(precision="fp8").arguments()["model_path"] == "Qwen/Qwen3-32B-FP8"
    assert asked(model="DeepSeek-R1", precision="fp4").arguments()["gemm_quant_mode"] == "nvfp4"
    assert asked(model="DeepSeek-R1").arguments()["moe_ep_size"] == 1
    assert "gemm_quant_mode" not in asked(model="gpt-oss-120b", precision="fp4").arguments()


@pytest.mark.parametrize(
    "changes", [{"gpu": "T4"}, {"framework": "llama.cpp"}, {"model": "x"}, {"metric": "ppl"}, {"value": ""}]
)
def test_rows_that_the_peer_has_no_tables_for_are_not_asked(changes):
    assert asked(**changes) is None


def test_static_throughput_counts_input_and_output_over_the_whole_time():
    one = asked(metric="total_throughput")

    assert answer_of(one, "total_throughput", SimpleNamespace(ttft=720.0, tpot=10.0)) == pytest.approx(
        16 * (1024 + 129) / 2
    )


def test_refusals_are_kept_and_count_as_abstentions():
    def refuse(**arguments):
        raise ValueError("no tables")

    (answer,) = estimates([asked()], refuse).values()
    line = table([("tpot_mean", 20.0, None, 22.0), ("tpot_mean", 20.0, 30.0, 25.0)])[0]

    assert answer == "ValueError: no tables"
    assert line["peer_abstains_frac"] == 0.5
    assert (line["both"], line["peer_mape_frac"], line["ours_mape_frac"]) == (1, 0.5, 0.25)


def test_each_group_is_thinned_apart():
    questions = [asked(batch_or_concurrency=str(batch)) for batch in range(1, 11)]

    assert [one.batch for one in every(questions, 5)] == [3, 8]


def test_without_the_package_it_says_so_and_ends_well(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.aiconfigurator", "--data", "x.csv", "--ours", "y.csv"],
        cwd=ROOT, capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip

    assert "pip install aiconfigurator" in json.loads(done.stdout.splitlines()[-1])["skipped"]
