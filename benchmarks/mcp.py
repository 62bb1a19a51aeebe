"""Twenty questions with known answers, put by an MCP client to `trimtab mcp`: how many its tools answer, and how small.

    python -m benchmarks.mcp [--folder DIR]

A demonstration is audited in a folder of its own (`--folder` keeps it) as a user would: `trimtab audit --demo -o json`. The
client is that of the official SDK, over stdin and stdout of a server in a process of its own. What is known of the fleet is
what its generator planted (docs/explanation/demo-fleets.md), the list prices of its day, and the audit's own JSON. A question
may take several calls: an answer that is not ready is asked for again, one of several pages is read to its end. Afterwards
every table, action and workload is asked for, to see how large answers get.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from mcp import ClientSession
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.types import TextContent

from trimtab.physics.serving_demand import Demand, Targets
from trimtab.pipeline import open_demo
from trimtab.pipeline.fitting import fit
from trimtab.tables.bundle import write_bundle
from trimtab.web.tables import TABLES

DEMO = "two-hundred-k"
BUNDLE = "fleet"
MOST_BYTES = 4000
_MOST_CALLS = 40
_PAUSE_S = 2.0
P4D_USD_HR = 21.957642
"""AWS's list price of a p4d.24xlarge in us-east-1, on demand, as of 2026-07-20 (`catalog/data/prices.csv`)."""
HISTORY_HR = 42 * 24
CHAT_NODES = 3
OLD_NODE_USD_MO = 8935.20
"""A p3.8xlarge that no pod uses."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What the tool said to one question, all pages of it: JSON answers, or text."""

    text: str
    pages: Sequence[Mapping[str, object]]

    def fact(self, name: str) -> object:
        """Return a fact of the first page."""
        return self.pages[0].get(name) if self.pages else None

    def rows(self) -> list[dict[str, object]]:
        """Return the rows of all pages by column."""
        found: list[dict[str, object]] = []
        for page in self.pages:
            columns, rows = page.get("columns"), page.get("rows")
            if isinstance(columns, list) and isinstance(rows, list):
                found += [dict(zip(columns, row, strict=True)) for row in rows]
        return found

    def row(self, column: str, value: object) -> dict[str, object]:
        """Return the row with a value, empty where there is none."""
        return next((row for row in self.rows() if row[column] == value), {})

    def says(self, *words: str) -> bool:
        """Tell whether a text holds all these words, wherever its lines break."""
        text = " ".join(self.text.split())
        return all(word in text for word in words)


Known = Callable[[Reply, Mapping[str, object]], bool]
"""Whether a reply is right, given the audit's JSON."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A question, the call that a client makes for it, and what is known of the answer."""

    words: str
    tool: str
    arguments: Mapping[str, object] = field(default_factory=dict)
    known: Known


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """How a question went."""

    question: Question
    right: bool
    largest_bytes: int
    calls: int
    seconds: float


def close(found: object, known: float) -> bool:
    """Tell whether two figures agree to a cent."""
    return isinstance(found, int | float) and math.isclose(found, known, abs_tol=0.011)


def proven(reply: Reply) -> bool:
    """Tell whether the proof's share is that of docs/benchmarks.md."""
    found = reply.fact("proof_saving_frac")
    return isinstance(found, float) and round(found, 3) == 0.650


def of_plan(audit: Mapping[str, object], name: str) -> float:
    """Return a figure of the audit's plan."""
    plan = audit["plan"]
    assert isinstance(plan, dict)
    return float(plan[name])


def action_of(audit: Mapping[str, object], lever: str, words: str = "") -> dict[str, object]:
    """Return the plan's action of a lever whose subject holds some words."""
    plan = audit["plan"]
    assert isinstance(plan, dict)
    return next(row for row in plan["actions"] if row["lever"] == lever and words in row["subject"])


