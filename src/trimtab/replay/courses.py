"""The course of a replay without its nodes: replicas do the same wherever they are as fast.

Other nodes are only billed anew. (Where `ServiceModel.warm_start_s` is given, what replicas do depends on the nodes too.)
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from trimtab.replay.compiled import compiled
from trimtab.replay.fluid import bill_step
from trimtab.replay.series import CountArray, IntArray
from trimtab.replay.services import ServiceModel, ServiceReplay, gpu_seconds


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Course:
    """A replay, its replicas by decision kept as runs of equal ones: `levels` and `lengths` `(n_runs,)`."""

    replay: ServiceReplay
    levels: CountArray
    lengths: CountArray


def course_of(replay: ServiceReplay) -> Course:
    """Return the course of a replay, in little memory."""
    starts = np.flatnonzero(np.diff(replay.held, prepend=-1))
    lengths = np.diff(starts, append=len(replay.held))
    return Course(
        replay=replace(replay, held=replay.held[:0].copy()),  # a view would keep the whole
        levels=replay.held[starts],
        lengths=lengths.astype(np.int32),
    )


def on_nodes(course: Course, model: ServiceModel) -> ServiceReplay:
    """Return the replay of the same course on the nodes of a model."""
    replay = course.replay
    held = np.repeat(course.levels, course.lengths)
    node_seconds, replica_seconds = np.zeros_like(replay.node_seconds), np.zeros_like(replay.node_seconds)
    bill_course(held, model.replicas_per_node, node_seconds, replica_seconds)
    return replace(replay, held=held, node_seconds=node_seconds, gpu_seconds=gpu_seconds(model, replica_seconds))


@compiled
def bill_course(held: CountArray, replicas_per_node: float, node_seconds: IntArray, replica_seconds: IntArray) -> None:
    """Add every step of what is running, in whole nodes, to its hour."""
    for step in range(len(held)):
        bill_step(node_seconds, replica_seconds, step, held[step], replicas_per_node)
