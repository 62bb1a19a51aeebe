"""Turn an audit into its document. Money is rounded here, once: parts sum to their totals to the cent in every face."""

from __future__ import annotations

from trimtab._version import __version__
from trimtab.emit.document import SCHEMA_VERSION, AuditDocument
from trimtab.emit.from_audit.actions import target_part
from trimtab.emit.from_audit.bill import (
    coverage_part,
    owned_parts,
    owned_spend_parts,
    product_form_part,
    spend_tables,
    unjudged_part,
    verdict_part,
    waste_parts,
)
from trimtab.emit.from_audit.laws import law_part
from trimtab.emit.from_audit.pictures import pictures_part
from trimtab.emit.from_audit.plan import plan_part
from trimtab.emit.from_audit.proof import proof_part, robustness_part
from trimtab.emit.from_audit.scenario import what_if_part
from trimtab.emit.from_audit.undeclared import undeclared_part
from trimtab.emit.money import month_usd
from trimtab.plan.audit import Audit


def audit_document(audit: Audit) -> AuditDocument:
    """Build the document of an audit. Parts of the bill and of the joint saving sum to them to the cent."""
    window_hr = audit.plan.window.hours
    targets = tuple(target_part(result) for result in audit.proof.targets)
    return AuditDocument(
        schema_version=SCHEMA_VERSION,
        trimtab_version=__version__,
        fleet=audit.fleet,
        coverage=coverage_part(audit),
        degraded=audit.degraded,
        bill_usd_mo=month_usd(audit.bill_micro_usd, window_hr),
        spend=spend_tables(audit),
        product_form=product_form_part(audit.product_form),
        waste=waste_parts(audit.waste, audit),
        verdicts=tuple(verdict_part(verdict) for verdict in audit.verdicts),
        plan=plan_part(audit, targets),
        proof=proof_part(audit.proof, targets, audit.plan.window),
        unjudged=tuple(unjudged_part(row, window_hr) for row in audit.unjudged),
        pictures=pictures_part(audit),
        owned=owned_parts(audit.owned),
        owned_spend=owned_spend_parts(audit.owned),
        laws=tuple(law_part(law) for law in audit.laws),
        undeclared=tuple(undeclared_part(undeclared) for undeclared in audit.undeclared),
        robustness=None if audit.robustness is None else robustness_part(audit.robustness),
        what_if=None if audit.what_if is None else what_if_part(audit.what_if),
    )
