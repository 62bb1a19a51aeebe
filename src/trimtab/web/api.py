"""The documents as JSON under `/api`, the same that `-o json` writes, and their description as OpenAPI."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from trimtab._version import __version__
from trimtab.emit.document import AuditDocument
from trimtab.emit.document.plan import SwitchedPart
from trimtab.emit.verify_document import SCHEMA_VERSION as VERIFICATION_VERSION
from trimtab.units import S_PER_DAY
from trimtab.web.computations import ComputationState, State
from trimtab.web.library import AuditEntry
from trimtab.web.price_list import OPTIONS, PRICE_COLUMNS, PriceList
from trimtab.web.questions import (
    BASES,
    LEAST_DEMAND,
    MOST_CHARS,
    MOST_DEMAND,
    MOST_PAGE,
    MOST_USD_MO,
    PATTERNS,
    RULES,
)
from trimtab.web.reviews import REVIEW_COLUMNS
from trimtab.web.section_tables import NAME_PATTERN
from trimtab.web.tables import TABLES, DataColumn, DataTable

Schema = dict[str, Any]
"""A JSON Schema, or a part of an OpenAPI description: of any depth."""
PREFIX = "/api"


def entry_row(entry: AuditEntry, document: AuditDocument) -> dict[str, object]:
    """Return an audit as the list of audits has it."""
    return {
        "name": entry.name,
        "fleet": document.fleet,
        "start": document.coverage.window.start.isoformat(),
        "end": document.coverage.window.end.isoformat(),
        "bill_usd_mo": document.bill_usd_mo,
        "joint_saving_usd_mo": document.plan.joint_saving_usd_mo,
    }


def computation_row(found: ComputationState) -> dict[str, object]:
    """Return a computation as the API has it."""
    return {
        "id": found.ident,
        "audit": found.question.audit,
        "what": found.question.words,
        "state": found.state,
        "stage": found.stage,
        "done_frac": found.done_frac,
    }


def json_text(plain: object) -> str:
    """Return a value as JSON; raises ValueError for NaN and infinity, which JSON does not have."""
    return json.dumps(plain, ensure_ascii=False, allow_nan=False)


def rows(table: DataTable) -> dict[str, object]:
    """Return rows as `-o json` of a command writes them."""
    return row_document(table.plain_rows())


def row_document(plain_rows: Sequence[Mapping[str, object]]) -> dict[str, object]:
    """Return plain rows in the same form."""
    return {"schema_version": _ROWS_VERSION, "rows": list(plain_rows)}


_ROWS_VERSION = 1


def openapi(prices: PriceList) -> Schema:
    """Return the description of the API, OpenAPI 3.1."""
    schemas: Schema = {}
    for model in (AuditDocument, SwitchedPart):
        schema = model.model_json_schema(mode="serialization", ref_template="#/components/schemas/{model}")
        schemas |= schema.pop("$defs", {})
        schemas[model.__name__] = schema
    schemas |= _OWN_SCHEMAS
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "trimtab",
            "version": __version__,
            "description": "Audits of GPU fleets, their plans and proofs. Reads only; background work can be cancelled.",
        },
        "paths": _paths(prices),
        "components": {
            "schemas": schemas,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{}, {"token": []}],
    }


_VERIFICATION_FIGURES = (
    "then_usd_mo",
    "demand_usd_mo",
    "saved_usd_mo",
    "rates_usd_mo",
    "now_usd_mo",
    "predicted_usd_mo",
    "outside_usd_mo",
)
_OWN_SCHEMAS: Schema = {
    "Error": {
        "type": "object",
        "properties": {"error": {"type": "string"}},
        "required": ["error"],
        "additionalProperties": False,
    },
    "UnderWay": {
        "type": "object",
        "properties": {
            "stage": {"type": "string"},
            "done_frac": {"type": "number"},
            "computation": {"type": "string", "description": "The id by which it can be cancelled."},
        },
        "required": ["stage", "done_frac", "computation"],
        "additionalProperties": False,
    },
    "Computation": {
        "type": "object",
        "properties": {
            "id": {"type": "string"},
            "audit": {"type": "string"},
            "what": {"type": "string"},
            "state": {"type": "string", "enum": [state.value for state in State]},
            "stage": {"type": "string"},
            "done_frac": {"type": "number", "minimum": 0, "maximum": 1},
        },
        "required": ["id", "audit", "what", "state", "stage", "done_frac"],
        "additionalProperties": False,
    },
    "AuditRow": {
        "type": "object",
        "properties": {
            "name": {"type": "string"},
            "fleet": {"type": "string"},
            "start": {"type": "string", "format": "date-time"},
            "end": {"type": "string", "format": "date-time"},
            "bill_usd_mo": {"type": "number"},
            "joint_saving_usd_mo": {"type": "number"},
        },
        "required": ["name", "fleet", "start", "end", "bill_usd_mo", "joint_saving_usd_mo"],
        "additionalProperties": False,
    },
    "Rows": {
        "type": "object",
        "properties": {
            "schema_version": {"const": _ROWS_VERSION},
            "rows": {"type": "array", "items": {"type": "object"}},
        },
        "required": ["schema_version", "rows"],
        "additionalProperties": False,
    },
    "Verification": {
        "type": "object",
        "properties": {
            "schema_version": {"const": VERIFICATION_VERSION},
            "window": {"type": "object"},
            **{name: {"type": "number"} for name in _VERIFICATION_FIGURES},
            **{name: {"type": "array"} for name in ("rows", "drifts", "purchases", "notes")},
        },
        "required": ["schema_version", "window", *_VERIFICATION_FIGURES, "rows", "drifts", "purchases", "notes"],
        "additionalProperties": False,
    },
    "Year": {
        "type": "object",
        "properties": {
            "course": {"anyOf": [{"$ref": "#/components/schemas/SchedulePart"}, {"type": "null"}]},
            "plan_year_usd": {"type": ["number", "null"]},
            "faults": {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {
                        "action": {"type": "string"},
                        "needs": {"type": "string"},
                        "misses_target": {"type": "boolean"},
                    },
                    "required": ["action", "needs", "misses_target"],
                    "additionalProperties": False,
                },
            },
        },
        "required": ["course", "plan_year_usd", "faults"],
        "additionalProperties": False,
    },
    "Commitments": {
        "type": "object",
        "properties": {"schema_version": {"const": _ROWS_VERSION}, "basis": {"type": "string"}},
        "required": ["schema_version", "basis"],
    },
    "TableRows": {
        "type": "object",
        "properties": {
            "table": {"type": "string"},
            "columns": {"type": "array", "items": {"type": "string"}},
            "rows": {"type": "array", "items": {"type": "object"}},
        },
        "required": ["table", "columns", "rows"],
        "additionalProperties": False,
    },
}
_AUDIT = {
    "name": "audit",
    "in": "path",
    "required": True,
    "description": "The name of a kept audit.",
    "schema": {"type": "string"},
}


def _paths(prices: PriceList) -> Schema:
    listed = {"type": "object", "properties": {"audits": _array("AuditRow")}, "required": ["audits"]}
    return {
        "/api/audits": _get("The kept audits, the latest first", (), {200: listed}),
        "/api/audits/{audit}": _get(
            "An audit, as `trimtab audit -o json` has it", (_AUDIT,), {200: _ref("AuditDocument"), 404: _ref("Error")}
        ),
        "/api/audits/{audit}/plan": _get(
            "The best plan that does without some actions: chosen, billed and proved again",
            (_AUDIT, _OFF),
            {200: _ref("SwitchedPart"), **_WORKED_OUT},
        ),
        "/api/audits/{audit}/what-if": _get(
            "The fleet in another world beside the plan, as `trimtab what-if -o json` has it",
            (_AUDIT, *_SCENARIO_PARAMETERS),
            {200: _ref("Rows"), **_WORKED_OUT},
        ),
        "/api/audits/{audit}/verify": _get(
            "The plan compared with later history, as `trimtab verify -o json` has it",
            (_AUDIT,),
            {200: _ref("Verification"), **_WORKED_OUT},
        ),
        "/api/audits/{audit}/allocation": _get(
            "The bill split, as `trimtab allocate -o json` has it",
            (_AUDIT, *_ALLOCATION_PARAMETERS),
            {200: _ref("Rows"), **_WORKED_OUT},
        ),
        "/api/audits/{audit}/year": _get(
            "The year, month by month, if the actions are done in an order",
            (_AUDIT, _ORDER),
            {200: _ref("Year"), **_WORKED_OUT},
        ),
        "/api/audits/{audit}/commitments": _get(
            "What to commit to, as `trimtab commit -o json` has it",
            (_AUDIT,),
            {200: _ref("Commitments"), **_WORKED_OUT},
        ),
        "/api/computations": _get(
            "What is being worked out in the background, and what was as far as it is kept",
            (),
            {
                200: {
                    "type": "object",
                    "properties": {"computations": _array("Computation")},
                    "required": ["computations"],
                }
            },
        ),
        "/api/computations/{computation}": {
            **_get("How far a computation is", (_COMPUTATION,), _COMPUTATION_ANSWERS),
            **_operation(
                "delete",
                "Cancel a computation: it ends with the stage that it is in; answers that are finished stay",
                (_COMPUTATION,),
                {**_COMPUTATION_ANSWERS, 409: _ref("Error")},
            ),
            **_operation(
                "post",
                "Begin a cancelled computation again",
                (_COMPUTATION,),
                {**_COMPUTATION_ANSWERS, 429: _ref("Error")},
            ),
        },
        "/api/prices": _get(
            "Rates of a GPU with the day from which each held",
            (*_price_parameters(prices), *_table_parameters(PRICE_COLUMNS)),
            {200: _ref("TableRows"), 400: _ref("Error")},
        ),
        "/api/reviews": _get(
            "Kept reviews of changes, the latest first",
            _table_parameters(REVIEW_COLUMNS),
            {200: _ref("TableRows"), 400: _ref("Error")},
        ),
        "/api/reviews/{review}": _get(
            "A kept review, as `trimtab review -o json` has it",
            ({**_AUDIT, "name": "review", "description": "The name of its file without `.json`."},),
            {200: _ref("Rows"), 404: _ref("Error"), 409: _ref("Error")},
        ),
        "/api/audits/{audit}/tables/{table}": _get(
            "A table of an audit; `what-if` and `allocation` take the parameters of their documents too",
            (
                _AUDIT,
                _table(),
                *_TABLE_PARAMETERS,
                *_SCENARIO_PARAMETERS,
                *_ALLOCATION_PARAMETERS,
                _ORDER,
                _OFF,
                *_SUBJECT_PARAMETERS,
            ),
            {200: _ref("TableRows"), **_WORKED_OUT},
        ),
    }


def _table() -> Schema:
    return {
        "name": "table",
        "in": "path",
        "required": True,
        "description": "A table of an audit, or of a page's section as the page's links name it: `finance-months`.",
        "schema": {
            "type": "string",
            "anyOf": [{"enum": sorted((*TABLES, *_WORKED_OUT_TABLES))}, {"pattern": NAME_PATTERN}],
        },
    }


def _parameter(name: str, description: str, schema: Schema) -> Schema:
    return {"name": name, "in": "query", "description": description, "schema": schema}


def _text(name: str) -> Schema:
    return {"type": "string", "maxLength": MOST_CHARS, "pattern": PATTERNS[name]}


def _text_or_none(name: str) -> Schema:
    """Return the form of a value that may be empty, which counts as left out: forms send it so."""
    return {**_text(name), "pattern": f"^$|{PATTERNS[name]}"}


_WORKED_OUT_TABLES = (
    "allocation", "capacity", "commitments", "gpus", "limit-prices", "switched", "verified", "what-if", "year",
)  # fmt: skip
_OFF = _parameter("off", "Ids of actions, with commas between them.", {"type": "string"})
_ORDER = _parameter(
    "order",
    "Ids of actions, with commas between them; those left out come last, in the plan's order.",
    {"type": "string"},
)
_SUBJECT_PARAMETERS: Sequence[Schema] = (
    _parameter("name", "The workload of the table `gpus`.", {"type": "string", "maxLength": MOST_CHARS}),
    _parameter("what", "The service of the table `capacity`.", {"type": "string", "maxLength": MOST_CHARS}),
)


def _price_parameters(prices: PriceList) -> Sequence[Schema]:
    """Describe the question about prices with the names that it takes."""
    gpu, provider = ({"type": "string", "enum": ["", *names]} for names in (prices.gpus, prices.providers))
    return (
        _parameter("gpu", "A GPU of the catalog, as `trimtab prices --gpus` names it.", gpu),
        _parameter("provider", "Who sells it.", provider),
        _parameter("option", "How it is bought.", {"type": "string", "enum": list(OPTIONS)}),
    )


def _table_parameters(columns: Sequence[DataColumn]) -> Sequence[Schema]:
    """Describe what is asked of a table whose columns are known: it is sorted by one of them."""
    by = {"type": "string", "enum": ["", *(column.key for column in columns)]}
    sort = _parameter("sort", "The column that rows are put in order by.", by)
    return tuple(sort if parameter["name"] == "sort" else parameter for parameter in _TABLE_PARAMETERS)


_SCENARIO_PARAMETERS: Sequence[Schema] = (
    _parameter("demand", "Times today's.", {"type": "number", "minimum": LEAST_DEMAND, "maximum": MOST_DEMAND}),
    _parameter("price", "Changes, with commas between them: `H100-15%,spot+30%`.", _text("price")),
    _parameter("no_spot", "1: nothing is moved to spot.", {"type": "string", "enum": ["1"]}),
    _parameter("spot_max", "Share of node-hours on spot at most.", {"type": "number", "minimum": 0, "maximum": 1}),
    _parameter("target", "`WORKLOAD[:METRIC]=SECONDS`, with commas between them.", _text("target")),
    _parameter("quota", "`TYPE=NODES`, with commas between them.", _text("quota")),
    _parameter("cloud", "Further providers that work may move to, with commas between them.", _text("cloud")),
    _parameter("region", "Further regions, `[PROVIDER/]REGION` with commas between them.", _text("region")),
    _parameter(
        "node_start", "Seconds until a new node is there.", {"type": "number", "minimum": 0, "maximum": S_PER_DAY}
    ),
    _parameter("budget", "Dollars a month at most.", {"type": "number", "minimum": 0, "maximum": MOST_USD_MO}),
    _parameter("deadline", "A month, or a day up to its 28th: 2027-03.", _text("deadline")),
)
_ALLOCATION_PARAMETERS: Sequence[Schema] = (
    _parameter("by", "team, workload, namespace, kind, model or `label:KEY`; empty: team.", _text_or_none("by")),
    _parameter("cost", "What is charged.", {"type": "string", "enum": list(BASES)}),
    _parameter("idle", "Idle nodes and unused commitments.", {"type": "string", "enum": ["", *RULES]}),
    _parameter("shared", "Tax, credits, charges without an owner.", {"type": "string", "enum": ["", *RULES]}),
)
_TABLE_PARAMETERS: Sequence[Schema] = (
    _parameter("q", "Rows that hold this text.", {"type": "string", "maxLength": MOST_CHARS}),
    _parameter("team", "Rows of this team.", {"type": "string", "maxLength": MOST_CHARS}),
    _parameter("sort", "The column that rows are put in order by.", {"type": "string", "maxLength": MOST_CHARS}),
    _parameter("down", "1: the largest first.", {"type": "string", "enum": ["0", "1"]}),
    _parameter("page", "Pages of HTML; files have all rows.", {"type": "integer", "minimum": 1, "maximum": MOST_PAGE}),
)


def _get(summary: str, parameters: Sequence[Schema], answers: Mapping[int, Schema]) -> Schema:
    return _operation("get", summary, parameters, answers)


def _operation(method: str, summary: str, parameters: Sequence[Schema], answers: Mapping[int, Schema]) -> Schema:
    responses = {
        str(status): {"description": _MEANING[status], "content": {"application/json": {"schema": schema}}}
        for status, schema in answers.items()
    }
    responses["414"] = {
        "description": "The address is too long.",
        "content": {"text/plain": {"schema": {"type": "string"}}},
    }
    return {method: {"summary": summary, "parameters": list(parameters), "responses": responses}}


_MEANING = {
    200: "Found.",
    202: "Not ready yet: ask again.",
    400: "The question cannot be read.",
    404: "There is no such thing.",
    409: "It cannot be made: the reason says why.",
    429: "Too many questions at once: ask again later.",
}


def _ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


_WORKED_OUT = {202: _ref("UnderWay")} | {status: _ref("Error") for status in (400, 404, 409, 429)}
"""What may be answered in addition, where something has to be worked out."""


_COMPUTATION = {
    "name": "computation",
    "in": "path",
    "required": True,
    "description": "The id that a 202 answer gives.",
    "schema": {"type": "string"},
}
_COMPUTATION_ANSWERS = {200: _ref("Computation"), 404: _ref("Error")}


def _array(name: str) -> Schema:
    return {"type": "array", "items": _ref(name)}
