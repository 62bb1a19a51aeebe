import json

import pytest
import yaml
from click.testing import CliRunner
from tests.emit.cluster_example import example_facts
from tests.emit.example import example_audit

from trimtab.cli import root
from trimtab.cli.kept_audits import keep
from trimtab.emit.audit_document import audit_document
from trimtab.emit.kept_plan import KeptPlan
from trimtab.errors import InputError, UnknownName


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A working folder in which an audit was made."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TRIMTAB_STATE", raising=False)
    audit = example_audit()
    keep(audit_document(audit), KeptPlan(fleet="demo", plan=audit.plan, facts=example_facts()))
    return tmp_path


def run(*arguments):
    return CliRunner().invoke(root, ["emit", *arguments], catch_exceptions=True)


def test_the_files_of_the_last_audit_are_written_and_listed(folder):
    shown = run()

    assert shown.exit_code == 0
    assert (folder / "manifests/APPLY.md").is_file()
    written = sorted(str(path.relative_to(folder / "manifests")) for path in folder.glob("manifests/**/[!.]*.*"))
    assert all(path in shown.stdout for path in written)
    assert max(len(line) for line in shown.stdout.splitlines()) <= 85


def test_what_no_file_carries_is_said_with_its_reason(folder):
    shown = run()

    assert "left to you: a3, a5, research/nlp-exp: the nodes that it leaves are not known by name" in shown.stderr


def test_what_left_the_plan_leaves_the_folder_and_nothing_else_does(folder):
    run()
    (folder / "manifests/notes.md").write_text("mine", encoding="utf-8")

    run("--action", "a1")

    left = {str(path.relative_to(folder / "manifests")) for path in folder.glob("manifests/**/*.*") if path.is_file()}
    assert left == {
        "APPLY.md",
        "decisions/README.md",
        "decisions/idle-release-unheld-nodes.md",
        "orders/give-back-unheld-nodes.md",
        "notes.md",
        ".trimtab-files",
    }


def test_a_file_changed_by_hand_or_of_somebody_else_is_never_lost(folder):
    run()
    changed = folder / "manifests/nodes/p3-2xlarge-us-east-1-spot-runs.nodepool.yaml"
    changed.write_text("mine", encoding="utf-8")
    alien = folder / "other/APPLY.md"
    alien.parent.mkdir()
    alien.write_text("theirs", encoding="utf-8")

    again, elsewhere, stale = run(), run("--out", "other"), run("--action", "a1")

    assert "changed by hand" in str(again.exception)
    assert "changed by hand" in str(stale.exception), "it would be taken away"
    assert "APPLY.md (not written by emit)" in str(elsewhere.exception)
    assert (changed.read_text(), alien.read_text()) == ("mine", "theirs")
    assert [path.name for path in alien.parent.iterdir()] == ["APPLY.md"], "nothing else was written beside it"
    assert run("--force").exit_code == 0
    assert "NodePool" in changed.read_text()


def test_a_damaged_listing_costs_nothing(folder):
    run()
    listing = folder / "manifests/.trimtab-files"
    listing.write_bytes(listing.read_bytes() + b"0  a\0b\n" + b"0  ../../etc/passwd\n")

    again = run()

    assert again.exit_code == 0, again.exception
    assert b"\0" not in listing.read_bytes()


def test_a_run_that_is_cut_off_leaves_the_folder_as_it_was(folder, monkeypatch):
    run("--action", "a1")
    before = {path: path.read_bytes() for path in folder.glob("manifests/**/*") if path.is_file()}
    written = []

    def cut_off(path, *arguments, **options):
        written.append(path)
        if len(written) > 3:
            raise OSError("no space left")
        return path.write_bytes(arguments[0].encode())

    monkeypatch.setattr("pathlib.Path.write_text", cut_off)
    shown = run()

    assert "no space left" in str(shown.exception)
    assert {path: path.read_bytes() for path in folder.glob("manifests/**/*") if path.is_file()} == before
    assert not list(folder.glob(".manifests.*"))


def test_nothing_is_written_through_a_link_out_of_the_folder(folder, tmp_path_factory):
    outside = tmp_path_factory.mktemp("outside")
    (folder / "manifests").mkdir()
    (folder / "manifests/nodes").symlink_to(outside)

    shown = run()

    assert "leads out of the folder" in str(shown.exception)
    assert not list(outside.iterdir())


def test_a_dry_run_writes_nothing(folder):
    shown = run("--dry-run", "-o", "json")

    assert not (folder / "manifests").exists()
    assert "APPLY.md" in {row["path"] for row in json.loads(shown.stdout)["rows"]}


def test_one_action_alone_goes_to_a_folder_of_its_own(folder):
    run("--action", "a1", "--out", "only")

    assert {path.name for path in folder.glob("only/**/[!.]*.*")} == {
        "APPLY.md",
        "README.md",
        "idle-release-unheld-nodes.md",
        "give-back-unheld-nodes.md",
    }


def test_a_cluster_file_and_an_autoscaler_change_what_is_written(folder):
    (folder / "cluster.yaml").write_text("quota_nodes: {p4d.24xlarge: 2}\n", encoding="utf-8")

    run("--cluster", "cluster.yaml", "--autoscaler", "hpa")

    assert (folder / "manifests/scaling/prod/chat-api.hpa.yaml").is_file()
    pool = next(folder.glob("manifests/nodes/p4d*services*.yaml")).read_text(encoding="utf-8")
    assert yaml.safe_load(pool)["spec"]["limits"] == {"nvidia.com/gpu": "16"}


def test_an_unknown_action_is_answered_with_near_matches(folder):
    shown = run("--action", "a33")

    assert isinstance(shown.exception, UnknownName)
    assert "a3" in str(shown.exception)


def test_without_an_audit_the_cure_is_said(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TRIMTAB_STATE", raising=False)

    shown = run()

    assert isinstance(shown.exception, InputError)
    assert "trimtab audit" in str(shown.exception)
