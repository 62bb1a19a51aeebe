"""`trimtab quotas`: read the clouds' GPU quotas, in whole nodes, for settings and doctor."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from trimtab.cli.output import Column, Format, Sheet, fixed, output_options, write, write_sheet
from trimtab.cli.screen import say
from trimtab.errors import SourceError, UsageError

if TYPE_CHECKING:
    from trimtab.sources.clouds.quotas import NodeQuota, QuotaReading


@click.command()
@click.option("--aws", "regions", multiple=True, metavar="REGION", help="EC2's quotas in a region; repeat for several.")
@click.option("--gcp-project", "projects", multiple=True, metavar="ID", help="Compute Engine's quotas of a project.")
@click.option("--azure", "places", multiple=True, metavar="SUBSCRIPTION@LOCATION", help="Azure's quotas in a location.")
@click.option("--toml", "as_settings", is_flag=True, help="Write the [limits.quotas] section of trimtab.toml instead.")
@click.option("--cloud-endpoint", "endpoints", multiple=True, metavar="NAME=URL", envvar="TRIMTAB_CLOUD_ENDPOINTS",
              help="Another address of a cloud: aws, gcp-compute or azure-management.")  # fmt: skip
@output_options()
def command(
    regions: tuple[str, ...],
    projects: tuple[str, ...],
    places: tuple[str, ...],
    as_settings: bool,
    endpoints: tuple[str, ...],
    output_format: Format,
    out: Path | None,
    fields: tuple[str, ...],
) -> None:
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
    if not (regions or projects or places):
        raise UsageError("whose quotas? give --aws REGION, --gcp-project ID or --azure SUBSCRIPTION@LOCATION")
    from trimtab.sources.clouds.quotas import quotas_text, settings_text

    quotas: list[NodeQuota] = []
    for reading in _readings(regions, projects, places, endpoints):
        quotas += reading.quotas
        for note in reading.notes:
            say(note, err=True)
    if not quotas:
        raise SourceError("no quota of a GPU type was found: is this the region, project or subscription?")
    if as_settings:
        write(settings_text(quotas), out)
    elif output_format is Format.CSV and not fields:
        write(quotas_text(quotas), out)
    else:
        people = output_format in (Format.TABLE, Format.MARKDOWN)
        write_sheet(_sheet(quotas, for_people=people), output_format, out=out, fields=fields)


def _readings(
    regions: tuple[str, ...], projects: tuple[str, ...], places: tuple[str, ...], endpoints: tuple[str, ...]
) -> Iterator[QuotaReading]:
    from trimtab.catalog import load_catalog
    from trimtab.cli.collect_clouds import endpoints_of
    from trimtab.sources.clouds import azure_quotas, gce
    from trimtab.sources.clouds.aws_quotas import aws_quotas
    from trimtab.sources.clouds.google_quotas import google_quotas
    from trimtab.sources.clouds.tokens import azure_headers, google_headers

    urls, catalog = endpoints_of(endpoints), load_catalog()
    for region in regions:
        yield aws_quotas(region, urls.get("aws"), catalog)
    for project in projects:
        yield google_quotas(urls.get("gcp-compute", gce.DEFAULT_URL), google_headers(), project, catalog)
    for place in places:
        subscription, at, location = place.partition("@")
        if not at:
            raise UsageError(f"--azure {place!r}: write SUBSCRIPTION@LOCATION, as 0000-...@eastus")
        url = urls.get("azure-management", azure_quotas.DEFAULT_URL)
        yield azure_quotas.azure_quotas(url, azure_headers(azure_quotas.SCOPE), subscription, location, catalog)


def _sheet(quotas: list[NodeQuota], *, for_people: bool) -> Sheet:
    """Return a row a quota and type; people see the types of which at least a node is allowed, and how many are left out."""
    shown = [one for one in quotas if one.nodes > 0 or not for_people]
    notes = ["nodes: if no other type draws on the same quota."]
    if len(shown) < len(quotas):
        notes.append(f"{len(quotas) - len(shown)} of {len(quotas)} are below one node and not shown; -o csv has all.")
    columns = [
        Column(key="provider", title="cloud"),
        Column(key="instance_type", title="instance type", whole=True),
        Column(key="region", title="region", whole=True),
        Column(key="capacity_type", title="held", whole=True),
        Column(key="nodes", title="nodes", right=True, strong=True),
        Column(key="limit", title="quota", right=True, show=fixed(0)),
        Column(key="unit", title="of"),
        Column(key="quota", title="name"),
    ]
    return Sheet(columns=columns, rows=[one.model_dump(mode="json") for one in shown], notes=notes)
