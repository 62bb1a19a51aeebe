"""`trimtab-runtime serve`: a batched function of one's own module behind HTTP, until told to end."""

import os
import re
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from trimtab_runtime.cli.serve import find_batcher
from trimtab_runtime.errors import InputError

SRC = Path(__file__).resolve().parents[1] / "src"
SERVICE = """
from trimtab_runtime import batch

@batch
def double(items):
    return [2 * item for item in items]

plain = len
"""


@pytest.fixture
def service(tmp_path, monkeypatch):
    (tmp_path / "doubling_service.py").write_text(SERVICE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield tmp_path
    sys.modules.pop("doubling_service", None)


def test_a_batched_function_is_served_until_sigterm(service):
    pytest.importorskip("uvicorn")
    pytest.importorskip("httptools")
    command = [
        sys.executable,
        "-m",
        "trimtab_runtime",
        "serve",
        "doubling_service:double",
        "--port",
        "0",
        "--drain",
        "1s",
    ]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(SRC), *sys.path])}
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=service, env=environment)
    try:
        address = next(found.group() for line in process.stderr if (found := re.search(r"http://[\d.]+:\d+", line)))
        with urllib.request.urlopen(f"{address}/predict", b"21", timeout=10) as answer:
            assert answer.read() == b"42"
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == -signal.SIGTERM
    finally:
        process.kill()
        process.wait()
        process.stderr.close()


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ("doubling_service", "module and the name"),
        ("no_such_module:x", "no module"),
        ("doubling_service:nothing", "nothing"),
        ("doubling_service:plain", "not a function under"),
    ],
)
def test_what_cannot_be_served_is_told(service, words, reason):
    with pytest.raises(InputError, match=reason):
        find_batcher(words)
