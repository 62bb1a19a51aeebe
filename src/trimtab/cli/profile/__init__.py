"""`trimtab profile`: what the GPUs of this machine do while a program runs, what that costs, and what limits them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import click

from trimtab.cli.options import (
    FILE,
    Format,
    argument,
    format_option,
    option,
    options_from,
    quiet_option,
    refuse_page_on_screen,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileOptions:
    """Arguments of `trimtab profile`."""

    program: tuple[str, ...] = argument(nargs=-1, type=click.UNPROCESSED)
    pid: int | None = option("--pid", type=click.IntRange(min=1), help="Watch a running process until it ends.")
    watch: bool = option("--watch", help="Watch all GPUs, until Ctrl-C.")
    span: str | None = option(
        "--for", metavar="SPAN", help="With --watch or --pid: stop after this time (30s, 10m, 2h)."
    )
    read_from: Path | None = option(
        "--read", type=FILE, metavar="FILE",
        help="Judge an existing profile, also one of `with trimtab.profile(out=FILE)`.",
    )  # fmt: skip
    every: str = option("--every", default="200ms", show_default=True, metavar="SPAN", help="Time between samples.")
    trace: Path | None = option(
        "--trace", type=FILE, metavar="FILE",
        help="A torch.profiler Chrome trace: adds kernel gaps, copies and loader waits to the evidence.",
    )  # fmt: skip
    usd_hr: float | None = option(
        "--usd-hr", type=click.FloatRange(min=0), help="Cost of the machine per hour; by default from the catalog."
    )
    expect: str | None = option(
        "--expect", metavar="SPAN", help="Expected duration of the whole run, to estimate its total cost."
    )
    tokens: str | None = option(
        "--tokens",
        metavar="2M",
        help="Tokens that the program processes, to compute the rate that `fit --calibrate` reads.",
    )
    workload: str = option("--workload", default="local/run", show_default=True, help="Name of the run in a bundle.")
    out: Path | None = option(
        "--out", type=click.Path(path_type=Path), metavar="PATH",
        help="Write the profile: NAME.json, or a folder for a fleet bundle that `audit` reads. "
        "NAME.html or NAME.md: the page of -o html or markdown.",
    )  # fmt: skip
    form: Format = format_option(Format.TABLE, Format.JSON, Format.MARKDOWN, Format.HTML)
    quiet: bool = quiet_option("No live view.")

    @property
    def page_file(self) -> Path | None:
        """Return the file of the page; None for the screen."""
        suffixes = {Format.HTML: (".html", ".htm"), Format.MARKDOWN: (".md",)}.get(self.form, ())
        return self.out if self.out is not None and self.out.suffix in suffixes else None


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@options_from(ProfileOptions)
def command(options: ProfileOptions) -> int:
    """Show what the GPUs do while a program runs, what it costs, and what limits their use.

    Reads NVIDIA's driver library in-process; needs neither DCGM nor root. The exit code is that of the program.

    \b
    Examples:
      trimtab profile -- python train.py --epochs 1
      trimtab profile --out profile.json --tokens 40M -- python train.py
      trimtab profile --pid 4242 --for 10m
      trimtab profile --watch --out fleet
      trimtab profile --read profile.json --trace trace.json.gz
      trimtab profile --read profile.json -o html --out profile.html
      trimtab fit llama-3.1-8b --finetune lora --tokens 2B --calibrate profile.json
    """
    from trimtab.cli.profile.run import observe, report
    from trimtab.errors import UsageError

    ways = [bool(options.program), options.pid is not None, options.watch, options.read_from is not None]
    if sum(ways) != 1:
        raise UsageError("give one of: a program after --, --pid, --watch, --read FILE")
    refuse_page_on_screen(options.form, options.page_file, "profile.html")
    document, code = observe(options)
    report(document, options)
    return code
