"""`trimtab quality`, as a user types it: logs of three programs, verdicts and exit codes, evidence, a second look."""

import json

import numpy as np
import pytest
from click.testing import CliRunner

from trimtab.cli.quality import command
from trimtab.errors import InputError, UsageError
from trimtab.tables.quality_evidence import read_evidence


def run(*arguments, code=0):
    found = CliRunner().invoke(
        command, [str(part) for part in arguments], catch_exceptions=False, standalone_mode=False
    )
    assert found.return_value == code, found.output
    return found.output


def scores(lost, gained, count, seed=1):
    """Return both sides of `count` questions, 70 % of which the baseline answers right."""
    rng = np.random.default_rng(seed)
    right = rng.random(count) < 0.7
    drawn = rng.random(count)
    other = np.where(right, drawn >= lost / 0.7, drawn < gained / 0.3)
    return right.astype(float), other.astype(float)


def plain(path, values, start=0):
    lines = (
        json.dumps({"id": at, "score": value, "subject": "law" if at % 2 else "art"})
        for at, value in enumerate(values, start)
    )
    path.write_text("\n".join(lines))
    return path


def harness(folder, values, shots=5, task="mmlu_law", metric="acc"):
    folder.mkdir(exist_ok=True)
    rows = [
        {"doc_id": at, "doc": {"category": f"c{at % 3}"}, "filter": "none", "metrics": [metric, "acc_norm"],
         metric: value, "acc_norm": 1.0, "doc_hash": f"h{at}"}
        for at, value in enumerate(values)
    ]  # fmt: skip
    (folder / f"samples_{task}_2026-11-20T10-00-00.123456.jsonl").write_text("\n".join(map(json.dumps, rows)))
    results = {"results": {task: {f"{metric},none": 0.7}}, "versions": {task: 1}, "n-shot": {task: shots}}
    (folder / "results_2026-11-20T10-00-00.123456.json").write_text(json.dumps(results))
    return folder


def helm(folder, values, model):
    run_folder = folder / f"mmlu:subject=law,method=joint,model={model}"
    run_folder.mkdir(parents=True)
    rows = [
        {"instance_id": f"id{at}", "train_trial_index": trial, "stats": [
            {"name": {"name": "exact_match", "split": "test"}, "count": 1, "sum": value, "mean": value},
            {"name": {"name": "num_prompt_tokens"}, "mean": 80.0}]}
        for at, value in enumerate(values) for trial in (0, 1)
    ]  # fmt: skip
    rows.append({**rows[0], "perturbation": {"name": "robustness"}})
    (run_folder / "per_instance_stats.json").write_text(json.dumps(rows))
    return folder


@pytest.fixture
def good():
    return scores(0.01, 0.01, 6_000)


def test_a_candidate_as_good_is_accepted_with_exit_code_0(tmp_path, good):
    one, other = plain(tmp_path / "a.jsonl", good[0]), plain(tmp_path / "b.jsonl", good[1])

    said = run("--baseline", one, "--candidate", other, "-o", "json")

    document = json.loads(said)
    assert document["verdict"] == "accept"
    assert document["rows"][0]["slice"] == "all"
    assert {row["slice"] for row in document["rows"][1:]} == {"subject=law", "subject=art"}


def test_logs_of_the_harness_are_paired_and_sliced(tmp_path, good):
    one, other = harness(tmp_path / "a", good[0]), harness(tmp_path / "b", good[1])

    document = json.loads(run("--baseline", one, "--candidate", other, "-o", "json"))

    assert document["metrics"] == ["acc,none"]
    assert document["pairs"] == 6_000
    assert {row["slice"] for row in document["rows"][1:]} == {"category=c0", "category=c1", "category=c2"}


def test_trials_of_helm_are_averaged_and_perturbed_copies_left_out(tmp_path, good):
    one, other = helm(tmp_path / "a", good[0][:400], "x"), helm(tmp_path / "b", good[1][:400], "y_fp8")

    document = json.loads(run("--baseline", one, "--candidate", other, "-o", "json", "--margin", "5"))

    assert document["pairs"] == 400
    assert document["tasks"] == ["mmlu:subject=law,method=joint"]
    assert any("1 perturbed" in line for line in document["left_out"])


def test_a_worse_candidate_is_rejected_with_what_to_try_next_and_its_cost(tmp_path):
    worse = scores(0.06, 0.01, 6_000)
    one, other = plain(tmp_path / "a.jsonl", worse[0]), plain(tmp_path / "b.jsonl", worse[1])

    said = run("--baseline", one, "--candidate", other, "--format", "awq", "--model", "llama-3.1-8b", code=4)

    assert "REJECT awq: it surely loses" in said
    assert "Next: GPTQ (int4, 26% of bf16's bytes, 5.3 GiB" in " ".join(said.split())
    assert "arXiv 2210.17323" in said


def test_a_second_look_takes_fresh_questions_and_spends_less_error(tmp_path):
    few, verdict = ([1.0] * 210 + [0.0] * 90, [1.0] * 208 + [0.0] * 92), tmp_path / "fp8.json"
    first = [plain(tmp_path / "a.jsonl", few[0]), plain(tmp_path / "b.jsonl", few[1])]
    said = run("--baseline", first[0], "--candidate", first[1], "--format", "fp8", "--verdict", verdict, code=5)
    assert "fresh questions" in said

    with pytest.raises(InputError, match="fresh"):
        run("--baseline", first[0], "--candidate", first[1], "--after", verdict)
    more = scores(0.02, 0.02, 20_000, seed=2)
    both = [plain(tmp_path / "c.jsonl", more[0]), plain(tmp_path / "d.jsonl", more[1])]
    document = json.loads(run("--baseline", both[0], "--candidate", both[1], "--after", verdict, "-o", "json"))

    assert document["pairs"] == 19_700
    assert document["look"] == 2
    assert document["alpha_frac"] == pytest.approx(0.008)
    assert document["format"] == "fp8"


