"""What people declared, held against what was seen: what cannot be, and what changes nothing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from trimtab.errors import BundleError, Fault
from trimtab.fleet.model import Workload
from trimtab.fleet.targets import declared_target, judged_instead
from trimtab.tables.contradictions import KINDS_OF_TARGET, without_effect
from trimtab.tables.workloads import WORKLOADS_FILE


def refuse_impossible(workloads: Iterable[Workload]) -> None:
    """Raise BundleError with every declaration that what was measured contradicts."""
    faults = [fault for workload in workloads for fault in _impossible(workload)]
    if faults:
        raise BundleError(faults)


def declared_in_vain(workloads: Iterable[Workload]) -> tuple[str, ...]:
    """Say what is declared of workloads whose kind has no use for it, which targets nothing judges, and which are judged by
    something else than what they bound."""
    return tuple(note for workload in workloads for note in _in_vain(workload))


def _impossible(workload: Workload) -> Iterator[Fault]:
    need, held = workload.spec.need_gib, workload.activity.memory_total_gib
    if need is not None and held is not None and need > held:
        yield Fault(
            what=f"a GPU of it needs more memory than the {workload.gpu} that it runs on has, {held:.3g} GiB",
            where=f"{WORKLOADS_FILE}: {workload.name}: need_gib",
            value=f"{need:g}",
            cure="need_gib counts one GPU: its share of the model, and what requests or activations add",
        )


def _in_vain(workload: Workload) -> Iterator[str]:
    vain = without_effect(workload.spec, workload.kind)
    if vain:
        what = ", ".join(vain)
        kind = f"{workload.kind.value} ({workload.kind_because})"
        yield f"{workload.name}: {WORKLOADS_FILE} declares {what}, which changes nothing of {kind}: say kind: if it is another"
    for declaration in workload.spec.targets or ():
        found = declared_target(declaration, workload.kind, workload.service, workload.jobs)
        what = f"{workload.name}: its target {declaration.describe()} is"
        if isinstance(found, str):
            # a metric of other kinds is named above, beside what else changes nothing of this kind
            if workload.kind in KINDS_OF_TARGET[declaration.metric]:
                yield f"{what} dropped: {found}"
        elif instead := judged_instead(found, workload.service):
            yield f"{what} {instead}"
