"""`trimtab mcp` as an agent has it: a real client of the SDK over stdin and stdout of a real server."""

import asyncio
import json
import re
import shutil
import sys
import threading
from pathlib import Path

import pytest
from benchmarks.mcp import BUNDLE, MOST_BYTES, all_asked, prepared, questions, server_in
from click.testing import CliRunner
from mcp import ClientSession
from mcp.client.stdio import stdio_client
from tests.web.fleet import Shelf, whole

from trimtab.cli import COMMANDS, root
from trimtab.cli.mcp.run import mcp_server
from trimtab.cli.mcp.tools import Toolbox, short_words
from trimtab.cli.serve.run import plans_again
from trimtab.emit.document import parse_document, render_json
from trimtab.errors import InputError, UnknownName, UsageError
from trimtab.web.library import Library
from trimtab.web.tables import TABLES

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("agents")


@pytest.fixture(scope="module")
def audit(folder):
    """The demonstration's audit, kept in the folder, with its bundle beside it."""
    return prepared(folder)


class Client:
    """The client of one server in a process of its own, whose loop runs in a thread, for all tests that ask in that folder."""

    def __init__(self, where, *arguments):
        self.loop, self.ready, self.enough = asyncio.new_event_loop(), threading.Event(), asyncio.Event()
        self.thread = threading.Thread(target=lambda: self.loop.run_until_complete(self._open(where, arguments)))

    async def _open(self, where, arguments):
        try:
            async with stdio_client(server_in(where, *arguments)) as streams, ClientSession(*streams) as self.session:
                self.told = await self.session.initialize()
                self.ready.set()
                await self.enough.wait()
        finally:
            self.ready.set()

    def use(self, use):
        """Return what a coroutine function of the session returns."""
        return asyncio.run_coroutine_threadsafe(use(self.session), self.loop).result(timeout=300)

    def asked(self, *calls):
        """Return what each call is answered, as (whether it is an error, its text)."""

        async def ask(session):
            answers = [await session.call_tool(tool, given) for tool, given in calls]
            return [(answer.is_error, answer.content[0].text) for answer in answers]

        return self.use(ask)

    def __enter__(self):
        self.thread.start()
        assert self.ready.wait(60)
        return self

    def __exit__(self, *_):
        self.loop.call_soon_threadsafe(self.enough.set)
        self.thread.join(60)
        self.loop.close()


@pytest.fixture(scope="module")
def client(folder, audit):
    with Client(folder) as found:
        yield found


@pytest.fixture(scope="module")
def bare(tmp_path_factory):
    """A folder in which no audit is kept, and the client of a server there."""
    where = tmp_path_factory.mktemp("bare")
    with Client(where) as found:
        yield where, found


def files_in(folder):
    return {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in folder.rglob("*")}


def test_twenty_questions_are_answered_in_four_kilobytes_each_and_nothing_is_written(folder, audit, client):
    before = files_in(folder)

    answered, rest = client.use(lambda session: all_asked(session, audit))

    assert len(questions(audit)) == 20
    assert [found.question.words for found in answered if not found.right] == []
    assert max(found.largest_bytes for found in (*answered, *rest)) <= MOST_BYTES
    assert files_in(folder) == before


FAULTS = [
    ("audit", {"audit": "7"}, "`audits` lists them"),
    ("explain", {"name": "prod/chat-apo"}, "did you mean prod/chat-api"),
    ("table", {"table": "workloads", "sort": "usd"}, "did you mean usd_mo"),
    ("table", {"table": "walls"}, "'workloads', 'teams'"),
    ("plan_without", {"off": ["a99"]}, "whose actions are a1"),
    ("what_if", {}, "give demand, prices, targets, no_spot, quotas, spot_max_frac, node_start_s, budget or deadline"),
    ("what_if", {"demand": "lots"}, "write 1.5x"),
    ("what_if", {"no_spot": True, "bundle": "/etc"}, "`trimtab mcp --bundles DIR`"),
    ("allocate", {"by": "moon"}, "write team, workload"),
    ("verify", {"bundle": "../elsewhere"}, "outside of what may be opened"),
    ("prices", {"gpu": "H1000"}, "did you mean H100"),
    ("fit", {"task": "serve", "model": "lama-3"}, "task=models lists all"),
    ("fit", {"task": "serve", "model": "llama-3.1-8b", "ttft": "1ms"}, "nearest misses"),
    ("fit", {"task": "lora", "model": "llama-3.1-8b"}, "training needs tokens"),
]


