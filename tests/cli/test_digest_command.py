"""`trimtab digest`: each form, each team, what is kept and what was verified, and posting to a server on loopback."""

import json
import re

import pytest
from tests.emit.example import example_audit
from tests.fleets import FleetRows, at
from tests.plan.test_verify import kept
from tests.sources.answering_server import answering

from trimtab.cli.kept_audits import keep
from trimtab.emit.audit_document import audit_document
from trimtab.emit.document import render_json
from trimtab.tables.bundle import write_bundle
from trimtab.units import HR_PER_WEEK

STATUSES = ("on track", "short", "not enacted")
SECRET = "T0SECRET/B0SECRET/xoxSECRETxox"


def history(days=14):
    rows = FleetRows(days).node("n0", "g5.12xlarge").node("n1", "g5.xlarge")
    rows.hold("prod/chat-api", "n0", [0], team="search").hold("lab/exp", "n0", [1, 2], start=200, team="vision & <b>")
    rows.hold("lab/old", "n1", [0], end=100, team="vision & <b>")
    return rows.use("prod/chat-api", "n0", 0, range(days * 24), sm=0.0)


@pytest.fixture
def fleet(tmp_path, monkeypatch):
    monkeypatch.setenv("TRIMTAB_STATE", str(tmp_path / "state"))
    monkeypatch.delenv("TRIMTAB_POST_URL", raising=False)
    bundle = history().bundle()
    write_bundle(tmp_path / "fleet", bundle.tables, bundle.meta, bundle.workloads)
    return str(tmp_path / "fleet")


def digests(program, *arguments):
    code, out, err = program("digest", *arguments, "-q", "-o", "json")
    assert (code, err) == (0, "")
    return json.loads(out)["digests"]


def cents(usd):
    return round(usd * 100)


def test_the_rows_sum_to_the_whole_and_the_causes_to_the_change_to_the_cent(program, fleet):
    for digest in digests(program, fleet, "--each"):
        assert sum(cents(payer["usd"]) for payer in digest["payers"]) == cents(digest["usd"])
        assert sum(payer["micro_usd"] for payer in digest["payers"]) == digest["micro_usd"]
        assert sum(cents(payer["former_usd"]) for payer in digest["payers"]) == cents(digest["former"]["usd"])
        change = cents(digest["usd"]) - cents(digest["former"]["usd"])
        assert sum(cents(cause["usd"]) for cause in digest["causes"]) == change


def test_teams_and_what_is_nobodys_are_the_fleets_bill(program, fleet):
    whole, *teams = digests(program, fleet, "--each")

    assert [whole["team"], *(team["team"] for team in teams)] == [None, "vision & <b>", "search"]
    unheld = sum(payer["micro_usd"] for payer in whole["payers"] if payer["shared"])
    assert sum(team["micro_usd"] for team in teams) + unheld == whole["micro_usd"]


def test_a_week_costs_what_allocate_says_of_a_history_of_that_week(program, fleet, tmp_path):
    bundle = history(days=7).bundle()
    write_bundle(tmp_path / "one", bundle.tables, bundle.meta, bundle.workloads)

    _, out, _ = program("allocate", str(tmp_path / "one"), "-q", "-o", "json")
    (digest,) = digests(program, str(tmp_path / "one"))

    charged = {row["name"]: row["usd"] for row in json.loads(out)["rows"]}
    assert {payer["name"]: payer["usd"] for payer in digest["payers"]} == charged


def test_a_history_of_one_week_says_that_there_is_no_former_one(program, tmp_path, fleet):
    bundle = history(days=7).bundle()
    write_bundle(tmp_path / "one", bundle.tables, bundle.meta, bundle.workloads)

    code, out, _ = program("digest", str(tmp_path / "one"), "-q")

    assert code == 0
    assert "no former week" in " ".join(out.split())
    assert "+$0" not in out
    assert "change" not in re.search(r"(?m)^  team.*$", out)[0]


def test_a_part_of_a_week_is_said_to_be_one_and_compared_by_the_hour(program, fleet, tmp_path):
    bundle = history(days=10).bundle()
    write_bundle(tmp_path / "ten", bundle.tables, bundle.meta, bundle.workloads)

    code, out, _ = program("digest", str(tmp_path / "ten"), "-q", "--week", "2026-W38")

    said = " ".join(out.split())
    assert code == 0
    assert "part of the week only: 72 of 168 h" in said
    assert "Compared by cost per covered hour: 2026-W37, scaled to 72 h" in said


def test_the_table_fits_the_screen(program, fleet):
    _, out, _ = program("digest", fleet, "-q")

    assert max(len(line) for line in out.splitlines()) <= 80


