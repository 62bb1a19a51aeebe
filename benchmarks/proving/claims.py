"""What an audit claims, read from outside: its JSON document and the files that it emits, by the command line of people."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import cast

import yaml

import trimtab
import trimtab_runtime
from benchmarks.proving.world.rules import RecordingRule
from benchmarks.proving.world.service import Guard

Json = Mapping[str, "object"]
_CALL = """
import sys
from trimtab.cli import main
arguments = sys.argv[1:]
end = arguments.index("--then")
for part in (arguments[:end], arguments[end + 1 :]):
    try:
        main(part)
    except SystemExit as ended:
        if ended.code:
            raise
"""
"""Audit and emission in one interpreter, since reading the program takes longer than emitting."""
_LIMIT_S = 900
_SAID = "said.txt"
_NUMBER = r"([0-9.]+(?:e[+-]?[0-9]+)?)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A target as the proof states it."""

    workload: str
    metric: str
    limit_s: float | None
    required_frac: float
    attained_frac: float
    kept: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """What an audit claims of a fleet."""

    fit_start_hr: int
    fit_hours: int
    proof_start_hr: int
    proof_hours: int
    fit_bill_usd_mo: float
    before_usd: float
    after_usd: float
    clairvoyant_usd: float
    low_usd_mo: float
    high_usd_mo: float
    unjudged_usd_mo: float
    targets: tuple[Target, ...]
    changes: tuple[tuple[str, str, Json], ...]
    """(subject, kind of effect, settings)."""
    manifests: tuple[Json, ...]
    """Every Kubernetes object emitted."""
    withheld: tuple[str, ...]
    """What emission left to people."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Silence:
    """An audit that claims nothing: it refused in words, or fell over."""

    crashed: bool
    message: str


def audit(bundle: Path, options: Sequence[str], folder: Path, start: datetime) -> Claim | Silence:
    """Audit a bundle and emit its plan, in a folder of its own."""
    folder.mkdir(parents=True, exist_ok=True)
    audited = ("audit", str(bundle.resolve()), "-q", "-o", "json", "--out", "audit.json", *options)
    found = _trimtab(folder, *audited, "--then", "emit", "--out", "manifests")
    (folder / _SAID).write_text(found.stderr, encoding="utf-8")
    return _silence(found.stderr) if found.returncode else claim_again(folder, start)


def claim_again(folder: Path, start: datetime) -> Claim | Silence:
    """Return what an audit claimed whose document and manifests are in a folder."""
    said = (folder / _SAID).read_text(encoding="utf-8")
    if not (folder / "manifests").is_dir():
        return _silence(said)
    document = cast("Json", json.loads((folder / "audit.json").read_text(encoding="utf-8")))
    return _claim(document, tuple(_objects(folder / "manifests")), tuple(said.splitlines()), start)


def _trimtab(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    # the program under test is the one that this process would import, wherever the command runs
    environment = {
        **os.environ,
        "TRIMTAB_STATE": str((folder / "state").resolve()),
        "PYTHONPATH": os.pathsep.join(
            str(Path(file).resolve().parents[1]) for file in (trimtab.__file__, trimtab_runtime.__file__)
        ),
    }
    return subprocess.run(
        [sys.executable, "-c", _CALL, *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=_LIMIT_S,
        check=False,
    )


def _silence(stderr: str) -> Silence:
    crashed = "Traceback" in stderr or "internal error" in stderr.lower()
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    named = [line for line in lines if re.match(r"^[A-Za-z.]*(Error|Exception)\b", line)]
    message = (named or lines or ["no message"])[-1] if crashed else " ".join(lines[:3])
    return Silence(crashed=crashed, message=message[:300])


def _objects(folder: Path) -> Iterator[Json]:
    for path in sorted(folder.rglob("*.yaml")):
        for one in yaml.safe_load_all(path.read_text(encoding="utf-8")):
            if isinstance(one, dict):
                yield one


def _number(value: object) -> float:
    return float(cast("float", value))


def _part(value: object) -> Json:
    return cast("Json", value)


def _parts(value: object) -> Sequence[Json]:
    return cast("Sequence[Json]", value)


def _window(part: Json, start: datetime) -> tuple[int, int]:
    begin = datetime.fromisoformat(str(part["start"]))
    return round((begin - start).total_seconds() / 3600), int(_number(part["hours"]))


def _claim(document: Json, manifests: tuple[Json, ...], withheld: tuple[str, ...], start: datetime) -> Claim:
    plan, proof = _part(document["plan"]), _part(document["proof"])
    fit_start, fit_hours = _window(_part(plan["window"]), start)
    proof_start, proof_hours = _window(_part(proof["window"]), start)
    joint = _number(plan["joint_saving_usd_mo"])
    low, high = plan["joint_saving_low_usd_mo"], plan["joint_saving_high_usd_mo"]
    return Claim(
        fit_start_hr=fit_start,
        fit_hours=fit_hours,
        proof_start_hr=proof_start,
        proof_hours=proof_hours,
        fit_bill_usd_mo=_number(document["bill_usd_mo"]),
        before_usd=_number(proof["before_usd"]),
        after_usd=_number(proof["after_usd"]),
        clairvoyant_usd=_number(proof["clairvoyant_usd"]),
        low_usd_mo=joint if low is None else _number(low),
        high_usd_mo=joint if high is None else _number(high),
        unjudged_usd_mo=sum(_number(one["usd_mo"]) for one in _parts(document["unjudged"])),
        targets=tuple(
            Target(
                workload=str(one["workload"]),
                metric=str(one["metric"]),
                limit_s=None if one["limit_s"] is None else _number(one["limit_s"]),
                required_frac=_number(one["required_frac"]),
                attained_frac=_number(one["attained_frac"]),
                kept=bool(one["kept"]),
            )
            for one in _parts(proof["targets"])
            if one["touched"]
        ),
        changes=tuple(
            (str(change["subject"]), str(change["kind"]), _part(change["settings"]))
            for action in _parts(plan["actions"])
            for change in _parts(action["changes"])
        ),
        manifests=manifests,
        withheld=withheld,
    )


def changes_of(claim: Claim, subject: str) -> dict[str, Json]:
    """Return the effects on one subject, by kind."""
    return {kind: settings for name, kind, settings in claim.changes if name == subject}


@dataclass(frozen=True, slots=True, kw_only=True)
class Autoscaler:
    """The numbers of an emitted autoscaler and of the rule that it follows."""

    minimum: int
    maximum: int
    threshold: float
    capacity_req_s: float | None
    """None: it follows GPU activity."""
    guards: tuple[Guard, ...]
    up_window_s: int
    down_window_s: int
    up_percent: float
    up_pods: int
    down_percent: float
    down_pods: int
    period_s: int
    tolerance_up_frac: float
    tolerance_down_frac: float
    rules: tuple[RecordingRule, ...]
    """In the order in which one group evaluates them."""
    follows: str
    """The record that its first trigger asks for."""
    query: str
    """What that trigger asks."""
    mean_s: int
    """Over how long its demand is a mean; 0 where it is the last value."""
    cooldown_s: float = 300.0
    polling_s: float = 30.0
    wakes_on: str | None = None
    """The query of its trigger `wake`; None where it has none."""


def autoscaler(claim: Claim, workload: str) -> Autoscaler | str:
    """Return a workload's emitted ScaledObject with its rule; or why there is none to enact."""
    namespace, name = workload.split("/")
    scaled = _object(claim, "ScaledObject", namespace, f"trimtab-{name}")
    rules = _object(claim, "PrometheusRule", namespace, f"trimtab-{name}")
    if scaled is None or rules is None:
        return f"no autoscaler was emitted for {workload}: {'; '.join(claim.withheld) or 'and nothing says why'}"
    recording = tuple(_recording(rules))
    expressions = {rule.record: rule.expression for rule in recording}
    per_replica = expressions.get("trimtab:demand_per_replica", "")
    spec = _part(scaled["spec"])
    triggers = {str(one["name"]): _part(one["metadata"]) for one in _parts(spec["triggers"])}
    demand = triggers.get("demand")
    followed = re.match(r"^(?:sum\()?(trimtab:[a-z_]+)\{", str(demand["query"])) if demand else None
    if demand is None or followed is None:
        return f"the autoscaler of {workload} follows nothing that was recorded"
    divided = re.search(rf"\)\s*/\s*{_NUMBER}\s*$", per_replica)
    averaged = re.search(
        r"avg_over_time\(trimtab:load_replicas(?:\{[^}]*\})?\[(\d+)s\]\)", expressions.get(followed[1], "")
    )
    behaviours = _part(_part(_part(spec["advanced"])["horizontalPodAutoscalerConfig"])["behavior"])
    up, down = _part(behaviours["scaleUp"]), _part(behaviours["scaleDown"])
    watching = {name: str(one["query"]) for name, one in triggers.items() if name.startswith(("latency-", "ttft-"))}
    guards = [guard_of(query, name, recording) for name, query in watching.items()]
    understood = tuple(guard for guard in guards if guard is not None)
    if len(understood) < len(watching):
        return f"a guard of {workload} is not understood: {'; '.join(watching.values())}"
    return Autoscaler(
        minimum=int(_number(spec["minReplicaCount"])),
        maximum=int(_number(spec["maxReplicaCount"])),
        threshold=float(str(demand["threshold"])),
        capacity_req_s=None if "DCGM" in per_replica or divided is None else float(divided[1]),
        guards=understood,
        up_window_s=int(_number(up.get("stabilizationWindowSeconds", 0))),
        down_window_s=int(_number(down.get("stabilizationWindowSeconds", 300))),
        up_percent=_policy(up, "Percent"),
        up_pods=int(_policy(up, "Pods")),
        down_percent=_policy(down, "Percent"),
        down_pods=int(_policy(down, "Pods")),
        period_s=int(max(_number(one["periodSeconds"]) for one in _parts(up["policies"]))),
        tolerance_up_frac=float(str(up.get("tolerance", 0.1))),
        tolerance_down_frac=float(str(down.get("tolerance", 0.1))),
        # what guards record is played by its numbers
        rules=tuple(rule for rule in recording if rule.record not in _OF_GUARDS),
        follows=followed[1],
        query=str(demand["query"]),
        mean_s=int(averaged[1]) if averaged else 0,
        cooldown_s=_number(spec["cooldownPeriod"]),
        polling_s=_number(spec["pollingInterval"]),
        wakes_on=str(triggers["wake"]["query"]) if "wake" in triggers else None,
    )


