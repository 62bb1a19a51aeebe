"""`trimtab fit` for models that generate no text: what was measured, what is unknown, names and ids."""

import json
import re

import pytest
from click.testing import CliRunner

from trimtab.cli.fit import command
from trimtab.errors import InputError, Unpredictable, UsageError
from trimtab.physics.measured_models import find_measured_model, measured_models
from trimtab.physics.models import hub_id, known_models
from trimtab.physics.offers import board
from trimtab.physics.predict import knows, packaged


def run(*arguments):
    return CliRunner().invoke(command, list(arguments))


def answer(*arguments):
    result = run(*arguments, "-o", "json")
    assert result.exception is None, result.exception
    return json.loads(result.output)


@pytest.mark.parametrize("name", sorted(measured_models()))
def test_every_measured_model_is_answered_with_intervals(name):
    document = answer(name, "--serve")

    assert document["rows"]
    for row in document["rows"]:
        assert 0 < row["units_s_low"] < row["units_s"] < row["units_s_high"]
        assert row["usd_per_munit_low"] < row["usd_per_munit"] < row["usd_per_munit_high"]
    costs = [row["usd_per_munit"] for row in document["rows"]]
    assert costs == sorted(costs)


def test_whisper_is_sized_in_tokens_of_the_transcript():
    document = answer("openai/whisper-large-v3", "--serve", "--rate", "20", "--output-tokens", "90", "--gpu", "L4")

    row = document["rows"][0]
    assert document["unit"] == "transcript tokens"
    assert row["measured_on_this_chip"]
    # 20 x 90 tokens a second over what one does, and a fifth on top of the whole replicas
    needed = -(-1800 // row["units_s"])
    assert row["gpus"] == -(-needed * 12 // 10)


def test_a_gpu_on_which_nothing_of_the_kind_ran_is_unknown_and_not_guessed():
    document = answer("sdxl", "--serve")

    unknown = {row["gpu"]: row["because"] for row in document["rejected"] if row["reason"] == "never measured"}
    assert unknown["A10G"] == "no model of these kinds was measured on it"
    assert "never run in less than 22 GiB" in unknown["T4"]
    assert not unknown.keys() & {row["gpu"] for row in document["rows"]}


def test_a_model_whose_transfer_failed_on_groups_held_back_is_told_on_its_own_chips_only():
    document = answer("whisper-large-v3", "--serve", "--all")

    assert all(row["measured_on_this_chip"] for row in document["rows"])
    assert any("could not be predicted" in row["because"] for row in document["rejected"] if row["gpu"] == "RTX-4090")


def test_a_format_that_a_board_has_no_arithmetic_for_is_refused():
    document = answer("sdxl", "--serve")

    assert "A100-SXM4-80GB" in {row["gpu"] for row in document["rejected"] if row["reason"] == "not supported"}
    assert all(row["format"] == "fp8" for row in document["rows"])


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        (("resnet-50", "--serve", "--latency", "5ms"), Unpredictable, "whether any GPU keeps 0.005 s is unknown"),
        (("whisper", "--serve", "--latency", "5s"), Unpredictable, "its latency is unknown on any GPU"),
        (("whisper", "--serve", "--rate", "3"), UsageError, "give --output-tokens"),
        (("sdxl", "--serve", "--tpot", "40ms"), UsageError, "--tpot cannot be answered"),
        (("sdxl", "--serve", "--longest", "900"), UsageError, "--longest cannot be answered"),
        (("sdxl", "--serve", "--latency", "30s", "--percentile", "99.9"), Unpredictable, "latency at p99.9 is unknown"),
        (("sdxl", "--serve", "--format", "bf16"), Unpredictable, "in fp8 only"),
        (("bge-large", "--serve", "--input", "2000"), Unpredictable, "its speed on 2000 tokens is unknown"),
        (("bert-base", "--serve"), Unpredictable, "that of others is unknown"),
        (("whisper-small", "--serve"), InputError, "is another network than whisper-large-v3"),
        (("stabilityai/sdxl-turbo", "--serve"), InputError, "is another network than stable-diffusion-xl"),
    ],
)
def test_what_nobody_measured_is_said_to_be_unknown(arguments, error, words):
    result = run(*arguments)

    assert isinstance(result.exception, error)
    assert words in str(result.exception)


