"""What pages show, that they agree with the document, and that nothing from the fleet can do harm on them."""

import csv
import io
import json
import re
import threading
import time

import httpx
import pytest
from jsonschema import Draft202012Validator
from openpyxl import load_workbook
from tests.emit.example import example_audit
from tests.fleets import few_machines
from tests.web.conftest import serving
from tests.web.fleet import Shelf, rows as rows_of_fleet, verified, whole

from trimtab.catalog.registry import price_change
from trimtab.emit.audit_document import audit_document
from trimtab.emit.comparison import compared
from trimtab.emit.document import render_json
from trimtab.emit.verify_document import verify_document
from trimtab.emit.writers.xlsx import WorkbookSheet, write_workbook
from trimtab.errors import InputError
from trimtab.levers.registry import title_of
from trimtab.pipeline import PlanningInput, what_if
from trimtab.plan.proof.scenario import Scenario
from trimtab.web import computations as computations_module, tables
from trimtab.web.app import PageCache
from trimtab.web.computations import MOST_WAITING, AuditQuestion, Computations, Refused, TooBusy, UnderWay
from trimtab.web.library import AuditEntry, Library, SwitchedPlans
from trimtab.web.tables import PAGE_ROWS, TABLES

HOSTILE = {
    "markup": "<script>alert(1)</script><img src=x onerror=alert(1)>",
    "quotes": '"\'` onload="alert(1)" x=\'',
    "formula": '=cmd|" /C calc"!A0',
    "long": "x" * 10_000,
    "right to left": "evil\u202egpj.exe",
    "terminal": "\x1b]0;owned\x07\x1b[31mred",
    "address": "a&b=c#d?e=f/../../%2e%2e",
}


def renamed(document, name):
    """Return a document whose fleet, team, dearest workload and first action have a name."""
    old = document.spend.by_workload[0].name
    text = render_json(document)
    plain = json.loads(text.replace(json.dumps(old)[1:-1], json.dumps(name)[1:-1]))
    plain["fleet"] = name
    for row in plain["spend"]["by_workload"]:
        row["team"], row["kind"] = name, "serving"
    plain["spend"]["by_team"][0]["name"] = name
    for part in ("subject", "effect", "rollback"):
        plain["plan"]["actions"][0][part] = name
    plain["degraded"] = [name]
    return type(document).model_validate(plain)


@pytest.fixture(scope="module", params=HOSTILE)
def hostile(request):
    name = HOSTILE[request.param]
    document = renamed(audit_document(example_audit()), name)
    with (
        serving(Library(source=Shelf({"1": document}))) as address,
        httpx.Client(base_url=address, trust_env=False, timeout=60) as client,
    ):
        yield client, name, document


def test_a_hostile_name_is_only_a_name_on_every_page(hostile):
    client, name, _document = hostile
    pages = ["", "/spend", "/plan", "/proof", "/use", "/more", "/action?id=a1"]

    for path in pages:
        text = client.get(f"/audits/1{path}").text
        assert not re.search(r"<script(?! src=)|<img|\son\w+=\"|\x1b|\u202e", re.sub(r">[^<]*<", "><", text)), path
        assert "<script>alert" not in text
        assert "\x1b" not in text
        assert "\u202e" not in text
        assert len(text) < 500_000, path
    for params in ({"team": name[:400]}, {"q": name[:400]}):
        assert client.get("/audits/1/spend", params=params).status_code == 200


def test_links_lead_to_whatever_a_workload_is_called(hostile):
    client, name, _document = hostile
    text = client.get("/audits/1/spend").text
    links = [link.replace("&amp;", "&") for link in re.findall(r'href="(/audits/1/workload[^"]*)"', text)]

    assert links
    if len(name) < 400:
        assert [client.get(link).status_code for link in links] == [200] * len(links)


def test_csv_of_a_hostile_name_runs_nothing(hostile):
    client, _name, _ = hostile
    rows = list(csv.DictReader(io.StringIO(client.get("/audits/1/tables/workloads.csv").text)))

    assert all(
        not cell.startswith(("=", "+", "-", "@", "\t")) for row in rows for cell in (row["workload"], row["team"])
    )


