"""What to do instead, for a call that click refuses: which option writes a folder, how a value is written, an example."""

from __future__ import annotations

import re
from pathlib import Path

import click

from trimtab.cli.options import demo_names

_KNOWN_ELSEWHERE = {
    "--out": ("-o", "-O", "-d", "-f", "--dir", "--directory", "--outdir", "--out-dir", "--output-dir", "--output-file",
              "--file", "--dest", "--output"),
    "--output": ("--fmt", "--format", "--output-format"),
    "--rate": ("--rps", "--qps", "--requests", "--load", "--requests-per-second"),
    "--prometheus": ("--prom", "--url", "--server", "--endpoint", "--address"),
    "--from": ("--since", "--start", "--begin", "--days", "--window", "--lookback", "--last"),
    "--to": ("--until", "--end"),
    "--at": ("--date", "--day", "--as-of"),
    "--prices": ("--price-list", "--price-file", "--pricing"),
    "--gpu": ("--gpus", "--gpu-type", "--accelerator"),
    "--provider": ("--cloud", "--vendor"),
    "--cloud": ("--provider", "--providers"),
    "--action": ("--id", "--only", "--actions"),
    "--demo": ("--example", "--sample"),
    "--context": ("--kube-context", "--kubecontext"),
}  # fmt: skip
"""An option of this program -> what other programs call it."""
_FOR_A_FORMAT = ("--json", "--yaml", "--csv", "--html", "--xlsx", "--markdown")
_FOR_THE_BUNDLE = ("--bundle", "--fleet", "--input", "-i", "--data", "--path", "--folder")
_SUFFIXES = {".htm": "html", ".md": "markdown", ".yml": "yaml"}
"""Endings of files that are not a format's name."""


def with_cure(error: click.UsageError) -> click.UsageError:
    """Return the error with what to do instead; the error itself where nothing better is known."""
    if error.ctx is None:
        return error
    cure = _cure(error, error.ctx)
    said = error.message if isinstance(error, click.NoSuchOption) else error.format_message()
    return click.UsageError(f"{said.rstrip()} {cure}", error.ctx) if cure else error


def _cure(error: click.UsageError, ctx: click.Context) -> str:
    match error:
        case click.NoSuchOption():
            return _other_option(error.option_name, ctx)
        case click.MissingParameter():
            return _example(ctx)
        case click.BadParameter(param=click.Option() as option) if isinstance(option.type, click.Choice):
            return _other_value(_refused_value(error), option, ctx)
        case click.BadParameter(param=click.Argument(type=click.Path(file_okay=False))):
            return _other_folder(_refused_value(error), ctx)
        case _:
            return ""


def _refused_value(error: click.BadParameter) -> str:
    """Return the value that click quotes in its message."""
    quoted = re.search(r"'([^']+)'", error.message)
    return quoted.group(1) if quoted else ""


def _flags(ctx: click.Context) -> frozenset[str]:
    options = (parameter for parameter in ctx.command.params if isinstance(parameter, click.Option))
    return frozenset(flag for option in options if not option.hidden for flag in option.opts)


def _formats(ctx: click.Context) -> frozenset[str]:
    """Return the output formats of a command."""
    for parameter in ctx.command.params:
        if "--output" in parameter.opts and isinstance(parameter.type, click.Choice):
            return frozenset(str(choice) for choice in parameter.type.choices)
    return frozenset()


def _other_option(name: str, ctx: click.Context) -> str:
    flags = _flags(ctx)
    if name in _FOR_A_FORMAT and name.removeprefix("--") in _formats(ctx):
        return f"Use -o {name.removeprefix('--')}."
    for ours, theirs in _KNOWN_ELSEWHERE.items():
        if name in theirs and ours in flags:
            return f"Use {_usage(ours, ctx)}."
    takes_bundle = any(parameter.name == "bundle" for parameter in ctx.command.params)
    if name in _FOR_THE_BUNDLE and takes_bundle:
        return f"The folder of a bundle is given without an option: {ctx.command_path} fleet/."
    return ""


def _usage(flag: str, ctx: click.Context) -> str:
    """Return an option with the name of its value."""
    for parameter in ctx.command.params:
        if flag in parameter.opts and isinstance(parameter, click.Option) and not parameter.is_flag:
            return f"{flag} {parameter.make_metavar(ctx)}"
    return flag


def _other_value(value: str, option: click.Option, ctx: click.Context) -> str:
    """Return where a file or folder goes that was given as a format."""
    if "--output" not in option.opts or "--out" not in _flags(ctx):
        return ""
    ending = Path(value).suffix.lower()
    form = _SUFFIXES.get(ending, ending.removeprefix("."))
    if form in _formats(ctx):
        return f"-o is the format; a file is named with --out: -o {form} --out {value}."
    kind = "a file" if _writes_a_file(ctx) else "a folder"
    return f"-o is the format; {kind} is named with --out: --out {value}."


def _writes_a_file(ctx: click.Context) -> bool:
    return any(
        "--out" in parameter.opts and getattr(parameter.type, "file_okay", True) for parameter in ctx.command.params
    )


def _other_folder(value: str, ctx: click.Context) -> str:
    """Return what to give for a folder of a bundle that is not there."""
    if "--demo" in _flags(ctx) and value in demo_names():
        return f"A demonstration is given as {ctx.command_path} --demo {value}."
    if Path(value).is_file():
        return "A bundle is a folder that `trimtab collect` wrote."
    return "`trimtab collect --out FOLDER` writes a bundle."


def _example(ctx: click.Context) -> str:
    """Return the first example of the command's help."""
    lines = (line.strip() for line in (ctx.command.help or "").partition("Examples:")[2].splitlines())
    found = next((line for line in lines if line.startswith(ctx.command_path)), "")
    return f"For example: {re.split(r' {2,}', found)[0]}" if found else ""
