import pytest

from trimtab.cli import COMMANDS, main


def run(*arguments):
    with pytest.raises(SystemExit) as exit_:
        main(["collect", *arguments])
    return exit_.value.code


def test_its_help_has_the_line_of_the_list_and_examples(capsys):
    assert run("--help") == 0

    out = capsys.readouterr().out
    assert COMMANDS["collect"][1] in " ".join(out.split())
    assert "trimtab collect --prometheus http://localhost:9090" in out


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["-p", "localhost"], "write http://HOST:9090"),
        (["-p", "http://x", "--from", "soon"], "is no moment"),
        (["-p", "http://x", "-H", "Key"], "write NAME:VALUE"),
    ],
)
def test_options_that_make_no_sense_exit_with_2(capsys, arguments, part):
    assert run(*arguments) == 2
    assert part in capsys.readouterr().err


def test_an_unreachable_server_exits_with_1_and_says_what_to_do(capsys):
    assert run("-p", "http://127.0.0.1:9", "--from", "1d") == 1
    assert "cannot be reached" in capsys.readouterr().err
