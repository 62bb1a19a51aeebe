"""Pages about the plan over time, the replay with zoom, GPUs by hour, prices and reviews."""

import itertools
import json
import time

import httpx
import pytest
from tests.web.conftest import serving
from tests.web.fleet import Shelf, whole

from trimtab.plan.proof.own_order import OwnOrders
from trimtab.plan.proof.undeclared import limit_prices
from trimtab.web.library import Library
from trimtab.web.replay_pages import ShownHours


def answered(client, path):
    """Ask until the answer is ready."""
    end = time.monotonic() + 60
    while True:
        found = client.get(path)
        if found.status_code != 202 and 'id="waiting"' not in found.text:
            return found
        assert time.monotonic() < end
        time.sleep(0.05)


# The year


def test_the_plans_own_order_is_its_roadmap():
    document, made = whole()

    year = OwnOrders(planned=made.planned).year(())

    assert year.faults == ()
    assert round(year.course.year_usd, 2) == document.plan.roadmap.course.year_usd


def test_the_year_in_another_order_is_billed_step_by_step():
    _, made = whole()
    orders = OwnOrders(planned=made.planned)
    backwards = tuple(reversed(orders.ids))

    course = orders.year(backwards).course

    today = course.bill_usd_mo[0]
    ends = sorted((step.done_mo, step.bill_usd_mo) for step in course.steps)
    edges = [(0.0, today), *ends, (12.0, 0.0)]
    by_hand = sum((end - start) * bill for (start, bill), (end, _) in itertools.pairwise(edges))
    assert [step.action for step in course.steps] == list(backwards)
    assert course.year_usd == pytest.approx(by_hand)
    assert ends[-1][1] == pytest.approx(orders.year(()).course.bill_usd_mo[-1])


def test_no_order_is_cheaper_than_the_plans_where_it_says_so():
    document, made = whole()
    orders = OwnOrders(planned=made.planned)
    ids = orders.ids
    assert document.plan.roadmap.best

    swapped = [(*ids[:at], ids[at + 1], ids[at], *ids[at + 2 :]) for at in range(len(ids) - 1)]

    least = orders.year(()).course.year_usd
    years = [orders.year(order) for order in swapped]
    assert all(year.course.year_usd >= least - 0.01 for year in years if not year.faults)


def test_an_order_says_which_action_comes_too_early(client):
    _, made = whole()
    orders = OwnOrders(planned=made.planned)
    bought = next(action.id for action in made.planned.plan.actions if action.lever == "commitment")
    others = [name for name in orders.ids if name != bought]

    faults = orders.year((bought, *others)).faults

    page = answered(client, f"/audits/1/year?order={bought}").text
    assert ("may stand unused" in page) == bool(faults)
    assert all(fault.action == bought and not fault.misses_target for fault in faults)


def test_ids_left_out_of_an_order_come_last_and_unknown_ones_are_left_aside(client):
    ids = [action.id for action in whole()[0].plan.actions]
    found = answered(client, f"/api/audits/1/year?order=nothing,{ids[-1]},{ids[-1]}").json()

    assert [step["action"] for step in found["course"]["steps"]] == [ids[-1], *ids[:-1]]


def test_the_order_can_be_moved_without_a_script(client):
    ids = [action.id for action in whole()[0].plan.actions]

    page = answered(client, "/audits/1/year").text

    assert f"order={','.join([ids[1], ids[0], *ids[2:]])}" in page
    assert f'aria-label="{ids[0]} later"' in page


def test_without_its_history_the_year_is_the_plans_and_says_why_no_other():
    document, _ = whole()
    with serving(Library(source=Shelf({"1": document}))) as address, httpx.Client(base_url=address) as client:
        assert client.get("/audits/1/year").status_code == 200
        first = document.plan.actions[-1].id
        assert "the history of audit 1 is not here" in answered(client, f"/audits/1/year?order={first}").text
        assert client.get(f"/api/audits/1/year?order={first}").status_code == 409


# Limits that nobody declared


def test_a_looser_limit_never_saves_less():
    _, made = whole()

    for service in limit_prices(made.planned, made.opened.market, made.opened.settings, lambda *_: None):
        saves = [price.saves_usd_mo for price in service.prices]
        assert saves == sorted(saves)
        assert [price.limit_s for price in service.prices] == sorted(price.limit_s for price in service.prices)


def test_limits_commitments_and_their_tables_are_given(client):
    for path in ("/audits/1/limits", "/audits/1/commitments"):
        assert answered(client, path).status_code == 200
    for table in ("limit-prices", "commitments", "year", "undeclared", "not-worth"):
        for form in ("csv", "json", "xlsx"):
            assert answered(client, f"/audits/1/tables/{table}.{form}").status_code == 200, table


# The replay


@pytest.mark.parametrize(
    ("first", "hours", "expected"),
    [
        (None, None, (0, 336)),
        (10, 48, (10, 48)),
        (330, 48, (288, 48)),
        (0, 2, (0, 6)),
        (100_000, 100_000, (0, 336)),
    ],
)
def test_a_stretch_lies_within_its_window(first, hours, expected):
    span = ShownHours.within(336, first, hours)

    assert (span.first, span.hours) == expected