_OF_GUARDS = ("trimtab:guard_asks", "trimtab:guard_times")
_ASKS = (
    "sum(min_over_time(trimtab:replicas_ready{}[5m])) * clamp((sum(histogram_quantile(scalar(clamp_min(# - # / "
    "sqrt(clamp_min(sum(increase(...[5m])), 1)), 0)), ...[5m])))) / #) > 1, #, #)"
)
_ASKED = "(sum(trimtab:guard_asks{}) * # / clamp_min(sum(avg_over_time(trimtab:load_replicas{}[5m])), #))"
_HELD = "(1 + # * (sum(last_over_time(trimtab:guard_times{}[1h])) - 1))"
_TIMES = f"clamp_max({_ASKED} > {_HELD} or {_HELD} or {_ASKED}, #)"
_WATCHES = "sum(trimtab:guard_times{} > #) * sum(avg_over_time(trimtab:load_replicas{}[5m])) or vector(0)"


def _numbers(form: str, said: str) -> list[float] | None:
    """Return the numbers of PromQL where a form has `#`, with any selector for `{}`; None where it is not of that form."""
    pattern = re.escape(form).replace(r"\#", _NUMBER).replace(r"\{\}", r"\{[^}]*\}").replace(r"\.\.\.", ".*")
    found = re.fullmatch(pattern, " ".join(said.split()))
    return None if found is None else [float(number) for number in found.groups()]


