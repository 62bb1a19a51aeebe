"""Options declared as fields of dataclasses: what a command gets, and that each is written once."""

import ast
from dataclasses import dataclass
from datetime import date
from pathlib import Path

import click
import pytest
from click.shell_completion import ShellComplete
from click.testing import CliRunner
from tests.emit.example import example_audit
from tests.plan.test_verify import kept

from trimtab.cli import options as declared, root
from trimtab.cli.kept_audits import keep
from trimtab.cli.options import (
    AnswerOptions,
    answer_options,
    argument,
    at_option,
    group,
    option,
    options_from,
    parsed,
    setting_flags,
)
from trimtab.cli.output import Format
from trimtab.cli.settings import defaults
from trimtab.emit.audit_document import audit_document
from trimtab.errors import UnknownName

CLI = Path(declared.__file__).parent


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    server: str = option("-s", "--server", envvar="TEST_SERVER", default="here", help="Which server.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    name: str | None = argument(required=False)
    shared: Shared = group(Shared)
    loud: bool = option("--loud", help="A switch.")
    tags: tuple[str, ...] = option("--tag", help="Any number of these.")
    pair: tuple[float, float] | None = option("--pair", type=(float, float), help="Two at once.")
    page: bool | None = option("--page/--no-page", default=None, help="Yes, no, or neither.")
    share: float | None = option("--share", setting="limits.spot_max_frac", type=float, help="A share.")
    clouds: tuple[str, ...] = option("--cloud", setting="limits.providers", help="Clouds.")
    at: date | None = at_option()
    answer: AnswerOptions = answer_options(Format.TABLE, Format.JSON)


def asked(*arguments: str, env: dict[str, str] | None = None) -> Asked:
    seen: list[Asked] = []

    @click.command()
    @options_from(Asked)
    def command(options: Asked) -> None:
        """Keep what was asked."""
        seen.append(options)

    done = CliRunner().invoke(command, arguments, env=env, standalone_mode=False)
    if done.exception is not None:
        raise done.exception
    return seen[0]


def test_a_command_gets_what_was_given_as_one_value():
    found = asked("x", "--loud", "--tag", "a", "--tag", "b", "--pair", "1", "2", "--at", "2026-07-20", "-o", "json")

    assert (found.name, found.loud, found.tags, found.pair) == ("x", True, ("a", "b"), (1.0, 2.0))
    assert found.at == date(2026, 7, 20)
    assert found.answer.output_format is Format.JSON


def test_what_was_not_given_has_its_default():
    found = asked()

    assert (found.name, found.loud, found.tags, found.pair, found.page) == (None, False, (), None, None)
    assert found.shared == Shared(server="here")
    assert found.answer == AnswerOptions(output_format=Format.TABLE, out=None, fields=())


def test_a_shared_option_is_read_from_its_environment_variable():
    assert asked(env={"TEST_SERVER": "there"}).shared.server == "there"
    assert asked("-s", "elsewhere", env={"TEST_SERVER": "there"}).shared.server == "elsewhere"


@pytest.mark.parametrize(("said", "page"), [("--page", True), ("--no-page", False)])
def test_a_switch_with_two_names_says_yes_or_no(said, page):
    assert asked(said).page is page


def test_an_option_that_stands_for_a_setting_is_that_setting():
    given = asked("--share", "0.0", "--cloud", "gcp", "--cloud", "azure")

    assert setting_flags(given) == ("limits.spot_max_frac=0.0", "limits.providers=gcp, azure")
    assert setting_flags(asked()) == ()


def test_a_day_that_is_none_is_refused_in_words():
    with pytest.raises(click.BadParameter, match="'soon' is not a date; write 2026-07-20"):
        asked("--at", "soon")


def test_a_command_replaces_an_option_of_a_group_by_its_own():
    @dataclass(frozen=True, slots=True, kw_only=True)
    class Own:
        shared: Shared = group(Shared, server=option("--host", default="elsewhere", help="Which host."))

    @click.command()
    @options_from(Own)
    def command(options: Own) -> None:
        click.echo(options.shared.server)

    assert CliRunner().invoke(command, ["--host", "there"]).output == "there\n"
    assert CliRunner().invoke(command, ["--server", "there"]).exit_code == 2


def test_the_settings_that_options_stand_for_exist():
    text = "".join(path.read_text(encoding="utf-8") for path in CLI.rglob("*.py"))
    keys = {part.partition('"')[0] for part in text.split('setting="')[1:]}

    assert keys - {""} <= set(defaults())
    assert {"limits.quotas", "limits.providers", "limits.spot_max_frac"} <= keys


def test_no_command_writes_its_options_as_decorators():
    written = [
        f"{path.relative_to(CLI)}:{node.lineno}"
        for path in CLI.rglob("*.py")
        if path.name != "options.py"
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute) and ast.unparse(node) == "click.option"
    ]

    assert written == []


def test_options_are_parsed_for_callers_that_are_no_command(monkeypatch):
    monkeypatch.delenv("TEST_SERVER", raising=False)

    found = parsed(Asked, ["--tag=a", "--tag=b", "--", "--loud"])

    assert (found.tags, found.name, found.loud, found.shared.server) == (("a", "b"), "--loud", False, "here")
    with pytest.raises(click.UsageError, match="No such option"):
        parsed(Asked, ["--unheard-of"])


@pytest.mark.parametrize(
    ("words", "begun", "expected"),
    [
        (["audit", "--demo"], "two", "two-hundred-k"),
        (["prices", "--gpu"], "h100-sxm", "H100-SXM5-80GB"),
        (["explain"], "a", "a1"),
    ],
)
def test_a_shell_completes_values(tmp_path, monkeypatch, words, begun, expected):
    monkeypatch.setenv("TRIMTAB_STATE", str(tmp_path / "state"))
    keep(audit_document(example_audit()), kept())

    completed = ShellComplete(root, {}, "trimtab", "_TRIMTAB_COMPLETE").get_completions(words, begun)

    assert expected in [item.value for item in completed]


def test_without_an_audit_nothing_is_completed_and_nothing_fails(tmp_path, monkeypatch):
    monkeypatch.setenv("TRIMTAB_STATE", str(tmp_path))

    assert ShellComplete(root, {}, "trimtab", "_TRIMTAB_COMPLETE").get_completions(["explain"], "a") == []


def test_an_unknown_name_is_answered_with_those_near_or_with_all_where_they_are_few():
    assert str(UnknownName("fleet", "quad", ["quad-a100", "moderation"])).endswith("; did you mean quad-a100?")
    assert str(UnknownName("fleet", "nope", ["quad-a100", "moderation"])).endswith("; known: quad-a100, moderation")
    assert str(UnknownName("fleet", "nope", [f"fleet-{n}" for n in range(40)])) == "unknown fleet 'nope'"
