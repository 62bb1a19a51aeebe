"""What `trimtab emit` writes, read back without the plan: the bill of the files over the proof window beside the plan's proof.

Run: python -m benchmarks.enact [--demo NAME ...]
     python -m benchmarks.enact --hedges N [--seed S]
         services that bear interruptions, each held on spot in every way that there is
     python -m benchmarks.enact --fleets N [--seed S] [--family NAME ...] [--small] [--jobs N] [--limit-s S]
         fleets drawn by the proving ground; --small: those of `benchmarks.drawn_fleets`, of which each takes seconds

Each fleet is planned and proved, its files are written to a temporary folder and read by the reader of
`trimtab review`, which knows Kubernetes, KEDA, Karpenter and the history up to the plan. What no object can carry is taken as
done where a page under `orders/` says it (purchases, nodes given back, batches), and where `emit` names a workload that only a
person can change (a Notebook, which no autoscaler scales). Then the proof window is replayed with the proof's own cases, once
with what is left to people and once with the objects and pages alone.
"""

from __future__ import annotations

import argparse
import json
import signal
import tempfile
from collections.abc import Container, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from itertools import pairwise
from multiprocessing import get_context
from pathlib import Path

from benchmarks.drawn_fleets import ASKED_FOR, DRAWN, drawn
from benchmarks.proving.parts import DAYS
from benchmarks.proving.runner import families
from benchmarks.proving.score import ANY_PAYBACK
from trimtab.catalog import load_catalog
from trimtab.catalog.registry import Catalog
from trimtab.check import check_folder
from trimtab.check.cluster import cluster_of_bundle
from trimtab.cli.settings import resolve
from trimtab.deployment.deployment import Deployment
from trimtab.deployment.effects import (
    FleetEffect,
    ReleaseNodes,
    SetBatchPolicy,
    SetPrecision,
    SetReplicaPolicy,
    SetTrainingMemory,
    ShortenStart,
    WorkloadEffect,
)
from trimtab.emit.manifests.cluster_facts import spot_types
from trimtab.emit.manifests.facts import EmitFacts, NodeMaker, PricedPool
from trimtab.emit.manifests.plan_files import emit_plan
from trimtab.errors import TrimtabError
from trimtab.fleet.model import Target
from trimtab.fleet.settings import Settings
from trimtab.levers import spot
from trimtab.pipeline import PlanningInput, open_demo, plan_and_prove
from trimtab.pipeline.afterwards import emit_facts
from trimtab.pipeline.auditing import SEED
from trimtab.plan.commitments.inventory import Owned
from trimtab.plan.model import Change
from trimtab.plan.options.workload_options import OptionFilter, WorkloadOptions
from trimtab.plan.planner import Planned, plan_of
from trimtab.plan.proof.proof_window import ProofResult, prove
from trimtab.replay.outcomes.evaluate import Evaluator
from trimtab.replay.outcomes.service_model import as_emitted
from trimtab.review import read_objects, review_fleet
from trimtab.review.deployments import proposed_deployments
from trimtab.review.placing import Proposed
from trimtab.sources.demo import DEMO_FLEETS
from trimtab.sources.kubernetes.manifests import read_manifests
from trimtab.tables.bundle import Bundle, read_bundle
from trimtab.units import usd

COST_FRAC = 0.02
_BY_PAGE = (SetBatchPolicy, SetPrecision, SetTrainingMemory, ShortenStart)
"""What a program does, or what is on its nodes' disks, which a page says and no object."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One fleet: the proof's bill and that of its files, over the proof window."""

    name: str
    proof_usd: float
    files_usd: float
    """With what is left to people done."""
    objects_usd: float
    """With the objects alone, and pages under `orders/`."""
    targets: int
    targets_equal: int
    workloads: int
    not_judged: tuple[str, ...]
    by_page: tuple[str, ...]
    by_hand: tuple[str, ...]
    """Workloads of which the files say nothing, and the list of what is left to people does."""
    left_behind: int
    given_back: int
    review_usd: float
    """What `trimtab review` says of the folder: objects alone, without what pages under `orders/` ask for."""
    unordered_usd: float
    """The same by the plan's own bill: its objects in force, no node given back by hand and nothing bought."""
    faults: tuple[str, ...]
    """Errors that `trimtab emit --check` finds in the folder: objects that a server refuses or that select nothing."""
    review_passes: bool
    """Whether the review judged every workload, and found no target newly missed and nothing that stops pods."""

    @property
    def review_off_frac(self) -> float:
        """Return the review's bill over the plan's of the same, less 1."""
        return self.review_usd / self.unordered_usd - 1

    @property
    def off_frac(self) -> float:
        """Return the bill of the files over the proof's, less 1."""
        return self.files_usd / self.proof_usd - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ProvedFleet:
    """A fleet that was planned and proved, and what its files are written from."""

    name: str
    bundle: Bundle
    planned: Planned
    proven: ProofResult
    facts: EmitFacts


