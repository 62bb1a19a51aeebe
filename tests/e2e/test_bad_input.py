"""What a stranger feeds `trimtab audit`: every fault ends in a message with place and cure, or is counted in what was seen."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from tests.fleets import FleetRows

from trimtab.cli import root
from trimtab.errors import TrimtabError
from trimtab.tables.bundle import write_bundle

DAYS = 3


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("TRIMTAB_STATE", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    rows = FleetRows(DAYS).node("n0", "p4d.24xlarge").hold("serve/api", "n0", range(8), owner_kind="Deployment")
    for device in range(8):
        rows.use("serve/api", "n0", device, range(DAYS * 24), sm=0.3, util=0.5)
    return written(rows, tmp_path / "fleet")


def written(rows, path):
    bundle = rows.bundle()
    write_bundle(path, bundle.tables, bundle.meta, bundle.workloads)
    return path


def refusal(folder):
    """The message of an audit that is refused on purpose, never a traceback."""
    result = CliRunner().invoke(root, ["audit", str(folder), "-q"])
    assert isinstance(result.exception, TrimtabError), result.exception
    return str(result.exception)


def audited(folder):
    result = CliRunner().invoke(root, ["audit", str(folder), "-q", "-o", "json"], catch_exceptions=False)
    return json.loads(result.stdout)


def mend(folder, table, column, change):
    """Change one column of a table: `change(row number, value)`."""
    file = folder / f"{table}.parquet"
    rows = pq.read_table(file)
    at_column = rows.column_names.index(column)
    values = [change(number, value) for number, value in enumerate(rows.column(column).to_pylist())]
    field = rows.schema.field(at_column)
    pq.write_table(rows.set_column(at_column, field, pa.array(values, field.type)), file)


def test_a_parquet_file_with_damaged_pages_is_named(folder):
    file = folder / "gpu_usage.parquet"
    content = file.read_bytes()
    file.write_bytes(content[:60] + b"\xff" * 340 + content[400:])

    assert "gpu_usage.parquet: the file is damaged" in refusal(folder)


@pytest.mark.parametrize("name", ["bundle.yaml", "workloads.yaml"])
def test_a_yaml_file_that_is_not_text_is_named(folder, name):
    (folder / name).write_bytes(b"\xff\xfe\x00\x01")

    assert f"{name}: not a readable text file" in refusal(folder)


def test_an_unknown_capacity_type_names_the_row_and_the_nearest(folder):
    mend(folder, "nodes", "capacity_type", lambda number, value: "on_demand")

    assert "nodes.parquet row 0: unknown capacity_type (saw 'on_demand'); did you mean on-demand?" in refusal(folder)


def test_a_fleet_without_nodes_says_so(folder):
    for table in ("nodes", "devices", "allocations", "gpu_usage"):
        file = folder / f"{table}.parquet"
        pq.write_table(pq.read_table(file).slice(0, 0), file)

    assert "none of its 0 nodes had a GPU" in refusal(folder)


def test_a_fleet_without_gpu_nodes_says_how_many_were_left_out(folder):
    mend(folder, "nodes", "gpu_count", lambda number, value: 0)

    assert "1 nodes without GPUs, left out" in refusal(folder)


def test_declarations_that_contradict_over_two_keys_are_a_fault(folder):
    (folder / "workloads.yaml").write_text(
        "workloads:\n  serve/*: {max_replicas: 2}\n  serve/api: {min_replicas: 5}\n", encoding="utf-8"
    )

    assert "min_replicas 5 is above max_replicas 2" in refusal(folder)


def test_a_declaration_that_no_workload_answers_to_is_noted(folder):
    (folder / "workloads.yaml").write_text("workloads:\n  serve/apo: {interruptible: true}\n", encoding="utf-8")

    (note,) = audited(folder)["coverage"]["notes"]
    assert note == "workloads.yaml declares serve/apo, which this history does not hold; did you mean serve/api?"


def test_readings_that_were_made_null_stand_in_the_report_for_people(folder):
    mend(folder, "gpu_usage", "sm_active_mean", lambda number, value: float("nan") if number % 10 == 0 else value)

    result = CliRunner().invoke(root, ["audit", str(folder), "-q"], catch_exceptions=False)
    assert "58 x gpu_usage.sm_active_mean: not finite, made null" in result.stdout


def test_a_row_that_claims_more_gpus_than_its_device_counts_for_one(tmp_path, folder):
    mend(folder, "allocations", "gpus", lambda number, value: 16.0)

    document = audited(folder)
    assert document["proof"]["clairvoyant_usd"] <= document["proof"]["after_usd"]
    assert document["coverage"]["counts"]


def test_the_next_commands_can_be_copied_whatever_the_folder_is_called(tmp_path, folder):
    renamed = folder.rename(tmp_path / ("a fleet of a rather long name " * 3).strip())

    result = CliRunner().invoke(root, ["audit", str(renamed), "-q"], catch_exceptions=False)
    assert f"trimtab audit '{renamed}' -o html --out report.html\n" in result.stdout


def test_holdings_of_another_year_do_not_make_every_node_look_unused(folder):
    mend(folder, "allocations", "start", lambda number, value: value.replace(year=2027))

    assert "allocations.parquet: 8 of 8 rows lie outside the window" in refusal(folder)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("version: 9", "of a newer version (saw '9')"),
        ("workloads:\n  a/b: {interruptible: true}\n  a/b: {interruptible: false}", "the key a/b stands twice"),
    ],
)
def test_a_workloads_file_that_would_be_misread_is_refused(folder, text, told):
    (folder / "workloads.yaml").write_text(text, encoding="utf-8")

    assert told in refusal(folder)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"interval_s": 0.0}, "demand.parquet row 0: column interval_s has 1 value(s) below its bound"),
        ({"latency_le_s": [1.0, 0.5]}, "latency_le_s does not rise"),
        ({"latency_count": [-1.0, 2.0]}, "latency_count holds what is not a count"),
        ({"latency_count": [1.0, float("nan")]}, "latency_count holds what is not a count"),
    ],
)
def test_demand_that_cannot_be_is_refused(tmp_path, monkeypatch, change, told):
    rows = FleetRows(DAYS).node("n0", "g5.xlarge").hold("serve/api", "n0", [0])
    rows.demand("serve/api", lambda hour: 3, 1, le_s=(0.5, float("inf")), counts=lambda hour: (1, 2))
    rows.rows["demand"][0].update(change)

    assert told in refusal(written(rows, tmp_path / "fleet"))


LE_S = (0.5, 1.0, 2.0, 4.0, float("inf"))


def declaring(path, workloads):
    """A service that answers in half a second to four, a Deployment that nobody measured, and what people say of them."""
    rows = FleetRows(DAYS)
    for number in range(2):
        rows.node(f"s{number}", "g5.xlarge").hold("prod/api", f"s{number}", [0], owner_kind="Deployment")
        rows.use("prod/api", f"s{number}", 0, range(DAYS * 24), sm=0.3, util=0.4, tensor=0.1, dram=0.2)
        rows.node(f"u{number}", "p4d.24xlarge").hold("lab/unseen", f"u{number}", range(8), owner_kind="Deployment")
    counts = [300 * share for share in (0.1, 0.5, 0.35, 0.04, 0.01)]
    rows.demand("prod/api", lambda hour: 300, 2, LE_S, lambda hour: counts)
    rows.workloads = workloads
    return written(rows, path)


def test_declarations_that_contradict_one_another_are_reported_together(folder):
    said = {
        "prod/api": {
            "kind": "serving",
            "deferrable": {"within_hr": 5},
            "targets": [
                {"metric": "latency", "quantile": 0.95, "limit_s": 2},
                {"metric": "latency", "quantile": 0.95, "limit_s": 3},
            ],
        },
        "lab/*": {"kind": "training", "min_replicas": 2},
        "lab/unseen": {"max_replicas": 1},
    }

    message = refusal(declaring(folder.parent / "said", said))

    assert "4 faults" in message
    assert "prod/api: deferrable does not apply to kind serving" in message
    assert "2 targets bound latency at the same quantile, 0.95 (saw '2 s, 3 s')" in message
    assert "lab/*: min_replicas does not apply to kind training" in message
    assert "min_replicas 2 is above max_replicas 1" in message


def test_a_need_of_memory_that_the_gpu_never_had_is_refused_with_both_figures(folder):
    message = refusal(declaring(folder.parent / "need", {"prod/api": {"need_gib": 100}}))

    assert "prod/api: need_gib" in message
    assert "22.5 GiB" in message
    assert "saw '100'" in message


def test_what_changes_nothing_and_targets_that_nothing_keeps_stand_on_top_of_the_answer(folder):
    said = {
        "prod/api": {
            "deferrable": {"within_hr": 5},
            "targets": [{"metric": "latency", "quantile": 0.95, "limit_s": 0.2}],
        }
    }

    notes = " ".join(audited(declaring(folder.parent / "vain", said))["degraded"])

    assert "declares deferrable, which changes nothing of serving" in notes
    assert "latency <= 0.2 s for 95% of requests; history kept that for 4.0%" in notes


def test_a_target_that_no_replay_can_judge_stands_on_top_of_the_answer_with_the_reason_and_the_cure(folder):
    said = {
        "prod/api": {
            "targets": [
                {"metric": "ttft", "quantile": 0.95, "limit_frac": 1.2},
                {"metric": "ttft", "quantile": 0.99, "limit_s": 4},
            ],
        },
    }

    notes = " ".join(audited(declaring(folder.parent / "unjudged", said))["degraded"])

    assert "prod/api: its target ttft p95 <= 1.2 x observed is dropped: no time to first token was measured" in notes
    assert "give limit_s, or collect" in notes
    assert "prod/api: its target ttft p99 <= 4 s is judged by the whole request, which is longer" in notes


def test_a_quota_below_what_nobody_can_judge_names_who_holds_it(folder):
    path = declaring(folder.parent / "quota", {})

    result = CliRunner().invoke(root, ["audit", str(path), "-q", "--quota", "p4d.24xlarge=1"])

    assert "whatever is chosen, lab/unseen holds 2" in str(result.exception)
    assert "at least 1 more x p4d.24xlarge" in str(result.exception)
