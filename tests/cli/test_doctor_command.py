from pathlib import Path

import pytest

from trimtab.cli import COMMANDS, main
from trimtab.cli.doctor import _page


def test_its_help_has_the_line_of_the_list_and_examples(capsys):
    with pytest.raises(SystemExit) as exit_:
        main(["doctor", "--help"])

    out = capsys.readouterr().out
    assert exit_.value.code == 0
    assert COMMANDS["doctor"][1] in " ".join(out.split())
    assert "trimtab doctor --prometheus http://localhost:9090" in out


def test_what_is_amiss_says_its_cost_and_its_fix_and_what_is_well_does_not():
    well = {"what": "history", "status": "ok", "detail": "30 days", "cost": "", "fix": ""}
    amiss = {"what": "bill", "status": "weak", "detail": "none given", "cost": "list prices", "fix": "--focus bills/"}

    page = _page([well, amiss])

    assert page.count("costs:") == 1
    assert "fix:   --focus bills/" in page
    assert "1 of 2 checks could be improved" in page


def test_a_bundle_is_judged_by_its_folder(tmp_path, capsys):
    data = Path(__file__).parents[1] / "data" / "slurm"
    with pytest.raises(SystemExit):
        main(["collect", "-q", "--slurm", str(data / "jobs.txt"), "--out", str(tmp_path / "fleet")])
    capsys.readouterr()

    with pytest.raises(SystemExit) as exit_:
        main(["doctor", str(tmp_path / "fleet")])

    page = capsys.readouterr().out
    assert exit_.value.code == 1
    assert "a price is never guessed" in page
    assert "--prices owned.yaml" in page


def test_a_bundle_and_a_server_at_once_are_an_error_of_use(tmp_path):
    with pytest.raises(SystemExit) as exit_:
        main(["doctor", str(tmp_path), "-p", "http://127.0.0.1:9"])

    assert exit_.value.code == 2


def test_neither_a_bundle_nor_a_server_is_an_error_of_use(capsys):
    with pytest.raises(SystemExit) as exit_:
        main(["doctor"])

    assert exit_.value.code == 2
    assert "trimtab doctor fleet/" in capsys.readouterr().err