def test_json_gives_the_name_as_it_is(hostile):
    client, name, document = hostile

    assert client.get("/api/audits/1").json()["fleet"] == name
    assert client.get("/api/audits/1").text == render_json(document)


def test_the_front_page_leads_to_the_latest_audit(client):
    answer = client.get("/")

    assert (answer.status_code, answer.headers["location"]) == (303, "/audits/1")


def test_the_overview_has_the_figures_of_the_report(client):
    text = client.get("/audits/1").text

    document = whole()[0]
    for amount in (document.bill_usd_mo, document.plan.shown_bill_usd_mo(), document.plan.joint_saving_usd_mo):
        assert f"${amount:,.0f}" in text


def test_a_fleet_is_followed_down_to_a_workload(client):
    fleet = client.get("/audits/1/spend").text
    assert 'href="/audits/1/spend?team=lab"' in fleet
    team = client.get("/audits/1/spend?team=lab").text
    assert "lab/<wbr>train" in team
    assert "web/<wbr>api" not in team
    workload = client.get("/audits/1/workload?name=lab/train").text
    assert "Its week" in workload
    assert 'href="/audits/1/action?id=a4"' in workload
    assert client.get("/audits/1/workload?name=lab/nobody").status_code == 404


@pytest.mark.parametrize("name", TABLES)
def test_a_table_says_the_same_as_csv_and_as_json(client, name):
    rows = client.get(f"/api/audits/1/tables/{name}").json()
    written = list(csv.DictReader(io.StringIO(client.get(f"/audits/1/tables/{name}.csv").text)))

    assert client.get(f"/audits/1/tables/{name}.json").json() == rows
    assert len(written) == len(rows["rows"])
    for one, other in zip(written, rows["rows"], strict=True):
        assert list(one) == rows["columns"]
        assert [cell.removeprefix("'") for cell in one.values()] == [
            "" if v is None else str(v) for v in other.values()
        ]


def test_tables_are_put_in_order_and_filtered_by_their_address(client):
    def usd(query):
        return [row["usd_mo"] for row in client.get(f"/api/audits/1/tables/workloads?{query}").json()["rows"]]

    assert usd("sort=usd_mo&down=1") == sorted(usd(""), reverse=True)
    assert usd("sort=usd_mo&down=0") == sorted(usd(""))
    assert len(usd("q=TRAIN")) == 1
    assert usd("q=nothing-like-that") == []


def test_the_parts_of_the_bill_sum_to_it(client):
    document = whole()[0]

    for name in ("workloads", "teams", "types", "waste"):
        rows = client.get(f"/api/audits/1/tables/{name}").json()["rows"]
        assert round(sum(row["usd_mo"] for row in rows), 2) == document.bill_usd_mo


# Switches


def test_with_everything_on_the_plan_is_that_of_the_audit(client):
    found = client.get("/api/audits/1/plan").json()

    plan = whole()[0].plan
    assert found["bill_usd_mo"] == plan.objective_usd_mo
    assert found["joint_saving_usd_mo"] == plan.joint_saving_usd_mo
    assert {row["id"]: row["saving_usd_mo"] for row in found["actions"]} == {
        action.id: action.saving_usd_mo for action in plan.actions
    }


def test_a_switched_plan_has_one_address_and_its_sums_add_up(client):
    found = client.get("/api/audits/1/plan?off=a4").json()
    page = client.get("/audits/1/plan?off=a4").text

    assert f"${found['bill_usd_mo']:,.0f}" in page
    assert "In their place" in page
    assert "1 x g5.12xlarge" in page
    assert found["before_usd_mo"] - found["bill_usd_mo"] == pytest.approx(found["joint_saving_usd_mo"], abs=0.005)
    assert sum(row["saving_usd_mo"] for row in found["actions"]) == pytest.approx(
        found["joint_saving_usd_mo"], abs=0.005
    )


def test_the_form_of_switches_works_without_a_script(client):
    answer = client.get("/audits/1/plan", params={"set": "1", "on": ["a1", "a2", "a3"]})

    assert (answer.status_code, answer.headers["location"]) == (303, "/audits/1/plan?off=a4")
    assert client.get("/audits/1/plan", params={"set": "1", "on": ["a1", "a2", "a3", "a4"]}).headers["location"] == (
        "/audits/1/plan"
    )