def test_a_look_after_a_decision_or_at_another_margin_is_refused(tmp_path, good):
    files = [plain(tmp_path / "a.jsonl", good[0]), plain(tmp_path / "b.jsonl", good[1])]
    decided, open_ = tmp_path / "yes.json", tmp_path / "more.json"
    run("--baseline", files[0], "--candidate", files[1], "--verdict", decided)
    few = [plain(tmp_path / "c.jsonl", good[0][:200]), plain(tmp_path / "d.jsonl", good[1][:200])]
    run("--baseline", few[0], "--candidate", few[1], "--verdict", open_, code=5)

    with pytest.raises(UsageError, match="decided"):
        run("--baseline", files[0], "--candidate", files[1], "--after", decided)
    with pytest.raises(UsageError, match="margin"):
        run("--baseline", files[0], "--candidate", files[1], "--after", open_, "--margin", "3")


def test_the_verdict_file_is_evidence_that_reads_back(tmp_path, good):
    files = [plain(tmp_path / "a.jsonl", good[0]), plain(tmp_path / "b.jsonl", good[1])]
    run("--baseline", files[0], "--candidate", files[1], "--format", "fp8", "--verdict", tmp_path / "v.json")

    found = read_evidence(tmp_path / "v.json")

    assert found.verdict == "accept"
    assert not found.seen
    assert "6,000 questions" in found.words


def test_a_comment_of_a_pull_request_leads_with_the_verdict(tmp_path, good):
    files = [plain(tmp_path / "a.jsonl", good[0]), plain(tmp_path / "b.jsonl", good[1])]

    said = run("--baseline", files[0], "--candidate", files[1], "-o", "github-comment")

    assert said.startswith("<!-- trimtab quality -->\n\n### ACCEPT")


def test_a_plan_for_production_is_said_when_asked(tmp_path, good):
    files = [plain(tmp_path / "a.jsonl", good[0]), plain(tmp_path / "b.jsonl", good[1])]

    watch = json.loads(run("--baseline", files[0], "--candidate", files[1], "--watch-drop", "2", "-o", "json"))["watch"]

    assert 0 < watch["paired_requests_per_day"] < watch["alone_requests_per_day"]


def test_other_settings_of_the_harness_are_refused(tmp_path, good):
    one, other = harness(tmp_path / "a", good[0][:50]), harness(tmp_path / "b", good[1][:50], shots=0)

    with pytest.raises(InputError, match=r"examples in the prompt 5 in .* and version 1, examples in the prompt 0"):
        run("--baseline", one, "--candidate", other)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"id": 1}', "row 1: no score or correct.*says a score"),
        ('{"score": 1}', "row 1: no id .*says an id"),
        ('{"id": 1, "score": "good"}', "row 1: score is not a number .saw 'good'"),
        ('{"id": 1, "score": 1}\n{"id": 2', "row 2: not JSON"),
        ("[1]", "one JSON object"),
        ("", "is empty"),
        ('{"id": 1, "score": null}', "not a finite number"),
    ],
)
def test_a_damaged_row_is_named(tmp_path, text, words):
    path = tmp_path / "a.jsonl"
    path.write_text(text)

    with pytest.raises(InputError, match=words):
        run("--baseline", path, "--candidate", path)


def test_of_several_filters_one_is_judged_and_the_others_are_named(tmp_path, good):
    sides = []
    for name, values in zip("ab", good, strict=True):
        folder = tmp_path / name
        folder.mkdir()
        rows = [
            {
                "doc_id": at,
                "filter": kept,
                "metrics": ["exact_match"],
                "exact_match": value if kept == "strict-match" else 1.0,
            }
            for at, value in enumerate(values)
            for kept in ("strict-match", "flexible-extract")
        ]
        (folder / "samples_gsm8k.jsonl").write_text("\n".join(map(json.dumps, rows)))
        sides += [f"--{'baseline' if name == 'a' else 'candidate'}", folder]

    first = json.loads(run(*sides, "-o", "json"))
    other = json.loads(run(*sides, "--metric", "exact_match,flexible-extract", "-o", "json"))

    assert (first["metrics"], first["pairs"]) == (["exact_match,strict-match"], 6_000)
    assert "exact_match,flexible-extract" in first["left_out"][0]
    assert other["baseline_frac"] == 1.0


def test_results_in_several_files_are_read_together(tmp_path, good):
    one, other = harness(tmp_path / "a", good[0]), harness(tmp_path / "b", good[1])
    (other / "results_2026-11-21T10-00-00.json").write_text(json.dumps({"results": {}, "versions": {"gsm8k": 3}}))

    run("--baseline", one, "--candidate", other)


def test_means_alone_cannot_be_paired(tmp_path, good):
    folder = harness(tmp_path / "a", good[0][:50])
    for log in folder.glob("*.jsonl"):
        log.unlink()

    with pytest.raises(InputError, match=r"means only.*--log_samples"):
        run("--baseline", folder, "--candidate", folder)


def test_a_misspelt_metric_is_told_with_those_that_there_are(tmp_path, good):
    folder = harness(tmp_path / "a", good[0][:50])

    with pytest.raises(InputError, match="no metric 'acc_nrm'; it has acc_norm"):
        run("--baseline", folder, "--candidate", folder, "--metric", "acc_nrm")
