"""`trimtab quotas`: read the clouds' GPU quotas, in whole nodes, for settings and doctor."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from trimtab.cli import say
from trimtab.cli.options import AnswerOptions, answer_options, option, options_from
from trimtab.cli.output import Format, Sheet, SheetColumn, fixed, write, write_answer
from trimtab.errors import SourceError, UsageError

if TYPE_CHECKING:
    from trimtab.sources.clouds import NodeQuota, QuotaReading


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotasOptions:
    """Arguments of `trimtab quotas`."""

    regions: tuple[str, ...] = option("--aws", metavar="REGION", help="EC2's quotas in a region; repeat for several.")
    projects: tuple[str, ...] = option("--gcp-project", metavar="ID", help="Compute Engine's quotas of a project.")
    places: tuple[str, ...] = option("--azure", metavar="SUBSCRIPTION@LOCATION", help="Azure's quotas in a location.")
    as_settings: bool = option("--toml", help="Write the [limits.quotas] section of trimtab.toml instead.")
    endpoints: tuple[str, ...] = option(
        "--cloud-endpoint", metavar="NAME=URL", envvar="TRIMTAB_CLOUD_ENDPOINTS",
        help="Another address of a cloud: aws, gcp-compute or azure-management.",
    )  # fmt: skip
    answer: AnswerOptions = answer_options()


@click.command()
@options_from(QuotasOptions)
def command(options: QuotasOptions) -> None:
    """Read the clouds' GPU quotas, in whole nodes, for settings and doctor.

    Each row says how many nodes of a type the quota allows if no other type draws on it. Reads only. Needs
    servicequotas:ListServiceQuotas (AWS), compute.projects.get and compute.regions.list (Google), Reader (Azure).

    \b
    Examples:
      trimtab quotas --aws us-east-1 --aws eu-west-1
      trimtab quotas --aws us-east-1 --toml >> trimtab.toml       plans keep them
      trimtab quotas --gcp-project my-project -o csv --out quotas.csv
      trimtab quotas --azure SUBSCRIPTION@eastus -o csv --out quotas.csv
      trimtab doctor fleet/ --quotas quotas.csv                   says where they stop a scale-up
    """
    if not (options.regions or options.projects or options.places):
        raise UsageError("whose quotas? give --aws REGION, --gcp-project ID or --azure SUBSCRIPTION@LOCATION")
    from trimtab.sources.clouds import quotas_text, settings_text

    quotas: list[NodeQuota] = []
    for reading in _readings(options):
        quotas += reading.quotas
        for note in reading.notes:
            say(note, err=True)
    if not quotas:
        raise SourceError("no quota of a GPU type was found: is this the region, project or subscription?")
    if options.as_settings:
        write(settings_text(quotas), options.answer.out)
    elif options.answer.output_format is Format.CSV and not options.answer.fields:
        write(quotas_text(quotas), options.answer.out)
    else:
        people = options.answer.output_format in (Format.TABLE, Format.MARKDOWN)
        write_answer(_sheet(quotas, for_people=people), options.answer)


def _readings(options: QuotasOptions) -> Iterator[QuotaReading]:
    from trimtab.catalog import load_catalog
    from trimtab.cli.collect import endpoints_of
    from trimtab.sources.clouds.aws import aws_quotas
    from trimtab.sources.clouds.azure import MANAGEMENT_SCOPE, MANAGEMENT_URL, azure_quotas
    from trimtab.sources.clouds.clients import azure_headers, google_headers
    from trimtab.sources.clouds.google import COMPUTE_URL, google_quotas

    urls, catalog = endpoints_of(options.endpoints), load_catalog()
    for region in options.regions:
        yield aws_quotas(region, urls.get("aws"), catalog)
    for project in options.projects:
        yield google_quotas(urls.get("gcp-compute", COMPUTE_URL), google_headers(), project, catalog)
    for place in options.places:
        subscription, at, location = place.partition("@")
        if not at:
            raise UsageError(f"--azure {place!r}: write SUBSCRIPTION@LOCATION, as 0000-...@eastus")
        url = urls.get("azure-management", MANAGEMENT_URL)
        yield azure_quotas(url, azure_headers(MANAGEMENT_SCOPE), subscription, location, catalog)


def _sheet(quotas: list[NodeQuota], *, for_people: bool) -> Sheet:
    """Return one row per quota and type. People see only types with at least one whole node, and how many are left out."""
    shown = [quota for quota in quotas if quota.nodes > 0 or not for_people]
    notes = ["nodes: if no other type draws on the same quota."]
    if len(shown) < len(quotas):
        notes.append(f"{len(quotas) - len(shown)} of {len(quotas)} are below one node and not shown; -o csv shows all.")
    columns = [
        SheetColumn(key="provider", title="cloud"),
        SheetColumn(key="instance_type", title="instance type", whole=True),
        SheetColumn(key="region", title="region", whole=True),
        SheetColumn(key="capacity_type", title="held", whole=True),
        SheetColumn(key="nodes", title="nodes", right=True, strong=True),
        SheetColumn(key="limit", title="quota", right=True, show=fixed(0)),
        SheetColumn(key="unit", title="of"),
        SheetColumn(key="quota", title="name"),
    ]
    return Sheet(columns=columns, rows=[quota.model_dump(mode="json") for quota in shown], notes=notes)
