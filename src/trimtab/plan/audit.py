"""What an audit found: the bill and what it buys, the plan, its proof, the worlds beside it."""

from __future__ import annotations

from dataclasses import dataclass, field

from trimtab.diagnose.findings import ProductForm, Spend, Unjudged, Verdict, Waste
from trimtab.diagnose.long_tail import TailCost
from trimtab.diagnose.token_cost import TokenCharge
from trimtab.diagnose.untidy import Untidy
from trimtab.fleet.model import Coverage
from trimtab.ledger.arrays import FloatArray
from trimtab.notebook import ShownInNotebook
from trimtab.plan.commitments.inventory import CommitmentUse
from trimtab.plan.commitments.known_rates import KnownRates
from trimtab.plan.model import CapacityPicture, Plan, Proof
from trimtab.plan.proof.law_report import LawFinding
from trimtab.plan.proof.robustness import Robustness
from trimtab.plan.proof.scenario import WhatIf
from trimtab.plan.proof.undeclared import Undeclared


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class HeatMap:
    """Mean activity by row and hour of the week: `activity_frac` (n_rows, 168), NaN where nothing was held."""

    rows: tuple[str, ...]
    activity_frac: FloatArray


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Audit(ShownInNotebook):
    """Everything one audit found; each face shows a part of it."""

    fleet: str
    """Where the history came from: a bundle's path or a demo's name."""
    coverage: Coverage
    degraded: tuple[str, ...]
    """Why the answer is weaker than asked; empty when it is not."""
    bill_micro_usd: int
    """The bill of the fit window."""
    spend_by_kind: tuple[Spend, ...]
    spend_by_team: tuple[Spend, ...]
    spend_by_workload: tuple[Spend, ...]
    token_costs: tuple[TokenCharge, ...]
    """The bill of each service whose tokens were read, over its tokens."""
    product_form: ProductForm
    waste: tuple[Waste, ...]
    verdicts: tuple[Verdict, ...]
    unjudged: tuple[Unjudged, ...]
    plan: Plan
    proof: Proof
    heat_map: HeatMap
    capacity: tuple[CapacityPicture, ...]
    owned: tuple[CommitmentUse, ...] = ()
    """Commitments that run already and whose rates are known: what they cover, and what is sunk until they end."""
    laws: tuple[LawFinding, ...] = ()
    """What the plan takes a replica of each service to serve."""
    undeclared: tuple[Undeclared, ...] = ()
    """What owners did not declare, and what the plan would save if they did; alternatives, the most first."""
    robustness: Robustness | None = None
    """The proof again where speeds and demand depart from what the plan was made for."""
    untidy: Untidy = field(default_factory=Untidy)
    """What was broken and untidy over the whole history, with what it cost."""
    long_tail: tuple[TailCost, ...] = ()
    """What stands beside the GPUs: traffic of their nodes, volumes that nothing mounts, GPUs that wait for images or load."""
    committed_rates: KnownRates | None = None
    """How much of the fit window's use on demand could not be judged for lack of a committed rate."""
    what_if: WhatIf | None = None
    """A scenario beside the world as it is, where one was asked for."""

    @property
    def bill_usd_mo(self) -> float:
        """Return the bill as dollars a month."""
        return self.plan.usd_mo(self.bill_micro_usd)