@pytest.mark.parametrize("arguments", [(), ("--team", "search"), ("--team", "vision & <b>")])
@pytest.mark.parametrize("form", ["table", "markdown", "html-mail", "slack", "teams"])
def test_every_form_says_what_it_costs_what_changed_what_to_do_and_what_was_realised(program, fleet, form, arguments):
    code, out, err = program("digest", fleet, "-q", "-o", form, *arguments)

    assert (code, err) == (0, "")
    assert all(title in out for title in ("What it costs", "What changed", "What to do", "What was realised"))
    assert "2026-W38" in out


def test_the_idle_share_is_of_what_was_measured(program, fleet):
    (digest,) = digests(program, fleet, "--team", "search")

    assert (digest["idle_frac"], digest["measured_frac"]) == (1.0, 1.0)
    assert digests(program, fleet, "--team", "vision & <b>")[0]["idle_frac"] is None


# What to do, and what was realised


def test_without_an_audit_or_a_verification_both_ways_to_get_them_are_named(program, fleet):
    (digest,) = digests(program, fleet)

    assert (digest["todos"], digest["realised"]) == (None, None)
    assert "`trimtab audit`" in digest["no_todos"]
    assert "trimtab verify" in digest["no_realised"]


def test_the_first_actions_of_the_kept_audit_are_what_to_do(program, fleet):
    document = audit_document(example_audit())
    keep(document, kept())

    (digest,) = digests(program, fleet)

    found = digest["todos"]
    assert [action["id"] for action in found["actions"]] == [action.id for action in document.plan.actions[:3]]
    assert found["left"] == len(document.plan.actions) - 3
    assert found["saving_usd_mo"] == document.plan.joint_saving_usd_mo


def test_a_team_sees_the_actions_that_touch_its_workloads(program, fleet):
    document = audit_document(example_audit())
    keep(document, kept())

    (digest,) = digests(program, fleet, "--team", "search")
    (other,) = digests(program, fleet, "--team", "vision & <b>")

    mine = [action.id for action in document.plan.actions if "prod/chat-api" in _touched(action)]
    assert [action["id"] for action in digest["todos"]["actions"]] == mine[:3]
    assert other["todos"] is None
    assert "no open actions for this team" in other["no_todos"]


def test_an_audit_of_another_fleet_is_not_taken_unless_it_is_named(program, fleet, tmp_path, monkeypatch):
    document = audit_document(example_audit())
    keep(document, kept())
    rows = FleetRows(14).node("n0", "g5.xlarge").hold("else/where", "n0", [0], team="t")
    bundle = rows.bundle()
    write_bundle(tmp_path / "other", bundle.tables, bundle.meta, bundle.workloads)
    (tmp_path / "audit.json").write_text(render_json(document))

    (digest,) = digests(program, str(tmp_path / "other"))
    (named,) = digests(program, str(tmp_path / "other"), "--audit", str(tmp_path / "audit.json"))

    assert "of another fleet" in digest["no_todos"]
    assert len(named["todos"]["actions"]) == 3


@pytest.fixture
def verified(tmp_path):
    document = audit_document(example_audit())
    rows = [
        {
            "id": action.id, "lever": action.lever, "subject": action.subject, "status": status, "enacted_frac": 1.0,
            "predicted_usd_mo": 100.0 * (number + 1), "realised_usd_mo": 60.0, "cause": "" if status == "on track" else "late",
        }
        for number, (action, status) in enumerate(zip(document.plan.actions, STATUSES, strict=False))
    ]  # fmt: skip
    window = {"start": at(0).isoformat(), "end": at(HR_PER_WEEK).isoformat()}
    file = tmp_path / "verified.json"
    file.write_text(json.dumps({"schema_version": 1, "window": window, "rows": rows, "then_usd_mo": 1.0}))
    return str(file)


def test_what_was_realised_is_shown_and_what_is_on_track_is_no_longer_to_do(program, fleet, verified):
    document = audit_document(example_audit())
    keep(document, kept())

    (digest,) = digests(program, fleet, "--verify", verified)

    found = digest["realised"]
    assert (found["predicted_usd_mo"], found["realised_usd_mo"], found["on_track"]) == (600.0, 180.0, 1)
    assert [action["status"] for action in found["actions"]] == ["not enacted", "short", "on track"]
    assert [action["id"] for action in digest["todos"]["actions"]] == [
        action.id for action in document.plan.actions[1:4]
    ]


def test_a_file_that_is_no_verification_is_refused_with_what_writes_one(program, fleet, tmp_path):
    (tmp_path / "x.json").write_text('{"rows": 3}')

    code, _, err = program("digest", fleet, "-q", "--verify", str(tmp_path / "x.json"))

    assert code == 1
    assert "trimtab verify BUNDLE -o json" in " ".join(err.split())


# Files and posting


def test_each_team_gets_a_file_with_a_name_that_every_system_takes(program, fleet, tmp_path):
    code, _, err = program("digest", fleet, "-q", "--each", "-o", "slack", "--out", str(tmp_path / "digests"))

    assert code == 0
    assert sorted(file.name for file in (tmp_path / "digests").iterdir()) == [
        "fleet.json",
        "team-search.json",
        "team-vision-b.json",
    ]
    assert err.count("wrote") == 3


