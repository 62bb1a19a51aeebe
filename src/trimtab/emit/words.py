"""Plain words for the closed sets: what a waste kind, a lever or a risk means to someone who has never met the term."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from trimtab.diagnose.findings import WasteKind
from trimtab.fleet.settings import Lever
from trimtab.plan.model import Risk

WASTE_MEANING: Mapping[WasteKind, str] = MappingProxyType(
    {
        WasteKind.UNUSED_COMMITMENT: "paid for in advance, used by nothing",
        WasteKind.UNALLOCATED_NODES: "nodes that no workload held",
        WasteKind.HOURS_NOT_USED: "nodes kept through hours in which nothing ran",
        WasteKind.NON_GPU_PODS: "GPU nodes kept alive by pods that need no GPU",
        WasteKind.IDLE: "a workload held the GPU and did nothing",
        WasteKind.OVER_PARALLEL: "runs that ask for more GPUs than they use",
        WasteKind.OVER_PROVISIONED: "more serving copies than demand needed",
        WasteKind.OVER_SIZED: "a cheaper GPU would do the same work",
        WasteKind.BUYING_OPTION: "the same hours, bought the dearer way",
        WasteKind.UNMEASURED: "no readings, so not judged",
        WasteKind.USEFUL: "what the work itself needed",
    }
)

LEVER_TITLE: Mapping[Lever, str] = MappingProxyType(
    {
        Lever.AUTOSCALING: "Scale with demand",
        Lever.IDLE_RELEASE: "Give back idle nodes",
        Lever.GPU_COUNT: "Ask for the GPUs used",
        Lever.RIGHT_SIZE: "Move to a fitting GPU",
        Lever.SCHEDULE: "Hold nodes on schedule",
        Lever.SPOT: "Use spot capacity",
        Lever.COMMITMENT: "Commit to what remains",
    }
)

RISK_MEANING: Mapping[Risk, str] = MappingProxyType(
    {
        Risk.LOW: "nothing that users notice can go wrong, and it is undone at once",
        Risk.MEDIUM: "a target can be missed for a while if the prediction is off; it can be undone",
        Risk.HIGH: "it binds you, or a fault would be felt by users; try it on a small part first",
    }
)

GLOSSARY: Mapping[str, str] = MappingProxyType(
    {
        "commitment": "a promise to pay for a node for a year or more, whether used or not, at a lower rate",
        "fit window": "the part of the history from which the plan was made",
        "low–high": "the 80 % interval: in 8 of 10 cases the saving lies between the two",
        "no worse than observed": "the target of a workload that declared none: as quick as it has been so far",
        "proof window": "the last part of the history, kept from the planner and used only to test the plan",
        "p95": "19 of 20 requests are at least this quick",
        "spot": "spare capacity at a discount, which the cloud may take back at two minutes' notice",
    }
)