def test_the_answer_is_a_page_too(tmp_path):
    out = tmp_path / "fit.html"

    result = run("sdxl", "--serve", "-o", "html", "--out", str(out))

    assert result.exception is None
    page = out.read_text()
    assert page.startswith("<!doctype html>")
    assert "GPUs that work" in page
    assert "H100" in page
    assert "Measured engines were tuned TensorRT" in page


def test_a_point_of_one_s_own_is_refused_with_what_to_do_instead(tmp_path):
    point = tmp_path / "point.json"
    point.write_text("{}")

    result = run("whisper-large-v3", "--serve", "--calibrate", str(point))

    assert isinstance(result.exception, UsageError)
    assert "its speeds are measurements in transcript tokens a second" in str(result.exception)
    assert "multiply the speeds by yours over the one shown for that GPU" in str(result.exception)


def test_a_limit_that_was_measured_is_answered_by_the_speed_that_keeps_it():
    kept = answer("resnet-50", "--serve", "--latency", "20ms", "--gpu", "L40S")
    bulk = answer("resnet-50", "--offline", "1M/day", "--gpu", "L40S")

    assert "p99 within 0.015 s" in " ".join(kept["remarks"])
    assert kept["rows"][0]["units_s"] < bulk["rows"][0]["units_s"]


def test_what_holds_at_the_measured_percentile_holds_at_lower_ones():
    limit = ("sdxl", "--serve", "--rate", "2", "--latency", "30s")

    assert answer(*limit, "--percentile", "95")["rows"] == answer(*limit)["rows"]


def test_another_network_of_the_same_family_is_not_taken_for_the_one_that_was_measured():
    assert find_measured_model("openai/whisper-large-v3-turbo") is None
    assert find_measured_model("BAAI/bge-large-en-v1.5").task == "bert-large"


def test_each_chip_that_a_model_is_said_to_have_run_on_is_in_the_fit():
    table = packaged("workloads").tables["throughput"]

    for model in measured_models().values():
        assert all(knows(table, ("chip",), chip) for chip in model.chips), model.name
        assert any(model.task in term.values for term in table.terms if term.by == ("task",))


def test_models_are_listed_with_their_ids():
    rows = json.loads(run("--list-models", "-o", "json").output)["rows"]

    names = {row["model"]: row for row in rows}
    assert names["whisper-large-v3"]["hub_id"] == "openai/whisper-large-v3"
    assert names["qwen3-8b"]["kind"] == "language"
    assert len(names) == len(rows) == len({*measured_models(), *known_models()})


def test_ids_on_the_hub_are_those_of_the_release_that_was_typed():
    assert hub_id("llama-3.1-8b") == "meta-llama/Llama-3.1-8B-Instruct"
    assert hub_id("llama-3-8b") == "meta-llama/Meta-Llama-3-8B-Instruct"
    assert hub_id("gpt-3-20b") is None


def test_one_s_own_card_is_answered_too():
    document = answer("sdxl", "--serve", "--on", "rtx4090")

    assert [row["gpu"] for row in document["rows"]] == [board("rtx4090").name]


def test_a_gpu_that_works_in_one_format_is_not_among_the_rejected():
    text = run("bge-reranker-large", "--offline", "10M/day").output

    rejected = [line for line in " ".join(text.split()).split("rejected: ")[1:] if "no arithmetic" in line]
    assert "A30" in text
    assert not any("A30" in line.split("not supported")[0] for line in rejected)


def test_help_names_every_model():
    text = " ".join(run("--help").output.split())

    assert "whisper-large-v3, stable-diffusion-xl" in text
    assert "llama-3.1-405b" in text
    # none is broken at a hyphen
    assert all(f" {name}" in text for name in (*measured_models(), *known_models()))


def test_spot_has_its_interruption_rate_and_the_day_of_it():
    remark = answer("resnet-50", "--serve", "--rate", "500", "--provider", "aws")["remarks"][0]

    assert remark.startswith("Cheapest over all ways of buying: spot, ")
    assert re.search(r"interrupted a month, as of 20\d\d-\d\d-\d\d\.$", remark)
