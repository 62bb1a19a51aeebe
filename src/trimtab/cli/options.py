"""Options declared once: fields of a frozen dataclass, which say flag, help, environment variable and settings key.

A command takes such a dataclass. `options_from` makes click's options and arguments of its fields, in their order, and hands
the command what was given, packed:

    @dataclass(frozen=True, slots=True, kw_only=True)
    class TuneOptions:
        target_ms: float = option("--target-ms", type=click.FloatRange(min=0), required=True, help="Latency to keep.")
        answer: AnswerOptions = answer_options()

    @click.command()
    @options_from(TuneOptions)
    def command(options: TuneOptions) -> None: ...

Below stand the options that several commands share, and the scenario of `trimtab audit` and `trimtab what-if`.
A field's name is the parameter's name, and its type says the rest: `bool` is a switch, `tuple[X, ...]` may be repeated.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import date
from enum import Enum
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click
from click.core import ParameterSource

from trimtab.errors import TrimtabError, UsageError

if TYPE_CHECKING:
    from trimtab.plan.proof.scenario import Scenario


Decorator = Callable[[Callable[..., object]], Callable[..., object]]
T = TypeVar("T")

FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
FOLDER = click.Path(exists=True, file_okay=False, path_type=Path)
FILE_OR_FOLDER = click.Path(exists=True, path_type=Path)
NEW_FILE = click.Path(dir_okay=False, path_type=Path)
NEW_FOLDER = click.Path(file_okay=False, path_type=Path)

_DECLARED = "declared"
"""Key in a field's metadata that holds its declaration."""
_REPEATED = re.compile(r"tuple\[.+, \.\.\.\]")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Parameter:
    """How a field becomes a command-line parameter."""

    flags: tuple[str, ...]
    """Empty for an argument."""
    attributes: Mapping[str, Any]
    setting: str = ""

    def decorator(self, name: str, annotation: str) -> Decorator:
        if not self.flags:
            return click.argument(name, **self.attributes)
        usual: dict[str, Any] = {}
        if annotation == "bool" and "type" not in self.attributes:
            usual["is_flag"] = True
        if _REPEATED.fullmatch(annotation):
            usual["multiple"] = True
        return click.option(*self.flags, name, **{**usual, **self.attributes})


@dataclass(frozen=True, slots=True, kw_only=True)
class _OptionGroup:
    """A field that holds a dataclass of options; `instead` are the ones that this command redeclares, by name."""

    kind: type
    instead: Mapping[str, _Parameter]


# `Any`, as in `dataclasses.field`: the type of the field is in its own annotation.
def option(*flags: str, setting: str = "", **attributes: Any) -> Any:
    """Declare a field as an option. `setting` is its key in `trimtab.toml`; other arguments are click's."""
    return field(metadata={_DECLARED: _Parameter(flags=flags, attributes=attributes, setting=setting)})


def argument(**attributes: Any) -> Any:
    """Declare a field as a positional argument."""
    return field(metadata={_DECLARED: _Parameter(flags=(), attributes=attributes)})


def group(kind: type, **instead: Any) -> Any:
    """Declare a field that holds a dataclass of options shared by several commands; `instead` replaces some of them."""
    own = {name: declaration.metadata[_DECLARED] for name, declaration in instead.items()}
    return field(metadata={_DECLARED: _OptionGroup(kind=kind, instead=own)})


def options_from(kind: type[T]) -> Callable[[Callable[[T], object]], Callable[..., object]]:
    """Add the options of a dataclass to a command, which receives them as its only argument."""

    def add(command: Callable[[T], object]) -> Callable[..., object]:
        @wraps(command)
        def packed(**given: object) -> object:
            return command(_packed(kind, given))

        result: Callable[..., object] = packed
        for decorator in reversed(list(_decorators(kind, {}))):
            result = decorator(result)
        return result

    return add


def parsed(kind: type[T], arguments: Sequence[str]) -> T:
    """Return the dataclass as the command line would fill it, for callers that are not commands. Raises what click raises."""

    @click.command(add_help_option=False)
    @options_from(kind)
    def command(options: T) -> T:
        return options

    found: T = command.main(args=list(arguments), prog_name="trimtab", standalone_mode=False)
    return found