def test_ids_that_the_plan_does_not_have_are_left_aside(client):
    assert client.get("/api/audits/1/plan?off=a99,<script>").json() == client.get("/api/audits/1/plan").json()


def test_without_its_history_a_plan_is_shown_and_says_why_it_cannot_be_switched():
    with serving(Library(source=Shelf({"1": whole()[0]}))) as address:
        httpx.get(f"{address}/audits/1/plan", trust_env=False)
        while (answer := httpx.get(f"{address}/api/audits/1/plan", trust_env=False)).status_code == 202:
            pass
        page = httpx.get(f"{address}/audits/1/plan", trust_env=False).text

    assert answer.status_code == 409
    assert "is not here" in answer.json()["error"]
    assert "The switches cannot be used" in page
    assert page.count('disabled="disabled"') == len(whole()[0].plan.actions)


def test_a_plan_that_is_no_longer_the_one_kept_is_not_switched():
    document, made = whole()
    plan = document.plan.model_copy(update={"objective_usd_mo": document.plan.objective_usd_mo + 1})
    library = Library(source=Shelf({"1": document.model_copy(update={"plan": plan})}, {"1": made}))
    entry = library.entry("1")
    while not hasattr(board := library.switchboard(entry), "reason"):
        pass

    assert "another plan" in board.reason


def test_more_questions_than_can_wait_are_turned_away():
    board = SwitchedPlans(whole()[1])
    for _ in range(MOST_WAITING):
        board._places.acquire()

    with pytest.raises(TooBusy):
        board.without(frozenset({"a1"}))


# What is worked out when it is asked for


def answered(client, path, params=None):
    """Ask until the answer is worked out."""
    end = time.monotonic() + 120
    while (answer := client.get(path, params=params)).status_code == 202 or 'id="waiting"' in answer.text:
        assert time.monotonic() < end, path
    return answer


def test_predicted_and_realised_stand_side_by_side(client):
    text = answered(client, "/audits/1/verify").text

    for action in verified().actions:
        assert f"{action.predicted_usd_mo.value:,.0f}" in text
        assert f'href="/audits/1/action?id={action.id}"' in text
    assert client.get("/api/audits/1/verify").json() == json.loads(json.dumps(verify_document(verified())))


def test_a_verification_is_filtered_and_sorted_like_any_table(client):
    rows = answered(client, "/api/audits/1/tables/verified", {"sort": "predicted_usd_mo", "down": "1"}).json()["rows"]
    predicted = [row["predicted_usd_mo"] for row in rows]

    assert predicted == sorted(predicted, reverse=True)
    assert answered(client, "/api/audits/1/tables/verified", {"q": "nothing-like-that"}).json()["rows"] == []


@pytest.mark.parametrize(
    ("query", "scenario", "words"),
    [
        (
            {"demand": "1.5", "price": "on-demand+20%"},
            Scenario(demand=1.5, prices=(price_change("on-demand+20%"),)),
            "demand 1.5x; price on-demand+20%",
        ),
        ({"node_start": "40"}, Scenario(node_startup_s=40.0), "a new node is there after 40 s"),
        ({"node_start": "0"}, Scenario(node_startup_s=0.0), "a new node is there after 0 s"),
    ],
)
def test_another_world_is_the_one_of_the_command(client, query, scenario, words):
    rows = answered(client, "/api/audits/1/what-if", query).json()["rows"]
    page = answered(client, "/audits/1/what-if", query).text

    given = PlanningInput(bundle=rows_of_fleet().bundle(), scenario=scenario, catalog=few_machines())
    assert rows == [row.plain() for row in compared(what_if(given))]
    bill = next(row for row in rows if row["what"] == "bill under the plan")
    assert f"${bill['scenario']:,.0f}" in page
    assert words in page
    for name, value in query.items():
        asked = re.search(f'<input [^>]*name="{name}"[^>]*>', page)
        assert asked is not None
        assert f'value="{value}"' in asked.group(), "the form keeps what was asked"


