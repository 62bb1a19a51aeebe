"""Pages for what a person changes: how a run uses memory, fewer bits for a served model, batches, images on nodes' disks.

A page says what to set, what to expect, how to see that it came, and to evaluate answers before bits are taken away.
"""

from __future__ import annotations

from typing import assert_never

from trimtab.deployment.effects import BatchForm, SetBatchPolicy, SetPrecision, SetTrainingMemory, ShortenStart
from trimtab.emit.launch import serve_format, trainer_fsdp, trainer_optimizer
from trimtab.emit.manifests.facts import EmitFacts
from trimtab.emit.manifests.pool_specs import PlacedWorkload
from trimtab.physics.training import Optimizer, Recompute, Sharding
from trimtab.plan.model import Action


def training_page(action: Action, subject: str, effect: SetTrainingMemory) -> str:
    """Return the page as Markdown."""
    lines = "\n".join(_arguments(effect))
    notes = "\n".join(f"- {line}" for line in _notes(effect))
    return f"""# {action.id}: {subject} trains with another memory plan

{effect.gpus} x {effect.gpu} a run, {effect.before} today; {effect.memory_gib:.1f} GiB on the fullest of them. A run goes \
x{effect.speed.value:.2f} as fast as today ({effect.speed.low:.2f} to {effect.speed.high:.2f}).

```python
{lines}
```

{notes}

Undo: {action.rollback}.
"""


def _arguments(effect: SetTrainingMemory) -> tuple[str, ...]:
    shards = effect.gpus > 1 and effect.sharding is Sharding.WEIGHTS
    return (
        "TrainingArguments(  # merge with yours",
        f"    per_device_train_batch_size={effect.micro_batch},",
        f"    gradient_accumulation_steps={effect.accumulate},",
        f"    gradient_checkpointing={effect.recompute is Recompute.FULL},",
        f"    optim={trainer_optimizer(effect.optimizer)!r},",
        *(trainer_fsdp() if shards else ()),
        ")",
    )


def _notes(effect: SetTrainingMemory) -> tuple[str, ...]:
    batch = effect.micro_batch * effect.accumulate * effect.gpus
    found = [f"A step still takes {batch} sequences, so that the learning rate stays."]
    if effect.recompute is Recompute.SELECTIVE:
        found.append(
            "Selective recomputation (attention and the widest products) is not a switch of transformers: use torch's "
            "`create_selective_checkpoint_contexts`, torchtitan or Megatron."
        )
    if effect.optimizer is Optimizer.ADAMW_8BIT:
        found.append(
            "States in 8 bits follow the same update to within rounding; compare 200 steps of loss before you trust them."
        )
    return tuple(found)


def _answers(effect: SetPrecision) -> str:
    if effect.answers:
        return f"Evaluated beside {effect.before.value} (`trimtab quality`), it was accepted: answers {effect.answers}."
    return (
        f"What {effect.after.value} does to this model's answers is not known to trimtab. It is in the plan because "
        "`workloads.yaml` says that the team accepts it (`quantize:`)."
    )


def _evaluate(effect: SetPrecision) -> str:
    if effect.answers:
        return "See that the weights to be served are those that were evaluated."
    return "Run the model's own evaluation with both formats, on the same prompts. Stop if it loses more than the team allows."


def precision_page(action: Action, subject: str, effect: SetPrecision) -> str:
    """Return the page as Markdown: the evaluation that must pass, the command, what to expect, how to undo it."""
    flags = " \\\n  ".join((f"vllm serve {effect.model}", *serve_format(effect.after)))
    return f"""# {action.id}: {subject} in {effect.after.value}, not {effect.before.value}

{_answers(effect)}

## First

1. {_evaluate(effect)}
2. Send one request in a hundred to one replica with the new weights for a week; compare answers, p95 and memory.

## Then

```sh
{flags}
```

Add the flags that the server has today. Expected: {effect.saved_gib:.1f} GiB less a replica, requests \
x{effect.speed.value:.2f} as fast on the present GPU ({effect.speed.low:.2f} to {effect.speed.high:.2f}). Once it \
serves, set `precision: {effect.after.value}` in `workloads.yaml`, so that later audits start from there.

Undo: {action.rollback}.
"""


