import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from tests.kube_cluster import dump
from tests.sources.kube_server import api_server, kubeconfig

from trimtab.cli import COMMANDS, main


def run(*arguments):
    with pytest.raises(SystemExit) as exit_:
        main(["collect", *arguments])
    return exit_.value.code


def test_its_help_has_the_line_of_the_list_and_examples(capsys):
    assert run("--help") == 0

    out = capsys.readouterr().out
    assert COMMANDS["collect"][1] in " ".join(out.split())
    assert "trimtab collect --prometheus http://localhost:9090" in out


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["-p", "localhost"], "write http://HOST:9090"),
        (["-p", "http://x", "--from", "soon"], "is not a time"),
        (["-p", "http://x", "-H", "Key"], "write NAME:VALUE"),
    ],
)
def test_options_that_make_no_sense_exit_with_2(capsys, arguments, part):
    assert run(*arguments) == 2
    assert part in capsys.readouterr().err


def test_an_unreachable_server_exits_with_1_and_says_what_to_do(capsys):
    assert run("-p", "http://127.0.0.1:9", "--from", "1d") == 1
    assert "cannot be reached" in capsys.readouterr().err


def test_a_kubernetes_dump_becomes_a_bundle_that_audit_takes(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)  # what an audit keeps lies in the working folder
    dumped = tmp_path / "dump.json"
    dumped.write_text(json.dumps(dump()))

    assert run("--kube-dump", str(dumped), "--out", str(tmp_path / "fleet")) == 0
    assert "nodes                1 rows" in capsys.readouterr().out

    with pytest.raises(SystemExit) as exit_:
        main(["audit", str(tmp_path / "fleet"), "-q"])
    page = capsys.readouterr().out
    assert exit_.value.code == 0
    assert "prod/chat" in page
    assert "no activity was measured" in page


def test_a_live_cluster_is_read_through_a_kubeconfig(tmp_path, capsys):
    with api_server() as (_, url):
        file = kubeconfig(tmp_path, url)
        assert run("--context", "current", "--kubeconfig", str(file), "--out", str(tmp_path / "fleet")) == 0

    assert "pods                 4 rows" in capsys.readouterr().out


def test_the_read_only_role_is_printed_alone(capsys):
    assert run("--rbac") == 0

    objects = list(yaml.safe_load_all(capsys.readouterr().out))
    role, binding = (
        next(one for one in objects if one["kind"] == kind) for kind in ("ClusterRole", "ClusterRoleBinding")
    )
    assert objects[-1] == binding
    assert {verb for rule in role["rules"] for verb in rule["verbs"]} == {"get", "list"}
    assert not [rule for rule in role["rules"] if {"secrets", "*"} & {*rule["resources"]}]
    assert binding["roleRef"]["name"] == role["metadata"]["name"]


def test_dumps_of_slurm_become_a_bundle_priced_by_the_owners_figures(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)  # what an audit keeps lies in the working folder
    data = Path(__file__).parents[1] / "data" / "slurm"
    dumps = ["--slurm", str(data / "jobs.txt"), "--slurm", str(data / "nodes.txt")]
    assert run(*dumps, "--gpu", "a100=A100-SXM4-80GB", "--out", str(tmp_path / "fleet")) == 0
    template = capsys.readouterr().err.partition("    owned:")
    prices = tmp_path / "owned.yaml"
    figures = {"capital_usd": 2e5, "years": 4, "power_w": 5e3, "pue": 1.3, "electricity_usd_kwh": 0.12}
    lines = [line for line in template[2].splitlines() if line.startswith("      ")]
    text = "\n".join(["owned:", *lines])
    for name, figure in figures.items():
        text = text.replace(f"{name}: ...", f"{name}: {figure}")
    prices.write_text(text)

    with pytest.raises(SystemExit) as exit_:
        main(["audit", str(tmp_path / "fleet"), "--prices", str(prices), "-q"])
    page = capsys.readouterr().out

    assert exit_.value.code == 0
    assert "vision/ana-train-vit" in page
    assert "unallocated" in page


def test_a_gpu_type_without_a_board_and_two_fleets_at_once_are_refused(tmp_path, capsys):
    jobs = str(Path(__file__).parents[1] / "data" / "slurm" / "jobs.txt")

    assert run("--slurm", jobs, "--gpu", "a100") == 2
    assert "write TYPE=GPU" in capsys.readouterr().err
    assert run("--slurm", jobs, "--context", "current") == 2
    assert "different fleets" in capsys.readouterr().err


def test_without_a_place_it_says_which_there_are(capsys):
    assert run() == 2
    assert "--kube-dump" in capsys.readouterr().err


def test_a_trace_becomes_a_bundle_on_a_stated_machine(tmp_path, capsys):
    rows = [
        {"pod": "p", "t_s": second, "gpu_util_pct": 5.0, "gpu_mem_used_bytes": 2.0**33} for second in range(0, 7200, 60)
    ]
    trace = tmp_path / "trace.parquet"
    pq.write_table(pa.Table.from_pylist(rows), trace)

    told = ("--trace", str(trace), "--machine", "aws:p4d.24xlarge", "--repeat", "3", "--out", str(tmp_path / "fleet"))
    assert run(*told) == 0

    assert "gpu_usage           72 rows" in capsys.readouterr().out
    assert run("-p", "http://127.0.0.1:9", "--machine", "p4d.24xlarge") == 2
    assert run("--trace", str(trace), "--from", "3d") == 2
    assert "omit --from and --to" in capsys.readouterr().err


def test_a_server_of_the_environment_gives_way_to_a_dump_of_slurm(tmp_path, monkeypatch):
    monkeypatch.setenv("TRIMTAB_PROMETHEUS", "http://127.0.0.1:9")
    jobs = str(Path(__file__).parents[1] / "data" / "slurm" / "jobs.txt")

    assert run("--slurm", jobs, "--out", str(tmp_path / "fleet")) == 0
    assert run("--slurm", jobs, "-p", "http://127.0.0.1:9") == 2