def proved_fleet(
    name: str,
    bundle: Bundle,
    settings: Settings | None,
    catalog: Catalog | None = None,
    owned: Sequence[Owned] = (),
) -> ProvedFleet:
    """Plan and prove a fleet."""
    settings, catalog = settings or Settings(), catalog or load_catalog()
    made = plan_and_prove(PlanningInput(bundle=bundle, settings=settings, catalog=catalog, owned=owned))
    planned, opened = made.planned, made.opened
    facts = emit_facts(planned.plan, bundle, planned.fleet, opened.market, opened.settings, later=opened.proof)
    return ProvedFleet(name=name, bundle=bundle, planned=planned, proven=made.proven, facts=facts)


def proved_without(fleet: ProvedFleet, lever: str) -> ProvedFleet:
    """Plan and prove a fleet again without the ways of a lever, of one whose ways beat no other before the choice.

    So it is where they ask for more work, or use two pools.
    """

    def apart(judged: WorkloadOptions | None) -> WorkloadOptions | None:
        sieve = None if judged is None else judged.sieve
        if not isinstance(sieve, OptionFilter):
            return judged
        kept, loose, waiting = (
            [way for way in ways if lever not in way.deployment.levers]
            for ways in (sieve.kept, sieve.without_headroom, sieve.waiting)
        )
        behind = {way: queue for way, queue in sieve.behind.items() if way in waiting}
        return replace(sieve.copy(), kept=kept, without_headroom=loose, waiting=waiting, behind=behind).judged()

    prospects = fleet.planned.prospects
    assert prospects is not None
    planned = plan_of(replace(prospects, options=tuple(map(apart, prospects.options))), lambda _stage, _share: None)
    enacted, settings = fleet.proven.enacted, prospects.settings
    proven = prove(planned, enacted.fleet, enacted.market, settings, seed=SEED)
    facts = emit_facts(planned.plan, fleet.bundle, planned.fleet, enacted.market, settings, later=enacted.fleet)
    return replace(fleet, planned=planned, proven=proven, facts=facts)


def row_of(fleet: ProvedFleet, maker: NodeMaker, folder: Path) -> Row:
    """Write the files of a plan for a cluster in which somebody makes nodes, read them, replay them."""
    withheld = write_files(fleet, maker, folder)
    return _read(fleet, folder, withheld)


def write_files(fleet: ProvedFleet, maker: NodeMaker, folder: Path) -> frozenset[str]:
    """Write the files of a plan; return the workloads that are left to people."""
    emission = emit_plan(fleet.planned.plan, replace(fleet.facts, node_maker=maker))
    for file in emission.files:
        path = folder / file.path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(file.text, encoding="utf-8")
    return frozenset(one.subject for one in emission.withheld)