def questions(audit: Mapping[str, object]) -> list[Question]:
    """Return the twenty questions; `audit` tells only which id an action has."""
    old_node = str(action_of(audit, "idle-release", "unheld")["id"])
    scaling = action_of(audit, "autoscaling", "prod/chat-api")
    return [
        Question(
            words="Which audits are there, and of which fleet?",
            tool="audits",
            known=lambda reply, _: reply.rows()[0]["fleet"] == f"demo {DEMO}",
        ),
        Question(
            words="What does the fleet cost a month?",
            tool="audit",
            known=lambda reply, _: close(reply.fact("bill_usd_mo"), 200_121.81),
        ),
        Question(
            words="What would the plan save, and how sure is that?",
            tool="audit",
            known=lambda reply, audit: all(
                close(reply.fact(f"saving{end}_usd_mo"), of_plan(audit, f"joint_saving{end}_usd_mo"))
                for end in ("", "_low", "_high")
            ),
        ),
        Question(
            words="Does it hold on history that the planner never saw?",
            tool="audit",
            known=lambda reply, _: proven(reply) and reply.fact("targets_kept") == reply.fact("targets") == 18,
        ),
        Question(
            words="Which workload costs most?",
            tool="table",
            arguments={"table": "workloads", "sort": "usd_mo"},
            known=lambda reply, _: (
                reply.rows()[0]["workload"] == "prod/chat-api" and close(reply.rows()[0]["usd_mo"], 48_087.24)
            ),
        ),
        Question(
            words="What does each team cost?",
            tool="table",
            arguments={"table": "teams"},
            known=lambda reply, _: close(sum(_numbers(reply, "usd_mo")), 200_121.81),
        ),
        Question(
            words="What of the bill does nothing?",
            tool="table",
            arguments={"table": "waste"},
            known=lambda reply, _: close(sum(_numbers(reply, "usd_mo")), 200_121.81),
        ),
        Question(
            words="Why is prod/chat-api so little used?",
            tool="explain",
            arguments={"name": "prod/chat-api"},
            known=lambda reply, _: reply.says("over-provisioned: 21% active", "too few concurrent requests"),
        ),
        Question(
            words="Is ml/ranker-train fine as it is?",
            tool="explain",
            arguments={"name": "ml/ranker-train"},
            known=lambda reply, _: reply.says("healthy: 85% active"),
        ),
        Question(
            words="Why does ml/ranker-train not run on spot?",
            tool="table",
            arguments={"table": "not-worth", "words": "ml/ranker-train"},
            known=lambda reply, _: reply.row("lever", "spot").get("reason") == "declared not interruptible",
        ),
        Question(
            words="What is known of the old node that nobody uses?",
            tool="explain",
            arguments={"name": old_node},
            known=lambda reply, _: reply.says("unheld p3.8xlarge", "$8,935.20"),
        ),
        Question(
            words="How is autoscaling of prod/chat-api undone?",
            tool="explain",
            arguments={"name": scaling["id"]},
            known=lambda reply, _: reply.says("Rollback", str(scaling["rollback"])),
        ),
        Question(
            words="What is saved if the old node is kept?",
            tool="plan_without",
            arguments={"off": [old_node]},
            known=lambda reply, audit: close(
                reply.fact("saving_usd_mo"), of_plan(audit, "joint_saving_usd_mo") - OLD_NODE_USD_MO
            ),
        ),
        Question(
            words="What is saved without autoscaling, and what takes its place?",
            tool="plan_without",
            arguments={"off": [scaling["id"]]},
            known=_without_autoscaling,
        ),
        Question(
            words="What would the plan be without spot?",
            tool="what_if",
            arguments={"no_spot": True},
            # it uses none
            known=lambda reply, audit: all(
                close(reply.row("what", "bill under the plan").get(world), of_plan(audit, "objective_usd_mo"))
                for world in ("base", "scenario")
            ),
        ),
        Question(
            words="Which latency does prod/chat-api have to keep, and does it?",
            tool="table",
            arguments={"table": "targets", "words": "prod/chat-api"},
            known=lambda reply, _: any(
                "4 s" in str(row["target"]) and row["required_frac"] == 0.95 and row["kept"] is True
                for row in reply.rows()
            ),
        ),
        Question(
            words="What did prod/chat-api cost over the six weeks?",
            tool="allocate",
            arguments={"by": "workload"},
            known=lambda reply, _: close(
                reply.row("name", "prod/chat-api").get("usd"), CHAT_NODES * P4D_USD_HR * HISTORY_HR
            ),
        ),
        Question(
            words="What does a p4d.24xlarge cost on demand in us-east-1?",
            tool="prices",
            arguments={
                "instance_type": "p4d.24xlarge",
                "region": "us-east-1",
                "option": "on-demand",
                "at": "2026-11-02",
            },
            known=lambda reply, _: close(reply.row("provider", "aws").get("usd_hr"), P4D_USD_HR),
        ),
        Question(
            words="Which of the plan's actions were done in the last two weeks?",
            tool="verify",
            arguments={"bundle": BUNDLE},
            known=lambda reply, audit: (
                {str(row["status"]) for row in reply.rows()} == {"not enacted"}
                and len(reply.rows()) == len(_list(audit, "plan", "actions"))
            ),
        ),
        Question(
            words="On which GPU is Llama 3.1 8B cheapest at 20 requests a second, first token within 500 ms?",
            tool="fit",
            arguments={"task": "serve", "model": "meta-llama/Llama-3.1-8B", "rate": "20", "ttft": "500ms"},
            known=_cheapest,
        ),
    ]