def batching_page(
    action: Action,
    subject: str,
    policy: SetBatchPolicy,
    placed: PlacedWorkload | None,
    facts: EmitFacts,
) -> str:
    """Return the page as Markdown: what to write, what to expect of it, and how to see that it holds.

    `placed` is the workload where it will run; None where its present nodes are not known: then it is assumed to stay there.
    """
    place = None if placed is None else placed.place
    curve = (None if place is None else place.batch_curve()) or policy.curve
    times = "\n".join(
        f"| {size} | {second_s:.3g} | {size / second_s:.3g} |"
        for size, second_s in zip(curve.sizes, curve.seconds, strict=True)
        if size <= policy.max_batch
    )
    changed = [f"on {place.gpu}"] if place is not None and place.leaves else []
    changed += [f"in {place.precision.after.value}"] if place is not None and place.precision is not None else []
    where = f" {' '.join(changed)} (carried over from how it runs now: measure them there first)" if changed else ""
    replicas = "" if policy.replicas is None else f"\nReplicas: {policy.replicas} in place of {policy.before}.\n"
    return f"""# {action.id}: {subject} serves up to {policy.max_batch} requests at once

{_how(policy, _target_s(subject, facts))}
{replicas}
## Batch times that the plan rests on{where}

| batch | seconds | requests a second |
|---|---|---|
{times}

## Check

1. Put it on one replica. Its batches must take the seconds above, within 15 %.
2. Send it a quarter, then all of one replica's traffic through a peak; watch p95 against the target.
3. Only then lower the number of replicas, one at a time: the Component under `workloads/` holds the number to end at.

Undo: {action.rollback}.
"""


_ON_DISK = {
    "aws": """With Karpenter and Bottlerocket: make a snapshot of a data volume that holds them, and name it in the EC2NodeClass
of its pool (`spec.blockDeviceMappings`). New nodes then have them:

```yaml
blockDeviceMappings:
  - deviceName: /dev/xvdb
    ebs: {snapshotID: snap-OF-THE-DATA-VOLUME, volumeSize: 200Gi, volumeType: gp3}
```

A volume from a snapshot reads slowly at first: create it with fast snapshot restore, or measure a start without.""",
    "gcp": """Make a disk image with them (`gke-disk-image-builder` for images), and a node pool that boots with it:

```sh
gcloud container node-pools create POOL --cluster CLUSTER --location LOCATION --enable-image-streaming \\
  --secondary-boot-disk=disk-image=global/images/IMAGE,mode=CONTAINER_IMAGE_CACHE
```

`--enable-image-streaming` is what reads images from that disk; files such as weights need a second one, without a mode
([secondary boot disks](https://cloud.google.com/kubernetes-engine/docs/how-to/data-container-image-preloading)).""",
}
"""How a new node gets a disk with content, by provider. AWS: Karpenter's EC2NodeClass (karpenter.sh, NodeClasses)."""
_IN_THE_IMAGE = "Build them into the image that nodes boot from."
_LOADED = """
Point the server at weights on that disk (a `hostPath` or local volume in place of a download), and keep what it compiles there:
vLLM writes that to `VLLM_CACHE_ROOT` (`~/.cache/vllm` in the container by default). Find out first what its short loads had
that the others had not: only that is known to help.
"""