def _read(fleet: ProvedFleet, folder: Path, withheld: Container[str]) -> Row:
    planned, proven = fleet.planned, fleet.proven
    enacted = proven.enacted
    names = [one.name for one in enacted.fleet.workloads]
    manifests = read_objects(read_manifests(folder) if any(folder.rglob("*.yaml")) else ()).laid_on(names)
    cases = {name: planned.cases.get(name, "it is not in the window that was planned on") for name in names}
    cases |= {names[index]: one.case for index, one in enacted.evaluators.items()}
    held_before = enacted.held_before  # as `trimtab review` knows it, which reads the whole history
    seen = review_fleet(enacted.fleet, cases, enacted.market, manifests, owned=planned.owned, held_before=held_before)
    named = [names[index] for index in enacted.evaluators if names[index] in manifests.workloads]
    known = {name: planned.cases[name] for name in named}
    found = {names.index(name): one for name, one in proposed_deployments(known, enacted.market, manifests).items()}
    in_force, by_page, by_hand = dict[int, Deployment](), list[str](), dict[int, Deployment]()
    for index in enacted.evaluators:
        said = planned.deployments.get(names[index], Deployment())
        pages = [(lever, one) for lever, one in said.changes if isinstance(one, _BY_PAGE)]
        by_page += [f"{names[index]}: {one.describe()}" for _, one in pages]
        read = _with_pages(found.get(index, Proposed()).deployment, pages, enacted.evaluators[index])
        if read.changes:
            in_force[index] = read
        elif names[index] in withheld and index not in found:
            by_hand[index] = read = said
    effects = [change.effect for action in planned.plan.actions for change in action.changes]
    by_page += [one.describe() for one in effects if isinstance(one, FleetEffect)]
    done = {**in_force, **by_hand}
    read_of_objects = {index: one.deployment for index, one in found.items() if one.deployment.changes}
    kept = [(one.workload, one.target, one.kept) for one in proven.proof.targets if one.touched]
    same = sum(_kept(proven, names.index(name), done, target) == value for name, target, value in kept)
    moved = {names[index] for index, one in found.items() if one.gives_nodes_back}
    emptied = [one for one in fleet.facts.nodes if one.held_by and set(one.held_by) <= moved]
    pages_text = "".join(path.read_text(encoding="utf-8") for path in sorted(folder.glob("orders/*.md")))
    return Row(
        name=fleet.name,
        proof_usd=usd(proven.proof.after_micro_usd),
        files_usd=_billed(planned, proven, done),
        objects_usd=_billed(planned, proven, in_force),
        targets=len(kept),
        targets_equal=same,
        workloads=len(planned.deployments),
        not_judged=tuple(f"{names[index]}: {one.refused}" for index, one in found.items() if one.refused),
        by_page=tuple(by_page),
        by_hand=tuple(f"{names[index]}: {_words(one)}" for index, one in by_hand.items()),
        left_behind=sum(one.name not in pages_text for one in emptied),
        given_back=sum(one.name in pages_text for one in emptied)
        + sum(len(one.nodes) for one in effects if isinstance(one, ReleaseNodes)),
        review_usd=usd(seen.after_micro_usd),
        unordered_usd=usd(enacted.bill(read_of_objects, (), ()).total + enacted.moving(read_of_objects)),
        faults=_faults(folder, fleet.bundle),
        review_passes=seen.passes and not seen.unjudged,
    )


def _with_pages(found: Deployment, pages: Sequence[tuple[str, WorkloadEffect]], evaluator: Evaluator) -> Deployment:
    """Return what objects make of a workload with what pages say done too.

    A rule's threshold is requests a second, read as a share of what a replica serves: where pages make replicas serve more, the
    same threshold is a smaller share.
    """
    read, law = found.plus(*pages), evaluator.case.law
    if not pages or law is None:
        return read
    before, after = (
        evaluator.place(one).replica_req_s(law.capacity_req_s, faster_counts=law.faster_counts) for one in (found, read)
    )
    return Deployment.of(*((lever, _restated(one, before / after)) for lever, one in read.changes))


def _restated(effect: WorkloadEffect, times: float) -> WorkloadEffect:
    if not isinstance(effect, SetReplicaPolicy):
        return effect
    policy = as_emitted(effect.policy, times)
    assert isinstance(policy, type(effect.policy))
    return replace(effect, policy=policy)


def _faults(folder: Path, bundle: Bundle) -> tuple[str, ...]:
    """Return the errors of a folder; one without a manifest has none."""
    if not any(folder.rglob("*.yaml")):
        return ()
    found = check_folder(folder, load_catalog(), cluster=cluster_of_bundle(bundle), build=False)
    return tuple(map(str, found.errors))


def _billed(planned: Planned, proven: ProofResult, in_force: Mapping[int, Deployment]) -> float:
    """Return the bill with some deployments in force and every order carried out."""
    enacted = proven.enacted
    return usd(enacted.bill(in_force, planned.released, planned.discounts).total + enacted.moving(in_force))


def _words(deployment: Deployment) -> str:
    return "; ".join(effect.describe() for _, effect in deployment.changes) or "nothing"


def _kept(proven: ProofResult, index: int, in_force: Mapping[int, Deployment], target: Target) -> bool | None:
    """Tell whether a target is kept under the files; None where nothing is said of it."""
    if index not in in_force:
        return None
    outcome = proven.enacted.outcome(index, in_force[index])
    return next((one.frac >= target.required_frac for one in outcome.attained if one.target == target), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """A fleet without a row: `refused` by trimtab, `over_limit` of its CPU time, or `crashed`."""

    name: str
    how: str
    why: str


def demo_row(demo: str, maker: NodeMaker) -> Row:
    """Return the row of a demonstration."""
    with tempfile.TemporaryDirectory() as folder:
        return row_of(proved_fleet(demo, open_demo(demo), None), maker, Path(folder))


class OverLimit(BaseException):
    """A fleet took too long; no `Exception`, so that nothing on the way takes it for its own."""


def fleet_row(family: str, seed: int, maker: NodeMaker, limit_s: float) -> Row | Left:
    """Return the row of a fleet that is drawn, or why there is none.

    The quota and the own rates of the proving ground's fleets are left out: what is compared is one plan with its files.
    """
    name = f"{family} {seed}"
    signal.signal(signal.SIGPROF, _over_limit)
    signal.setitimer(signal.ITIMER_PROF, limit_s)
    with tempfile.TemporaryDirectory() as folder:
        try:
            bundle, options = _bundle(family, seed, Path(folder) / "bundle")
            settings = resolve(
                file=None, environ={}, flags=[text for flag, text in pairwise(options) if flag == "--set"]
            ).settings
            return row_of(proved_fleet(name, bundle, settings), maker, Path(folder) / "manifests")
        except TrimtabError as error:
            return Left(name=name, how="refused", why=str(error))
        except OverLimit:
            return Left(name=name, how="over_limit", why=f"took more than {limit_s:g} s of CPU time")
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)


