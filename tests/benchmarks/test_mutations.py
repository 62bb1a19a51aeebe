"""Every kind of input: valid ones are read, damaged ones are read or refused by name, and a killed rewrite loses nothing."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from benchmarks.bundle_kills import kill_loop
from benchmarks.mutation_inputs import kinds

ROOT = Path(__file__).parents[2]


def test_the_valid_inputs_are_read(tmp_path):
    for kind in kinds(tmp_path):
        for seed in kind.seeds:
            kind.read(seed)


def test_damaged_inputs_neither_crash_nor_hang_nor_swell(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.mutations", "--inputs", "1000", "--least", "10"],
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
