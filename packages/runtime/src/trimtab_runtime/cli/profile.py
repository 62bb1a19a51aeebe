"""`trimtab-runtime profile`: record what the GPUs do; `trimtab profile --read` judges and prices the record."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from collections.abc import Mapping, Sequence
from pathlib import Path

from trimtab_runtime.cli.options import command_parser, program_of, span_s, whole_number
from trimtab_runtime.errors import InputError, UsageError
from trimtab_runtime.profile.program import observe_program

DESCRIPTION = """\
Record what the GPUs do while a program runs. Reads NVIDIA's driver library in process; needs no DCGM and no root.

The exit code is that of the program. What the record means (the cause that keeps a GPU from doing more, what that
costs) is said by `trimtab profile --read FILE`, on any machine.
"""
EXAMPLES = """\
Examples:
  {prog} --out profile.json -- python train.py --epochs 1
  {prog} --out profile.json --tokens 4e7 -- python train.py
  {prog} --pid 4242 --for 10m
  {prog} --watch --for 30s
"""


def run(arguments: Sequence[str], prog: str) -> int:
    """Observe what the arguments name, write the record, and return the program's exit code."""
    given = parser(prog).parse_args(arguments)
    program = program_of(given.program, required=False)
    if sum((bool(program), given.pid is not None, given.watch)) != 1:
        raise UsageError("give one of: a program after --, --pid, --watch")
    document, code = observe_program(
        program,
        given.pid,
        limit_s=None if given.span is None else span_s(given.span, "--for"),
        interval_s=span_s(given.every, "--every"),
        tokens=given.tokens,
    )
    text = json.dumps(document, indent=1, allow_nan=False)
    if given.out is None:
        print(text)
    else:
        _write(given.out, text)
        print(f"{_summary(document)}; written to {given.out}")
    return code


def parser(prog: str) -> ArgumentParser:
    """Return the options of the command."""
    made = command_parser(prog, DESCRIPTION, EXAMPLES)
    add = made.add_argument
    add("--pid", type=whole_number(1), metavar="PID", help="watch a process that runs already, until it ends")
    add("--watch", action="store_true", help="watch all GPUs, until Ctrl-C")
    add("--for", dest="span", metavar="SPAN", help="with --watch or --pid: stop after so long (30s, 10m, 2h)")
    add("--every", default="200ms", metavar="SPAN", help="time between samples (default: 200ms)")
    add("--tokens", type=float, metavar="4e7", help="tokens that the program processes: their rate joins the record")
    add("--out", type=Path, metavar="FILE", help="write the record there; else it is printed as JSON")
    return made


def _write(out: Path, text: str) -> None:
    try:
        out.write_text(text + "\n", encoding="utf-8")
    except OSError as error:
        raise InputError(f"{out}: cannot be written: {error.strerror or error}") from error


def _summary(document: Mapping[str, object]) -> str:
    wall_s, devices = document["wall_s"], document["devices"]
    seen = len(devices) if isinstance(devices, list) else 0
    problem = f" ({document['problem']})" if document["problem"] else ""
    return f"{wall_s:.1f} s, {seen} GPU(s) or MIG instances{problem}"