def _over_limit(number: int, frame: object) -> None:
    raise OverLimit


def _bundle(family: str, seed: int, folder: Path) -> tuple[Bundle, tuple[str, ...]]:
    """Return the history of a fleet that is drawn, and the options that it is planned with."""
    if family in (*DRAWN, *ASKED_FOR):
        return drawn(family, seed).bundle(), ANY_PAYBACK
    fleet = next(one for one in families() if one.name == family).make(seed, DAYS)
    return read_bundle(fleet.write(folder)), (*ANY_PAYBACK, *fleet.options)


def rows(arguments: argparse.Namespace) -> Iterator[Row | Left]:
    """Yield a row, or why there is none, for each fleet that is asked for, as they come."""
    maker = NodeMaker(arguments.node_maker)
    if not arguments.fleets:
        yield from (demo_row(demo, maker) for demo in arguments.demo or list(DEMO_FLEETS))
        return
    names = arguments.family or (DRAWN if arguments.small else [one.name for one in families()])
    with ProcessPoolExecutor(arguments.jobs, mp_context=get_context("spawn"), max_tasks_per_child=40) as pool:
        asked = {
            pool.submit(fleet_row, name, seed, maker, arguments.limit_s): f"{name} {seed}"
            for seed in range(arguments.seed, arguments.seed + arguments.fleets)
            for name in names
        }
        for done in as_completed(asked):
            error = done.exception()
            yield done.result() if error is None else Left(name=asked[done], how="crashed", why=repr(error))


@dataclass(frozen=True, slots=True, kw_only=True)
class HedgeRow:
    """A service held on spot in one way: the bill of that, and that of the files that ask for it."""

    name: str
    one_in: int
    hedge_usd: float
    files_usd: float | None
    """None where the reader does not judge it."""
    types: int
    """The most instance types that a node pool or group may start."""


def hedge_rows(seed: int, maker: NodeMaker) -> Iterator[HedgeRow]:
    """Yield a drawn service with each share of its replicas on demand, over the proof window."""
    options = [text for flag, text in pairwise(ANY_PAYBACK) if flag == "--set"]
    bundle, settings = drawn(ASKED_FOR[0], seed).bundle(), resolve(file=None, environ={}, flags=options).settings
    fleet = proved_fleet(str(seed), bundle, settings)
    enacted, plan = fleet.proven.enacted, fleet.planned.plan
    for index, evaluator in enacted.evaluators.items() if plan.actions else ():
        case = evaluator.case
        workload = case.workload
        for hedge in spot.hedges(workload, enacted.market, case.settings.assumptions):
            if hedge.pool.nodes != workload.pool.nodes:
                continue
            action = replace(plan.actions[0], changes=(Change(subject=workload.name, effect=hedge),))
            # the drawn plan did not choose spot, so that its facts say nothing of the types there are
            choice = PricedPool(
                pool=hedge.pool,
                gpus_per_node=workload.gpus_per_node,
                spot_types=spot_types(hedge.pool, enacted.market),
            )
            hedged = replace(
                fleet,
                planned=replace(fleet.planned, plan=replace(plan, actions=(action,))),
                facts=replace(fleet.facts, pools=(*fleet.facts.pools, choice)),
            )
            with tempfile.TemporaryDirectory() as folder:
                write_files(hedged, maker, Path(folder))
                manifests = read_objects(read_manifests(Path(folder))).laid_on([workload.name])
            read = proposed_deployments({workload.name: case}, enacted.market, manifests)[workload.name]
            asked, found = (
                usd(enacted.bill({index: deployment}, (), ()).total)
                for deployment in (Deployment.of((spot.NAME, hedge)), read.deployment)
            )
            yield HedgeRow(
                name=f"{workload.name} {seed}",
                one_in=hedge.one_in,
                hedge_usd=asked,
                files_usd=None if read.refused else found,
                types=max((len(pool.instance_types) for pool in manifests.pools.values()), default=0),
            )


