"""The course of a replay without its nodes: replicas do the same wherever they are as fast.

Other nodes are only billed anew. (Where replicas start sooner `beside` others, what they do depends on the nodes too.)
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from trimtab.replay.series import CountArray
from trimtab.replay.services import ServiceModel, ServiceReplay, seconds_held


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
    held = np.repeat(course.levels, course.lengths)
    node_seconds, gpu_seconds = seconds_held(model, held)
    return replace(course.replay, held=held, node_seconds=node_seconds, gpu_seconds=gpu_seconds)
