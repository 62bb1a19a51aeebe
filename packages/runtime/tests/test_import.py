"""The runtime lives inside other people's programs: it loads little, and needs the standard library only."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SRC = Path(__file__).resolve().parents[1] / "src"

USED = """
import json, sys
from trimtab_runtime import batch

@batch
def double(items):
    return [2 * item for item in items]

answer = double.call(21)
print(json.dumps({"answer": answer, "modules": sorted(sys.modules)}))
"""
LOADED = """
import json, sys
before = set(sys.modules)
import {name}
print(json.dumps(sorted(set(sys.modules) - before)))
"""
NEVER = {
    "ssl",
    "asyncio",
    "http.client",
    "email",
    "multiprocessing",
    "uuid",
    "argparse",
    "ctypes",
    "json",
    "hashlib",
    "random",
    "torch",
    "numpy",
}
"""What takes long to import, and is loaded by the parts that use it alone."""
PARTS = {
    "trimtab_runtime": (3, set()),
    "trimtab_runtime.batcher": (25, set()),
    "trimtab_runtime.checkpoint.checkpointer": (43, set()),
    "trimtab_runtime.notice.watcher": (12, set()),
    "trimtab_runtime.spot_run": (18, {"hashlib", "random"}),
    "trimtab_runtime.profile": (20, {"ctypes"}),
    "trimtab_runtime.cli": (4, set()),
}
"""Part -> the most modules of ours that it may load, and which of the slow ones it needs."""


def bare_python(program):
    """Run a program without site-packages and return the JSON that it prints."""
    environment = {**os.environ, "PYTHONPATH": str(SRC)}
    done = subprocess.run(
        [sys.executable, "-S", "-c", program], capture_output=True, text=True, env=environment, timeout=60, check=True
    )
    return json.loads(done.stdout)


def test_the_batcher_runs_on_the_standard_library_alone():
    used = bare_python(USED)

    foreign = {name.partition(".")[0] for name in used["modules"]} - set(sys.stdlib_module_names)
    assert used["answer"] == 42
    assert foreign <= {"__main__", "trimtab_runtime"}


@pytest.mark.parametrize("part", PARTS)
def test_importing_a_part_loads_few_modules_and_none_that_is_slow_for_nothing(part):
    most, needed = PARTS[part]

    loaded = set(bare_python(LOADED.format(name=part)))

    assert len([name for name in loaded if name.startswith("trimtab_runtime")]) <= most
    assert loaded & NEVER <= needed
    assert {name.partition(".")[0] for name in loaded} <= {*sys.stdlib_module_names, "trimtab_runtime"}
