"""What an address asks for, read within limits: a value that is too long, or no number where one is wanted, is refused."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping
from datetime import date
from types import MappingProxyType

from starlette.datastructures import QueryParams

from trimtab.catalog.registry import price_change
from trimtab.errors import InputError, UnknownName, UsageError
from trimtab.fleet.reach import listed, quotas_of
from trimtab.fleet.targets import other_limit
from trimtab.plan.proof.scenario import Scenario
from trimtab.units import S_PER_DAY
from trimtab.web.tables import AllocationQuestion, DataTable, TableQuestion

MOST_CHARS = 400
"""Of a value in a query."""
MOST_PAGE = 100_000
MOST_OFF = 400
MOST_PRICES = 8
"""Prices, quotas, targets or places that change in one scenario."""
LEAST_DEMAND, MOST_DEMAND = 0.05, 20.0
"""Times today's."""
MOST_USD_MO = 1e10
SPLITS = ("team", "workload", "namespace", "kind", "model")
"""What a bill is split by, besides a label (`label:KEY`)."""
BASES = ("", "effective", "billed", "list")
RULES = ("show", "spread", "even")
_PRICE = r"[A-Za-z][A-Za-z0-9._-]{0,40}(\+[0-9]{1,3}|-[0-9]{1,2})(\.[0-9]{1,2})?%"
_QUOTA = r"[a-z][a-z0-9.-]{0,40}(@[a-z][a-z0-9-]{0,40})?(:(spot|on-demand))?=[0-9]{1,6}"
_CLOUD = r"[a-z][a-z0-9-]{0,40}"
_REGION = r"([a-z][a-z0-9-]{0,40}/)?[a-z][a-z0-9-]{0,60}"
_LIMIT = r"[a-z0-9][a-z0-9./-]{0,120}(:[a-z_]{3,12})?=[0-9]{1,7}(\.[0-9]{1,4})?"
PATTERNS: Mapping[str, str] = MappingProxyType(
    {
        "price": f"^{_PRICE}(, ?{_PRICE}){{0,{MOST_PRICES - 1}}}$",
        "quota": f"^{_QUOTA}(, ?{_QUOTA}){{0,{MOST_PRICES - 1}}}$",
        "target": f"^{_LIMIT}(, ?{_LIMIT}){{0,{MOST_PRICES - 1}}}$",
        "cloud": f"^{_CLOUD}(, ?{_CLOUD}){{0,{MOST_PRICES - 1}}}$",
        "region": f"^{_REGION}(, ?{_REGION}){{0,{MOST_PRICES - 1}}}$",
        "deadline": "^[1-9][0-9]{3}-(0[1-9]|1[0-2])(-(0[1-9]|1[0-9]|2[0-8]))?$",
        "by": f"^({'|'.join(SPLITS)}|label:[A-Za-z0-9._/-]{{1,317}})$",
    }
)
"""What texts of a query look like, as their description has it; a Kubernetes label's key has at most 317 characters."""
_FORMS = {
    "price": "changes such as H100-15%,spot+30%",
    "quota": "TYPE[@REGION][:spot]=NODES, as p5.48xlarge=16",
    "target": "WORKLOAD[:METRIC]=SECONDS, as prod/chat=0.3",
    "cloud": "names of providers, as gcp",
    "region": "[PROVIDER/]REGION, as us-west-2 or gcp/us-central1",
    "deadline": "a month or a day up to its 28th, as 2027-03 or 2027-03-15",
    "by": f"one of {', '.join(SPLITS)} or label:KEY",
}
_NAMED = 8
"""Workloads that a refusal lists."""
_FLAGS = {"": True, "1": True, "0": False}


class BadQuestion(UsageError):
    """A query that cannot be answered."""


def word(query: QueryParams, key: str) -> str:
    """Return a value as it stands, empty where it is not there; raises BadQuestion where it is too long or given twice."""
    if (times := len(query.getlist(key))) > 1:
        raise BadQuestion(f"{key} is given {times} times: give it once")
    value = query.get(key, "")
    if len(value) > MOST_CHARS:
        raise BadQuestion(f"{key} is longer than {MOST_CHARS} characters")
    return value


def table_question(query: QueryParams) -> TableQuestion:
    """Return what of a table is wanted; raises BadQuestion."""
    page, down = word(query, "page") or "1", word(query, "down")
    if not (page.isascii() and page.isdecimal() and len(page) <= len(str(MOST_PAGE)) and 1 <= int(page) <= MOST_PAGE):
        raise BadQuestion(f"page must be a number from 1 to {MOST_PAGE}")
    if down not in _FLAGS:
        raise BadQuestion("down must be 0 or 1")
    return TableQuestion(
        words=word(query, "q"), team=word(query, "team"), sort=word(query, "sort"), down=_FLAGS[down], page=int(page)
    )


