import contextlib
import json
from datetime import UTC, datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, strategies as st

from trimtab.errors import InputError, UsageError
from trimtab.sources.slurm import (
    STATES,
    collect_slurm,
    jobs_of_json,
    jobs_of_text,
    nodes_of_json,
    nodes_of_sinfo,
    nodes_of_text,
    read_slurm,
)
from trimtab.sources.slurm.dumps import Account, gres_gpus, hosts, tres_gpus, zone_of
from trimtab.tables.bundle import memory_bundle
from trimtab.tables.checks import check_bundle

DATA = Path(__file__).parents[1] / "data" / "slurm"
JOBS, NODES = DATA / "jobs.txt", DATA / "nodes.txt"
UTC_CLOCK = ZoneInfo("UTC")
HEADER = "JobID|JobName|User|Account|Partition|State|Submit|Start|End|AllocTRES|NodeList"


def collected(*paths, **changes):
    dump = read_slurm(paths or (JOBS, NODES), UTC_CLOCK)
    given = {"gpu_names": {"a100": "A100-SXM4-80GB"}, "source": "Slurm", **changes}
    return collect_slurm(dump, *dump.span, **given)


def rows(found, table):
    return found.tables[table].to_pylist(maps_as_pydicts="strict")


def by(found, table, column):
    return {row[column]: row for row in rows(found, table)}


@pytest.mark.parametrize(
    ("text", "boards"),
    [
        ("billing=32,cpu=32,gres/gpu:a100=4,gres/gpu=4,mem=256G,node=1", 4.0),
        ("gres/gpu:a100=4", 4.0),
        ("gres/gpu=2", 2.0),
        ("gres/gpu=3,gres/gpu:a100=2,gres/gpu:t4=1", 3.0),
        ("cpu=4,mem=8G", 0.0),
        ("gres/gpumem=10G,gres/gpuutil=87", 0.0),
        ("gres/gpu:a100_3g.20gb=2", 2 * 3 / 7),
    ],
)
def test_gpus_of_a_tres_list_count_once_whether_typed_or_not(text, boards):
    assert tres_gpus(text).boards == pytest.approx(boards)


@pytest.mark.parametrize(
    ("text", "boards", "kind"),
    [
        ("gpu:a100:4(S:0-1)", 4.0, "a100"),
        ("gpu:3090:2", 2.0, "3090"),
        ("gpu:8", 8.0, ""),
        ("gpu:h100", 1.0, "h100"),
        ("gpu:a100:2(IDX:0,1),gpu:t4:1", 3.0, "a100"),
        ("(null)", 0.0, ""),
        ("craynetwork:4", 0.0, ""),
    ],
)
def test_the_gres_of_a_node_is_read_with_its_type(text, boards, kind):
    found = gres_gpus(text)

    assert (found.boards, found.kind) == (boards, kind)


def test_shards_hold_the_part_of_a_board_that_their_node_makes_of_them():
    node, job = gres_gpus("gpu:a100:4,shard:a100:32"), tres_gpus("gres/shard=4")

    assert job.held(node.shards / node.boards) == 0.5
    assert tres_gpus("gres/mps=50").held(0) == 0.5


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("gpu01", ("gpu01",)),
        ("gpu[08-10],a1", ("gpu08", "gpu09", "gpu10", "a1")),
        ("r[1-2]n[01,03]", ("r1n01", "r1n03", "r2n01", "r2n03")),
        ("None assigned", ()),
        ("", ()),
    ],
)
def test_host_lists_are_expanded(text, names):
    assert hosts(text) == names


@pytest.mark.parametrize("text", ["gpu[1-", "gpu[a-b]", "n[0-999999999]", "n[1-9999]m[1-9999]"])
def test_a_host_list_that_is_none_or_has_no_end_is_refused(text):
    with pytest.raises(ValueError):
        hosts(text)


@given(st.text(alphabet="ab[]0123456789-, ", max_size=40))
def test_no_host_list_breaks_the_reader(text):
    with contextlib.suppress(ValueError):
        assert all(hosts(text))


@given(st.text(max_size=60))
def test_no_text_breaks_the_readers_of_gpus(text):
    assert tres_gpus(text).boards >= 0
    assert gres_gpus(text).boards >= 0


def test_steps_hold_nothing_beside_their_job():
    found = rows(collected(), "allocations")

    assert [row["gpus"] for row in found if row["pod"] == "100"] == [8.0]


def test_a_job_on_two_nodes_holds_half_of_its_gpus_on_each_and_keeps_them_through_the_check():
    found = collected()
    bundle = check_bundle(memory_bundle(found.tables, found.meta))
    held = [row for row in bundle.table("allocations").to_pylist() if row["pod"] == "102"]

    assert len(held) == 6
    assert {(row["node"], row["gpus"]) for row in held} == {("gpu01", 8.0), ("gpu02", 8.0)}


def test_each_run_of_a_requeued_job_stands_with_its_own_state():
    found = by(collected(), "jobs", "job")

    assert [found[name]["state"] for name in ("102", "102.r1", "102.r2")] == ["preempted", "requeued", "running"]
    assert found["102.r2"]["end"] is None
    assert found["104"]["state"] == "node_fail"
    assert found["108"]["state"] == "timeout"


