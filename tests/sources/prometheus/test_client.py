import json
from urllib.parse import parse_qs

import httpx
import pytest
from hypothesis import given, strategies as st

from trimtab.errors import CredentialsError, SourceError, UsageError
from trimtab.sources.http import Access
from trimtab.sources.prometheus.client import Prometheus, any_of

URL = "http://prometheus.test:9090"


def answer(data, **more):
    return httpx.Response(200, json={"status": "success", "data": data, **more})


def refusal(status, error=""):
    return httpx.Response(status, json={"status": "error", "error": error})


def matrix(*series):
    return answer({"resultType": "matrix", "result": [{"metric": m, "values": v} for m, v in series]})


class Server:
    """Answers requests from a list of responses (or callables of the request), and keeps what it was asked."""

    def __init__(self, *responses):
        self.responses = list(responses)
        self.asked = []
        self.slept = []

    def __call__(self, request):
        self.asked.append(request)
        response = self.responses.pop(0) if len(self.responses) > 1 else self.responses[0]
        result = response(request) if callable(response) else response
        if isinstance(result, Exception):
            raise result
        return result

    def client(self, access=None, **options):
        return Prometheus(URL, access, transport=httpx.MockTransport(self), sleep=self.slept.append, **options)

    def form(self, index=-1):
        return {key: values[0] for key, values in parse_qs(self.asked[index].content.decode()).items()}


def span(request):
    form = parse_qs(request.content.decode())
    return float(form["start"][0]), float(form["end"][0]), float(form["step"][0])


def points(request):
    start, end, step = span(request)
    return matrix(({"a": "b"}, [[start + n * step, "1"] for n in range(round((end - start) / step) + 1)]))


def test_a_range_comes_as_series_with_labels_times_and_values():
    server = Server(matrix(({"pod": "a"}, [[10, "1.5"], [20, "NaN"]])))

    (series,) = server.client().range("up", 10, 20, 10)

    assert series.labels == {"pod": "a"}
    assert series.times_ms.tolist() == [10_000, 20_000]
    assert series.values[0] == 1.5
    assert series.values[1] != series.values[1]


@pytest.mark.parametrize("time", ["NaN", "1e300", None, "noon"])
def test_a_time_that_is_no_moment_is_no_answer_of_prometheus(time):
    server = Server(matrix(({"pod": "a"}, [[time, "1"]])))

    with pytest.raises(SourceError, match="a series that cannot be read"):
        list(server.client().range("up", 10, 20, 10))


def test_a_long_range_is_asked_for_in_pieces_that_cover_it_once():
    server = Server(points)

    pieces = list(server.client().range("up", 0, 25_000, 1))

    times = [time for series in pieces for time in series.times_ms.tolist()]
    assert times == [1000 * second for second in range(25_001)]
    assert len(server.asked) == 3


@pytest.mark.parametrize(
    "refused",
    [
        refusal(422, "query processing would load too many samples into memory"),
        refusal(503, "query timed out in expression evaluation"),
        refusal(422, "the query hit the max number of series limit: exceeds the limit"),
        httpx.ReadTimeout("slow"),
        # Prometheus 2.42
        refusal(
            400, "exceeded maximum resolution of 11,000 points per timeseries. Try decreasing the query resolution"
        ),
        # Mimir 2.14
        refusal(
            422,
            "the query exceeded the maximum number of chunks (limit: 2000000 chunks) (err-mimir-max-chunks-per-query)",
        ),
        refusal(422, "the total query time range exceeds the limit (err-mimir-max-total-query-length)"),
        refusal(422, "the query exceeded the aggregated chunks size limit (err-mimir-max-chunks-bytes-per-query)"),
        # Thanos 0.36
        refusal(
            422,
            "expanding series: rpc error: code = ResourceExhausted desc = exceeded series limit: limit 100 violated",
        ),
        # VictoriaMetrics 1.79
        refusal(422, "the number of matching timeseries exceeds 300000; increase -search.maxUniqueTimeseries"),
        refusal(422, "cannot select more than -search.maxSamplesPerQuery=1000000000 samples"),
        refusal(503, "the query takes longer than -search.maxQueryDuration=30s"),
    ],
)
def test_a_piece_that_is_too_large_is_halved_until_it_passes(refused):
    def picky(request):
        start, end, step = span(request)
        return refused if (end - start) / step >= 3 else points(request)

    server = Server(picky)

    pieces = list(server.client().range("up", 0, 9, 1))

    assert sorted(time for series in pieces for time in series.times_ms.tolist()) == [1000 * n for n in range(10)]
    assert server.slept == []


def test_a_list_of_series_that_is_too_long_is_asked_for_by_halves_of_the_time():
    def picky(request):
        form = parse_qs(request.content.decode())
        start, end = float(form["start"][0]), float(form["end"][0])
        return refusal(422, "exceeds the limit") if end - start > 7200 else answer([{"pod": f"at-{start:.0f}"}])

    found = Server(picky).client().series(["up"], 0, 14_400)

    assert found == [{"pod": "at-0"}, {"pod": "at-7200"}]


def test_one_step_that_is_refused_names_the_query():
    server = Server(refusal(422, "too many samples"))

    with pytest.raises(SourceError, match=r"refuses even one step of rate\(x\[1m\]\)"):
        list(server.client().range("rate(x[1m])", 0, 9, 1))


@pytest.mark.parametrize("hiccup", [refusal(503), refusal(429), httpx.ConnectError("refused"), refusal(502)])
def test_a_hiccup_is_tried_again_after_a_pause(hiccup):
    server = Server(hiccup, hiccup, answer([]))

    assert server.client().series(["up"], 0, 1) == []
    assert len(server.slept) == 2
    assert server.slept[1] > server.slept[0]