def test_zooming_in_keeps_the_middle():
    span = ShownHours.within(336, 100, 96)

    closer = span.scaled(0.5)

    assert (closer.first, closer.hours) == (124, 48)
    assert closer.scaled(2.0) == span


def test_the_sums_under_a_picture_are_those_of_its_hours(client):
    bill = whole()[0].pictures.bill_by_hour

    page = client.get("/audits/1/replay?from=24&hours=48").text

    assert f"as it was, ${sum(bill.before_usd[24:72]):,.0f}" in page
    assert "48 of" in page


def test_each_gpu_of_a_workload_is_shown_hour_by_hour(client):
    page = answered(client, "/audits/1/gpus?name=lab/train").text
    rows = answered(client, "/api/audits/1/tables/gpus?name=lab/train").json()["rows"]

    assert page.count("<h3") == 4
    assert len({row["gpu"] for row in rows}) == 4
    assert all(row["activity_frac"] == pytest.approx(0.7) for row in rows)
    assert len(rows) == 4 * 4 * 28  # four GPUs, four hours on each of 28 days


@pytest.mark.parametrize("path", ["/audits/1/gpus?name=no/such", "/audits/1/tables/capacity.csv?what=none"])
def test_a_workload_that_is_not_there_has_no_page(client, path):
    assert client.get(path).status_code == 404


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("tables/actions?sort=size", "sort must be a column of the table actions: "),
        ("tables/actions?sort=action&sort=lever", "sort is given 2 times"),
        ("tables/gpus", "give name, one of "),
    ],
)
def test_a_table_that_is_asked_for_wrongly_says_what_can_be_asked(client, path, said):
    answer = client.get(f"/api/audits/1/{path}")

    assert answer.status_code == 400
    assert said in answer.text


@pytest.mark.parametrize("query", ["from=-1", "hours=x", "from=1e9", f"what={'x' * 401}", "hours=²"])
def test_a_stretch_that_is_no_number_is_refused(client, query):
    assert client.get(f"/audits/1/replay?{query}").status_code == 400


# Prices


def test_rates_that_hold_stand_first_the_cheapest_on_top(client):
    rows = client.get("/api/prices?gpu=H100-SXM5-80GB").json()["rows"]

    now = [row["usd_gpu_hr"] for row in rows if row["until"] is None]
    assert now == sorted(now)
    assert [row["until"] is None for row in rows] == sorted((row["until"] is None for row in rows), reverse=True)


def test_a_former_rate_ends_where_the_next_begins(client):
    rows = client.get("/api/prices?gpu=A100-SXM4-40GB&provider=gcp&option=spot").json()["rows"]
    courses = {}
    for row in rows:
        courses.setdefault((row["instance_type"], row["region"]), []).append(row)

    for course in courses.values():
        course.sort(key=lambda row: row["as_of"])
        for earlier, later in itertools.pairwise(course):
            assert earlier["until"] == later["as_of"]
            assert later["change_frac"] == pytest.approx(later["usd_hr"] / earlier["usd_hr"] - 1, abs=1e-4)


@pytest.mark.parametrize("query", ["gpu=nothing", "provider=none", "option=gift", "page=0"])
def test_prices_of_what_nobody_sells_are_refused(client, query):
    assert client.get(f"/prices?{query}").status_code == 400
    assert client.get(f"/api/prices?{query}").status_code == 400


# Reviews

ROWS = [
    {"workload": "prod/a", "change_usd_mo": -120.5, "changes": "2 replicas, not 4", "verdict": "BROKEN"},
    {"workload": "<b>prod</b>", "change_usd_mo": 20.5, "changes": "nothing", "verdict": "kept"},
]


@pytest.fixture
def reviews(tmp_path):
    (tmp_path / "pr-1.json").write_text(json.dumps({"schema_version": 1, "rows": ROWS}))
    (tmp_path / "no-review.json").write_text('{"rows": 3}')
    document, _ = whole()
    with (
        serving(Library(source=Shelf({"1": document})), reviews=tmp_path) as address,
        httpx.Client(base_url=address, trust_env=False) as found,
    ):
        yield found


def test_a_kept_review_is_listed_and_shown(reviews):
    rows = {row["name"]: row for row in reviews.get("/api/reviews").json()["rows"]}
    page = reviews.get("/reviews/pr-1").text

    assert rows["pr-1"]["change_usd_mo"] == -100.0
    assert rows["pr-1"]["verdict"] == "breaks 1 target"
    assert "saves $100 a month" in page
    assert "&lt;b&gt;prod" in page
    assert "<b>prod" not in page
    assert reviews.get("/reviews/pr-1/table.csv").text.count("\n") == 3


def test_a_file_that_is_no_review_says_so_and_the_others_stay(reviews):
    listed = reviews.get("/reviews").text

    assert "no-review.json is not a review" in listed
    assert "pr-1" in listed
    assert reviews.get("/reviews/no-review").status_code == 409


@pytest.mark.parametrize("name", ["..%2Fpr-1", "pr-2", "%2e%2e", "pr-1.json"])
def test_an_address_names_reviews_that_are_listed_and_no_other_file(reviews, name):
    assert reviews.get(f"/reviews/{name}").status_code == 404


def test_without_a_folder_the_page_says_how_to_keep_reviews(client):
    assert "--reviews" in client.get("/reviews").text
    assert client.get("/api/reviews").json()["rows"] == []