def test_array_tasks_are_runs_and_a_waiting_array_asks_for_all_its_tasks():
    found = by(collected(), "jobs", "job")

    assert found["101_1"]["workload"] == found["101_2"]["workload"] == "nlp/ben-sweep"
    assert (found["101_[3-6%2]"]["gpus"], found["101_[3-6%2]"]["state"]) == (8.0, "queued")
    assert found["101_[3-6%2]"]["start"] is None


def test_waits_are_kept_and_the_partition_is_the_queue():
    found = by(collected(), "jobs", "job")["100"]

    assert (found["start"] - found["submit"]).total_seconds() == 1800
    assert found["queue"] == "gpu"


def test_nodes_are_owned_for_the_whole_window_down_or_not():
    found = by(collected(), "nodes", "node")

    assert set(found) == {"gpu01", "gpu02", "gpu03"}
    assert found["gpu03"]["labels"]["slurm/state"] == "DOWN+NOT_RESPONDING"
    assert {row["instance_type"] for row in found.values()} == {"8x-A100-SXM4-80GB"}
    assert {row["capacity_type"] for row in found.values()} == {"owned"}
    assert all(row["end"] is None for row in found.values())


def test_a_type_that_leaves_the_board_open_is_counted_with_the_option_that_says_it():
    found = collected(gpu_names={})

    assert any("--gpu a100=" in reason for reason in found.meta.counts)
    assert {row["gpu"] for row in rows(found, "nodes")} == {"a100"}


def test_without_a_dump_of_nodes_they_are_those_that_jobs_held():
    found = collected(JOBS)

    assert {row["node"]: row["gpu_count"] for row in rows(found, "nodes")} == {"gpu01": 8, "gpu02": 8, "gpu03": 4}
    assert any("no dump of nodes" in note for note in found.meta.notes)


def test_every_line_is_kept_or_left_out_with_a_reason_and_bad_ones_are_named():
    dump = read_slurm([JOBS, NODES], UTC_CLOCK)

    for account in (dump.jobs_account, dump.nodes_account):
        assert account.kept + sum(account.ignored.values()) == account.read
    assert [fault.where for fault in dump.jobs_account.faults] == ["jobs.txt line 14", "jobs.txt line 15"]
    assert str(dump.jobs_account.faults[0]).endswith("(saw 'BROKEN'); did you mean REVOKED?")


def test_two_dumps_that_overlap_count_each_run_once(tmp_path):
    again = tmp_path / "again.txt"
    again.write_text(JOBS.read_text())

    once, twice = collected(JOBS, NODES), collected(JOBS, again, NODES)

    assert once.tables["jobs"].equals(twice.tables["jobs"])
    assert once.tables["allocations"].equals(twice.tables["allocations"])


def test_the_later_dump_of_a_run_says_how_it_ended(tmp_path):
    def dump(name, end, state):
        file = tmp_path / name
        file.write_text(
            f"{HEADER}\n1|a|u|g|p|{state}|2026-09-01T00:00:00|2026-09-01T01:00:00|{end}|gres/gpu=1|n1\n",
            encoding="utf-8",
        )
        return file

    first, second = dump("a", "Unknown", "RUNNING"), dump("b", "2026-09-02T00:00:00", "COMPLETED")

    (job,) = read_slurm([first, second], UTC_CLOCK).jobs
    assert (job.state, job.end) == ("completed", datetime(2026, 9, 2, tzinfo=UTC))


def test_the_clusters_clock_may_be_elsewhere():
    account = Account()
    text = f"{HEADER}\n1|a|u|g|p|COMPLETED|2026-07-01T12:00:00|2026-07-01T12:00:00|1782907200|gres/gpu=1|n1"

    (job,) = jobs_of_text(Path("x"), text, zone_of("Europe/Berlin"), account)

    assert job.submit == datetime(2026, 7, 1, 10, tzinfo=UTC)
    assert job.end == datetime(2026, 7, 1, 12, tzinfo=UTC)
    with pytest.raises(UsageError, match="Europe/Berlin"):
        zone_of("Mars/Olympus")


def test_json_tells_the_same_as_text():
    record = {
        "job_id": 100, "name": "train-vit-1", "user": "ana", "account": "vision", "partition": "gpu",
        "state": {"current": ["COMPLETED"]}, "nodes": "gpu01", "array": {"job_id": 0, "task_id": {"set": False, "number": 0}},
        "time": {"submission": 1788249600, "start": {"set": True, "number": 1788251400}, "end": 1788424200},
        "tres": {"allocated": [
            {"type": "cpu", "name": "", "count": 32},
            {"type": "gres", "name": "gpu", "count": 8},
            {"type": "gres", "name": "gpu:a100", "count": 8},
        ]},
        "steps": [{"step": {"name": "batch"}}],
    }  # fmt: skip
    task = record | {"job_id": 201, "array": {"job_id": 200, "task_id": {"set": True, "number": 7}}}
    found = list(jobs_of_json(Path("x"), json.dumps({"jobs": [record, task, {"state": "??"}]}), account := Account()))
    text = next(jobs_of_text(JOBS, JOBS.read_text(), UTC_CLOCK, Account()))

    fields = ("job", "name", "user", "account", "partition", "state", "submit", "start", "end", "gpus", "nodes")
    assert all(getattr(found[0], name) == getattr(text, name) for name in fields)
    assert found[1].job == "200_7"
    assert (account.read, account.kept, sum(account.ignored.values())) == (3, 2, 1)


