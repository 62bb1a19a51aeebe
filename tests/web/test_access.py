"""The security checklist of the page, a test a row: who may ask, what is answered, and how an answer is to be treated.

Rows of the whole program have their tests there: 7, cells that a spreadsheet would run (`test_pages`, `tests/test_safe_text`);
9, names in queries (`tests/emit/test_demand_rules`); 11, the role in a cluster (`tests/cli/test_collect_command`).
"""

import logging
import re
import time

import httpx
import pytest
from tests.web.conftest import serving
from tests.web.fleet import Shelf, whole

from trimtab.errors import InputError, UsageError
from trimtab.web.access import COOKIE, MOST_FAILED, POLICY
from trimtab.web.library import Library
from trimtab.web.server import ServerPlace, read_token

TOKEN = "0123456789abcdef0123456789abcdef"
PAGES = (
    "/audits",
    "/audits/1",
    "/audits/1/spend",
    "/audits/1/plan",
    "/audits/1/proof",
    "/audits/1/verify",
    "/audits/1/allocation",
    "/audits/1/what-if",
    "/audits/1/workbook.xlsx",
    "/api/audits",
    "/api/audits/1/verify",
    "/fit",
)


@pytest.fixture
def guarded():
    """A client of a server that asks for a token, follows no redirect and keeps no cookie by itself."""
    with (
        serving(Library(source=Shelf({"1": whole()[0]})), TOKEN) as address,
        httpx.Client(base_url=address, trust_env=False, timeout=60) as client,
    ):
        yield client


# 1: loopback, else a token


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.4", "10.0.0.1", "example.com", ""])
def test_an_address_that_others_reach_is_refused_without_a_token(host):
    with pytest.raises(UsageError, match="token"):
        ServerPlace(host=host, port=8080).rules()

    assert ServerPlace(host=host or "0.0.0.0", port=8080, token=TOKEN).rules().token == TOKEN


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1", "127.0.0.9"])
def test_this_machine_needs_no_token(host):
    assert ServerPlace(host=host, port=8080).rules().token is None


def test_another_name_of_the_host_needs_a_token_too():
    with pytest.raises(UsageError, match=r"costs\.example\.com"):
        ServerPlace(host="127.0.0.1", port=8080, names=("costs.example.com",)).rules()

    rules = ServerPlace(host="127.0.0.1", port=8080, token=TOKEN, names=("Costs.example.com:443",)).rules()
    assert "costs.example.com" in rules.hosts


# 2: the token


@pytest.mark.parametrize("text", ["", "short", "x" * 31, "ä" * 40])
def test_a_token_that_could_be_guessed_is_refused(tmp_path, text):
    file = tmp_path / "token"
    file.write_text(text, encoding="utf-8")

    with pytest.raises(UsageError, match="32"):
        read_token(file)


@pytest.mark.parametrize("path", PAGES)
def test_nothing_is_shown_without_the_token(guarded, path):
    answer = guarded.get(path)

    assert answer.status_code == (401 if path.startswith("/api/") else 303)
    assert "p4d" not in answer.text


@pytest.mark.parametrize(
    "header", ["Bearer wrong", f"Bearer {TOKEN[:-1]}", f"Basic {TOKEN}", "Bearer", f"Bearer {TOKEN}x"]
)
def test_a_wrong_token_is_none(guarded, header):
    assert guarded.get("/api/audits", headers={"Authorization": header}).status_code == 401


def test_the_token_in_a_header_opens_the_api(guarded):
    assert guarded.get("/api/audits", headers={"Authorization": f"Bearer {TOKEN}"}).status_code == 200


def test_the_token_in_an_address_opens_nothing(guarded):
    assert guarded.get(f"/api/audits?token={TOKEN}").status_code == 401


