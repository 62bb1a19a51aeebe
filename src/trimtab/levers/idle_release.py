"""Hold nodes only while something runs on them, and give back those that nobody holds."""

from __future__ import annotations

from trimtab.fleet.effects import ReleaseIdle, ReleaseNodes
from trimtab.fleet.kinds import RUN_KINDS
from trimtab.fleet.model import Fleet, Workload
from trimtab.fleet.settings import Assumptions, Lever
from trimtab.ledger import IDLE

LEVER = Lever.IDLE_RELEASE


def propose(workload: Workload, assumptions: Assumptions) -> tuple[ReleaseIdle, ...]:
    """Offer nodes that come with a run and go with it, to workloads that consist of runs."""
    if workload.kind not in RUN_KINDS or workload.jobs is None:
        return ()
    return (ReleaseIdle(startup_s=assumptions.node_startup_s),)


def unheld_nodes(fleet: Fleet) -> tuple[int, ...]:
    """Return the indices of nodes that no workload held a GPU of in the whole window, and that did not work unseen either.

    A GPU at work that nobody is known to hold (a process beside the scheduler) is in use: its node must stay.
    """
    held = {int(node) for node in fleet.holdings.node[fleet.holdings.owner != IDLE]}
    return tuple(index for index, node in enumerate(fleet.nodes) if index not in held and node.name not in fleet.worked)


def release(fleet: Fleet, nodes: tuple[int, ...]) -> ReleaseNodes:
    """Return the effect that gives these nodes back."""
    return ReleaseNodes(nodes=tuple(fleet.nodes[index].name for index in nodes))