def guard_of(query: str, name: str, rules: Sequence[RecordingRule]) -> Guard | None:
    """Return the numbers of a guard on a quantile of latency; None where query or rules have another form than the emitted."""
    of = {rule.record: rule.expression for rule in rules if rule.labels.get("guard") == name}
    off = _numbers(_WATCHES, query)
    asks, times = _numbers(_ASKS, of.get(_OF_GUARDS[0], "")), _numbers(_TIMES, of.get(_OF_GUARDS[1], ""))
    if off is None or asks is None or times is None or f'guard="{name}"' not in query:
        return None
    quantile, chance, limit_s, least, most = asks
    return Guard(
        quantile=quantile,
        chance=chance,
        limit_s=limit_s,
        least=least,
        most=most,
        times_target_frac=times[0],
        load_least=times[1],
        kept_frac=times[2],
        times_most=times[-1],
        off=off[0],
    )


def _recording(rules: Json) -> Iterator[RecordingRule]:
    """Yield the recording rules of a PrometheusRule, whose groups are evaluated one after the other."""
    for group in _parts(_part(rules["spec"])["groups"]):
        for rule in _parts(group["rules"]):
            if "record" in rule:
                labels = {str(name): str(value) for name, value in _part(rule.get("labels") or {}).items()}
                yield RecordingRule(record=str(rule["record"]), expression=str(rule["expr"]), labels=labels)


