"""Commands that pages tell people to type: all are understood, and those that need a bundle and a kept audit alone are run."""

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
RUN = {"explain", "emit", "doctor", "allocate", "digest", "verify", "what-if", "prices", "audit", "diff"}
"""Commands that need nothing but files."""
ELSEWHERE = {"--context", "--prometheus", "-p", "--post", "--demo", "--fail-over", "--cloud", "--at"}
"""Options that need a cluster, a server or minutes, prices of another day, or that end with a code of their own."""
OTHERS = {"--audit", "--action", "refresh", "--cluster", "--monitoring", "--tokens", "search", "a3", "a4"}
"""What the example does not have: tokens, teams, earlier audits, more than two actions."""
PLACES = {"fleet", "fleet-in-march", "fleet-this-quarter", "later", "manifests"}
"""What the examples take for granted: bundles, and the folder that `trimtab emit` wrote."""


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


def runs_here(arguments):
    """Return whether a command needs only what the example's folder holds."""
    if arguments[0] not in RUN or ELSEWHERE & {word.partition("=")[0] for word in arguments} or "..." in str(arguments):
        return False
    file = re.compile(r"/|\.(?:csv|json|ya?ml|html|md|parquet)$")
    named = {word.strip("/") for word in arguments[1:] if file.search(word) or word in PLACES}
    out = {arguments[at + 1].strip("/") for at, word in enumerate(arguments[:-1]) if word == "--out"}
    return named - out <= PLACES and not OTHERS & set(arguments)


def every_one():
    """Return the commands to run, once each: the audit first, since others ask for what it kept."""
    found = dict.fromkeys(arguments for page in PAGES for arguments in commands_of(page) if runs_here(arguments))
    return sorted(
        found, key=lambda arguments: (arguments[0] != "audit", arguments[:2] != ("emit", "--out"), len(arguments))
    )


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
        if ended.value.code not in (0, None):
            failed.append((shlex.join(arguments), ended.value.code, said.err[-300:]))

    assert failed == []
    assert len(asked) >= 20