def setting_flags(options: object) -> tuple[str, ...]:
    """Return the settings given as dedicated options, as `KEY=VALUE`; several values are joined by commas."""
    flags: list[str] = []
    for part in fields(cast("Any", options)):
        value, declared = getattr(options, part.name), part.metadata[_DECLARED]
        if isinstance(declared, _Parameter) and declared.setting and value not in (None, ()):
            flags.append(f"{declared.setting}={', '.join(value) if isinstance(value, tuple) else value}")
    return tuple(flags)


def is_typed(parameter: str) -> bool:
    """Return whether a parameter of the running command was given on the command line, not by default or environment.

    An agent's tool and a page run commands' code without a command line: nothing is typed there.
    """
    context = click.get_current_context(silent=True)
    return context is not None and context.get_parameter_source(parameter) is ParameterSource.COMMANDLINE


def _decorators(kind: type, instead: Mapping[str, _Parameter]) -> Iterator[Decorator]:
    for part in fields(kind):
        declared = instead.get(part.name) or part.metadata[_DECLARED]
        if isinstance(declared, _OptionGroup):
            yield from _decorators(declared.kind, declared.instead)
        else:
            yield declared.decorator(part.name, part.type.__name__ if isinstance(part.type, type) else str(part.type))


def _packed(kind: type[T], given: dict[str, object]) -> T:
    """Return the dataclass filled with the given values."""
    values: dict[str, object] = {}
    for part in fields(cast("Any", kind)):
        declared = part.metadata.get(_DECLARED)
        values[part.name] = _packed(declared.kind, given) if isinstance(declared, _OptionGroup) else given[part.name]
    return cast("Callable[..., T]", kind)(**values)


# Options that several commands share.


