"""Commitments already held, as a person, clouds or FOCUS list them, and offers that no price list has.

Read: our own CSV, `aws ec2 describe-reserved-instances`, `aws savingsplans describe-savings-plans`,
`az reservations reservation list`, `gcloud compute commitments list` (all as JSON), and FOCUS' Contract Commitments (CSV).

What a list does not price is priced by the price book's rate of its first day, and what even that does not know is left out by
name, with the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from pathlib import Path

import pyarrow as pa

from trimtab.catalog import BuyingOption, Catalog
from trimtab.catalog.pools import Pool
from trimtab.errors import Fault, InputError, MissingPrice, PriceFileError, UnknownName
from trimtab.inputs.documents import load_json
from trimtab.inputs.files import csv_rows, read_csv_rows, read_text
from trimtab.levers.commit_advice import CommitmentPrice
from trimtab.plan.commitments.inventory import Owned, OwnedNodes, OwnedSpend
from trimtab.sources.bills.cells import find_instance_type
from trimtab.units import HR_PER_YEAR, S_PER_HR, hours_between

COLUMNS = (
    "name",
    "provider",
    "instance_type",
    "region",
    "count",
    "term_years",
    "upfront_usd",
    "usd_hr",
    "start",
    "end",
)
OWNED, QUOTED = "the file of commitments", "your quote"
TERMS = {"1y": 1, "3y": 3}


def read_owned(path: Path) -> tuple[Owned, ...]:
    """Read commitments that are held: one a row, `upfront_usd` and `usd_hr` per node; raises PriceFileError with all faults."""
    rows = read_csv_rows(path)
    owned, faults = [], []
    for number, row in enumerate(rows, start=2):
        try:
            owned.append(_stated(row))
        except KeyError as error:
            faults.append(Fault(what=f"no column {error}", where=f"row {number}", cure=f"give {', '.join(COLUMNS)}"))
        except (TypeError, ValueError) as error:
            faults.append(Fault(what=str(error), where=f"row {number} ({row.get('name')})"))
    if faults:
        raise PriceFileError(str(path), faults)
    return tuple(owned)


def quoted_offer(text: str, pools: Mapping[str, Pool]) -> CommitmentPrice:
    """Read `TYPE:TERM:UPFRONT_USD:USD_HR`, as in `p5.48xlarge:1y:241000:0`; `pools` holds the fleet's pools by type.

    Raises InputError.
    """
    parts = text.split(":")
    if len(parts) != 4 or parts[1] not in TERMS:
        raise InputError(f"{text!r} is not an offer; write TYPE:TERM:UPFRONT_USD:USD_HR, as p5.48xlarge:1y:241000:0")
    if parts[0] not in pools:
        raise InputError(
            f"{text!r}: the fleet has no on-demand {parts[0]}; it has {', '.join(sorted(pools)) or 'none'}"
        )
    try:
        return CommitmentPrice(
            pool=pools[parts[0]],
            term_years=TERMS[parts[1]],
            upfront_usd=float(parts[2]),
            usd_hr=float(parts[3]),
            source=QUOTED,
        )
    except ValueError as error:
        raise InputError(f"{text!r}: {error}") from error


def _stated(row: Mapping[str, str]) -> Owned:
    start, end = _day_of(row, "start"), _day_of(row, "end")
    count, term_years = _whole_of(row, "count"), _whole_of(row, "term_years")
    if count < 1 or end <= start:
        raise ValueError("count must be at least 1, and end after start")
    if term_years not in TERMS.values():
        raise ValueError(f"term_years must be 1 or 3, not {term_years}")
    offer = CommitmentPrice(
        pool=Pool(row["provider"], row["instance_type"], row["region"]),
        term_years=term_years,
        upfront_usd=float(row["upfront_usd"] or 0),
        usd_hr=float(row["usd_hr"]),
        source=OWNED,
    )
    return Owned(name=row["name"], scope=OwnedNodes(offer=offer, count=count), start=start, end=end)


def _day_of(row: Mapping[str, str], column: str) -> date:
    try:
        return date.fromisoformat(row[column])
    except ValueError as error:
        raise ValueError(f"{column} {row[column]!r} is not a day; write it as 2026-01-31") from error


def _whole_of(row: Mapping[str, str], column: str) -> int:
    try:
        return int(row[column])
    except ValueError as error:
        raise ValueError(f"{column} {row[column]!r} is not a whole number") from error


Entry = Mapping[str, object]

_RUNNING = frozenset({"active", "payment-pending", "queued", "succeeded", ""})
_TERM_BY_PLAN = {"P1Y": 1, "P3Y": 3, "TWELVE_MONTH": 1, "THIRTY_SIX_MONTH": 3}
_MOST = 1e12
"""No amount, count or time in seconds of a commitment is larger."""
_FOCUS_COLUMNS = {"ContractCommitmentId", "ContractCommitmentCategory"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Inventory:
    """What is held, and what was left out, with why."""

    owned: tuple[Owned, ...] = ()
    left_out: tuple[str, ...] = ()


@dataclass(slots=True, kw_only=True)
class _InventoryDraft:
    """What a reader has found so far."""

    owned: list[Owned] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    ended: list[str] = field(default_factory=list)
    """Names of what the list itself says does not run."""


def read_inventory(path: Path, catalog: Catalog, *, region: str | None, type_of: Mapping[str, str]) -> Inventory:
    """Read a list of commitments held; `region` is used where AWS' list names none, `type_of` maps ids to types by the bill.

    Raises InputError where the file is none of the known lists, PriceFileError naming every entry that cannot be read.
    """
    reader = _Lists(catalog=catalog, region=region, type_of=type_of)
    text = read_text(path)
    if text.lstrip()[:1] in ("{", "["):
        return reader.read(path, *_json_entries(path, text))
    rows = csv_rows(text, str(path))
    if not rows or not rows[0].keys() >= _FOCUS_COLUMNS:
        return Inventory(owned=read_owned(path))
    return reader.read(path, rows, _Lists.focus)


def types_in_bill(costs: pa.Table) -> dict[str, str]:
    """Return instance types by the commitment that covered them, as a bill's charges tell; `costs` has both columns."""
    pairs = costs.select(["CommitmentDiscountId", "instance_type"]).drop_null()
    return {row["CommitmentDiscountId"]: row["instance_type"] for row in pairs.to_pylist()}


