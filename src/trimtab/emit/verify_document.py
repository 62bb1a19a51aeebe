"""Reads and writes a verification as JSON: the change of the bill step by step, the actions, drift alerts, and current
buying options."""

from __future__ import annotations

from typing import Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, FiniteFloat, JsonValue, ValidationError

from trimtab.emit.document.part import faults
from trimtab.errors import InputError
from trimtab.plan.verify.enactment import Drift
from trimtab.plan.verify.verification import ActionStatus, ActionVerdict, NodePurchase, Verification

SCHEMA_VERSION = 1


def verify_document(found: Verification) -> dict[str, JsonValue]:
    """Return the document, with money in dollars a month rounded to cents."""
    return {
        "schema_version": SCHEMA_VERSION,
        "window": {"start": found.window.start.isoformat(), "end": found.window.end.isoformat()},
        "then_usd_mo": round(found.then_usd_mo, 2),
        "demand_usd_mo": round(found.demand_usd_mo, 2),
        "saved_usd_mo": round(found.saved_usd_mo, 2),
        "rates_usd_mo": round(found.rates_usd_mo, 2),
        "now_usd_mo": round(found.now_usd_mo, 2),
        "predicted_usd_mo": round(found.predicted_usd_mo, 2),
        "outside_usd_mo": round(found.outside_usd_mo, 2),
        "rows": [verdict_row(verdict) for verdict in found.actions],
        "drifts": [_drift(drift) for drift in found.drifts],
        "purchases": [_purchase(purchase) for purchase in found.purchases],
        "notes": list(found.notes),
    }


def verdict_row(verdict: ActionVerdict) -> dict[str, JsonValue]:
    """Return the row of an action, as used in every format."""
    return {
        "id": verdict.id,
        "lever": verdict.lever,
        "subject": verdict.subject,
        "status": verdict.status.value,
        "enacted_frac": round(verdict.enacted_frac, 4),
        "predicted_usd_mo": round(verdict.predicted_usd_mo.value, 2),
        "predicted_low_usd_mo": round(verdict.predicted_usd_mo.low, 2),
        "predicted_high_usd_mo": round(verdict.predicted_usd_mo.high, 2),
        "realised_usd_mo": round(verdict.realised_usd_mo, 2),
        "cause": verdict.cause,
    }


def _drift(drift: Drift) -> dict[str, JsonValue]:
    return {
        "kind": drift.kind.value,
        "subject": drift.subject,
        "action": drift.action,
        "seen_frac": round(drift.seen_frac, 4),
        "limit_frac": round(drift.limit_frac, 4),
        "advice": drift.advice,
    }


def _purchase(purchase: NodePurchase) -> dict[str, JsonValue]:
    return {
        "instance_type": purchase.instance_type,
        "region": purchase.region,
        "mean_nodes": round(purchase.mean_nodes, 3),
        "now": purchase.now,
        "now_usd_mo": round(purchase.now_usd_mo, 2),
        "advice": purchase.advice,
        "options": [
            {
                "option": option.option.value,
                "usd_node_hr": option.usd_node_hr,
                "commit": option.commit,
                "usd_mo": round(option.usd_mo, 2),
            }
            for option in purchase.options
        ],
    }


class VerifiedActionPart(BaseModel):
    """An action read from the JSON of a verification. Keys not named here are ignored."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    id: str
    lever: str
    subject: str
    status: ActionStatus
    predicted_usd_mo: FiniteFloat
    realised_usd_mo: FiniteFloat
    cause: str


class VerifiedWindowPart(BaseModel):
    """The history that was verified, UTC."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    start: AwareDatetime
    end: AwareDatetime


class VerifiedPart(BaseModel):
    """A verification read from JSON."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    schema_version: Literal[1]
    window: VerifiedWindowPart
    rows: tuple[VerifiedActionPart, ...]


def parse_verification(text: str, *, where: str) -> VerifiedPart:
    """Read the output of `verify_document`. Raises InputError if it does not belong to this version."""
    try:
        return VerifiedPart.model_validate_json(text)
    except ValidationError as error:
        raise InputError(
            f"{where} is not a verification ({faults(error)}); write one with `trimtab verify BUNDLE -o json --out FILE`"
        ) from error