def test_an_unreachable_server_is_told_after_few_tries():
    server = Server(httpx.ConnectError("connection refused"))

    with pytest.raises(SourceError, match=r"prometheus\.test:9090 cannot be reached: connection refused"):
        server.client().check()
    assert len(server.asked) == 3


@pytest.mark.parametrize("status", [401, 403])
def test_a_refused_login_is_a_matter_of_credentials(status):
    server = Server(refusal(status, "no token"))

    with pytest.raises(CredentialsError, match="no token; give --bearer-file") as raised:
        server.client().check()
    assert raised.value.exit_code == 3


@pytest.mark.parametrize(
    "page",
    [
        httpx.Response(200, html="<html>Please log in</html>"),
        httpx.Response(302, headers={"location": "/login"}),
        httpx.Response(404, html="<h1>not found</h1>"),
        httpx.Response(200, json={"hello": "world"}),
        httpx.Response(200, json=[1, 2]),
        httpx.Response(200, text="plain"),
    ],
)
def test_something_else_than_prometheus_is_told(page):
    with pytest.raises(SourceError, match="does not speak Prometheus' HTTP API"):
        Server(page).client().check()


def test_a_faulty_query_is_told_with_the_reason():
    server = Server(refusal(400, "parse error: unexpected end of input"))

    with pytest.raises(SourceError, match="parse error"):
        server.client().instant("sum(", 0)


def test_a_warning_of_a_partial_answer_is_logged(caplog):
    Server(answer([], warnings=["store gateway down"])).client().series(["up"], 0, 1)

    assert "store gateway down" in caplog.text


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        ({"warnings": ["No StoreAPIs matched for this query"]}, {"No StoreAPIs matched for this query": 2}),
        ({"isPartial": True}, {"isPartial": 2}),
        ({"isPartial": False}, {}),
    ],
)
def test_partial_answers_are_counted_and_told_once(said, kept, caplog):
    client = Server(answer([], **said)).client()

    client.series(["up"], 0, 1)
    client.series(["up"], 0, 1)

    assert client.warnings == kept
    assert caplog.text.count("may be partial") == len(kept)


def test_a_range_is_not_rounded_by_victoriametrics():
    server = Server(matrix(({}, [[10, "1"]])))

    list(server.client().range("up", 10, 20, 10))

    assert server.form()["nocache"] == "1"


def test_the_values_of_a_label_come_sorted_without_the_empty_one():
    server = Server(answer(["west", "", "east"]))

    assert server.client(selector='env="prod"').label_values("cluster", 0, 1) == ["east", "west"]
    assert server.asked[0].url.params["match[]"] == '{env="prod"}'


@pytest.mark.parametrize(
    ("access", "header", "value"),
    [
        (Access(bearer="secret"), "authorization", "Bearer secret"),
        (Access(user="me", password="pw"), "authorization", "Basic bWU6cHc="),
        (Access(tenant="prod"), "x-scope-orgid", "prod"),
        (Access(headers={"X-Key": "k"}), "x-key", "k"),
    ],
)
def test_access_is_sent_as_headers(access, header, value):
    server = Server(answer([]))

    server.client(access).check()

    assert server.asked[0].headers[header] == value


def test_secrets_are_not_shown_by_repr():
    assert "secret" not in repr(Access(bearer="secret", password="secret", headers={"X": "secret"}))


def test_contradicting_access_and_no_address_are_usage_errors(tmp_path):
    with pytest.raises(UsageError, match="not both"):
        Prometheus(URL, Access(bearer="a", user="b"))
    with pytest.raises(UsageError, match="HOST:9090"):
        Prometheus("localhost:9090")
    with pytest.raises(UsageError, match="no such file"):
        Prometheus(URL, Access(ca_file=tmp_path / "none.pem"))


def test_the_clients_own_selector_joins_every_selector():
    client = Server(answer([])).client(selector='cluster="a"')

    assert client.matching('pod="x"') == '{pod="x",cluster="a"}'
    assert client.matching() == '{cluster="a"}'


def test_values_in_a_matcher_are_literal():
    assert any_of("pod", ["b.1", "a"]) == r'pod=~"a|b\\.1"'


def test_requests_and_bytes_are_counted():
    server = Server(answer([]))
    client = server.client()

    client.series(["up"], 0, 1)

    assert client.requests == 1
    assert client.received_bytes == len(json.dumps({"status": "success", "data": []}, separators=(",", ":")))


@given(st.binary(max_size=200), st.sampled_from([200, 204, 400, 404, 422, 500]))
def test_any_answer_is_read_or_refused_on_purpose(body, status):
    server = Server(httpx.Response(status, content=body))

    with pytest.raises(SourceError):
        server.client().check()


json_values = st.recursive(
    st.none() | st.booleans() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["result", "metric", "values"]), inner),
    max_leaves=8,
)


@given(json_values)
def test_any_result_is_read_or_refused_on_purpose(data):
    body = json.dumps(
        {"status": "success", "data": data}
    )  # infinities too, which JSON has not, but servers have written
    client = Server(httpx.Response(200, content=body)).client()

    try:
        found = client.instant("up", 0)
    except SourceError:
        return
    assert isinstance(found, list)


def test_a_server_that_finds_even_one_number_too_much_is_told_with_the_cure():
    server = Server(refusal(422, "query timed out in expression evaluation"))

    with pytest.raises(SourceError, match=r"refuses 1 as too large: .*timed out"), server.client() as client:
        client.check()
