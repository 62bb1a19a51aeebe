"""A plan as files, in a safe order; the same plan and facts give the same bytes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

from trimtab.emit.manifests.action_files import action_files, page_file, shared_files
from trimtab.emit.manifests.apply_order import apply_order
from trimtab.emit.manifests.decision_record import decision_record
from trimtab.emit.manifests.emission import Emission, ManifestFile, Stage, Withheld
from trimtab.emit.manifests.facts import Autoscaler, EmitFacts
from trimtab.emit.manifests.give_back import give_back_files
from trimtab.emit.manifests.grafana import dashboard
from trimtab.emit.manifests.kubernetes import adapter_values
from trimtab.emit.manifests.node_files import layout_files, pool_files
from trimtab.emit.manifests.objects import yaml_text
from trimtab.emit.manifests.scope import Scope, scope_of
from trimtab.emit.manifests.stage_folders import DASHBOARD, helm_files, kustomizations, needs
from trimtab.emit.manifests.workload_files import workload_files
from trimtab.errors import UnknownName
from trimtab.plan.model import Action, Plan


def emit_plan(plan: Plan, facts: EmitFacts, *, only: Sequence[str] = ()) -> Emission:
    """Return the files that enact a plan, or some of its actions, in a safe order; the same input gives the same bytes.

    Raises UnknownName, with near matches, for an action that the plan does not have.
    """
    known = [action.id for action in plan.actions]
    for name in only:
        if name not in known:
            raise UnknownName("action", name, known)
    scope = scope_of(tuple(action for action in plan.actions if not only or action.id in only), facts, plan)
    pieces = [
        *(
            piece
            for action in scope.actions
            for change in action.changes
            for piece in action_files(action, change, scope)
        ),
        *layout_files(scope),
        *pool_files(scope),
        *workload_files(scope),
        *give_back_files(scope),
        *shared_files(scope),
    ]
    files = [piece for piece in pieces if isinstance(piece, ManifestFile)]
    withheld = tuple(piece for piece in pieces if isinstance(piece, Withheld))
    files += _shared(scope, files)
    files = _distinct(sorted(files, key=lambda file: (file.stage, file.path)))
    files += [*kustomizations(files), *helm_files(scope)]
    files += [_record(action, plan, files, withheld) for action in scope.actions]
    files = _distinct(sorted(files, key=lambda file: (file.stage, file.path)))
    page = ManifestFile(
        path="APPLY.md",
        text=apply_order(Emission(files=tuple(files), withheld=withheld), tuple(needs(files, scope))),
        kind="the order",
        actions=tuple(action.id for action in scope.actions),
        stage=Stage.DECIDE,
    )
    return Emission(files=(page, *files), withheld=withheld)


def _distinct(files: Sequence[ManifestFile]) -> list[ManifestFile]:
    """Return files whose paths differ: the second of a name is numbered, so that none is lost."""
    seen: Counter[str] = Counter()
    named = []
    for file in files:
        seen[file.path] += 1
        stem, dot, suffix = file.path.partition(".")
        path = file.path if seen[file.path] == 1 else f"{stem}-{seen[file.path]}{dot}{suffix}"
        named.append(replace(file, path=path))
    return named


def _shared(scope: Scope, files: Sequence[ManifestFile]) -> Iterator[ManifestFile]:
    """Yield what scaled services share: the dashboard, and the adapter's rules where an HPA reads them."""
    scaled = tuple(dict.fromkeys(name for file in files if file.stage is Stage.MEASURE for name in file.actions))
    if not scaled:
        return
    text = dashboard(scope.actions, scope.facts)
    yield ManifestFile(path=f"monitoring/{DASHBOARD}", text=text, kind="dashboard", actions=scaled, stage=Stage.MEASURE)
    if scope.facts.autoscaler is Autoscaler.HPA:
        yield ManifestFile(
            path="helm/prometheus-adapter.values.yaml",
            text=yaml_text(adapter_values(), comment="Helm values of prometheus-adapter, to be merged with yours"),
            kind="Helm values",
            actions=scaled,
            stage=Stage.MEASURE,
        )


def _record(action: Action, plan: Plan, files: Sequence[ManifestFile], withheld: Sequence[Withheld]) -> ManifestFile:
    written = [
        file.path for file in sorted(files, key=lambda file: (file.stage, file.path)) if action.id in file.actions
    ]
    left = [f"`{one.subject}`: {one.reason}" for one in withheld if one.action == action.id]
    text = decision_record(action, plan, written=written, withheld=left)
    return page_file(action, action.lever, text, Stage.DECIDE)
