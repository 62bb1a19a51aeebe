"""`trimtab profile`: what the GPUs of this machine do while a program runs, what that costs, and why it is not more."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import click

from trimtab.cli.options import FILE, Format, argument, format_option, option, options_from, quiet_option


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileOptions:
    """What was asked of `trimtab profile`."""

    program: tuple[str, ...] = argument(nargs=-1, type=click.UNPROCESSED)
    pid: int | None = option(
        "--pid", type=click.IntRange(min=1), help="Watch a process that runs already, until it ends."
    )
    watch: bool = option("--watch", help="Watch all GPUs, until Ctrl-C.")
    span: str | None = option("--for", metavar="SPAN", help="With --watch or --pid: stop after so long (30s, 10m, 2h).")
    read_from: Path | None = option(
        "--read", type=FILE, metavar="FILE",
        help="Judge a profile that was written before, also one of `with trimtab.profile(out=FILE)`.",
    )  # fmt: skip
    every: str = option("--every", default="200ms", show_default=True, metavar="SPAN", help="Time between samples.")
    trace: Path | None = option(
        "--trace", type=FILE, metavar="FILE",
        help="A torch.profiler Chrome trace: kernel gaps, copies and loader waits join the evidence.",
    )  # fmt: skip
    usd_hr: float | None = option(
        "--usd-hr", type=click.FloatRange(min=0), help="What the machine costs an hour; else the catalog's."
    )
    expect: str | None = option(
        "--expect", metavar="SPAN", help="How long the whole run will take: its dollars to the end."
    )
    tokens: str | None = option(
        "--tokens", metavar="2M", help="Tokens that the program processes: the rate that `fit --calibrate` takes."
    )
    workload: str = option("--workload", default="local/run", show_default=True, help="Name of the run in a bundle.")
    out: Path | None = option(
        "--out", type=click.Path(path_type=Path), metavar="PATH",
        help="Write the profile: NAME.json, or a folder for a fleet bundle that `audit` takes.",
    )  # fmt: skip
    form: Format = format_option(Format.TABLE, Format.JSON)
    quiet: bool = quiet_option("No live view.")


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@options_from(ProfileOptions)
def command(options: ProfileOptions) -> int:
    """Say what the GPUs do while a program runs, what it costs, and which cause keeps them from doing more.

    Reads NVIDIA's driver library in process; needs no DCGM and no root. The exit code is that of the program.

    \b
    Examples:
      trimtab profile -- python train.py --epochs 1
      trimtab profile --out profile.json --tokens 40M -- python train.py
      trimtab profile --pid 4242 --for 10m
      trimtab profile --watch --out fleet
      trimtab profile --read profile.json --trace trace.json.gz
      trimtab fit llama-3.1-8b --finetune lora --tokens 2B --calibrate profile.json
    """
    from trimtab.cli.profile.run import observe, report
    from trimtab.errors import UsageError

    ways = [bool(options.program), options.pid is not None, options.watch, options.read_from is not None]
    if sum(ways) != 1:
        raise UsageError("give one of: a program after --, --pid, --watch, --read FILE")
    document, code = observe(options)
    report(document, options)
    return code