def test_the_login_page_gives_a_cookie_that_no_script_and_no_other_site_gets(guarded):
    answer = guarded.post("/login", data={"token": TOKEN, "next": "/audits/1/plan"})

    assert (answer.status_code, answer.headers["location"]) == (303, "/audits/1/plan")
    cookie = answer.headers["set-cookie"]
    assert cookie.startswith(f"{COOKIE}=")
    assert {"httponly", "secure", "samesite=strict", "path=/"} <= {part.strip().lower() for part in cookie.split(";")}
    assert "domain" not in cookie.lower()
    assert TOKEN not in cookie
    value = cookie.partition("=")[2].partition(";")[0]
    assert guarded.get("/audits/1", headers={"Cookie": f"{COOKIE}={value}"}).status_code == 200
    assert guarded.get("/audits/1", headers={"Cookie": f"{COOKIE}={value}x"}).status_code == 303


@pytest.mark.parametrize(
    "target", ["https://evil.example/", "//evil.example", "/\\evil.example", "javascript:alert(1)", "/\t/x"]
)
def test_a_login_leads_nowhere_else(guarded, target):
    answer = guarded.post("/login", data={"token": TOKEN, "next": target})

    assert answer.headers["location"] == "/"


def test_a_form_from_another_site_logs_nobody_in(guarded):
    answer = guarded.post("/login", data={"token": TOKEN}, headers={"Sec-Fetch-Site": "cross-site"})

    assert answer.status_code == 403
    assert "set-cookie" not in answer.headers


# A proxy that signs readers in

HEADER = {"X-Forwarded-Email": "Ana@example.com"}


@pytest.fixture(scope="module")
def behind_proxy():
    document, _ = whole()
    place = {"user_header": "X-Forwarded-Email", "users": ("*@example.com",)}
    with (
        serving(Library(source=Shelf({"1": document})), **place) as address,
        httpx.Client(base_url=address, trust_env=False) as client,
    ):
        yield client


@pytest.mark.parametrize(
    "path", ["/", "/audits", "/audits/1/plan", "/api/audits", "/api/openapi.json", "/fit", "/login"]
)
def test_nothing_is_shown_where_the_proxy_names_nobody(behind_proxy, path):
    answer = behind_proxy.get(path)

    assert answer.status_code == 403
    assert "fleet" not in answer.text


def test_a_reader_whom_the_proxy_names_sees_the_pages(behind_proxy):
    assert behind_proxy.get("/audits/1", headers=HEADER).status_code == 200


@pytest.mark.parametrize("name", ["eve@example.org", "", "ana@example.com.evil.org", "x@example.com\tadmin"])
def test_a_reader_who_is_not_admitted_sees_nothing(behind_proxy, name):
    assert behind_proxy.get("/audits", headers={"X-Forwarded-Email": name}).status_code == 403


def test_a_header_that_is_there_twice_names_nobody(behind_proxy):
    twice = [("X-Forwarded-Email", "eve@example.com"), ("X-Forwarded-Email", "ana@example.com")]

    assert behind_proxy.get("/audits", headers=twice).status_code == 403


def test_the_header_counts_from_the_proxys_address_alone():
    document, _ = whole()
    place = {"user_header": "X-Forwarded-Email", "proxies": ("10.42.0.0/16",)}
    with serving(Library(source=Shelf({"1": document})), **place) as address:
        assert httpx.get(f"{address}/audits", headers=HEADER, trust_env=False).status_code == 403


def test_without_the_setting_no_header_opens_anything(guarded):
    assert guarded.get("/api/audits", headers=HEADER).status_code == 401


def test_programs_give_the_token_where_people_come_through_the_proxy():
    document, _ = whole()
    library = Library(source=Shelf({"1": document}))
    with (
        serving(library, token=TOKEN, user_header="X-Forwarded-Email") as address,
        httpx.Client(base_url=address, trust_env=False) as client,
    ):
        assert client.get("/api/audits").status_code == 401
        assert client.get("/api/audits", headers={"Authorization": f"Bearer {TOKEN}"}).status_code == 200
        assert client.get("/api/audits", headers=HEADER).status_code == 200


