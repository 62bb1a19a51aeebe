"""`trimtab allocate`: what each team, workload, namespace, kind or model costs, and per request and token."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

import click

from trimtab.cli.moments import parse_day
from trimtab.cli.output import Cell, Column, Format, Sheet, fixed, output_options, write_sheet
from trimtab.cli.progress import progress_bar, set_verbosity
from trimtab.cli.server_options import ServerOptions, server_options

if TYPE_CHECKING:
    from trimtab.diagnose.charges import Charge
    from trimtab.fleet.model import Window


def _percent(cell: Cell) -> str:
    return f"{cell:.1%}" if isinstance(cell, int | float) else str(cell)


COLUMNS = (
    Column(key="name", title="who", whole=True),
    Column(key="usd", title="$", show=fixed(2), right=True, whole=True),
    Column(key="share_frac", title="share", show=_percent, right=True, whole=True),
    Column(key="usd_mo", title="$/month", show=fixed(0), right=True, whole=True),
    Column(key="shared_usd", title="of it shared", show=fixed(2), right=True, whole=True),
    Column(key="gpu_hours", title="GPU-hours", show=fixed(0), right=True, whole=True),
    Column(key="usd_per_gpu_hr", title="$/GPU-hr", show=fixed(2), right=True, whole=True),
    Column(key="usd_per_1k_requests", title="$/1k req", show=fixed(3), right=True, whole=True),
    Column(key="usd_per_mtok", title="$/M tok", show=fixed(3), right=True, whole=True),
)
TABLE_FIELDS = ("name", "usd", "share_frac", "usd_mo", "gpu_hours", "usd_per_1k_requests", "usd_per_mtok")
"""What fits 80 columns; machines get every column."""


@click.command()
@click.argument("bundle", required=False, type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--demo", is_flag=False, flag_value="two-hundred-k", metavar="[NAME]",
              help="A demonstration fleet; two-hundred-k where no name is given.")  # fmt: skip
@server_options(required=False)
@click.option("--by", "split", type=click.Choice(["team", "workload", "namespace", "kind", "model"]), default="team",
              show_default=True, help="What the bill is split by.")  # fmt: skip
@click.option("--idle", "rule", type=click.Choice(["show", "spread"]), default="show", show_default=True,
              help="What nobody held: rows of its own, or laid on everyone by what they held.")  # fmt: skip
@click.option("--prices", "--rates", "prices", envvar="TRIMTAB_PRICES", metavar="FILE",
              type=click.Path(exists=True, dir_okay=False, path_type=Path),
              help="Your own rates, CSV or YAML; they go over the list.")  # fmt: skip
@click.option("--at", callback=parse_day, metavar="DATE", show_default="the end of the history",
              help="Prices that held on this day.")  # fmt: skip
@click.option("-q", "--quiet", is_flag=True, help="No progress.")
@output_options()
def command(
    bundle: Path | None,
    demo: str | None,
    source: ServerOptions,
    split: str,
    rule: str,
    prices: Path | None,
    at: date | None,
    quiet: bool,
    output_format: Format,
    out: Path | None,
    fields: tuple[str, ...],
) -> None:
    """Say what each team, workload, namespace, kind or model costs, and per request and token.

    The rows sum to the bill of the whole history to the cent; what nobody held stays visible or is spread.

    \b
    Examples:
      trimtab allocate --demo
      trimtab allocate fleet/ --by workload --idle spread
      trimtab allocate fleet/ --by model -o csv --out charges.csv
    """
    from trimtab.catalog import load_catalog
    from trimtab.cli.history import Named, open_history
    from trimtab.diagnose.charges import DEMAND_COLUMNS, SharedRule, SplitBy, charges, served_in
    from trimtab.pipeline import priced_history

    set_verbosity(0, quiet)
    named = Named(bundle=bundle, demo=demo, demo_trace=None, source=source)
    with progress_bar(quiet=quiet) as tell:
        history = open_history(named, tell)
        fleet, allocation = priced_history(history.bundle, catalog=load_catalog(prices), at=at)
    served = served_in(history.bundle.table("demand", DEMAND_COLUMNS), fleet.window)
    rows = charges(fleet, allocation, SplitBy(split), SharedRule(rule), served)
    shown = fields or (TABLE_FIELDS if output_format is Format.TABLE else ())
    write_sheet(_sheet(rows, fleet.window), output_format, out=out, fields=shown)


def _sheet(rows: Sequence[Charge], window: Window) -> Sheet:
    from trimtab.units import apportion, cents, per_month, usd_cents

    total = sum(row.micro_usd for row in rows)
    # Cents are given out so that the rows shown sum to the cent as well: each rounded alone would not.
    shown = apportion(cents(total), [float(row.micro_usd) for row in rows])
    note = (
        f"Sum ${usd_cents(total):,.2f}, the bill of {window.start:%-d %b %Y} to {window.end:%-d %b %Y} at list prices "
        f"(${per_month(usd_cents(total), window.hours):,.0f} a month)."
    )
    lines = [_row(row, part / 100, total, window) for row, part in zip(rows, shown, strict=True)]
    return Sheet(columns=COLUMNS, rows=lines, notes=[note])


def _row(charge: Charge, shown_usd: float, total: int, window: Window) -> Mapping[str, Cell]:
    from trimtab.units import TOKENS_PER_MTOK, per_month, usd, usd_cents

    cost = usd(charge.micro_usd)
    return {
        "name": charge.name,
        "usd": shown_usd,
        "share_frac": round(charge.micro_usd / total, 6) if total else None,
        "usd_mo": round(per_month(cost, window.hours), 2),
        "shared_usd": usd_cents(charge.shared_micro_usd),
        "gpu_hours": round(charge.gpu_hours, 3),
        "usd_per_gpu_hr": round(cost / charge.gpu_hours, 4) if charge.gpu_hours else None,
        "usd_per_1k_requests": round(1000 * cost / charge.requests, 6) if charge.requests else None,
        "usd_per_mtok": round(TOKENS_PER_MTOK * cost / charge.tokens, 6) if charge.tokens else None,
    }