@pytest.mark.parametrize(
    "query",
    [
        "demand=0",
        "demand=x",
        "price=nothing",
        "price=H100-100%25",
        "deadline=soon",
        "quota=x",
        "no_spot=2",
        "target=prod%2Fchat",
        "target=prod%2Fchat%3Atftt%3D1",
        "budget=nan",
        "node_start=-1",
        "node_start=86401",
        "region=US%20West",
        "cloud=g/cp",
    ],
)
def test_a_world_that_cannot_be_read_is_refused(client, query):
    assert client.get(f"/audits/1/what-if?{query}").status_code == 400
    assert client.get(f"/api/audits/1/what-if?{query}").status_code == 400


@pytest.mark.parametrize(
    ("key", "value", "taken"),
    [
        ("price", "H100-15%, spot+30%", True),
        ("target", "prod/chat=0.3, prod/rag:ttft=1.5", True),
        ("target", "prod/chat=soon", False),
        ("price", "spot 30%", False),
        ("quota", "p5.48xlarge=16,g6.xlarge@us-east-1:spot=40", True),
        ("quota", "p5.48xlarge", False),
        ("deadline", "2027-03", True),
        ("deadline", "20270315", False),
        ("region", "us-west-2, gcp/us-central1", True),
        ("region", "gcp/", False),
        ("cloud", "gcp,azure", True),
        ("by", "label:cost-center", True),
        ("by", "label:", False),
    ],
)
def test_a_text_is_read_where_its_description_takes_it(client, key, value, taken):
    described = client.get("/api/openapi.json").json()["paths"]["/api/audits/{audit}/tables/{table}"]["get"][
        "parameters"
    ]
    pattern = next(part["schema"]["pattern"] for part in described if part["name"] == key)

    assert bool(re.search(pattern, value)) is taken
    answer = client.get("/api/audits/1/tables/teams", params={key: value})
    assert answer.status_code == (200 if taken else 400)


def test_another_region_is_asked_for_and_why_nothing_moves_is_told(client):
    page = answered(client, "/audits/1/what-if", {"region": "us-west-2"}).text

    assert "us-west-2 as another region" in page
    assert "state data_gib and traffic_gib_mo in workloads.yaml" in page
    unknown = answered(client, "/api/audits/1/what-if", {"region": "us-wset-2"})
    assert unknown.status_code == 409
    assert "us-west-2" in unknown.json()["error"]


def test_a_price_that_nothing_has_is_told(client):
    answer = answered(client, "/api/audits/1/what-if", {"price": "H1000-15%"})

    assert answer.status_code == 409
    assert "H1000" in answer.json()["error"]


def test_an_allocation_is_followed_from_teams_to_a_workload(client):
    teams = answered(client, "/audits/1/allocation").text
    assert 'href="/audits/1/allocation?by=workload&amp;team=lab"' in teams
    workloads = answered(client, "/audits/1/allocation?by=workload&team=lab").text
    assert 'href="/audits/1/workload?name=lab%2Ftrain"' in workloads
    assert "web/<wbr>api" not in workloads
    assert client.get("/audits/1/allocation?by=colour").status_code == 400


def test_what_is_not_at_hand_says_why_and_not_more():
    with (
        serving(Library(source=Shelf({"1": whole()[0]}))) as address,
        httpx.Client(base_url=address, trust_env=False, timeout=60) as client,
    ):
        page, answer = client.get("/audits/1/verify"), client.get("/api/audits/1/verify")

    assert "was not kept here" in page.text
    assert answer.status_code == 409


def asked(what):
    return AuditQuestion(audit="1", stamp="", asked=what, words=what)


def test_as_many_questions_are_worked_out_as_may_wait():
    answers, gate = Computations(threading.Event()), threading.Event()
    for number in range(MOST_WAITING):
        assert isinstance(answers.ask(asked(str(number)), lambda tell: gate.wait(), wait_s=0.0), UnderWay)

    with pytest.raises(TooBusy):
        answers.ask(asked("another"), lambda tell: None, wait_s=0.0)
    gate.set()
    answers.close()


