"""The runtime lives inside other people's programs: it loads fast and needs the standard library only."""

import json
import os
import subprocess
import sys
from pathlib import Path

SRC = Path(__file__).resolve().parents[1] / "src"

PROBE = """
import json, sys, time
began = time.perf_counter()
import trimtab_runtime
loaded_s = time.perf_counter() - began
from trimtab_runtime import batch

@batch
def double(items):
    return [2 * item for item in items]

answer = double.call(21)
print(json.dumps({"answer": answer, "loaded_s": loaded_s, "modules": sorted(sys.modules)}))
"""


def bare_python() -> dict:
    """Run the probe without site-packages, as after `pip install --no-deps` in a new environment."""
    environment = {**os.environ, "PYTHONPATH": str(SRC)}
    done = subprocess.run(
        [sys.executable, "-S", "-c", PROBE], capture_output=True, text=True, env=environment, timeout=60, check=True
    )
    return json.loads(done.stdout)


def test_the_batcher_runs_on_the_standard_library_alone():
    probe = bare_python()

    foreign = {name.partition(".")[0] for name in probe["modules"]} - set(sys.stdlib_module_names) - {"trimtab"}
    assert probe["answer"] == 42
    assert foreign <= {"__main__"}


def test_importing_the_runtime_takes_at_most_50_ms():
    fastest_s = min(bare_python()["loaded_s"] for _ in range(3))

    assert fastest_s <= 0.050
