"""Every kind of input: valid ones are read, damaged ones are read or refused by name, and a killed rewrite loses nothing."""

import ast
import json
import os
import subprocess
import sys
import threading
from dataclasses import asdict
from pathlib import Path

import pytest
from benchmarks.bundle_kills import kill_loop
from benchmarks.mutations import Tally, kinds, merged

import trimtab

ROOT = Path(__file__).parents[2]
PACKAGE = Path(trimtab.__file__).parent


GATES = {
    "DictReader", "ParquetFile", "csv_rows", "load_all", "load_json", "load_mapping", "load_yaml", "load_yaml_documents",
    "loads", "model_validate_json", "open_packed", "open_parquet_file", "read_arrow_table", "read_bytes", "read_csv",
    "read_csv_rows", "read_json", "read_json_object", "read_packed", "read_text", "reader", "safe_load", "yaml_documents",
}  # fmt: skip
"""Functions by which files and answers come in; whoever calls one of them reads what others wrote."""
OWN_FILES = {
    "catalog.rows", "check.schemas", "physics.measured_models", "physics.models",
    "web.layout",
}  # fmt: skip
"""Modules that read files of the package alone."""
READ_ELSEWHERE = {
    "_machine_code.machine_code_folder": "its own sources",
    "cli.outcome_cache.program_digest": "its own sources",
    "cli.audit.run.render_audit": "text that it wrote a moment before",
    "cli.audit.run._columns": "text that it wrote a moment before",
    "emit.manifests.claim_templates.new_claims": "text that it wrote a moment before",
    "emit.document.published_schema": "a file of the package",
    "physics.fitted.read_fit": "a file of the package",
    "physics.offers.all_boards": "a file of the package",
    "physics.fabrics._published": "a file of the package",
    "check.cluster.cluster_of_context": "objects from kubectl: the same parser and depth as dumps, whose kind is there",
    "check.cluster.crds_of_context": "objects from kubectl: the same parser and depth as dumps, whose kind is there",
    "cli.collect.run._declared_metrics": "hands on text to `parse_cluster_file`, whose kind is there",
    "cli.digest.run._document": "hands on text to `parse_verification`, whose kind is there",
    "cli.emit.run.run_monitoring": "hands on text to parsers whose kinds are there",
    "cli.emit.run._facts": "hands on text to `parse_cluster_file`, whose kind is there",
    "cli.prices.refresh._rows": "reads again what `read_overrides` has read and checked",
    "cli.replay.pool.pool_facts": "hands on text to `parse_cluster_file`, whose kind is there",
    "cli.server_options.client": "a token: any text will do",
}
"""Callers of a gate that no kind of input goes through, and why none has to."""


def readers():
    """Return the functions of trimtab that call a gate, as `module.function`."""
    for file in sorted(PACKAGE.rglob("*.py")):
        module = ".".join(file.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__")
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.FunctionDef) and module not in OWN_FILES:
                called = {getattr(call.func, "attr", getattr(call.func, "id", "")) for call in calls(node)}
                if called & GATES:
                    yield f"{module}.{node.name}"


def calls(function):
    """Yield the calls of a function's own body; functions within it stand for themselves."""
    left = list(ast.iter_child_nodes(function))
    while left:
        node = left.pop()
        if not isinstance(node, ast.FunctionDef):
            left += ast.iter_child_nodes(node)
        if isinstance(node, ast.Call):
            yield node


def test_the_valid_inputs_are_read_and_every_reader_has_a_kind_of_input(tmp_path):
    run = set()

    def note(frame, _event, _argument):
        """Keep the function; returning None, so that its lines are not traced (a profile function would see calls of C too)."""
        run.add(frame.f_code)

    threading.settrace(note)  # pages are made in threads
    sys.settrace(note)
    try:
        for kind in kinds(tmp_path):
            for seed in kind.seeds:
                kind.read(seed)
    finally:
        sys.settrace(None)
        threading.settrace(None)

    names = {
        ".".join(Path(code.co_filename).relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__")
        + f".{code.co_name}"
        for code in run
        if code.co_filename.startswith(str(PACKAGE))
    }
    without = set(readers()) - names
    assert without - set(READ_ELSEWHERE) == set(), "give each a kind in benchmarks/mutation_{inputs,records,answers}"
    assert set(READ_ELSEWHERE) <= set(readers()), "no reader any more"


def test_runs_of_different_seeds_add_up_and_one_of_the_same_seed_is_refused(tmp_path):
    files = []
    for seed in (1, 2):
        files.append(tmp_path / f"{seed}.json")
        kept = asdict(
            Tally(inputs=10, read=4, refused=5, crashes=1, slowest_s=seed / 10, examples=["3: KeyError a.py:1"])
        )
        files[-1].write_text(json.dumps({"seed": seed, "wall_s": 7, "kinds": {"budgets": kept}}))

    found, seeds, wall_s = merged(files)

    tally = found["budgets"]
    assert (tally.inputs, tally.crashes, tally.slowest_s, seeds, wall_s) == (20, 2, 0.2, [1, 2], 14)
    assert tally.examples == ["seed 1, 3: KeyError a.py:1"]
    with pytest.raises(SystemExit, match="stands twice"):
        merged([files[0], files[0]])


def test_damaged_inputs_neither_crash_nor_hang_nor_swell(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.mutations", "--inputs", "150", "--least", "2"],
        capture_output=True, text=True, check=False, cwd=ROOT, env={**os.environ, "TRIMTAB_STATE": str(tmp_path)},
    )  # fmt: skip

    found = json.loads(done.stdout.splitlines()[-1])
    assert (found["crashes"], found["hangs"], found["swellings"]) == (0, 0, 0), done.stdout
    assert done.returncode == 0


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_rewrite_that_is_killed_loses_nothing_and_leaves_nothing(tmp_path):
    found = kill_loop(tmp_path, 10)

    assert found["ok"] == found["kills"], found["reasons"]
    assert found["left_over"] == 0
