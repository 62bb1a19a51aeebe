"""The decorator keeps the types of what it decorates."""

import subprocess
import sys
from pathlib import Path

import pytest

USAGE = Path(__file__).with_name("typed_usage.py")
ROOT = USAGE.parents[4]


@pytest.mark.parametrize(
    ("wrong", "message"), [("", ""), ("lengths.call(3)\n", 'incompatible type "int"; expected "str"')]
)
def test_a_type_checker_sees_items_and_results(tmp_path, wrong, message):
    program = tmp_path / "usage.py"
    program.write_text(f"{USAGE.read_text()}\n\n{wrong}")

    line = [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent", str(program)]
    done = subprocess.run(line, capture_output=True, text=True, cwd=ROOT, timeout=300, check=False)

    assert (done.returncode == 0) == (not wrong), done.stdout
    assert message in done.stdout
