"""Lines for people on the screen: the one way by which words of others get there, harmless and without secrets."""

from __future__ import annotations

import click

from trimtab.safe_text import for_terminal, without_secrets


def shown(text: str) -> str:
    """Return a text as it may be shown; colours of ours stay."""
    return for_terminal(without_secrets(text), colours=True)


def say(text: str, *, err: bool = False) -> None:
    """Show a line, on stderr where it is not the answer."""
    click.echo(shown(text), err=err)