_RESTORED = {
    "gcp": """GKE Pod snapshots: a cluster with them enabled, a node pool that runs in GKE Sandbox, and two objects, a
`PodSnapshotStorageConfig` (a Cloud Storage bucket) and a `PodSnapshotPolicy` that selects the pods and says when a snapshot is
taken. A pod is restored only where its image, command, volumes and ports are those of the snapshot; persistent volumes and open
connections are not in it ([Pod snapshots](https://docs.cloud.google.com/kubernetes-engine/docs/concepts/pod-snapshots)).""",
}
"""What restores a process, by provider."""
_CRIU = """NVIDIA Dynamo Snapshot (CRIU and `cuda-checkpoint`; a preview): nodes with x86-64 processors and driver 580 or later,
vLLM or SGLang, a DaemonSet that runs privileged, and a volume for the snapshots that all nodes can read
([Snapshotting GPU workers](https://docs.nvidia.com/dynamo/v1.2.0/kubernetes-deployment/advanced-platform/snapshot))."""


def start_page(action: Action, subject: str, effect: ShortenStart, placed: PlacedWorkload | None) -> str:
    """Return the page as Markdown: what a replica is to find on a new node, and how to see that a start is shorter."""
    provider = "" if placed is None else placed.place.pool.provider
    first = " It must answer as others do." if effect.restored else _NO_PULL if effect.images else ""
    return f"""# {action.id}: {subject} starts in {effect.start_s:.0f} s on a node, not {effect.before_s:.0f} s

{_restored(effect, provider) if effect.restored else _on_disk(effect, provider)}
## Check

1. Let one replica start on a new node.{first}
2. From its place on the node (`PodScheduled`) to `Ready` it must take at most {effect.start_s:.0f} s.
3. Only then apply its autoscaler, which relies on that: before, replicas would come too late.

Undo: {action.rollback}.
"""


def _on_disk(effect: ShortenStart, provider: str) -> str:
    pulled = """
A DaemonSet that pulls images is no help on a new node: it pulls beside the replica. Each release of the service needs its
images there too: build the disk in the same pipeline.
"""
    return f"""Three of four of its starts took up to {effect.before_s:.0f} s from a node to ready. {effect.saved_s:.0f} s of \
that fall away where its {effect.parts} are on the node's disk before.

## Do

{_ON_DISK.get(provider, _IN_THE_IMAGE)}
{pulled if effect.images else ""}{_LOADED if effect.weights else ""}"""


def _restored(effect: ShortenStart, provider: str) -> str:
    return f"""Plans take {effect.before_s:.0f} s from a node to ready. Restored from a snapshot of a process that was ready \
it takes {effect.start_s:.0f} s, as `restore_s` in workloads.yaml says.

## Do

{_RESTORED.get(provider, _CRIU)}

Each release of the service needs a snapshot of its own: take it in the same pipeline. What storing it costs is not in the plan.
"""


_NO_PULL = " `kubectl get events` must say `already present on machine` of each of its images."


def _target_s(subject: str, facts: EmitFacts) -> float | None:
    known = facts.workload(subject)
    targets = known.service.targets if known is not None and known.service is not None else ()
    return min((target.limit_s for target in targets if target.limit_s is not None), default=None)


def _how(policy: SetBatchPolicy, target_s: float | None) -> str:
    target = "" if target_s is None else f", target_s={target_s:g}"
    match policy.form:
        case BatchForm.CONTINUOUS:
            return f"""Replace the server by one that batches continuously:

```sh
vllm serve {policy.model or "MODEL"} --max-num-seqs {policy.max_batch}
```"""
        case BatchForm.GREEDY:
            return _decorated(f"max_batch={policy.max_batch}{target}")
        case BatchForm.FIXED | BatchForm.TARGET:
            window = f", min_batch={policy.max_batch}, window_s={policy.window_s:.4g}"
            return _decorated(f"max_batch={policy.max_batch}{window}{target}")
        case _:
            assert_never(policy.form)


def _decorated(options: str) -> str:
    return f"""Let the model's function take a list, and put the batcher in front of it (`pip install trimtab-runtime`):

```python
from trimtab_runtime import batch


@batch({options})
def infer(requests: list) -> list:
    return model(requests)  # one result per request, in order
```

The handler then awaits `infer(request)` in place of calling the model."""