def test_nodes_are_the_same_from_scontrol_sinfo_and_json():
    text = list(nodes_of_text(NODES, NODES.read_text(), Account()))
    sinfo = "NODELIST|GRES|STATE|PARTITION\ngpu[01-03]|gpu:a100:8(S:0-1)|mixed|gpu*\ncpu01|(null)|idle|cpu\n"
    wide = "NODELIST   GRES   STATE\ngpu[01-03]   gpu:a100:8   idle\n"
    parsed = {
        "nodes": [
            {"name": f"gpu0{n}", "gres": "gpu:a100:8", "state": ["IDLE"], "partitions": ["gpu"]} for n in (1, 2, 3)
        ]
    }
    groups = {"sinfo": [{"nodes": {"nodes": ["gpu01", "gpu02", "gpu03"]}, "gres": {"total": "gpu:a100:8"}}]}

    each = [
        text,
        list(nodes_of_sinfo(Path("x"), sinfo, Account())),
        list(nodes_of_sinfo(Path("x"), wide, Account())),
        list(nodes_of_json(Path("x"), json.dumps(parsed), Account())),
        list(nodes_of_json(Path("x"), json.dumps(groups), Account())),
    ]

    assert [[(node.name, node.gpus.boards, node.gpus.kind) for node in found] for found in each] == [
        [(name, 8.0, "a100") for name in ("gpu01", "gpu02", "gpu03")]
    ] * len(each)


def test_blocks_of_scontrol_without_o_are_read():
    blocks = "NodeName=gpu01 Arch=x86_64\n   Gres=gpu:h100:8\n   State=IDLE\n\nNodeName=gpu02\n   Gres=gpu:h100:4\n"

    assert [node.gpus.boards for node in nodes_of_text(Path("x"), blocks, Account())] == [8.0, 4.0]


@pytest.mark.parametrize(
    ("content", "part"),
    [
        ("", "is empty"),
        ("hello\n", "no dump of Slurm that is known"),
        ("JobID|State\n1|COMPLETED\n", "no column SUBMIT, START, END, ALLOCTRES"),
        ('{"jobs": [', "is it cut short"),
        ('{"meta": {}}', "without a list of jobs"),
        (f"{HEADER}\n", "no jobs at all"),
        (f"{HEADER}\nx\ny\nz\n", "3 of 3 lines cannot be understood"),
    ],
)
def test_a_file_that_cannot_be_used_says_what_to_write(tmp_path, content, part):
    file = tmp_path / "dump"
    file.write_text(content)

    with pytest.raises(InputError) as raised:
        read_slurm([file], UTC_CLOCK)

    assert part in str(raised.value)


def test_a_separator_in_a_jobs_name_is_put_back():
    text = (
        f"{HEADER}\n1|a|b|c|u|g|p|COMPLETED|2026-09-01T00:00:00|2026-09-01T01:00:00|2026-09-01T02:00:00|gres/gpu=1|n1"
    )

    (job,) = jobs_of_text(Path("x"), text, UTC_CLOCK, Account())

    assert (job.name, job.user) == ("a|b|c", "u")


_cell = st.sampled_from(
    ["1", "2_[0-3]", "3.batch", "", "gres/gpu=1", "gres/gpu:a100=99999999999", "n[1-3]", "n[", "Unknown", "2026-09-01T00:00:00",
     "2026-09-02T00:00:00", "0", "9" * 30, *STATES]
) | st.text(alphabet=st.characters(exclude_characters="\n\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029|"), max_size=5)  # fmt: skip


@given(st.lists(st.lists(_cell, min_size=9, max_size=12), max_size=6))
def test_no_line_of_accounting_is_lost_without_a_reason(lines):
    account = Account()
    text = "\n".join([HEADER, *("|".join(line) for line in lines)])

    found = list(jobs_of_text(Path("x"), text, UTC_CLOCK, account))

    assert len(found) == account.kept
    assert account.kept + sum(account.ignored.values()) == account.read <= len(lines)


_value = st.none() | st.integers(-1, 10**25) | st.text(max_size=6) | st.floats()
_inner = st.dictionaries(
    st.sampled_from(["set", "number", "current", "submission", "start", "end", "allocated"]), _value
)


@given(
    st.lists(
        st.dictionaries(
            st.sampled_from(["job_id", "state", "time", "tres", "nodes", "array", "name"]),
            _value | _inner | st.lists(_inner),
        )
    )
)
def test_no_record_of_json_is_lost_without_a_reason(records):
    account = Account()

    found = list(jobs_of_json(Path("x"), json.dumps({"jobs": records}), account))

    assert len(found) == account.kept
    assert account.kept + sum(account.ignored.values()) == account.read == len(records)
