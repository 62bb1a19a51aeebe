"""`trimtab profile`: what the GPUs of this machine do while a program runs, what that costs, and why it is not more."""

from __future__ import annotations

from pathlib import Path

import click

FORMS = ("table", "json")


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.argument("program", nargs=-1, type=click.UNPROCESSED)
@click.option("--pid", type=click.IntRange(min=1), help="Watch a process that runs already, until it ends.")
@click.option("--watch", is_flag=True, help="Watch all GPUs, until Ctrl-C.")
@click.option("--for", "span", metavar="SPAN", help="With --watch or --pid: stop after so long (30s, 10m, 2h).")
@click.option("--read", "read_from", type=click.Path(exists=True, dir_okay=False, path_type=Path), metavar="FILE",
              help="Judge a profile that was written before, also one of `with trimtab.profile(out=FILE)`.")  # fmt: skip
@click.option("--every", default="200ms", show_default=True, metavar="SPAN", help="Time between samples.")
@click.option("--trace", type=click.Path(exists=True, dir_okay=False, path_type=Path), metavar="FILE",
              help="A torch.profiler Chrome trace: kernel gaps, copies and loader waits join the evidence.")  # fmt: skip
@click.option("--usd-hr", type=click.FloatRange(min=0), help="What the machine costs an hour; else the catalog's.")
@click.option("--expect", metavar="SPAN", help="How long the whole run will take: its dollars to the end.")
@click.option(
    "--tokens", metavar="2M", help="Tokens that the program processes: the rate that `fit --calibrate` takes."
)
@click.option("--workload", default="local/run", show_default=True, help="Name of the run in a bundle.")
@click.option("--out", type=click.Path(path_type=Path), metavar="PATH",
              help="Write the profile: NAME.json, or a folder for a fleet bundle that `audit` takes.")  # fmt: skip
@click.option("-o", "--output", "form", type=click.Choice(FORMS), default="table", show_default=True,
              help="The form of the answer.")  # fmt: skip
@click.option("-q", "--quiet", is_flag=True, help="No live view.")
def command(
    program: tuple[str, ...],
    pid: int | None,
    watch: bool,
    span: str | None,
    read_from: Path | None,
    every: str,
    trace: Path | None,
    usd_hr: float | None,
    expect: str | None,
    tokens: str | None,
    workload: str,
    out: Path | None,
    form: str,
    quiet: bool,
) -> int:
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
    from trimtab.cli.profile.run import Observed, observe, report
    from trimtab.errors import UsageError

    ways = [bool(program), pid is not None, watch, read_from is not None]
    if sum(ways) != 1:
        raise UsageError("give one of: a program after --, --pid, --watch, --read FILE")
    asked = Observed(
        program=program, pid=pid, span=span, read_from=read_from, every=every, usd_hr=usd_hr, expect=expect,
        tokens=tokens, workload=workload, live=not quiet,
    )  # fmt: skip
    document, code = observe(asked)
    report(document, asked, trace=trace, out=out, form=form)
    return code