def _policy(behaviour: Json, kind: str) -> float:
    return max((_number(one["value"]) for one in _parts(behaviour["policies"]) if one["type"] == kind), default=0.0)


def _object(claim: Claim, kind: str, namespace: str, name: str) -> Json | None:
    for one in claim.manifests:
        named = _part(one.get("metadata") or {})
        if one.get("kind") == kind and named.get("namespace") == namespace and named.get("name") == name:
            return one
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePool:
    """An emitted NodePool."""

    name: str
    instance_types: tuple[str, ...]
    capacity_types: tuple[str, ...]
    gpu_limit: int | None
    consolidate_after_s: float
    when_underutilized: bool


def node_pools(claim: Claim) -> list[NodePool]:
    """Return every NodePool emitted."""
    found = []
    for one in claim.manifests:
        if one.get("kind") != "NodePool":
            continue
        spec = _part(one["spec"])
        required = {
            str(need["key"]): tuple(str(value) for value in cast("Sequence[object]", need["values"]))
            for need in _parts(_part(_part(spec["template"])["spec"])["requirements"])
        }
        disruption = _part(spec["disruption"])
        limit = _part(spec.get("limits") or {}).get("nvidia.com/gpu")
        after = re.match(r"^(\d+)([smh])$", str(disruption["consolidateAfter"]))
        unit = {"s": 1, "m": 60, "h": 3600}
        found.append(
            NodePool(
                name=str(_part(one["metadata"])["name"]),
                instance_types=required.get("node.kubernetes.io/instance-type", ()),
                capacity_types=required.get("karpenter.sh/capacity-type", ()),
                gpu_limit=None if limit is None else int(str(limit)),
                consolidate_after_s=float(after[1]) * unit[after[2]] if after else 0.0,
                when_underutilized=disruption["consolidationPolicy"] == "WhenEmptyOrUnderutilized",
            )
        )
    return found


def patched_replicas(claim: Claim, workload: str) -> int | None:
    """Return the replicas that the emitted kustomize Component sets for a workload; None where it sets none."""
    namespace, _, name = workload.partition("/")
    for one in claim.manifests:
        if one.get("kind") != "Component":
            continue
        for patch in _parts(one.get("patches") or []):
            target = _part(patch["target"])
            if target.get("name") != name or target.get("namespace", namespace) != namespace:
                continue
            steps = yaml.safe_load(str(patch["patch"]))
            for step in steps if isinstance(steps, list) else []:
                if step["path"] == "/spec/replicas":
                    return int(step["value"])
    return None
