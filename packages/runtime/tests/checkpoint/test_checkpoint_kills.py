"""Random kills during back-to-back saves, the short form of `python -m benchmarks.checkpoint kill`."""

import json
import subprocess
import sys


def test_no_random_kill_costs_a_promised_step(tmp_path):
    command = [sys.executable, "-m", "benchmarks.checkpoint", "kill", "--kills", "40", "--folder", str(tmp_path)]

    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)

    result = json.loads(done.stdout.splitlines()[-1])
    assert result["ok"] == result["kills"] == 40, result