def test_work_that_nobody_asks_after_is_stopped_and_begun_again_when_somebody_does(monkeypatch):
    monkeypatch.setattr(computations_module, "ABANDONED_S", 0.05)
    answers, begun = Computations(threading.Event()), []

    def make(tell):
        begun.append(len(begun))
        for step in range(1000 if len(begun) == 1 else 1):
            time.sleep(0.01)
            tell("working", step / 1000)
        return len(begun)

    answers.ask(asked("long"), make, wait_s=0.0)
    time.sleep(0.3)
    assert answers.ask(asked("next"), lambda _: "at once", wait_s=5.0) == "at once"

    assert answers.ask(asked("long"), make, wait_s=5.0) == 2
    answers.close()


def test_an_answer_that_failed_is_worked_out_again_when_it_is_asked_for_again():
    answers, tried = Computations(threading.Event()), []

    def make(tell):
        tried.append(1)
        raise InputError("it is not here")

    assert [answers.ask(asked("a"), make) for _ in range(2)] == [Refused(reason="it is not here")] * 2
    assert len(tried) == 2
    answers.close()


# What is cancelled


class Held(Shelf):
    """A source whose comparisons and splits go on, stage after stage, until they are let go or stopped."""

    def __init__(self, *given):
        super().__init__(*given)
        self.let_go, self.stages, self.later_history = threading.Event(), [], "first"

    def later_stamp(self, name):
        return self.later_history

    def verified(self, name, tell):
        self._held(tell, "comparing")
        return super().verified(name, tell)

    def allocated(self, name, asked, tell):
        self._held(tell, f"splitting by {asked.split}")
        return super().allocated(name, asked, tell)

    def _held(self, tell, stage):
        end = time.monotonic() + 60
        while not self.let_go.wait(0.01) and time.monotonic() < end:
            self.stages.append(stage)
            tell(stage, 0.5)


@pytest.fixture
def held(monkeypatch):
    monkeypatch.setattr(computations_module, "ANSWER_WAIT_S", 0.05)
    document, made = whole()
    return Held({"1": document}, {"1": made})


@pytest.fixture
def cancelling(held):
    with (
        serving(Library(source=held)) as address,
        httpx.Client(base_url=address, trust_env=False, timeout=60) as client,
    ):
        yield client


def state_of(client, ident, wanted):
    """Ask until a computation has a state."""
    end = time.monotonic() + 20
    while (found := client.get(f"/api/computations/{ident}").json())["state"] != wanted:
        assert time.monotonic() < end, found
        time.sleep(0.01)
    return found


def test_a_computation_that_is_cancelled_stops_and_is_not_begun_again_by_asking(cancelling, held):
    begun = cancelling.get("/api/audits/1/verify")
    ident = begun.json()["computation"]
    state_of(cancelling, ident, "running")

    cancelled = cancelling.delete(f"/api/computations/{ident}")

    assert (begun.status_code, cancelled.status_code) == (202, 200)
    assert cancelled.json()["state"] in ("stopping", "cancelled")
    assert state_of(cancelling, ident, "cancelled")["what"] == "the plan compared with later history"
    seen = len(held.stages)
    time.sleep(0.1)
    assert len(held.stages) == seen
    again = cancelling.get("/api/audits/1/verify")
    assert again.status_code == 409
    assert f"POST /api/computations/{ident}" in again.json()["error"]


def test_what_was_cancelled_is_begun_again_when_that_is_asked_for(cancelling, held):
    ident = cancelling.get("/api/audits/1/verify").json()["computation"]
    cancelling.delete(f"/api/computations/{ident}")
    state_of(cancelling, ident, "cancelled")

    assert cancelling.post(f"/api/computations/{ident}").json()["id"] == ident
    state_of(cancelling, ident, "running")
    held.let_go.set()

    assert answered(cancelling, "/api/audits/1/verify").status_code == 200
    assert cancelling.delete(f"/api/computations/{ident}").status_code == 409