@pytest.mark.parametrize(
    "place",
    [
        {"host": "0.0.0.0", "user_header": "X-Forwarded-Email"},
        {"host": "127.0.0.1", "proxies": ("10.0.0.1",)},
        {"host": "127.0.0.1", "users": ("*@example.com",)},
        {"host": "127.0.0.1", "user_header": "X-Forwarded-Email", "proxies": ("proxy.example.com",)},
    ],
)
def test_a_setting_that_would_leave_the_header_to_anybody_is_refused(place):
    with pytest.raises(UsageError):
        ServerPlace(port=8080, **place).rules()


def test_the_header_needs_no_token_on_an_address_that_others_reach_once_the_proxy_is_named():
    place = ServerPlace(host="0.0.0.0", port=8080, user_header="X-User", proxies=("10.0.0.7",), names=("costs",))

    assert not place.rules().open


def test_guessing_is_slowed_down(guarded):
    codes = [guarded.post("/login", data={"token": f"guess-{n}"}).status_code for n in range(MOST_FAILED + 2)]

    assert codes == [303] * MOST_FAILED + [429] * 2
    assert guarded.post("/login", data={"token": TOKEN}).status_code == 429


def test_a_login_form_with_more_fields_than_the_page_sends_is_refused(guarded):
    assert guarded.post("/login", content=b"&".join(b"a%d=1" % n for n in range(9))).status_code == 400


def test_a_login_form_without_end_is_refused(guarded):
    assert guarded.post("/login", content=b"token=" + b"x" * 100_000).status_code == 413


# 3: names of the host, other origins


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:8080", "127.0.0.1.evil.example", "", "localhost@evil.example", "[", "0.0.0.0"],
)
def test_another_host_name_is_not_answered_to(client, host):
    assert client.get("/audits/1", headers={"Host": host}).status_code == 400


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:9", "127.0.0.1:1234", "[::1]:80"])
def test_names_of_this_machine_are(client, host):
    assert client.get("/audits/1", headers={"Host": host}).status_code == 200


def test_no_other_origin_may_read(client):
    answer = client.get("/api/audits", headers={"Origin": "https://evil.example"})

    assert not [name for name in answer.headers if name.startswith("access-control")]


# 4: nothing changes


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"])
@pytest.mark.parametrize("path", ["/audits/1/plan", "/api/audits/1", "/login"])
def test_nothing_can_be_changed(client, method, path):
    assert client.request(method, path).status_code == 405


def test_a_refusal_names_the_methods_that_are_taken(client):
    assert client.put("/api/computations/x").headers["allow"] == "GET, HEAD, DELETE, POST"
    assert client.delete("/api/audits/1").headers["allow"] == "GET, HEAD"


@pytest.mark.parametrize(
    ("method", "path"), [("DELETE", "/api/computations/x"), ("POST", "/api/computations/x"), ("POST", "/audits/1/plan")]
)
@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_no_page_elsewhere_cancels_anything(client, method, path, site):
    answer = client.request(method, path, headers={"Sec-Fetch-Site": site}, data={"do": "cancel", "computation": "x"})

    assert answer.status_code == 403


# 5 and 6: what an address names


@pytest.mark.parametrize(
    "name", ["..%2f..%2fetc%2fpasswd", "../1", "/etc/passwd", "1%00", "http:%2f%2f169.254.169.254", "~root", "1.json"]
)
def test_an_address_names_audits_that_are_listed_and_no_files(client, name):
    assert client.get(f"/api/audits/{name}").status_code in (400, 404)


def test_the_picker_reads_no_file_that_a_model_is_named_after(client):
    for model in ("/etc/hosts", "../config.json", "https://evil.example/config.json"):
        assert client.get("/fit", params={"model": model}).status_code == 400


# 8 and 12: how an answer is to be treated


@pytest.mark.parametrize("path", [*PAGES, "/nothing", "/audits/9", "/api/nothing", "/audits/1/spend?page=x"])
def test_every_answer_forbids_what_it_does_not_need(client, path):
    headers = client.get(path).headers

    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["cache-control"] == "no-store"
    assert "server" not in headers