def _list(audit: Mapping[str, object], part: str, name: str) -> list[dict[str, object]]:
    found = audit[part]
    assert isinstance(found, dict)
    rows: list[dict[str, object]] = found[name]
    return rows


def _numbers(reply: Reply, column: str) -> list[float]:
    return [float(value) for row in reply.rows() if isinstance(value := row[column], int | float)]


def _without_autoscaling(reply: Reply, audit: Mapping[str, object]) -> bool:
    """More is saved than is left when its share is subtracted: a commitment takes the place of part of it."""
    saved, joint = reply.fact("saving_usd_mo"), of_plan(audit, "joint_saving_usd_mo")
    share = action_of(audit, "autoscaling", "prod/chat-api")["saving_usd_mo"]
    assert isinstance(share, float)
    gone = all(row["lever"] != "autoscaling" for row in reply.rows())
    return isinstance(saved, float) and joint - share < saved < joint and gone


def _cheapest(reply: Reply, _: Mapping[str, object]) -> bool:
    demand = Demand(
        input_tokens=1024,
        output_tokens=256,
        rate_req_s=20,
        targets=Targets(ttft_s=0.5),
        headroom_frac=0.2,
    )
    way = fit("llama-3.1-8b", serve=demand).found[0]
    first = reply.rows()[0]
    return first["gpu"] == way.gpu.name and first["gpus"] == way.gpus and close(first["usd_hr"], way.usd_hr)