def _show_hedges(count: int, seed: int, maker: NodeMaker) -> None:
    rows = [row for number in range(seed, seed + count) for row in hedge_rows(number, maker)]
    for row in rows:
        print(
            f"{row.name:20s} one in {row.one_in}  {row.types} types  ${row.hedge_usd:10,.2f}  "
            f"files ${row.files_usd or 0.0:10,.2f}"
        )
    off = [abs(row.files_usd / row.hedge_usd - 1) for row in rows if row.files_usd is not None]
    floors = [row for row in rows if row.one_in]
    print(
        json.dumps(
            {
                "benchmark": "enact-hedges",
                "ways": len(rows),
                "with_a_floor_on_demand": len(floors),
                "with_several_types": sum(row.types > 1 for row in rows),
                "not_judged": sum(row.files_usd is None for row in rows),
                "within_2_percent": sum(each <= COST_FRAC for each in off),
                "worst_bill_off_frac": max(off, default=0.0),
            }
        )
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--demo", action="append", choices=sorted(DEMO_FLEETS), help="this one; again for several")
    parser.add_argument(
        "--node-maker",
        choices=[one.value for one in NodeMaker],
        default=NodeMaker.KARPENTER.value,
        help="who makes nodes",
    )
    parser.add_argument("--fleets", type=int, default=0, metavar="N", help="fleets a family of the proving ground")
    parser.add_argument("--seed", type=int, default=1, help="seed of the first fleet of each family")
    parser.add_argument(
        "--family", action="append", default=[], metavar="NAME", help="only this family; again for more"
    )
    parser.add_argument(
        "--small", action="store_true", help="small fleets of drawn workloads, not the proving ground's"
    )
    parser.add_argument("--limit-s", type=float, default=300.0, metavar="S", help="CPU time of one fleet")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="fleets at once, a process each")
    parser.add_argument(
        "--hedges", type=int, default=0, metavar="N", help="so many drawn services, on spot in every way"
    )
    arguments = parser.parse_args()
    if arguments.hedges:
        _show_hedges(arguments.hedges, arguments.seed, NodeMaker(arguments.node_maker))
        return
    found, left = list[Row](), list[Left]()
    for row in rows(arguments):
        if isinstance(row, Left):
            print(f"{row.name}: {row.how}: {row.why}", flush=True)
            left.append(row)
        else:
            _show(row)
            found.append(row)
    counts = {how: sum(one.how == how for one in left) for how in ("refused", "over_limit", "crashed")}
    print(json.dumps({"benchmark": "enact", "fleets": len(found), **counts, **_totals(found)}))


def _show(row: Row) -> None:
    print(
        f"{row.name:20s} proof ${row.proof_usd:10,.2f}  files ${row.files_usd:10,.2f} ({row.off_frac:+.2%})  "
        f"objects alone ${row.objects_usd:10,.2f}  targets "
        f"{row.targets_equal}/{row.targets}  nodes given back {row.given_back}, left behind {row.left_behind}  "
        f"review {'passes' if row.review_passes else 'does not pass'} ({row.review_off_frac:+.2%})",
        flush=True,
    )
    for word, lines in (
        ("not judged", row.not_judged),
        ("by a page", row.by_page),
        ("by hand", row.by_hand),
        ("fault", row.faults),
    ):
        for line in lines:
            print(f"  {word}: {line}", flush=True)


def _totals(found: Sequence[Row]) -> dict[str, float | int]:
    return {
        "with_a_plan": sum(bool(row.workloads or row.by_page) for row in found),
        "within_2_percent": sum(abs(row.off_frac) <= COST_FRAC for row in found),
        "worst_bill_off_frac": max(abs(row.off_frac) for row in found),
        "worst_bill_of_objects_alone_off_frac": max(abs(row.objects_usd / row.proof_usd - 1) for row in found),
        "left_to_people": sum(len(row.by_hand) for row in found),
        "targets": sum(row.targets for row in found),
        "targets_equal": sum(row.targets_equal for row in found),
        "not_judged": sum(len(row.not_judged) for row in found),
        "nodes_given_back_by_order": sum(row.given_back for row in found),
        "nodes_left_behind": sum(row.left_behind for row in found),
        "folders_with_errors": sum(bool(row.faults) for row in found),
        "reviews_that_pass": sum(row.review_passes for row in found),
        "worst_review_off_frac": max(abs(row.review_off_frac) for row in found),
    }


if __name__ == "__main__":
    main()