def test_what_waits_for_its_turn_is_cancelled_before_it_begins(cancelling, held):
    running = cancelling.get("/api/audits/1/verify").json()["computation"]
    waits = cancelling.get("/api/audits/1/allocation?by=team").json()["computation"]
    state_of(cancelling, running, "running")

    assert cancelling.delete(f"/api/computations/{waits}").json()["state"] == "cancelled"
    held.let_go.set()

    state_of(cancelling, running, "done")
    assert "splitting by team" not in held.stages


def test_the_answer_before_the_one_that_is_cancelled_is_kept_and_shown(cancelling, held):
    held.let_go.set()
    first = answered(cancelling, "/audits/1/verify").text
    answered(cancelling, "/audits/1/allocation?by=kind")
    held.let_go.clear()
    held.later_history = "grown"

    for path, do in (("verify", "cancel"), ("allocation?by=team", "cancel")):
        ident = cancelling.get(f"/api/audits/1/{path}").json()["computation"]
        sent = cancelling.post(f"/audits/1/{path}", data={"do": do, "computation": ident})
        assert (sent.status_code, sent.headers["location"]) == (303, f"/audits/1/{path}")

    compared, split = cancelling.get("/audits/1/verify").text, cancelling.get("/audits/1/allocation?by=team").text
    assert "The computation was cancelled." in compared
    assert "Begin again" in compared
    assert re.search('<div class="figures">.*?</section>', first, re.DOTALL)[0] in compared
    assert 'href="/audits/1/allocation?by=kind&amp;idle=show&amp;shared=show"' in split


def test_the_plan_that_is_made_again_for_its_switches_can_be_cancelled_too(held):
    held.plan = lambda name, tell: held._held(tell, "planning") or held.plans[name]
    library = Library(source=held)
    entry = library.entry("1")
    begun = library.switchboard(entry)

    library.cancel(begun.computation)
    assert library.switchboard(entry) == Refused(reason=computations_module.CANCELLED, computation=begun.computation)

    held.let_go.set()
    library.begin_again(begun.computation)
    while isinstance(board := library.switchboard(entry), UnderWay):
        time.sleep(0.01)
    assert isinstance(board, SwitchedPlans)
    library.close()


def test_an_unknown_computation_is_not_there(client):
    for method in ("GET", "DELETE", "POST"):
        answer = client.request(method, "/api/computations/none")
        assert (answer.status_code, list(answer.json())) == (404, ["error"])


def test_the_page_for_finance_says_what_is_owed_whether_used_or_not(client):
    text = client.get("/audits/1/finance").text

    assert "What is committed" in text
    assert "in 8 of 10 cases between" in text
    for word in ("replica", "p95", "80% interval", "fit window", "Shapley"):
        assert word not in text


# Workbooks


def test_a_workbook_has_numbers_as_numbers_and_runs_nothing(client):
    document = renamed(whole()[0], HOSTILE["formula"])
    book = load_workbook(io.BytesIO(tables.audit_workbook(document)))

    cells = [cell for sheet in book for row in sheet.iter_rows(min_row=2) for cell in row]
    assert not [cell for cell in cells if cell.data_type == "f"]
    assert [cell for cell in cells if cell.value == HOSTILE["formula"] and cell.quotePrefix]
    sheet = book["Workloads"]
    heads = [cell.value for cell in sheet[1]]
    money, share = (sheet.cell(2, heads.index(name) + 1) for name in ("$/month", "share"))
    assert money.value == pytest.approx(document.spend.by_workload[0].usd_mo)
    assert money.number_format == "[$$-409]#,##0.00"
    assert share.number_format == "0.0%"


def test_a_workbook_names_levers_as_people_do_and_csv_as_programs_do(client):
    book = load_workbook(io.BytesIO(answered(client, "/audits/1/tables/actions.xlsx").content))
    rows = list(csv.DictReader(io.StringIO(answered(client, "/audits/1/tables/actions.csv").text)))
    heads = [cell.value for cell in book.active[1]]
    named = [row[heads.index("lever")].value for row in book.active.iter_rows(min_row=2)]

    assert named == [title_of(row["lever"]) for row in rows]
    assert named != [row["lever"] for row in rows]


