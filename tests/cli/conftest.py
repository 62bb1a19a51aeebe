"""The program as a shell sees it."""

import pytest

from trimtab.cli import main


@pytest.fixture
def program(capsys):
    """Run the program; return its exit code, stdout and stderr."""

    def call(*arguments):
        with pytest.raises(SystemExit) as ended:
            main(list(arguments))
        said = capsys.readouterr()
        return ended.value.code, said.out, said.err

    return call
