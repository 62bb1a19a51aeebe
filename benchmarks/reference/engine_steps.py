"""An LLM engine's scheduler in plain Python, one step after another: what `trimtab.replay.engine` is compared with.

Written after vLLM V1's scheduler (`vllm/v1/core/sched/scheduler.py`: `schedule`, `_preempt_request`, `update_from_output`),
with a list of running requests and a queue of waiting ones, and no closed form anywhere.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field

from trimtab.physics.serving import StepTimes
from trimtab.replay.engine import EngineLimits, Requests


@dataclass(slots=True, eq=False)
class Job:
    """One request and how far it is."""

    number: int
    arrival_s: float
    input_tokens: int
    output_tokens: int
    cached_tokens: int
    answered: int = 0
    computed: int = 0
    blocks: int = 0
    preempted: int = 0
    decodes: bool = False
    """Whether it had a token since it was last admitted."""
    admitted_s: float = math.nan
    first_s: float = math.nan
    end_s: float = math.nan

    @property
    def tokens(self) -> int:
        """Return prompt and answer so far."""
        return self.input_tokens + self.answered


@dataclass(slots=True)
class Engine:
    """The scheduler's lists, and what it saw."""

    limits: EngineLimits
    times: StepTimes
    waiting: deque[Job] = field(default_factory=deque)
    running: list[Job] = field(default_factory=list)
    free: int = 0
    now_s: float = 0.0
    steps: int = 0
    computed_tokens: int = 0
    most_blocks: int = 0

    def allocate(self, job: Job, new: int) -> bool:
        """Give a job the blocks for so many more tokens; False where they are not free."""
        needed = -(-(job.computed + new) // self.limits.block_tokens) - job.blocks
        if needed > self.free:
            return False
        self.free -= needed
        job.blocks += needed
        return True

    def preempt(self, job: Job) -> None:
        """Take a job's cache and let it wait in front."""
        self.running.remove(job)
        self.free += job.blocks
        job.blocks, job.computed, job.decodes = 0, 0, False
        job.preempted += 1
        self.waiting.appendleft(job)

    def schedule(self) -> dict[Job, int]:
        """Return the tokens that each job computes in the next step."""
        budget = self.limits.step_tokens
        chosen: dict[Job, int] = {}
        preempts = False
        place = 0
        while place < len(self.running) and budget > 0:
            job = self.running[place]
            new = min(job.tokens - job.computed, budget)
            alive = True
            while not self.allocate(job, new):
                last = self.running[-1]
                self.preempt(last)
                preempts = True
                if last is job:
                    alive = False
                    break
            if not alive:
                break
            chosen[job] = new
            budget -= new
            place += 1
        if not preempts:
            self.admit(chosen, budget)
        return chosen

    def admit(self, chosen: dict[Job, int], budget: int) -> None:
        """Admit waiting jobs that have come, in order."""
        while self.waiting and budget > 0 and len(self.running) < self.limits.max_num_seqs:
            job = self.waiting[0]
            if job.arrival_s > self.now_s:
                return
            block = self.limits.block_tokens
            cached = min(job.cached_tokens, job.tokens - 1) // block * block
            job.computed = cached
            new = min(job.tokens - cached, budget)
            if not self.allocate(job, new):
                job.computed = 0
                return
            self.waiting.popleft()
            self.running.append(job)
            if math.isnan(job.admitted_s):
                job.admitted_s = self.now_s
            chosen[job] = new
            budget -= new

    def run(self, chosen: dict[Job, int]) -> list[Job]:
        """Run a step, and return the jobs that it ends."""
        decoding = [job for job in chosen if job.decodes]
        prompts = [job for job in chosen if not job.decodes]
        spent_s = sum(job.tokens for job in decoding) * self.times.context_s
        pairs = sum(chosen[job] * (job.computed + 0.5 * chosen[job]) for job in prompts)
        tokens = sum(chosen[job] for job in prompts)
        if tokens and tokens == len(prompts):
            # one token each: the batch has the shape of one that only decodes, and reads the caches that were handed over
            spent_s += pairs * self.times.context_s + float(self.times.decode_s[len(decoding) + tokens])
        elif tokens:
            spent_s += pairs * self.times.pair_s
            spent_s += float(self.times.mixed_s[len(decoding) + tokens]) + len(decoding) * self.times.sequence_s
        else:
            spent_s += float(self.times.decode_s[len(decoding)])
        self.now_s += spent_s
        self.steps += 1
        self.computed_tokens += tokens
        self.most_blocks = max(self.most_blocks, self.limits.kv_blocks - self.free)
        return self.update(chosen)

    def update(self, chosen: dict[Job, int]) -> list[Job]:
        """Give a token to each job that has computed all it has, and return those that have their last."""
        ended = []
        for job, new in chosen.items():
            job.computed += new
            if job.computed == job.tokens:
                job.answered += 1
                job.decodes = True
                if math.isnan(job.first_s):
                    job.first_s = self.now_s
                if job.answered == job.output_tokens:
                    job.end_s = self.now_s
                    self.free += job.blocks
                    self.running.remove(job)
                    ended.append(job)
        return ended


def serve_step_by_step(
    requests: Requests, limits: EngineLimits, times: StepTimes, *, clients: int = 0, kind: type[Engine] = Engine
) -> tuple[list[Job], Engine]:
    """Serve requests, all of which must fit, by an engine of a kind, and return them with what the engine saw."""
    jobs = [Job(number, *(column[number].item() for column in requests)) for number in range(len(requests.arrival_s))]
    engine = kind(limits=limits, times=times, free=limits.kv_blocks)
    coming = deque(jobs)
    issued = len(jobs)
    if clients:
        issued = min(clients, len(jobs))
        for job in jobs:
            job.arrival_s = 0.0 if job.number < clients else math.inf
    while coming or engine.waiting or engine.running:
        if not engine.running and not engine.waiting:
            engine.now_s = max(engine.now_s, coming[0].arrival_s)
        while coming and coming[0].arrival_s <= engine.now_s:
            engine.waiting.append(coming.popleft())
        for _ in engine.run(engine.schedule()):
            if clients and issued < len(jobs):
                jobs[issued].arrival_s = engine.now_s
                issued += 1
    return jobs, engine
