"""Owners who declare all that an audit asks for: the audits of a demonstration until nothing more is asked, in counted work.

    python -m benchmarks.pasted [--demo three-small-models] [--rounds 3]

Each round pastes every line of "What was not declared" into what is declared already, and audits again. A round's replays are
those of the whole audit: options, proof, robustness and what was not declared. Its CPU seconds are of the process. The gaps are
of the plan's bill, and of its bill and work together.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import replace

from trimtab.pipeline import audit, open_demo
from trimtab.plan.audit import Audit
from trimtab.replay.outcomes.outcome import Outcome
from trimtab.tables.bundle import Bundle
from trimtab.tables.workloads import Workloads
from trimtab.units import per_month, usd


class Counted:
    """Keeps nothing and counts what is replayed."""

    def __init__(self) -> None:
        self.replays = 0

    def get(self, key: str) -> Outcome | None:
        """Know nothing."""
        return None

    def put(self, key: str, outcome: Outcome) -> None:
        """Count a replay."""
        self.replays += 1


def pasted(bundle: Bundle, found: Audit) -> Bundle:
    """Return a fleet of which all is declared that an audit asks for, beside what is declared already."""
    declared = bundle.workloads.model_dump(mode="json", exclude_unset=True)
    for line in found.undeclared:
        for name, fields in line.declarations.items():
            declared["workloads"].setdefault(name, {}).update(fields)
    return replace(bundle, workloads=Workloads.model_validate(declared))


def measured(bundle: Bundle) -> tuple[Audit, dict[str, object]]:
    """Audit a fleet and return what it took and what was found."""
    store, began_s = Counted(), time.process_time()
    found = audit(bundle, store=store)
    plan = found.plan
    figures: dict[str, object] = {
        "replays": store.replays,
        "cpu_s": round(time.process_time() - began_s, 1),
        "options": plan.options,
        "before_usd_mo": round(per_month(usd(plan.before_micro_usd), plan.window.hours), 2),
        "after_usd_mo": round(per_month(usd(plan.after_micro_usd), plan.window.hours), 2),
        "gap_frac": plan.gap_frac,
        "work_gap_frac": plan.work_gap_frac,
        "targets_kept": sum(one.kept for one in found.proof.targets),
        "targets": len(found.proof.targets),
        "asked_for": [
            {
                "permission": one.permission,
                "workloads": sorted(one.declarations),
                "saves_usd_mo": round(one.saves_usd_mo, 2),
            }
            for one in found.undeclared
        ],
    }
    return found, figures


def main() -> None:
    """Audit until nothing more is asked."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--demo", default="three-small-models")
    parser.add_argument("--rounds", type=int, default=3)
    asked = parser.parse_args()
    bundle, rounds = open_demo(asked.demo), []
    for _ in range(asked.rounds):
        found, figures = measured(bundle)
        rounds.append(figures)
        if not found.undeclared:
            break
        bundle = pasted(bundle, found)
    print(json.dumps({"demo": asked.demo, "rounds": rounds}))


if __name__ == "__main__":
    main()