def prepared(folder: Path) -> dict[str, object]:
    """Audit the demonstration in a folder, and put its bundle there; return the audit's JSON."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "audit.json"
    if not file.exists():
        command = [sys.executable, "-m", "trimtab", "audit", "--demo", DEMO, "-q", "-o", "json", "--out", str(file)]
        subprocess.run(command, cwd=folder, check=True)
    if not (folder / BUNDLE).exists():
        bundle = open_demo(DEMO)
        write_bundle(folder / BUNDLE, bundle.tables, bundle.meta, bundle.workloads)
    audit: dict[str, object] = json.loads(file.read_text(encoding="utf-8"))
    return audit


def server_in(folder: Path, *arguments: str) -> StdioServerParameters:
    """Return how a client starts the server."""
    return StdioServerParameters(
        command=sys.executable, args=["-m", "trimtab", "mcp", *arguments], env=dict(os.environ), cwd=folder
    )


async def ask(session: ClientSession, question: Question, audit: Mapping[str, object]) -> Answered:
    """Put a question until its answer is ready and read to its end, and judge it."""
    began, calls, largest, start = time.perf_counter(), 0, 0, 0
    texts: list[str] = []
    pages: list[Mapping[str, object]] = []
    while calls < _MOST_CALLS:
        text = await said(session, question.tool, {**question.arguments, **({"start": start} if start else {})})
        calls, largest = calls + 1, max(largest, len(text.encode()))
        page = _json(text)
        if "under_way" in page:
            await asyncio.sleep(_PAUSE_S)
            continue
        texts.append(text)
        pages += [page] if page else []
        again = str(page.get("rest", "")) if page else text.rpartition("\n")[2]
        if "start=" not in again:
            break
        start = int(again.partition("start=")[2].split()[0])
    reply = Reply(text="\n".join(texts), pages=pages)
    return Answered(
        question=question,
        right=_is_right(question, reply, audit),
        largest_bytes=largest,
        calls=calls,
        seconds=time.perf_counter() - began,
    )


def _is_right(question: Question, reply: Reply, audit: Mapping[str, object]) -> bool:
    try:
        return question.known(reply, audit)
    except (IndexError, KeyError):
        return False


async def said(session: ClientSession, tool: str, arguments: Mapping[str, object]) -> str:
    """Return the one text that a tool answers with."""
    result = await session.call_tool(tool, dict(arguments))
    (content,) = result.content
    assert isinstance(content, TextContent)
    return content.text


def _json(text: str) -> Mapping[str, object]:
    try:
        found = json.loads(text)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


async def all_asked(session: ClientSession, audit: Mapping[str, object]) -> tuple[list[Answered], list[Answered]]:
    """Put every question to a server, then ask for every table, action and workload; return both."""
    answered = [await ask(session, question, audit) for question in questions(audit)]
    return answered, [await ask(session, question, audit) for question in everything(audit)]


async def asked_in(folder: Path, audit: Mapping[str, object]) -> tuple[list[Answered], list[Answered]]:
    """Start a server in a folder, and put everything to it."""
    async with stdio_client(server_in(folder)) as (read, write), ClientSession(read, write) as session:
        await session.initialize()
        return await all_asked(session, audit)


def everything(audit: Mapping[str, object]) -> list[Question]:
    """Return a question for every table, action and workload; whatever is said in answer is right."""
    asked = [("table", {"table": name}) for name in (*TABLES, "not-worth")]
    names = [str(row["id"]) for row in _list(audit, "plan", "actions")]
    names += [str(row["name"]) for row in _list(audit, "spend", "by_workload") if row["kind"] is not None]
    asked += [("explain", {"name": name}) for name in names]
    return [
        Question(words="", tool=tool, arguments=arguments, known=lambda reply, _: bool(reply.text))
        for tool, arguments in asked
    ]


def main() -> None:
    """Print a line a question, and the figures as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, help="where the demonstration is audited; a temporary one by default")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = (asked.folder or Path(scratch)).resolve()
        answered, rest = asyncio.run(asked_in(folder, prepared(folder)))
    for found in answered:
        verdict = "right" if found.right else "WRONG"
        print(
            f"{verdict}  {found.largest_bytes:>5} bytes  {found.calls:>2} calls  {found.seconds:>6.1f} s  "
            f"{found.question.tool:<13} {found.question.words}"
        )
    print(
        json.dumps(
            {
                "questions": len(answered),
                "answered": sum(found.right for found in answered),
                "largest_bytes": max(found.largest_bytes for found in answered),
                "most_bytes": MOST_BYTES,
                "calls": sum(found.calls for found in answered),
                "other_calls": sum(found.calls for found in rest),
                "largest_of_those_bytes": max(found.largest_bytes for found in rest),
                "slowest_s": round(max(found.seconds for found in answered), 1),
            }
        )
    )


if __name__ == "__main__":
    main()
