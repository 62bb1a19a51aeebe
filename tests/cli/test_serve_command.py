"""`trimtab serve` up to the moment at which it listens, and once in a process of its own."""

import os
import signal
import socket
import subprocess
import sys
import time

import httpx
import pytest
from tests.emit.example import example_audit

from trimtab.emit.audit_data import render_json
from trimtab.emit.audit_document import audit_document


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with one audit of a fleet that is not here."""
    (tmp_path / "reports").mkdir()
    (tmp_path / "reports" / "north.json").write_text(render_json(audit_document(example_audit())), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_an_open_address_is_refused_before_anything_listens(program, folder):
    code, _, err = program("serve", "--audits", "reports", "--host", "0.0.0.0")

    assert code == 2
    assert "--token-file" in err


def test_a_certificate_without_its_key_is_refused(program, folder):
    (folder / "cert").write_text("x", encoding="utf-8")

    code, _, err = program("serve", "--audits", "reports", "--tls-cert", "cert")

    assert code == 2
    assert "--tls-key" in err


def test_two_kinds_of_audits_at_once_are_refused(program, folder):
    code, _, err = program("serve", "--audits", "reports", "--demo")

    assert code == 2
    assert "--audits and --demo" in err


def test_a_folder_that_the_system_refuses_to_look_at_ends_in_one_line(program, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".trimtab").symlink_to("a" * 300)

    code, _, err = program("serve")

    assert code == 1
    assert "File name too long" in err
    assert "Traceback" not in err


def test_a_folder_of_documents_is_served_until_it_is_interrupted(folder):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    run = "from trimtab.cli import main; main()"
    command = [sys.executable, "-c", run, "serve", "--audits", "reports", "--port", str(port)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=os.environ) as server:
        try:
            answer = _answer(f"http://127.0.0.1:{port}/api/audits", server)
            plan = httpx.get(f"http://127.0.0.1:{port}/audits/north/plan", trust_env=False)
        finally:
            server.send_signal(signal.SIGINT)
            said = server.communicate(timeout=30)[1]

    assert [row["name"] for row in answer.json()["audits"]] == ["north"]
    assert plan.status_code == 200
    assert f"http://127.0.0.1:{port}/" in said
    assert "Traceback" not in said


def _answer(address, server, timeout_s=60.0):
    end = time.monotonic() + timeout_s
    while time.monotonic() < end and server.poll() is None:
        try:
            return httpx.get(address, trust_env=False)
        except httpx.ConnectError:
            time.sleep(0.1)
    raise AssertionError("the server never answered")
