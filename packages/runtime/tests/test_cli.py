"""`trimtab-runtime`: its commands, their exit codes and messages."""

import json
import sys

import pytest
from packages.runtime.tests.checkpoint.small_job import save_steps

from trimtab_runtime.cli import COMMANDS, main


@pytest.fixture
def run(capsys):
    """Run the command line; return exit code, stdout and stderr."""

    def go(*arguments):
        with pytest.raises(SystemExit) as ended:
            main([str(one) for one in arguments])
        out, err = capsys.readouterr()
        return ended.value.code, out, err

    return go


def test_without_a_command_it_lists_them(run):
    code, out, _ = run()

    assert code == 0
    assert all(name in out and line in out for name, (_, line) in COMMANDS.items())


def test_a_misspelt_command_is_told_with_the_near_one(run):
    code, _, err = run("spotrun")

    assert code == 1
    assert "did you mean spot-run?" in err


@pytest.mark.parametrize("name", list(COMMANDS))
def test_every_command_has_examples_that_begin_with_its_name(run, name):
    code, out, _ = run(name, "--help")

    assert code == 0
    assert f"trimtab-runtime {name}" in out.partition("Examples:")[2]


@pytest.mark.parametrize("words", [("exit 7",), ("exit 7", "--verbose")])
def test_options_after_the_program_are_the_programs(run, words):
    assert run("spot-run", "--notice", "none", "--", "sh", "-c", *words)[0] == 7
    assert run("spot-run", "--notice", "none", "sh", "-c", *words)[0] == 7


@pytest.mark.parametrize(
    "arguments",
    [("spot-run",), ("spot-run", "--grace", "soon", "true"), ("spot-run", "--exit-code", "0", "true"), ("profile",),
     ("profile", "--watch", "--", "true"), ("spot-run", "--nothing", "true"), ("profile", "--watch", "--every", "0ms")],
)  # fmt: skip
def test_options_that_mean_nothing_are_usage_errors(run, arguments):
    code, out, err = run(*arguments)

    assert (code, out) == (2, "")
    assert "Traceback" not in err


def test_checkpoints_are_listed_verified_and_the_damaged_one_named(run, tmp_path):
    save_steps(tmp_path, range(3))
    listed, verified = run("checkpoints", tmp_path), run("checkpoints", tmp_path, "--verify")
    newest = max(tmp_path.glob("step-*"), key=lambda folder: folder.name.rpartition(".")[2])
    data = newest / "rank-00000.bin"
    data.write_bytes(b"\xff" + data.read_bytes()[1:])

    code, out, _ = run("checkpoints", tmp_path, "--verify")

    assert listed[0] == verified[0] == 0
    assert verified[1].count("verified") == listed[1].count("step ") > 1
    assert code == 1
    assert newest.name in out.splitlines()[0]
    assert "BAD" in out.splitlines()[0]
    assert data.exists()


def test_a_folder_that_is_not_there_is_an_error_and_an_empty_one_is_not(run, tmp_path):
    assert run("checkpoints", tmp_path / "none")[0] == 1
    assert run("checkpoints", tmp_path)[:2] == (0, f"{tmp_path}: no committed checkpoint\n")


def test_a_profile_is_written_and_the_programs_code_passed_on(run, nvml_script, tmp_path):
    nvml_script("gpus 1")
    out = tmp_path / "profile.json"

    code, said, _ = run(
        "profile", "--every", "10ms", "--tokens", "100", "--out", out, "--", sys.executable, "-c", "exit(3)"
    )

    document = json.loads(out.read_text())
    assert code == 3
    assert str(out) in said
    assert document["kind"] == "trimtab profile"
    assert document["tok_s"] > 0