def rows_asked(table: DataTable, query: QueryParams) -> DataTable:
    """Return the rows of a table that a query wants, in its order; raises BadQuestion where that is by no column of its."""
    question, keys = table_question(query), [column.key for column in table.columns]
    if question.sort and question.sort not in keys:
        raise BadQuestion(f"sort must be a column of the table {table.key}: {', '.join(keys)}")
    return table.asked(question)


def subject(query: QueryParams, key: str, known: Collection[str]) -> str:
    """Return the workload that a table is about, one of `known` or of none; raises BadQuestion where it is not given."""
    found = word(query, key)
    if not found and known:
        some = ", ".join(sorted(known)[:_NAMED]) + (", ..." if len(known) > _NAMED else "")
        raise BadQuestion(f"this table is about one workload: give {key}, one of {some}")
    return found


def switched_off(query: QueryParams) -> frozenset[str]:
    """Return the ids of actions that are off: `off=a1,a3`; raises BadQuestion where they are too many."""
    ids = frozenset(name for part in query.getlist("off") for name in part.split(",") if name)
    if len(ids) > MOST_OFF or any(len(name) > MOST_CHARS for name in ids):
        raise BadQuestion(f"off takes up to {MOST_OFF} ids of actions")
    return ids


def ordered(query: QueryParams) -> tuple[str, ...]:
    """Return the ids of actions in an order: `order=a2,a1`; raises BadQuestion where they are too many."""
    ids = tuple(name for part in query.getlist("order") for name in part.split(",") if name)
    if len(ids) > MOST_OFF or any(len(name) > MOST_CHARS for name in ids):
        raise BadQuestion(f"order takes up to {MOST_OFF} ids of actions")
    return ids


def whole_number(query: QueryParams, key: str, most: int = MOST_PAGE) -> int | None:
    """Return a whole number from 0 on, None where it is left out; raises BadQuestion."""
    text = word(query, key)
    if not text:
        return None
    if not (text.isascii() and text.isdecimal() and len(text) <= len(str(most)) and int(text) <= most):
        raise BadQuestion(f"{key} must be a whole number from 0 to {most}")
    return int(text)


def number(query: QueryParams, key: str, least: float, most: float) -> float | None:
    """Return a number, None where it is left out; raises BadQuestion where it is none or out of range."""
    text = word(query, key)
    if not text:
        return None
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not least <= value <= most:
        raise BadQuestion(f"{key} must be a number from {least:g} to {most:g}")
    return value


def scenario(query: QueryParams) -> Scenario | None:
    """Return the world that is asked about, None where nothing is different; raises BadQuestion."""
    changes, quotas, limits, deadline = (patterned(query, key) for key in ("price", "quota", "target", "deadline"))
    clouds, regions = (listed(patterned(query, key)) for key in ("cloud", "region"))
    try:
        quotas_of(quotas)
        found = Scenario(
            demand=number(query, "demand", LEAST_DEMAND, MOST_DEMAND) or 1.0,
            prices=tuple(price_change(part) for part in changes.split(",") if part),
            limits=tuple(other_limit(part) for part in limits.split(",") if part),
            use_spot=False if choice(query, "no_spot", ("", "1")) else None,
            spot_max_frac=number(query, "spot_max", 0.0, 1.0),
            quotas=quotas or None,
            clouds=clouds,
            regions=regions,
            node_startup_s=number(query, "node_start", 0.0, S_PER_DAY),
            budget_usd_mo=number(query, "budget", 0.0, MOST_USD_MO),
            deadline=date.fromisoformat(f"{deadline}-01" if len(deadline) == len("2027-03") else deadline)
            if deadline
            else None,
        )
    except (InputError, UnknownName) as error:
        raise BadQuestion(str(error)) from error
    return found if found.words() else None


def allocation(query: QueryParams) -> AllocationQuestion:
    """Return how a bill is to be split; raises BadQuestion."""
    return AllocationQuestion(
        split=patterned(query, "by") or SPLITS[0],
        basis=choice(query, "cost", BASES),
        idle=choice(query, "idle", ("", *RULES)) or RULES[0],
        shared=choice(query, "shared", ("", *RULES)) or RULES[0],
    )


def patterned(query: QueryParams, key: str) -> str:
    """Return a text of a known form, empty where it is left out; raises BadQuestion for another."""
    value = word(query, key)
    if value and not re.fullmatch(PATTERNS[key], value):
        raise BadQuestion(f"{key} must be {_FORMS[key]}")
    return value


def choice(query: QueryParams, key: str, known: tuple[str, ...]) -> str:
    """Return one of several values; raises BadQuestion for another."""
    value = word(query, key)
    if value not in known:
        raise BadQuestion(f"{key} must be one of {', '.join(name for name in known if name)}")
    return value
