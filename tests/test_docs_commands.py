"""Commands that pages tell people to type: all are understood, those that need a bundle and a kept audit alone are run.

Of each of the others it is said what it needs besides, and which tests run such a command with that.
"""

import re
import shlex
import shutil
from pathlib import Path

import click
import pytest

from trimtab.cli import main, root

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "docs/tutorial.md", *sorted((ROOT / "docs/how-to").glob("*.md"))]
BUNDLES = ROOT / "tests" / "data" / "written_by_0_1_0"
BLOCK = re.compile(r"^ *```(\w*)[^\n]*\n(.*?)^ *```", re.DOTALL | re.MULTILINE)
ENDS = {"|", "||", "&&", ";", ">", ">>", "<", "2>", "&"}
INSTEAD = {"prod/chat-api": "prod/api", "search": "unassigned", "a4": "a3"}
"""Workload, team and action that the example's fleet has for those of the pages."""
ABOVE = {"--fail-over": 10}
"""Options after which a command that found something ends with a code of its own."""
NEEDS = {
    "serve": ("runs until it is stopped", "tests/cli/test_serve_command.py"),
    "collect": ("a server, a cluster, a cloud or a recorded trace", "tests/cli/test_collect_command.py"),
    "quotas": ("a cloud's account", "tests/cli/test_quotas_command.py"),
    "profile": ("a GPU, or a profile taken on one", "tests/cli/test_profile.py"),
    "spot-run": ("a program to run", "packages/runtime/tests"),
    "rollup": ("samples, some of them in a database", "tests/sources"),
    "compare": ("measurements of two versions", "tests/cli/test_compare_command.py"),
    "quality": ("answers of two models", "tests/cli/test_quality_command.py"),
    "review": ("somebody's manifests", "tests/review"),
    "-p": ("a Prometheus server", "tests/cli/test_doctor_command.py"),
    "--prometheus": ("a Prometheus server", "tests/cli/test_doctor_command.py"),
    "--in-cluster": ("an image", "tests/emit/test_in_a_cluster.py"),
    "--cluster": ("a description of the cluster", "tests/emit/test_cluster_file.py"),
    "--against": ("what a cluster runs", "tests/cli/test_emit_check.py"),
    "--post": ("an address in a chat", "tests/cli/test_digest_command.py"),
    "--demo": ("half a minute", "tests/cli/test_audit_command.py"),
    "--engine": ("a scheduler of workers", "tests/cli/test_workers.py"),
    "--trace": ("recorded requests", "tests/cli/test_fit_more.py"),
    "--demo-trace": ("recorded requests", "tests/cli/test_replay_command.py"),
    "--availability": ("probes of spot capacity", "tests/cli/test_replay_command.py"),
    "--pool": ("services that may take turns", "tests/cli/test_replay_pool.py"),
    "--tokens": ("a service that counts tokens", "tests/cli/test_allocate_command.py"),
    "--focus": ("a bill", "tests/cli/test_allocate_command.py"),
    "--budgets": ("budgets", "tests/cli/test_allocate_command.py"),
    "--offer": ("an offer for a node that is in use", "tests/cli/test_commit_command.py"),
    "--owned": ("commitments that are held", "tests/cli/test_commit_command.py"),
    "--prices": ("one's own rates", "tests/cli/test_settings.py"),
    "--hourly": ("prices or carbon by the hour", "tests/cli/test_audit_command.py"),
    "--quotas": ("quotas of a cloud", "tests/cli/test_doctor_command.py"),
    "--audit": ("three audits", "tests/cli/test_history.py"),
    "--verify": ("a verification of the third audit", "tests/cli/test_emit_monitoring.py"),
    "--target": ("a service with a latency limit", "tests/cli/test_what_if_command.py"),
    "refresh": ("the price lists of clouds", "tests/cli/test_prices_refresh.py"),
}
"""Commands, options and words -> what they need that the example's folder does not have, and the tests that have it."""


