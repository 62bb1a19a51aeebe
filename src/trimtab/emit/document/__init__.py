"""The audit as a document: what every output shows, JSON publishes, and later commands read back.

`audit_document.audit_document` builds it from an `Audit`. Money is rounded there and nowhere else, so all outputs agree to the
cent. The docstring under each field is its description in the published schema (`schemas/audit-1.json`).
"""

from __future__ import annotations

from trimtab.emit.document.actions import ActionPart, ChangePart, TargetPart
from trimtab.emit.document.audit import (
    SCHEMA_VERSION,
    AuditDocument,
    BillByHour,
    CapacityPart,
    ComparedPart,
    HeatMapPart,
    Pictures,
    UndeclaredPart,
    WhatIfPart,
)
from trimtab.emit.document.bill import (
    BrokenPart,
    CoveragePart,
    FoundPart,
    HygienePart,
    OwnedPart,
    OwnedSpendPart,
    ProductFormPart,
    SpendPart,
    SpendTables,
    TokenCostPart,
    UnjudgedPart,
    VerdictPart,
    WastePart,
)
from trimtab.emit.document.part import EvidencePart, WindowPart
from trimtab.emit.document.plan import (
    EffortSensitivityPart,
    LimitPart,
    NotWorthPart,
    PlanPart,
    RoadmapPart,
    SchedulePart,
    StepPart,
    VenturePart,
)
from trimtab.emit.document.proof import (
    ActionProofPart,
    BackTestPart,
    HeldPart,
    LawPart,
    PromisePart,
    ProofPart,
    RepairPart,
    RobustnessPart,
    StressedPart,
    StressedTargetPart,
)

__all__ = [
    "SCHEMA_VERSION",
    "ActionPart",
    "ActionProofPart",
    "AuditDocument",
    "BackTestPart",
    "BillByHour",
    "BrokenPart",
    "CapacityPart",
    "ChangePart",
    "ComparedPart",
    "CoveragePart",
    "EffortSensitivityPart",
    "EvidencePart",
    "FoundPart",
    "HeatMapPart",
    "HeldPart",
    "HygienePart",
    "LawPart",
    "LimitPart",
    "NotWorthPart",
    "OwnedPart",
    "OwnedSpendPart",
    "Pictures",
    "PlanPart",
    "ProductFormPart",
    "PromisePart",
    "ProofPart",
    "RepairPart",
    "RoadmapPart",
    "RobustnessPart",
    "SchedulePart",
    "SpendPart",
    "SpendTables",
    "StepPart",
    "StressedPart",
    "StressedTargetPart",
    "TargetPart",
    "TokenCostPart",
    "UndeclaredPart",
    "UnjudgedPart",
    "VenturePart",
    "VerdictPart",
    "WastePart",
    "WhatIfPart",
    "WindowPart",
]