def test_rows_of_a_workbook_are_as_high_as_their_words_take():
    long, short = "word " * 60, "word"
    sheet = WorkbookSheet(title="t", heads=["a", "b"], formats=["General"] * 2, rows=[[short, 1.0], [long, 2.0]])
    page = load_workbook(io.BytesIO(write_workbook([sheet]))).active

    per_line = page.column_dimensions["A"].width
    assert page.row_dimensions[2].height is None  # a line, which is the usual height
    assert page.row_dimensions[3].height >= len(long) / per_line * page.sheet_format.defaultRowHeight


@pytest.mark.parametrize(
    "path",
    [
        "",
        "/spend",
        "/plan",
        "/plan?off=a1",
        "/action?id=a1",
        "/what-if?no_spot=1",
        "/limits",
        "/proof",
        "/verify",
        "/allocation",
        "/commitments",
        "/finance",
        "/more",
    ],
)
def test_every_page_with_a_table_leads_to_its_files(client, path):
    text = answered(client, f"/audits/1{path}").text
    links = [link.replace("&amp;", "&") for link in re.findall(r'href="(/audits/1/tables/[^"]*)"', text)]

    assert bool(links) or "<table" not in text
    for link in links:
        answer = answered(client, link)
        assert answer.status_code == 200, link
        if ".csv" in link:
            assert answer.text.strip(), link
        elif ".xlsx" in link:
            assert load_workbook(io.BytesIO(answer.content)).active.max_row > 1, link


def test_tables_of_the_page_for_finance_have_its_figures_as_numbers(client):
    document = whole()[0]
    found = answered(client, "/api/audits/1/tables/finance-who").json()

    assert found["columns"] == ["team", "usd_a_month", "of_the_bill"]
    assert sum(row["usd_a_month"] for row in found["rows"]) == round(document.bill_usd_mo)
    assert all(0 <= row["of_the_bill"] <= 1 for row in found["rows"])
    assert answered(client, "/api/audits/1/tables/finance-nothing").status_code == 404


@pytest.mark.parametrize("path", ["tables/workloads.xlsx", "tables/verified.xlsx", "workbook.xlsx"])
def test_a_workbook_opens(client, path):
    answer = answered(client, f"/audits/1/{path}")

    assert answer.headers["content-disposition"].endswith('.xlsx"')
    assert load_workbook(io.BytesIO(answer.content)).sheetnames


# The API


def test_every_answer_of_the_api_is_as_it_is_described(client):
    described = client.get("/api/openapi.json").json()
    answered(client, "/api/audits/1/verify")
    known = client.get("/api/computations").json()["computations"][-1]["id"]
    names = {"{audit}": "1", "{table}": "workloads", "{computation}": known}

    for path, operation in described["paths"].items():
        if "{review}" in path:  # this server was given no folder of reviews: tests/web/test_plan_pages.py
            continue
        real = re.sub(r"{\w+}", lambda found: names[found[0]], path)
        query = {"no_spot": "1"} if path.endswith("what-if") else {}
        answer = answered(client, real, query)
        assert answer.status_code == 200, path
        schema = operation["get"]["responses"]["200"]["content"]["application/json"]["schema"]
        whole_schema = {**schema, "components": described["components"]}
        Draft202012Validator(whole_schema).validate(answer.json())


def test_what_is_not_there_is_described_too(client):
    error = client.get("/api/openapi.json").json()["components"]["schemas"]["Error"]

    for path in ("/api/audits/9", "/api/audits/1/tables/none", "/api/nothing", "/api/audits/1/tables/teams?page=x"):
        answer = client.get(path)
        assert answer.status_code in (400, 404)
        Draft202012Validator(error).validate(answer.json())


# What is kept


def test_a_page_is_the_same_packed_unpacked_and_again(client):
    plain = client.get("/audits/1/spend", headers={"Accept-Encoding": "identity"})
    packed = client.get("/audits/1/spend", headers={"Accept-Encoding": "gzip"})

    assert "content-encoding" not in plain.headers
    assert packed.headers["content-encoding"] == "gzip"
    assert plain.text == packed.text == client.get("/audits/1/spend").text