def commands_of(page):
    """Return the arguments of every `trimtab` command in a page's blocks."""
    blocks = [text for language, text in BLOCK.findall(page.read_text()) if language in ("", "console", "sh", "bash")]
    lines = "\n".join(blocks).replace("\\\n", " ").splitlines()
    return [found for line in lines for found in split(line)]


def split(line):
    """Return the `trimtab` commands of a line of shell: several where they are joined."""
    text = line.strip().removeprefix("$ ")
    if "trimtab " not in text or text.startswith("#"):
        return []
    lexer = shlex.shlex(text, posix=True, punctuation_chars="|&;<>")
    lexer.whitespace_split, lexer.commenters = True, "#"
    words, found = list(lexer), []
    for at, word in enumerate(words):
        if Path(word).name == "trimtab" and (at == 0 or words[at - 1] in ENDS):
            end = next((n for n in range(at, len(words)) if words[n] in ENDS), len(words))
            found.append(tuple(words[at + 1 : end]))
    return found


def understood(arguments, command=root, name="trimtab"):
    """Hold the words against a command's options and arguments, as click parses them, without opening what they name."""
    context = click.Context(command, info_name=name, **command.context_settings)
    given, rest, _ = command.make_parser(context).parse_args(list(arguments))
    if isinstance(command, click.Group) and rest:
        below = command.get_command(context, rest[0])
        assert below is not None, f"no command {rest[0]} of {name}"
        understood(rest[1:], below, f"{name} {rest[0]}")
        return
    assert not rest or getattr(command, "allow_extra_args", False) or not command.params, f"too many words: {rest}"
    for option in command.params:
        value = given.get(option.name)
        if isinstance(value, str) and isinstance(option.type, click.Choice | click.IntRange | click.FloatRange):
            option.type.convert(value, option, context)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_command_of_a_page_is_understood(page):
    for arguments in commands_of(page):
        try:
            understood(arguments)
        except click.UsageError as error:
            pytest.fail(f"{page.name}: trimtab {shlex.join(arguments)}: {error.format_message()}")


def needs(arguments):
    """Return what a command needs that the example's folder does not have, and the tests that have it; None if nothing."""
    return next((NEEDS[key] for word in arguments if (key := word.partition("=")[0]) in NEEDS), None)


def every_one():
    """Return the commands to run, once each: the audit first, since others ask for what it kept."""
    found = dict.fromkeys(
        tuple(INSTEAD.get(word, word) for word in arguments)
        for page in PAGES
        for arguments in commands_of(page)
        if arguments and needs(arguments) is None
    )
    return sorted(
        found, key=lambda arguments: (arguments[0] != "audit", arguments[:2] != ("emit", "--out"), len(arguments))
    )


def test_what_is_not_run_is_run_elsewhere():
    used = {key for page in PAGES for words in commands_of(page) for word in words if (key := word.partition("=")[0])}

    assert [key for key, (_, place) in NEEDS.items() if not (ROOT / place).exists()] == []
    assert [key for key in NEEDS if key not in used] == []


@pytest.fixture(scope="module")
def example(tmp_path_factory):
    """A folder like that of somebody who follows the pages: bundles of earlier and later weeks."""
    folder = tmp_path_factory.mktemp("example")
    shutil.copytree(BUNDLES / "bundle", folder / "fleet")
    for name in ("fleet-in-march", "fleet-this-quarter", "later"):
        shutil.copytree(BUNDLES / "later", folder / name)
    return folder


def test_commands_that_need_files_alone_are_run(example, monkeypatch, capsys):
    monkeypatch.chdir(example)
    monkeypatch.delenv("TRIMTAB_STATE", raising=False)
    monkeypatch.setenv("TRIMTAB_TRUST_STATE", "1")
    failed = []
    asked = every_one()
    for arguments in asked:
        with pytest.raises(SystemExit) as ended:
            main(list(arguments))
        said = capsys.readouterr()
        allowed = {0, None} | {code for option, code in ABOVE.items() if option in arguments}
        if ended.value.code not in allowed:
            failed.append((shlex.join(arguments), ended.value.code, said.err[-300:]))

    assert failed == []
    assert len(asked) >= 40
