"""What the options of several commands mean: a program after `--`, lengths of time, whole numbers within limits."""

from __future__ import annotations

from argparse import REMAINDER, SUPPRESS, ArgumentParser, ArgumentTypeError, RawDescriptionHelpFormatter
from collections.abc import Callable, Sequence

from trimtab_runtime.errors import UsageError
from trimtab_runtime.units import MS_PER_S, parse_span


def command_parser(prog: str, description: str, examples: str) -> ArgumentParser:
    """Return a parser for options and then a program with its own, from the first word that is not an option on."""
    made = ArgumentParser(
        prog=prog,
        usage=f"{prog} [OPTIONS] -- PROGRAM [ARGUMENTS]",
        description=description,
        epilog=examples.format(prog=prog),
        formatter_class=RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    made.add_argument("program", nargs=REMAINDER, help=SUPPRESS)
    return made


def program_of(words: Sequence[str], *, required: bool = True) -> tuple[str, ...]:
    """Return the program and its arguments without the `--` in front; raises `UsageError` where one is needed."""
    program = tuple(words[1:] if words[:1] == ["--"] else words)
    if required and not program:
        raise UsageError("give the program to run, after --")
    return program


def span_s(text: str, option: str) -> float:
    """Return a length of time such as 300ms, 20s or 2m in seconds; raises `UsageError` that names the option."""
    try:
        if text.endswith("ms"):
            return parse_span(f"{text.removesuffix('ms')}s").total_seconds() / MS_PER_S
        return parse_span(text).total_seconds()
    except ValueError as error:
        raise UsageError(f"{option}: {error}") from error


def whole_number(least: int, most: int | None = None) -> Callable[[str], int]:
    """Return a reader of whole numbers within limits, for argparse."""

    def read(text: str) -> int:
        wanted = f"a whole number from {least}" + ("" if most is None else f" to {most}")
        try:
            value = int(text)
        except ValueError as error:
            raise ArgumentTypeError(f"{text!r} is not {wanted}") from error
        if value < least or (most is not None and value > most):
            raise ArgumentTypeError(f"{text} is not {wanted}")
        return value

    return read