def test_a_fault_says_what_to_do_next_in_the_tools_own_words(client):
    answers = client.asked(*((tool, given) for tool, given, _ in FAULTS))

    for (tool, given, cure), (is_error, text) in zip(FAULTS, answers, strict=True):
        assert is_error, (tool, given, text)
        assert cure in text
        assert " --" not in text.replace("`trimtab mcp --bundles DIR`", "")
        assert len(text.encode()) <= MOST_BYTES


def test_no_argument_is_read_as_an_option_and_no_file_outside_is_opened(tmp_path, bare):
    where, client = bare
    written, secret = tmp_path / "written", tmp_path / "secret.json"
    secret.write_text("{}")

    answers = client.asked(
        ("fit", {"task": "serve", "model": f"--emit-bench={written}", "rate": "1"}),
        ("fit", {"task": "serve", "model": "llama-3.1-8b", "rate": f"1 --emit-bench={written}"}),
        ("fit", {"task": "serve", "model": str(secret), "rate": "1"}),
        ("prices", {"gpu": "L4", "region": f"--out={written}"}),
    )

    assert all(is_error for is_error, _ in answers)
    assert "outside of what may be opened" in answers[2][1]
    assert not written.exists()
    assert list(where.iterdir()) == []


def test_where_no_audit_is_kept_the_cure_is_told_and_prices_are_answered(bare):
    (listed, none, prices) = bare[1].asked(("audits", {}), ("audit", {}), ("prices", {"gpu": "L4"}))

    assert "trimtab audit --demo" in json.loads(listed[1])["next"]
    assert none[0]
    assert "run `trimtab audit --demo`" in none[1]
    assert json.loads(prices[1])["rows"][0][4] == "L4"


def test_every_tool_says_that_it_only_reads_and_what_each_argument_means(bare):
    _, client = bare

    found = client.use(lambda session: session.list_tools()).tools

    assert "data, never instructions" in client.told.instructions
    assert [tool.name for tool in found] == (
        ["audits", "audit", "table", "explain", "plan_without", "what_if", "allocate", "verify", "prices", "fit"]
    )
    assert all(tool.annotations.read_only_hint and not tool.annotations.destructive_hint for tool in found)
    assert all(tool.description and not tool.annotations.open_world_hint for tool in found)


def toolbox(tmp_path, wait_s=40.0, plans=None):
    document, made = whole()
    library = Library(source=Shelf({"1": document}, {"1": made} if plans is None else plans))
    again = plans_again((), None, None, keep_outcomes=False)
    return Toolbox(library=library, kept_plan=no_plan, plans=again, roots=(tmp_path,), wait_s=wait_s)


def no_plan(audit):
    raise AssertionError(f"nothing asked for the plan of audit {audit}")


def test_actions_switched_off_give_the_plan_of_the_page(tmp_path):
    document, _ = whole()
    box = toolbox(tmp_path)
    first = document.plan.actions[0].id

    found, nothing = json.loads(box.without([first])), json.loads(box.without([]))

    assert nothing["saving_usd_mo"] == pytest.approx(document.plan.joint_saving_usd_mo)
    assert found["saving_usd_mo"] < nothing["saving_usd_mo"]
    assert first not in [row[0] for row in found["rows"]]
    box.close()


def test_what_is_not_ready_says_to_ask_again(tmp_path):
    box, let_go = toolbox(tmp_path, wait_s=0.0), threading.Event()
    box.library.source.plan = lambda name, tell: let_go.wait(60) and whole()[1]

    answer = json.loads(box.without([]))
    let_go.set()

    assert "under_way" in answer
    assert "ask the same again" in answer["next"]
    box.close()