@pytest.mark.parametrize("path", [*PAGES, "/audits/1/more", "/audits/1/use", "/audits/1/action?id=a1"])
def test_a_page_needs_no_exception_from_its_policy(client, path):
    text = client.get(path).text

    assert not re.search(r"<style|<script(?! src=)|\sstyle=|\son[a-z]+=|javascript:", text)
    assert not re.search(r'(?:src|href)="(?:https?:|//)', text)


def test_only_what_is_the_same_for_all_may_be_cached(client):
    page = client.get("/audits/1").text
    (style,) = re.findall(r'href="(/static/[^"]+\.css)"', page)

    assert "immutable" in client.get(style).headers["cache-control"]
    assert client.get("/static/nothing.css").headers["cache-control"] == "no-store"


def test_a_fault_of_the_program_tells_nothing_of_itself(caplog):
    library = Library(source=Shelf({"1": RuntimeError("secret-path-/srv/x")}))
    with serving(library) as address:
        answer = httpx.get(f"{address}/audits/1", trust_env=False)

    assert answer.status_code == 500
    assert answer.headers["content-security-policy"] == POLICY
    assert "secret" not in answer.text
    assert "Traceback" not in answer.text


def test_an_audit_that_cannot_be_read_says_so_and_the_others_stay():
    with serving(Library(source=Shelf({"1": InputError("it is damaged"), "2": whole()[0]}))) as address:
        assert httpx.get(f"{address}/audits/1", trust_env=False).status_code == 409
        assert httpx.get(f"{address}/audits/2", trust_env=False).status_code == 200
        assert "it is damaged" in httpx.get(f"{address}/audits", trust_env=False).text


def test_there_are_no_debug_routes(client):
    for path in (
        "/docs",
        "/redoc",
        "/metrics",
        "/debug",
        "/.trimtab/key",
        "/api",
        "/static/../app.py",
        "/static/page.css",
    ):
        assert client.get(path).status_code == 404


# 10: secrets


def test_the_token_stands_in_no_answer_and_in_no_log(guarded, caplog):
    with caplog.at_level(logging.DEBUG):
        bearer = {"Authorization": f"Bearer {TOKEN}"}
        answers = [guarded.get(path, headers=bearer) for path in (*PAGES, "/audits/9", "/api/nothing")]
        answers.append(guarded.post("/login", data={"token": TOKEN}))

    assert not [answer.url for answer in answers if TOKEN in answer.text or TOKEN in str(answer.headers)]
    ours = [record.getMessage() for record in caplog.records if not record.name.startswith(("httpx", "httpcore"))]
    assert not [line for line in ours if TOKEN in line]


# 13: limits


def test_an_address_without_end_is_refused(client):
    assert client.get("/audits/1/spend?q=" + "x" * 30_000).status_code == 414


def test_values_as_long_as_the_description_allows_are_no_address_without_end(client):
    longest = "\N{SLICE OF PIZZA}" * 400

    answer = client.get("/api/audits/1/tables/workloads", params=dict.fromkeys(("q", "team"), longest))

    assert answer.status_code == 200, answer.text
    assert answer.json()["rows"] == []


@pytest.mark.parametrize(
    "query",
    ["q=" + "x" * 401, "page=0", "page=-1", "page=x", "page=" + "9" * 30, "page=١", "down=2", "sort=" + "x" * 401],
)
def test_a_question_beyond_its_limits_is_refused(client, query):
    assert client.get(f"/audits/1/spend?{query}").status_code == 400
    assert client.get(f"/api/audits/1/tables/workloads?{query}").status_code == 400


def test_a_filter_is_a_text_and_no_expression(client):
    began = time.monotonic()
    for words in ("(a+)+$", ".*", "[", "\\", "%", "' OR 1=1 --"):
        assert client.get("/audits/1/spend", params={"q": words * 8}).status_code == 200

    assert time.monotonic() - began < 5


def test_too_many_switches_are_refused(client):
    many = ",".join(f"a{n}" for n in range(1000, 1500))

    assert client.get(f"/audits/1/plan?off={many}").status_code == 400