def taken(_asked):
    return 200, {}, b"ok"


def test_each_digest_is_posted_and_the_address_is_shown_nowhere(program, fleet, monkeypatch):
    with answering(taken) as (script, url):
        monkeypatch.setenv("TRIMTAB_POST_URL", f"{url}/services/{SECRET}")
        code, out, err = program("digest", fleet, "--each", "-o", "slack", "--post")

    assert code == 0
    assert [asked.path for asked in script.seen] == [f"/services/{SECRET}"] * 3
    assert all("blocks" in json.loads(asked.body) for asked in script.seen)
    assert "SECRET" not in out + err
    assert err.count("posted") == 3


def test_a_refused_message_is_an_error_without_the_address(program, fleet):
    with answering(lambda _asked: (404, {}, b"no_service " + SECRET.encode())) as (_, url):
        code, out, err = program("digest", fleet, "-q", "-o", "teams", "--post", f"{url}/services/{SECRET}")

    assert code == 3
    assert "HTTP 404 no_service" in err
    assert "SECRET" not in out + err


def test_a_server_that_answers_on_the_second_try_gets_the_card(program, fleet):
    with answering(taken) as (script, url):
        script.faults = [(503, {}, b"")]
        code, _, _ = program("digest", fleet, "-q", "-o", "teams", "--post", f"{url}/{SECRET}")

    assert code == 0
    assert json.loads(script.seen[1].body)["attachments"][0]["content"]["type"] == "AdaptiveCard"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--post", f"https://host/{SECRET}"), "-o slack, teams or json"),
        (("-o", "slack", "--post"), "TRIMTAB_POST_URL"),
        (("-o", "slack", "--post", SECRET), "not an address"),
        (("--each",), "--out"),
        (("--each", "--team", "search", "--out", "x"), "one of them"),
        (("--week", "44"), "2026-W44"),
        (("--out", "/nowhere/at/all.md"), "no folder"),
        (("--cost", "billed"), "--focus"),
    ],
)
def test_what_cannot_be_is_refused_with_its_cure(program, fleet, arguments, said):
    code, _, err = program("digest", fleet, "-q", *arguments)

    assert code == 2
    assert said in " ".join(err.split())
    assert "SECRET" not in err


def test_an_unknown_team_or_week_is_answered_with_those_there_are(program, fleet):
    code, _, err = program("digest", fleet, "-q", "--team", "serch")
    assert (code, "search" in err) == (1, True)

    code, _, err = program("digest", fleet, "-q", "--week", "2026-W30")
    assert (code, "2026-W37" in err) == (1, True)


def _touched(action):
    return {change.subject for change in action.changes} | {target.workload for target in action.targets}


# A bill


@pytest.fixture
def bill(tmp_path):
    """Two weeks of a node by the day, a tax of the second week, and a team's volume."""
    lines = [
        "ChargePeriodStart,ChargePeriodEnd,BilledCost,EffectiveCost,BillingCurrency,ChargeCategory,ResourceId,Tags"
    ]
    for day in range(14):
        usd = 24.0 if day < 7 else 48.0
        lines.append(
            f"{at(24 * day):%Y-%m-%dT%H:%M:%SZ},{at(24 * day + 24):%Y-%m-%dT%H:%M:%SZ},{usd},{usd},USD,Usage,n0,"
        )
    start, end = (f"{at(hours):%Y-%m-%dT%H:%M:%SZ}" for hours in (24 * 8, 24 * 9))
    lines.append(f"{start},{end},7.77,7.77,USD,Tax,,")
    lines.append(f'{start},{end},5.05,5.05,USD,Usage,vol-1,"{{""team"": ""search""}}"')
    file = tmp_path / "bill.csv"
    file.write_text("\n".join(lines) + "\n")
    return str(file)


def test_the_charges_of_a_bill_are_what_a_week_costs_where_there_is_one(program, fleet, bill):
    whole, *_ = digests(program, fleet, "--focus", bill, "--each")
    (search,) = digests(program, fleet, "--focus", bill, "--team", "search")

    assert (whole["usd"], whole["former"]["usd"]) == (348.82, 168.0)
    assert whole["basis"] == "amortised charges"
    assert {payer["name"]: payer["usd"] for payer in search["payers"]} == {"prod/chat-api": 84.0, "other charges": 5.05}
    assert {cause["cause"]: cause["usd"] for cause in search["causes"]} == {
        "price": 42.0,
        "charges of no workload": 5.05,
    }


def test_a_dearer_bill_for_the_same_nodes_is_the_price(program, fleet, bill):
    whole, *_ = digests(program, fleet, "--focus", bill)

    causes = {cause["cause"]: cause["usd"] for cause in whole["causes"]}
    assert causes["price"] > 0
    assert "other nodes" not in causes
    assert sum(map(cents, causes.values())) == cents(348.82 - 168.0)
