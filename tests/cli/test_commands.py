"""What holds for every command: its help line, its examples, and a help page that comes at once."""

import re
import subprocess
import sys
from importlib import import_module

import click
import pytest
from click.testing import CliRunner

from trimtab.cli import COMMANDS, ExitCode, root

HEAVY = {"numpy", "pyarrow", "duckdb", "ibis", "numba", "highspy", "pydantic", "rich", "httpx", "yaml"}
SOLVING = {"highspy", "numba", "scipy"}


@pytest.mark.parametrize("name", list(COMMANDS))
def test_the_help_line_in_the_list_is_the_commands_own(name):
    module, line = COMMANDS[name]
    command = import_module(module).command

    assert command.get_short_help_str(limit=200) == line


@pytest.mark.parametrize("name", list(COMMANDS))
def test_every_command_has_examples_that_begin_with_its_name(name):
    shown = CliRunner().invoke(root, [name, "--help"])

    assert shown.exit_code == 0
    assert "Examples:" in shown.output
    assert f"trimtab {name}" in shown.output.partition("Examples:")[2]


@pytest.mark.parametrize("name", list(COMMANDS))
def test_every_option_says_what_it_does(name):
    command = import_module(COMMANDS[name][0]).command

    silent = [
        option.name
        for option in command.params
        if isinstance(option, click.Option) and not option.hidden and not option.help
    ]

    assert silent == []


def test_the_help_page_imports_nothing_heavy():
    code = (
        "import sys\n"
        "from trimtab.cli import main\n"
        "try:\n    main(['--help'])\nexcept SystemExit:\n    pass\n"
        "print(' '.join(sys.modules), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert "audit" in done.stdout
    assert not HEAVY & set(done.stderr.split())


@pytest.mark.parametrize("arguments", [["prices", "--gpu", "H100"], ["prices", "--help"]])
def test_commands_that_only_look_something_up_load_no_arrays(arguments):
    code = (
        "import sys\n"
        "from trimtab.cli import main\n"
        f"try:\n    main({arguments})\nexcept SystemExit:\n    pass\n"
        "print(' '.join(sys.modules), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout
    assert not {"numpy", "pyarrow", "duckdb", "scipy"} & set(done.stderr.split())


@pytest.mark.parametrize("module", ["trimtab.emit.explain", "trimtab.emit.sections.audit", "trimtab.cli.doctor"])
def test_what_is_kept_is_shown_without_the_planner_the_solver_and_the_compiler(module):
    code = f"import sys, {module}\nprint(' '.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert not {"trimtab.plan.planner", "trimtab.pipeline.auditing", *SOLVING} & set(done.stdout.split())


@pytest.mark.parametrize("module", ["trimtab.pipeline.auditing", "trimtab.cli.what_if.run", "trimtab.cli.verify"])
def test_numba_is_imported_where_a_loop_runs_and_not_before(module):
    code = f"import sys, {module}\nprint(' '.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert "numba" not in done.stdout.split()


def test_the_package_is_the_command_line_too():
    done = subprocess.run([sys.executable, "-m", "trimtab", "--version"], capture_output=True, text=True, check=True)

    assert done.stdout.startswith("trimtab, version ")


def test_a_misspelt_command_is_answered_with_the_nearest():
    done = CliRunner().invoke(root, ["audti"])

    assert done.exit_code == 2
    assert "Did you mean 'audit'?" in done.output


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("audti",), ExitCode.USAGE),
        (("audit", "--demand", "lots"), ExitCode.USAGE),
        (("audit", "--demo", "quad-a100", "nowhere"), ExitCode.USAGE),
        (("explain",), ExitCode.ERROR),
    ],
)
def test_every_error_is_told_in_one_form_whoever_found_it(program, tmp_path, monkeypatch, arguments, code):
    monkeypatch.chdir(tmp_path)

    ended, out, said = program(*arguments)

    assert ended == code
    assert out == ""
    assert next(line for line in said.splitlines() if line.lower().startswith("error")).startswith("error: ")


@pytest.mark.parametrize(
    ("code", "command"),
    [
        (code, command)
        for code in (ExitCode.NO, ExitCode.UNDECIDED, ExitCode.OVER_LIMIT, ExitCode.REQUEUE)
        for command in re.findall(r"`([a-z]\S*)(?: --check)?`", code.meaning)
    ],
)
def test_a_command_names_the_codes_that_it_ends_with(code, command):
    shown = CliRunner().invoke(root, [command, "--help"])

    assert re.search(rf"\b{code.value}\b", shown.output)


def test_help_is_a_word_too():
    by_word, by_option = (CliRunner().invoke(root, words) for words in (["help", "explain"], ["explain", "--help"]))
    alone = CliRunner().invoke(root, ["help"])

    assert (by_word.exit_code, by_word.output) == (0, by_option.output)
    assert alone.output == CliRunner().invoke(root, ["--help"]).output