def _json_entries(path: Path, text: str) -> tuple[list[Entry], Callable[[_Lists, Entry, _InventoryDraft], None]]:
    raw = load_json(text, str(path))
    for key, read in (("ReservedInstances", _Lists.aws_reserved), ("savingsPlans", _Lists.aws_savings_plan)):
        if isinstance(raw, Mapping) and isinstance(raw.get(key), list):
            return list(_mappings(raw[key])), read
    entries = raw.get("value") if isinstance(raw, Mapping) else raw
    if isinstance(entries, list):
        found = list(_mappings(entries))
        if found and "plan" in found[0]:
            return found, _Lists.gcp
        if found and "properties" in found[0]:
            return found, _Lists.azure
    raise InputError(
        f"{path}: no list of commitments that is known; give the JSON of `aws ec2 describe-reserved-instances`, "
        "`aws savingsplans describe-savings-plans`, `az reservations reservation list` or "
        "`gcloud compute commitments list --format=json`"
    )


def _mappings(raw: Sequence[object]) -> Iterator[Entry]:
    for number, entry in enumerate(raw, start=1):
        if not isinstance(entry, Mapping):
            raise InputError(f"entry {number} of the list of commitments is not an object: {entry!r}")
        yield entry


@dataclass(frozen=True, slots=True, kw_only=True)
class _Lists:
    """Readers of single entries, one a list."""

    catalog: Catalog
    region: str | None
    type_of: Mapping[str, str]

    def read(
        self, path: Path, entries: Sequence[Entry], read: Callable[[_Lists, Entry, _InventoryDraft], None]
    ) -> Inventory:
        """Read every entry; raises PriceFileError with all faults."""
        found, faults = _InventoryDraft(), []
        for number, entry in enumerate(entries, start=1):
            try:
                read(self, entry, found)
            except KeyError as error:
                faults.append(
                    Fault(what=f"no {error}", where=f"entry {number}", cure="give the list as the cloud wrote it")
                )
            except (TypeError, ValueError) as error:
                faults.append(Fault(what=str(error), where=f"entry {number}"))
        if faults:
            raise PriceFileError(str(path), faults)
        return Inventory(owned=tuple(found.owned), left_out=(*found.left_out, *_not_counted(found.ended)))

    def aws_reserved(self, entry: Entry, found: _InventoryDraft) -> None:
        """Read an entry of `describe-reserved-instances`; only running ones count."""
        name = str(entry["ReservedInstancesId"])
        if str(entry.get("State", "")) not in _RUNNING:
            found.ended.append(name)
            return
        zone = str(entry.get("AvailabilityZone") or "")
        region = str(entry.get("Region") or zone[:-1] or self.region or "")
        if not region:
            found.left_out.append(f"{name}: the list names no region; say it with --owned-region us-east-1")
            return
        hourly = sum(
            _number(charge["Amount"])
            for charge in _mappings(_list(entry.get("RecurringCharges")))
            if charge.get("Frequency") == "Hourly"
        )
        term = round(_number(entry["Duration"]) / S_PER_HR / HR_PER_YEAR)
        offer = CommitmentPrice(
            pool=Pool("aws", str(entry["InstanceType"]), region),
            term_years=term,
            upfront_usd=_number(entry.get("FixedPrice", 0)),
            usd_hr=hourly + _number(entry.get("UsagePrice", 0)),
            source="aws ec2 describe-reserved-instances",
        )
        found.owned.append(_owned(name, offer, int(_number(entry["InstanceCount"])), entry["Start"], entry["End"]))

    def aws_savings_plan(self, entry: Entry, found: _InventoryDraft) -> None:
        """Read an entry of `describe-savings-plans`."""
        name = str(entry.get("savingsPlanId") or entry["savingsPlanArn"])
        if str(entry.get("state", "")) not in _RUNNING:
            found.ended.append(name)
            return
        kind = str(entry.get("savingsPlanType", "savings plan"))
        scope = OwnedSpend(
            provider="aws",
            usd_hr=_number(entry["commitment"]),
            family=str(entry.get("ec2InstanceFamily") or ""),
            region=str(entry.get("region") or ""),
        )
        found.owned.append(
            Owned(name=f"{name} ({kind})", scope=scope, start=_day(entry["start"]), end=_day(entry["end"]))
        )

    def azure(self, entry: Entry, found: _InventoryDraft) -> None:
        """Read an entry of `az reservations reservation list`; its price is the price book's."""
        facts = entry["properties"]
        if not isinstance(facts, Mapping):
            raise ValueError("properties is not an object")
        sku = entry.get("sku")
        instance_type = str(sku.get("name")) if isinstance(sku, Mapping) else str(facts["skuName"])
        name = str(facts.get("displayName") or entry.get("name") or instance_type)
        if str(facts.get("provisioningState", "")).casefold() not in _RUNNING:
            found.ended.append(name)
            return
        self._at_list_price(
            name=name,
            pool=Pool("azure", instance_type, str(entry["location"])),
            term=str(facts["term"]),
            count=int(_number(facts["quantity"])),
            period=(facts["effectiveDateTime"], facts.get("expiryDateTime") or facts["expiryDate"]),
            found=found,
        )

    def gcp(self, entry: Entry, found: _InventoryDraft) -> None:
        """Read an entry of `gcloud compute commitments list`: it commits to vCPUs, memory and GPUs, not to machine types."""
        if str(entry.get("status", "")).casefold() not in _RUNNING:
            found.ended.append(str(entry["name"]))
            return
        resources = [f"{resource.get('amount')} {resource.get('acceleratorType') or resource.get('type')}" for resource in
                     _mappings(_list(entry.get("resources")))]  # fmt: skip
        found.left_out.append(
            f"{entry['name']}: commits to {', '.join(resources) or 'nothing named'}, not to a machine type; write it as "
            "a row of a CSV (name, provider, instance_type, region, count, term_years, upfront_usd, usd_hr, start, end)"
        )

    def focus(self, entry: Entry, found: _InventoryDraft) -> None:
        """Read a row of FOCUS' Contract Commitment data set."""
        name = str(entry["ContractCommitmentId"])
        start, end = str(entry["ContractCommitmentPeriodStart"]), str(entry["ContractCommitmentPeriodEnd"])
        hours = hours_between(datetime.fromisoformat(start), datetime.fromisoformat(end))
        if hours <= 0:
            raise ValueError(f"{name}: the commitment ends before it begins")
        cost = _number(entry["ContractCommitmentCost"])
        if str(entry.get("BillingCurrency") or "USD") != "USD":
            found.left_out.append(f"{name}: in {entry['BillingCurrency']}, and rates are in USD")
        elif entry["ContractCommitmentCategory"] == "Spend":
            kind = str(entry.get("ContractCommitmentType") or "spend")
            scope = OwnedSpend(provider=_provider(name, entry), usd_hr=cost / hours)
            found.owned.append(Owned(name=f"{name} ({kind})", scope=scope, start=_day(start), end=_day(end)))
        else:
            self._focus_usage(name, entry, hours, cost, found)

    def _focus_usage(self, name: str, entry: Entry, hours: float, cost: float, found: _InventoryDraft) -> None:
        described = str(entry.get("ContractCommitmentDescription") or "")
        instance_type = self.type_of.get(name) or find_instance_type(described)
        region = name.split(":")[3] if name.startswith("arn:") else self.region
        quantity = _number(entry.get("ContractCommitmentQuantity") or 0)
        count = round(quantity / hours)
        if instance_type is None or not region or count < 1:
            found.left_out.append(
                f"{name}: {quantity:g} {entry.get('ContractCommitmentUnit') or 'units'} of no machine type that the data "
                "set or the bill names"
            )
            return
        offer = CommitmentPrice(
            pool=Pool(_provider(name, entry), instance_type, region),
            term_years=max(1, round(hours / HR_PER_YEAR)),
            upfront_usd=0.0,
            usd_hr=cost / hours / count,
            source="FOCUS contract commitments",
        )
        start, end = entry["ContractCommitmentPeriodStart"], entry["ContractCommitmentPeriodEnd"]
        found.owned.append(_owned(name, offer, count, start, end))

    def _at_list_price(
        self, *, name: str, pool: Pool, term: str, count: int, period: tuple[object, object], found: _InventoryDraft
    ) -> None:
        """Take a commitment whose list states no price at the price book's rate of its first day."""
        if term not in _TERM_BY_PLAN:
            raise ValueError(f"{name}: term {term!r} is neither one nor three years")
        years = _TERM_BY_PLAN[term]
        option = BuyingOption(f"reserved-{years}y")
        try:
            price = self.catalog.prices.price(
                pool.provider, pool.instance_type, pool.region, option, at=_day(period[0])
            )
        except (MissingPrice, UnknownName) as error:
            found.left_out.append(f"{name}: its list states no price, and the price book has none ({error})")
            return
        offer = CommitmentPrice(
            pool=pool, term_years=years, upfront_usd=0.0, usd_hr=price.usd_hr, source=f"list price, {price.source}"
        )
        found.owned.append(_owned(name, offer, count, *period))


def _owned(name: str, offer: CommitmentPrice, count: int, start: object, end: object) -> Owned:
    first, last = _day(start), _day(end)
    if count < 1 or last <= first:
        raise ValueError(f"{name}: a count of at least 1, and an end after the start, are needed")
    return Owned(name=name, scope=OwnedNodes(offer=offer, count=count), start=first, end=last)


def _not_counted(ended: Sequence[str]) -> Iterator[str]:
    """Say what the list itself says does not run, so that nothing vanishes unseen."""
    if ended:
        yield f"{', '.join(ended)}: {len(ended)} that the list itself says do not run"


def _provider(name: str, entry: Entry) -> str:
    return "aws" if name.startswith("arn:aws") else str(entry.get("provider", "aws"))


def _day(moment: object) -> date:
    return datetime.fromisoformat(str(moment)).date()


def _number(value: object) -> float:
    number = float(str(value))
    if not 0 <= number <= _MOST:
        raise ValueError(f"{value!r} is not an amount, count or time of a commitment; expected from 0 to {_MOST:g}")
    return number


def _list(value: object) -> list[object]:
    if value is None:
        return []
    if not isinstance(value, list):
        raise ValueError(f"expected a list, found {value!r}")
    return value
