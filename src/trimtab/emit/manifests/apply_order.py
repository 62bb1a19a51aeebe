"""The page that says in which order to apply what was emitted, and what was left to a person."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence

from trimtab.emit.manifests.emission import STAGE_MEANING, ApplyStage, Emission, ManifestFile

_STEPS: Mapping[ApplyStage, str] = {
    ApplyStage.MEASURE: """Wait until `trimtab:demand_replicas` is there for every service \
and looks like its load: a rule that no Prometheus selects raises no alert either.""",
    ApplyStage.WORKLOADS: """List each folder under `components` in the kustomization that holds the workload's own \
manifest, then see that it took: a patch that matches nothing is passed over without a word.

```sh
kubectl kustomize . | grep trimtab.dev/action    # must print a line for each workload that was listed
```

A Job's template cannot be changed in place: the next run takes the change.""",
    ApplyStage.RELEASE: """What the workloads left is billed until it is given back: the saving comes with these \
orders, not before.""",
    ApplyStage.COMMIT: "Only after the purchase: it shows Karpenter a price that holds by then.",
    ApplyStage.UNDO: """To go back, take a workload's Component out of its kustomization and list the one here in \
its place, give the old nodes their size back (each order says how), and delete what was applied: `kubectl delete -k`, \
`scaling` before `nodes`.""",
}
"""What to do with the files of a stage."""


def apply_order(emission: Emission, needs: Sequence[str] = ()) -> str:
    """Return the page as Markdown; trimtab writes files and never touches a cluster. `needs` must be in place before."""
    lines = [
        "# How to apply this plan",
        "",
        "Apply stage by stage; go on when the canary of each decision record holds. Nothing here was applied by trimtab.",
        *(["", "## Before you start", "", *(f"- [ ] {need}" for need in needs)] if needs else []),
        *_stages(emission),
        *_left(emission),
    ]
    return "\n".join(lines) + "\n"


def _stages(emission: Emission) -> Iterator[str]:
    for stage, number in emission.stages().items():
        yield ""
        yield f"## {number}. {STAGE_MEANING[stage][:1].upper()}{STAGE_MEANING[stage][1:]}"
        yield ""
        files = [file for file in emission.files if file.stage is stage]
        roots = sorted(file.path.removesuffix("/kustomization.yaml") for file in files if file.kind == "Kustomization")
        steps = _replicas_steps(files) if stage is ApplyStage.SCALE else _STEPS.get(stage)
        if stage is ApplyStage.COMMIT and not roots:
            steps = None  # no Karpenter, which would be shown a price
        for step in (_applied(roots), steps):
            if step:
                yield step
                yield ""
        for file in files:
            yield f"- [ ] `{file.path}` ({file.kind}; {', '.join(file.actions)})"


def _applied(roots: Sequence[str]) -> str:
    """Return how the folders of a stage are applied: one, or one for each cluster in that cluster's context."""
    if not roots:
        return ""
    if len(roots) == 1 and "/" not in roots[0]:
        return f"Apply `kubectl apply -k {roots[0]}`."
    lines = [f"kubectl --context {shlex.quote(root.split('/')[1])} apply -k {root}" for root in roots if "/" in root]
    lines += [f"kubectl apply -k {root}" for root in roots if "/" not in root]
    return "Apply, with your own names of the contexts:\n\n```sh\n" + "\n".join(lines) + "\n```"


def _left(emission: Emission) -> Iterator[str]:
    if emission.withheld:
        yield ""
        yield "## Left to a person"
        yield ""
    for action, subjects, reason in emission.grouped():
        yield f"- {action}, {', '.join(f'`{subject}`' for subject in subjects)}: {reason}"


def _replicas_steps(files: Sequence[ManifestFile]) -> str:
    """Return how autoscalers take over `replicas`: a plain apply of a manifest that loses the field would set it to 1.

    Source: kubernetes.io, "Migrating Deployments and StatefulSets to horizontal autoscaling".
    """
    if not any(file.path.endswith(".autoscaled/kustomization.yaml") for file in files):
        return ""
    return """See with `kubectl get hpa -A` that every TARGETS has a number, then let go of `replicas`, in this order:

1. Take it out of the last applied manifest, which changes no pod. Without this step the next apply of a manifest that no \
longer has `replicas` sets the workload to 1:

   ```sh
   kubectl apply view-last-applied deployment/NAME -n NAMESPACE -o json | jq 'del(.spec.replicas)' |
     kubectl apply set-last-applied -f -
   ```

   With server-side apply, Argo CD (`ignoreDifferences` on `/spec/replicas`) or Helm, leave it to the autoscaler in their way.
2. List the folder `NAME.autoscaled` under `components` beside the workload's manifest: it takes `replicas` out of it."""