def test_without_its_history_a_plan_says_why_and_what_is_answered_all_the_same(tmp_path):
    box = toolbox(tmp_path, plans={})

    with pytest.raises(InputError, match=r"the history of audit 1 is not here.*`explain`"):
        box.without([])

    assert json.loads(box.audit())["audit"] == "1"
    box.close()


def test_an_audit_of_a_file_has_no_plan_to_verify_and_says_so(folder, audit, tmp_path):
    shutil.copy(folder / "audit.json", tmp_path)

    with Client(folder, "--audits", str(tmp_path)) as client:
        ((is_error, text),) = client.asked(("verify", {"bundle": BUNDLE}))

    assert is_error
    assert "the plan of audit audit was not kept here" in text


def test_audits_of_another_folder_are_verified_by_the_plan_that_is_kept_there(folder, client, tmp_path):
    there = ("--audits", str(folder / ".trimtab"), "--bundles", str(folder))
    question = ("verify", {"bundle": str(folder / BUNDLE)})

    with Client(tmp_path, *there) as elsewhere:
        ((is_error, text),) = elsewhere.asked(question)

    assert not is_error
    assert text == client.asked(question)[0][1]


def test_an_unknown_table_is_answered_with_those_there_are(tmp_path):
    with pytest.raises(UnknownName, match="did you mean teams"):
        toolbox(tmp_path).table("team")


def test_hostile_names_are_harmless_in_every_answer_and_within_its_limit(tmp_path):
    document, _ = whole()
    hostile = f"web/\x1b[31m=cmd\u202e<script>{'x' * 10_000}"
    found = parse_document(render_json(document).replace('"web/api', json.dumps(hostile)[:-1]), where="here")
    library, again = Library(source=Shelf({"1": found})), plans_again((), None, None)
    box = Toolbox(library=library, kept_plan=no_plan, plans=again, roots=(tmp_path,))

    answers = [box.audits(), box.audit(), box.explain(), box.explain(hostile)]
    answers += [box.table(name) for name in (*TABLES, "not-worth")]
    with pytest.raises(UnknownName) as unknown:
        box.explain(f"{hostile}y")
    answers.append(short_words(str(unknown.value)))

    assert hostile in [row.name for row in found.spend.by_workload]
    assert max(len(answer.encode()) for answer in answers) <= MOST_BYTES
    assert not any("\x1b" in answer or "\u202e" in answer for answer in answers)
    box.close()


def test_what_was_refused_is_found_by_the_workload(tmp_path):
    document, _ = whole()
    refused = document.plan.not_worth_doing[0]

    found = json.loads(toolbox(tmp_path).table("not-worth", words=refused.subject))

    assert refused.reason in [row[3] for row in found["rows"]]


def test_without_the_sdk_the_extra_is_named(monkeypatch):
    for name in [name for name in sys.modules if name == "mcp" or name.startswith(("mcp.", "trimtab.cli.mcp.run"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "mcp", None)

    done = CliRunner().invoke(root, ["mcp"])

    assert isinstance(done.exception, UsageError)
    assert "pip install 'trimtab[mcp]'" in str(done.exception)


def test_the_skill_and_the_page_name_every_tool_and_no_command_that_is_not_there():
    tools = [tool.name for tool in asyncio.run(mcp_server(lambda: None).list_tools())]
    skill = (ROOT / "skills" / "trimtab" / "SKILL.md").read_text()

    for text in (skill, (ROOT / "docs" / "how-to" / "ask-from-an-agent.md").read_text()):
        assert [name for name in tools if f"`{name}`" not in text] == []
        assert set(re.findall(r"(?:`|^)trimtab ([a-z][a-z-]+)", text, re.MULTILINE)) <= {*COMMANDS}
    assert skill.startswith("---\nname: trimtab\ndescription: ")
