"""A small job for tests without torch: one part that holds an array and a number, saved at chosen steps."""

import numpy as np
from packages.runtime.tests.checkpoint.faulty_files import Killed

from trimtab_runtime.checkpoint.checkpointer import Checkpointer
from trimtab_runtime.checkpoint.settings import CheckpointSettings
from trimtab_runtime.errors import CheckpointNotSaved
from trimtab_runtime.notice.notice import NoticeBoard

SETTINGS = CheckpointSettings(keep=2, asynchronous=False)


class Part:
    """A part of a job: an array and a number."""

    def __init__(self, step=0):
        self.state = {"weights": np.full(1500, float(step)), "step": step}

    def state_dict(self):
        return self.state

    def load_state_dict(self, state):
        self.state = state


def save_steps(folder, steps, files=None):
    """Save these steps; return those whose save returned, and whether it ended in a kill."""
    part, promised = Part(), []
    checkpointer = None
    try:
        checkpointer = Checkpointer(folder, {"part": part}, SETTINGS, files=files, board=NoticeBoard())
        for step in steps:
            part.state = Part(step).state
            try:
                checkpointer.save(step)
            except CheckpointNotSaved:
                continue
            promised.append(step)
    except (Killed, CheckpointNotSaved):
        pass
    finally:
        if checkpointer is not None:
            _close(checkpointer)
    return promised


def _close(checkpointer):
    """Wait for the tidying after the last save; one that is killed leaves no more than the lock to be freed."""
    try:
        checkpointer.close()
    except Killed:
        checkpointer._lock.release()


def resumed_step(folder):
    part = Part(-1)
    with Checkpointer(folder, {"part": part}, SETTINGS, board=NoticeBoard()) as checkpointer:
        resumed = checkpointer.resume()
    if resumed is None:
        return None
    assert part.state["step"] == resumed.step
    assert np.all(part.state["weights"] == resumed.step)
    assert resumed.skipped == ()
    return resumed.step
