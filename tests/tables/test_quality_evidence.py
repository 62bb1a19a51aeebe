"""Verdict files named in workloads.yaml: read, checked, carried into a bundle, and refused where they do not hold."""

import json

import pytest

from trimtab.errors import BundleError, InputError
from trimtab.tables.quality_evidence import read_evidence
from trimtab.tables.workloads import parse_workloads, read_workloads, workloads_text

ACCEPTED = {
    "kind": "trimtab-quality", "schema_version": 1, "verdict": "accept", "because": "it loses less", "format": "fp8",
    "model": "meta-llama/Llama-3.1-8B-Instruct", "decided_on": "2026-11-20", "look": 1, "alpha_frac": 0.04,
    "margin_frac": 0.01, "pairs": 4500, "tasks": ["mmlu"], "baseline_frac": 0.72, "candidate_frac": 0.719,
    "loss_frac": 0.001, "low_frac": -0.004, "high_frac": 0.006, "method": "score test", "seen": [],
}  # fmt: skip


def declared(folder, verdict=ACCEPTED, key="fp8", **spec):
    folder.mkdir(exist_ok=True)
    (folder / "v.json").write_text(json.dumps(verdict))
    lines = [f"    {name}: {json.dumps(value)}" for name, value in spec.items()]
    text = "\n".join(["workloads:", "  prod/chat:", "    quality:", f"      {key}: v.json", *lines])
    (folder / "workloads.yaml").write_text(text)
    return folder / "workloads.yaml"


def test_a_verdict_file_beside_the_declaration_is_read(tmp_path):
    spec = read_workloads(declared(tmp_path)).spec("prod/chat")

    assert spec.quality["fp8"].verdict == "accept"
    assert spec.quality["fp8"].words == "-0.10 points (-0.60 to +0.40) on 4,500 questions of mmlu, 2026-11-20"


def test_a_bundle_carries_the_verdict_itself(tmp_path):
    read = read_workloads(declared(tmp_path))

    assert parse_workloads(workloads_text(read)) == read


@pytest.mark.parametrize(
    ("verdict", "spec", "words"),
    [
        ({**ACCEPTED, "high_frac": 0.02}, {}, "accepted, but the loss may be 0.0200"),
        ({**ACCEPTED, "loss_frac": 0.0}, {}, "the file was changed"),
        ({**ACCEPTED, "verdict": "more samples"}, {}, "evaluate more"),
        ({**ACCEPTED, "format": "int4"}, {}, "the verdict is of int4"),
        (
            ACCEPTED,
            {"model": "Qwen/Qwen3-8B"},
            "the verdict is of meta-llama/Llama-3.1-8B-Instruct, not of Qwen/Qwen3-8B",
        ),
        (
            {**ACCEPTED, "verdict": "reject"},
            {"quantize": ["fp8"]},
            "quantize accepts fp8, which its evaluation rejected",
        ),
        ({"kind": "other"}, {}, "kind"),
    ],
)
def test_a_verdict_that_does_not_hold_is_refused_with_its_place(tmp_path, verdict, spec, words):
    with pytest.raises(BundleError, match=words):
        read_workloads(declared(tmp_path, verdict, **spec))


def test_a_verdict_file_that_is_missing_is_named(tmp_path):
    path = declared(tmp_path)
    (tmp_path / "v.json").unlink()

    with pytest.raises(BundleError, match=r"prod/chat.quality.fp8.*v.json"):
        read_workloads(path)


def test_a_damaged_verdict_says_what_to_do(tmp_path):
    (tmp_path / "v.json").write_text("{}")

    with pytest.raises(InputError, match="trimtab quality --verdict"):
        read_evidence(tmp_path / "v.json")
