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

from trimtab.cli.serve.run import cluster_source, named_folders, plans_again
from trimtab.emit.audit_document import audit_document
from trimtab.emit.document import render_json
from trimtab.errors import UsageError


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


def test_folders_of_several_clusters_are_told_apart_by_their_names(tmp_path):
    for name in ("eu", "us"):
        (tmp_path / name).mkdir()

    found = named_folders([f"prod={tmp_path / 'eu'}", str(tmp_path / "us")])

    assert found == {"prod": tmp_path / "eu", "us": tmp_path / "us"}


@pytest.mark.parametrize("texts", [["a={0}", "a={0}"], ["a/b={0}"], ["{0}/none"], ["é={0}"], ["={0}", "={0}"]])
def test_names_that_no_address_can_have_are_refused(tmp_path, texts):
    with pytest.raises(UsageError):
        named_folders([text.format(tmp_path) for text in texts])


def test_an_audit_of_several_clusters_is_named_by_its_cluster(folder):
    for name in ("eu", "us"):
        (folder / name).mkdir()
        document = audit_document(example_audit())
        (folder / name / "last.json").write_text(render_json(document), encoding="utf-8")

    source = cluster_source(["eu=eu", "us=us"], plans_again((), None, None))

    assert [entry.name for entry in source.entries()] == ["eu.last", "us.last"]
    assert source.document("us.last").fleet == audit_document(example_audit()).fleet
    assert source.running() == []