def test_pages_that_nobody_asks_for_are_forgotten_where_they_are_too_many(monkeypatch):
    monkeypatch.setattr("trimtab.web.app.MOST_BYTES", 10_000)
    cache = PageCache()
    entry = AuditEntry(name="1", stamp="")
    for number in range(200):
        cache._found((entry, str(number)), lambda number=number: "".join(map(str, range(number, number + 500))))

    assert cache._size == sum(map(len, cache._packed.values())) <= 10_000
    assert (entry, "199") in cache._packed
    assert (entry, "0") not in cache._packed


def test_an_audit_that_changed_is_read_again():
    document = whole()[0]
    shelf = Shelf({"1": document})
    library = Library(source=shelf)
    before = library.document(library.entry("1"))
    shelf.documents["1"] = document.model_copy(update={"fleet": "changed"})

    assert library.document(AuditEntry(name="1", stamp="")) is before
    assert library.document(AuditEntry(name="1", stamp="later")).fleet == "changed"


# Large fleets


def test_a_page_of_a_thousand_workloads_stays_small():
    document = whole()[0]
    row = document.spend.by_workload[0]
    rows = tuple(row.model_copy(update={"name": f"space/workload-{n:04d}", "usd_mo": float(n)}) for n in range(1000))
    spend = document.spend.model_copy(update={"by_workload": rows})
    with serving(Library(source=Shelf({"1": document.model_copy(update={"spend": spend})}))) as address:
        first = httpx.get(f"{address}/audits/1/spend?sort=usd_mo", trust_env=False).text
        last = httpx.get(f"{address}/audits/1/spend?sort=usd_mo&page=20", trust_env=False).text
        beyond = httpx.get(f"{address}/audits/1/spend?page=21", trust_env=False)

    assert first.count("/audits/1/workload?name=") == PAGE_ROWS
    assert "workload-0999" in first
    assert "workload-0000" in last
    assert beyond.status_code == 200
    assert len(first) < 150_000


# The GPU picker


def test_the_picker_lists_what_serves_a_model(client):
    text = client.get("/fit", params={"model": "llama-3-8b", "rate": "5", "tpot": "60"}).text

    assert "What works, cheapest first" in text
    assert "80% interval" in text


def test_the_picker_hides_nothing_that_its_picture_shows_and_says_what_stands_last(client):
    text = client.get("/fit", params={"model": "llama-3-8b", "rate": "5"}).text
    table, _, picture = text.partition("Cost against time")

    rows = re.findall(r"<tr>(.*?)</tr>", table)
    assert "licensed for data centres" in rows[-1]
    labelled = set(re.findall(r"\dx (RTX-\d+)<", picture))
    assert labelled
    assert all(any(name in row for row in rows) for name in labelled)


def test_a_scenario_shows_its_four_headline_figures(client):
    text = answered(client, "/audits/1/what-if?no_spot=1").text

    names = re.findall(r'<div class="name">(.*?)</div>', text)
    assert names == ["Bill as the fleet runs today", "Bill under the plan", "Saving", "Engineer-weeks"]


def test_the_picker_takes_a_model_as_the_command_does_and_asks_what_an_unknown_one_means(client):
    assert "What works" in client.get("/fit", params={"model": "meta-llama/Llama-3.1-8B", "tpot": "60"}).text
    unknown = client.get("/fit", params={"model": "lama-3-8b"})

    assert unknown.status_code == 400
    assert "did you mean llama-3-8b" in unknown.text


@pytest.mark.parametrize("query", ["rate=0", "rate=nan", "rate=inf", "rate=-1", "input=1e99", "tpot=x", "output=0"])
def test_the_picker_refuses_what_is_no_load(client, query):
    assert client.get(f"/fit?model=llama-3-8b&{query}").status_code == 400


def test_every_word_that_the_description_lists_is_answered_and_another_is_refused(client):
    described = client.get("/api/openapi.json").json()["paths"]

    for path in ("/api/prices", "/api/reviews"):
        parameters = described[path]["get"]["parameters"]
        words = {found["name"]: found["schema"]["enum"] for found in parameters if "enum" in found["schema"]}
        assert "sort" in words
        for name, known in words.items():
            assert {client.get(path, params={name: word}).status_code for word in known} == {200}
            assert client.get(path, params={name: "no such word"}).status_code == 400