class Format(Enum):
    """Output formats."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"
    CSV = "csv"
    MARKDOWN = "markdown"
    HTML = "html"
    GITHUB_COMMENT = "github-comment"
    XLSX = "xlsx"


WORKBOOK_NEEDS_A_FILE = "a workbook needs a file: give --out with a name, such as answer.xlsx"
ROW_FORMATS = (Format.TABLE, Format.JSON, Format.YAML, Format.CSV, Format.MARKDOWN)


def format_option(*formats: Format, flags: Sequence[str] = (), said: str = "Output format.") -> Any:
    """Declare `-o`, by default the first of the formats; `flags` are additional names, `said` is its help."""
    names = [form.value for form in formats]
    return option(
        "-o", "--output", *flags, type=click.Choice(names), default=names[0], show_default=True,
        callback=lambda _context, _parameter, value: Format(value), help=said,
    )  # fmt: skip


def out_option() -> Any:
    """Declare the output file."""
    return option("--out", type=NEW_FILE, help="Write to a file.")


def _field_names(_context: click.Context, _parameter: click.Parameter, value: str | None) -> tuple[str, ...]:
    return tuple(name.strip() for name in value.split(",") if name.strip()) if value else ()


def refuse_page_on_screen(form: Format, out: Path | None, example: str) -> None:
    """Raise UsageError where HTML would go to a terminal."""
    if form is Format.HTML and out is None and sys.stdout.isatty():
        raise UsageError(f"a page is not for a terminal: write it to a file, -o html --out {example}")


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerOptions:
    """The output format, the file (None: the screen), and the columns to keep (empty: all)."""

    output_format: Format = format_option(*ROW_FORMATS)
    out: Path | None = out_option()
    fields: tuple[str, ...] = option(
        "--fields", multiple=False, callback=_field_names, metavar="A,B,...", help="Only these columns, by their keys."
    )

    def check(self) -> None:
        """Reject, before any work is done, an output that cannot be written. Raises UsageError."""
        if self.output_format is Format.XLSX:
            from trimtab.emit.writers.xlsx import require_writer

            if self.out is None:
                raise UsageError(WORKBOOK_NEEDS_A_FILE)
            require_writer()
        refuse_page_on_screen(self.output_format, self.out, "report.html")
        if self.out is not None and not self.out.parent.is_dir():
            raise UsageError(f"cannot write {self.out}: there is no folder {self.out.parent}")


def answer_options(*formats: Format) -> Any:
    """Declare `-o`, `--out` and `--fields`; by default with the formats of rows."""
    return group(AnswerOptions, output_format=format_option(*formats or ROW_FORMATS))


def bundle_argument() -> Any:
    """Declare the folder of a fleet bundle, optional."""
    return argument(required=False, type=FOLDER)


def completed_from(names: Callable[[], Iterable[str]]) -> Callable[[click.Context, click.Parameter, str], list[str]]:
    """Return what completes a value in a shell: known names that begin like it; nothing if they cannot be read."""

    def found(_context: click.Context, _parameter: click.Parameter, begun: str) -> list[str]:
        try:
            return [name for name in names() if name.lower().startswith(begun.lower())]
        except TrimtabError:
            return []

    return found


def demo_names() -> Iterable[str]:
    """Return the demonstration fleets."""
    from trimtab.sources.demo import DEMO_FLEETS

    return DEMO_FLEETS


def gpu_names() -> Iterable[str]:
    """Return the GPUs of the catalog."""
    from trimtab.catalog import load_catalog

    return (gpu.name for gpu in load_catalog().gpus)


def demo_option(said: str = "A demonstration fleet; two-hundred-k by default.") -> Any:
    """Declare `--demo [NAME]`; `said` is its help."""
    return option(
        "--demo",
        is_flag=False,
        flag_value="two-hundred-k",
        metavar="[NAME]",
        help=said,
        shell_complete=completed_from(demo_names),
    )


def prices_option(said: str = "Your own rates, CSV or YAML; they override the price list.") -> Any:
    """Declare the file of own rates; `said` is its help."""
    return option("--prices", "--rates", type=FILE, metavar="FILE", envvar="TRIMTAB_PRICES", help=said)


def at_option(said: str = "Use the prices of this day.", default: str = "the end of the history") -> Any:
    """Declare the day of prices; `said` is its help, `default` says which prices are used without it."""
    return option("--at", callback=parse_day, metavar="DATE", show_default=default, help=said)


def today_option() -> Any:
    """Declare the day of prices, by default today."""
    return option(
        "--at",
        callback=parse_day,
        default=lambda: date.today().isoformat(),
        show_default="today",
        metavar="DATE",
        help="Use the prices of this day.",
    )


def owned_option(said: str = "Commitments that you hold, in any format that `trimtab commit --owned` reads.") -> Any:
    """Declare the file of existing commitments; `said` is its help."""
    return option("--owned", type=FILE, metavar="FILE", help=said)


def set_option(example: str) -> Any:
    """Declare `--set KEY=VALUE`."""
    return option("--set", metavar="KEY=VALUE", help=f"One setting, such as {example}.")


def quiet_option(said: str = "No progress, errors only.") -> Any:
    """Declare `-q`; `said` is its help."""
    return option("-q", "--quiet", help=said)


def verbose_option() -> Any:
    """Declare `-v` and `-vv`."""
    return option("-v", "--verbose", count=True, help="Log stages (-v) or every step (-vv) on stderr.")


def parse_day(_context: click.Context, _parameter: click.Parameter, value: str | None) -> date | None:
    """Return the day that an option gives (a click callback). Raises BadParameter with the accepted format."""
    try:
        return date.fromisoformat(value) if value else None
    except ValueError as error:
        raise click.BadParameter(f"{value!r} is not a date; write 2026-07-20") from error


_MULTIPLES = {"": 1.0, "k": 1e3, "m": 1e6}
_AMOUNT = re.compile(r"\$?\s*(?P<number>[\d,]+(?:\.\d+)?)\s*(?P<multiple>[km]?)", re.IGNORECASE)
_FACTOR = re.compile(r"(?P<number>\d+(?:\.\d+)?)\s*x|(?P<percent>[+-]\d+(?:\.\d+)?)\s*%", re.IGNORECASE)
_MONTH = re.compile(r"\d{4}-\d{2}")
_HUNDRED = 100.0


def _factor(_context: click.Context, _parameter: click.Parameter, value: str | None) -> float | None:
    if value is None:
        return None
    found = _FACTOR.fullmatch(value.strip())
    factor = 0.0
    if found is not None:
        factor = float(found["number"]) if found["number"] else 1 + float(found["percent"]) / _HUNDRED
    if factor <= 0:
        raise click.BadParameter(f"{value!r} is not a multiple of today's demand; write 1.5x, 0.8x or +50%")
    return factor


def _amount(_context: click.Context, _parameter: click.Parameter, value: str | None) -> float | None:
    if value is None:
        return None
    found = _AMOUNT.fullmatch(value.strip())
    if found is None:
        raise click.BadParameter(f"{value!r} is not an amount; write 100k, 1.2M or 95000 (dollars a month)")
    return float(found["number"].replace(",", "")) * _MULTIPLES[found["multiple"].lower()]


def _day(_context: click.Context, _parameter: click.Parameter, value: str | None) -> date | None:
    if value is None:
        return None
    try:
        return date.fromisoformat(f"{value}-01" if _MONTH.fullmatch(value) else value)
    except ValueError as error:
        raise click.BadParameter(f"{value!r} is not a date; write 2027-03 or 2027-03-15") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class ScenarioOptions:
    """The scenario options that were given; none means no scenario."""

    demand: float | None = option(
        "--demand", callback=_factor, metavar="1.5x", help="Scenario: demand is this multiple of today's (1.5x, +50%)."
    )
    changes: tuple[str, ...] = option(
        "--price", metavar="WHAT+N%",
        help="Scenario: a price changes: spot+30%, H100-15%, commitments+5%, aws+10%; repeat for several.",
    )  # fmt: skip
    limits: tuple[str, ...] = option(
        "--target", metavar="WORKLOAD=SECONDS",
        help="Scenario: another target: prod/chat=0.3 (latency), prod/chat:ttft=500ms, team/train:queue_wait=600; repeat "
        "for several.",
    )  # fmt: skip
    no_spot: bool = option("--no-spot", help="Scenario: nothing runs on spot.")
    budget_usd_mo: float | None = option(
        "--budget", callback=_amount, metavar="100k",
        help="Find the least work that keeps the monthly bill within this amount.",
    )  # fmt: skip
    deadline: date | None = option(
        "--deadline", callback=_day, metavar="2027-03",
        help="Find what can be done by this day; a month means its first day.",
    )  # fmt: skip

    def scenario(
        self,
        *,
        quotas: str | None = None,
        spot_max_frac: float | None = None,
        clouds: tuple[str, ...] = (),
        regions: tuple[str, ...] = (),
        node_startup_s: float | None = None,
    ) -> Scenario | None:
        """Return the scenario, or None if nothing is changed. Raises InputError for a price or target that makes no sense."""
        from trimtab.catalog.registry import price_change
        from trimtab.fleet.targets import other_limit
        from trimtab.plan.proof.scenario import Scenario

        said = Scenario(
            demand=self.demand or 1.0,
            prices=tuple(price_change(text) for text in self.changes),
            limits=tuple(other_limit(text) for text in self.limits),
            use_spot=False if self.no_spot else None,
            spot_max_frac=spot_max_frac,
            quotas=quotas,
            clouds=clouds,
            regions=regions,
            node_startup_s=node_startup_s,
            budget_usd_mo=self.budget_usd_mo,
            deadline=self.deadline,
        )
        return said if said.words() else None


def quota_option(said: str) -> Any:
    """Declare quotas that a plan must keep; `said` is the help."""
    return option("--quota", setting="limits.quotas", metavar="TYPE=NODES", help=said)


def spot_max_option(said: str) -> Any:
    """Declare the largest share of node-hours on spot, in 0..1; `said` is the help."""
    return option("--spot-max", setting="limits.spot_max_frac", type=click.FloatRange(0, 1), metavar="SHARE", help=said)


def cloud_option(said: str) -> Any:
    """Declare further clouds that work may move to; `said` is the help."""
    return option("--cloud", setting="limits.providers", metavar="PROVIDER", help=said)
