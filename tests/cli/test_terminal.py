"""What a real terminal changes: colour, unless NO_COLOR says no."""

import os
import pty
import subprocess
import sys

import pytest

CODE = "from trimtab.cli.output import colour_wanted; print('colour' if colour_wanted() else 'plain')"


def said_on_a_terminal(environment):
    leader, follower = pty.openpty()
    with subprocess.Popen([sys.executable, "-c", CODE], stdout=follower, env={**os.environ, **environment}) as program:
        os.close(follower)
        text = os.read(leader, 1000).decode()
        program.wait(timeout=30)
    os.close(leader)
    return text.strip()


@pytest.mark.parametrize(("environment", "said"), [({"NO_COLOR": ""}, "colour"), ({"NO_COLOR": "1"}, "plain")])
def test_a_terminal_has_colour_unless_no_color_is_set(environment, said):
    assert said_on_a_terminal(environment) == said


def test_a_pipe_has_no_colour():
    environment = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True, env=environment)

    assert done.stdout.strip() == "plain"
