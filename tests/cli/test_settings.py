import pytest

from trimtab.cli.settings import DEFAULT, defaults, env_name, resolve
from trimtab.errors import InputError, SettingsError
from trimtab.fleet.settings import Settings
from trimtab.levers import autoscaling, idle_release
from trimtab.levers.registry import with_all_efforts


def settings_from(tmp_path, monkeypatch, *, toml="", environ=(), flags=()):
    monkeypatch.chdir(tmp_path)
    if toml:
        (tmp_path / "trimtab.toml").write_text(toml, encoding="utf-8")
    return resolve(file=None, environ=dict(environ), flags=flags)


def test_without_anything_said_the_defaults_hold(tmp_path, monkeypatch):
    found = settings_from(tmp_path, monkeypatch)

    assert found.settings == with_all_efforts(Settings())
    assert set(found.origins.values()) == {DEFAULT}


def test_flags_go_over_environment_over_file_over_defaults(tmp_path, monkeypatch):
    toml = "[planning]\nproof_frac = 0.1\nmin_history_days = 7\nengineers = 3\n"
    environ = {"TRIMTAB_PLANNING_PROOF_FRAC": "0.2", "TRIMTAB_PLANNING_MIN_HISTORY_DAYS": "8"}

    found = settings_from(tmp_path, monkeypatch, toml=toml, environ=environ.items(), flags=["planning.proof_frac=0.3"])

    planning = found.settings.planning
    assert (planning.proof_frac, planning.min_history_days, planning.engineers) == (0.3, 8.0, 3.0)
    assert found.origins["planning.proof_frac"] == "--set"
    assert found.origins["planning.min_history_days"] == "TRIMTAB_PLANNING_MIN_HISTORY_DAYS"
    assert found.origins["planning.engineers"] == "trimtab.toml"
    assert found.origins["planning.mip_gap_frac"] == DEFAULT


def test_the_effort_of_a_lever_is_set_by_its_name(tmp_path, monkeypatch):
    toml = '[efforts.autoscaling]\nweeks = 4\nper = "class"\n'
    environ = {"TRIMTAB_EFFORTS_IDLE_RELEASE_WEEKS": "0.25"}

    found = settings_from(tmp_path, monkeypatch, toml=toml, environ=environ.items())

    assert (found.settings.efforts[autoscaling.NAME].weeks, found.settings.efforts[autoscaling.NAME].per) == (
        4,
        "class",
    )
    assert found.settings.efforts[idle_release.NAME].weeks == 0.25


@pytest.mark.parametrize("key", list(defaults()))
def test_every_setting_can_be_set_to_its_own_default_from_everywhere(key, tmp_path, monkeypatch):
    value = defaults()[key]

    found = settings_from(tmp_path, monkeypatch, environ=[(env_name(key), str(value))], flags=[f"{key}={value}"])

    assert found.settings == with_all_efforts(Settings())
    assert found.origins[key] == "--set"


def test_all_faults_are_told_at_once_with_place_value_and_cure(tmp_path, monkeypatch):
    toml = "[planing]\nproof_frac = 0.1\n[bands]\nhealthy_frac = 80\n"
    environ = {"TRIMTAB_PLANNING_PROOF_FRACTION": "0.2", "TRIMTAB_STATE": "elsewhere", "TRIMTAB_PRICES": "own.csv"}
    flags = [
        "planning.max_term_years=1.5",
        "planning.engineers",
        "assumptions.spot_notice_s=-1",
        "efforts.spot.per=team",
    ]

    with pytest.raises(SettingsError) as caught:
        settings_from(tmp_path, monkeypatch, toml=toml, environ=environ.items(), flags=flags)

    said = str(caught.value)
    assert len(caught.value.faults) == 7
    assert "unknown setting 'planing.proof_frac'; did you mean planning.proof_frac" in said
    assert "bands.healthy_frac: a share lies between 0 and 1 (saw '80')" in said
    assert "TRIMTAB_PLANNING_PROOF_FRACTION: no such setting; did you mean TRIMTAB_PLANNING_PROOF_FRAC" in said
    assert "planning.max_term_years: write a whole number" in said
    assert "--set: no value (saw 'planning.engineers'); write --set planning.proof_frac=0.25" in said
    assert "assumptions.spot_notice_s: must not be negative" in said
    assert "efforts.spot.per: write one of fleet, class, action" in said


@pytest.mark.parametrize("raw", ["nan", "inf", "ten", ""])
def test_a_number_is_a_finite_number(raw, tmp_path, monkeypatch):
    with pytest.raises(SettingsError, match="number"):
        settings_from(tmp_path, monkeypatch, flags=[f"planning.engineers={raw}"])


def test_a_settings_file_that_was_asked_for_must_be_there(tmp_path):
    with pytest.raises(InputError, match=r"cannot read .*absent\.toml"):
        resolve(file=tmp_path / "absent.toml", environ={}, flags=())


def test_a_broken_settings_file_is_named(tmp_path, monkeypatch):
    with pytest.raises(InputError, match=r"trimtab\.toml"):
        settings_from(tmp_path, monkeypatch, toml="[planning\n")


def test_the_sheet_shows_every_setting_with_its_origin(tmp_path, monkeypatch):
    sheet = settings_from(tmp_path, monkeypatch, flags=["planning.engineers=2"]).sheet()

    rows = {row["setting"]: row for row in sheet.rows}
    assert list(rows) == list(defaults())
    assert rows["planning.engineers"] == {"setting": "planning.engineers", "value": 2.0, "from": "--set"}


def test_regions_and_clouds_are_lists_in_a_file_and_names_apart_by_commas_elsewhere(tmp_path, monkeypatch):
    toml = '[limits]\nregions = ["us-west-2", "gcp/us-central1"]\n'

    found = settings_from(tmp_path, monkeypatch, toml=toml, flags=["limits.providers=gcp, azure"])

    assert found.settings.limits.regions == "us-west-2, gcp/us-central1"
    assert found.settings.limits.providers == "gcp, azure"


def test_a_region_without_a_name_is_a_fault_of_the_settings(tmp_path, monkeypatch):
    with pytest.raises(SettingsError, match="write REGION or PROVIDER/REGION"):
        settings_from(tmp_path, monkeypatch, flags=["limits.regions=aws/"])


def test_a_setting_under_its_former_name_is_refused_and_the_new_name_told(tmp_path, monkeypatch):
    toml = "[ventures]\nmigration_weeks = 3\n"
    environ = {"TRIMTAB_VENTURES_KERNELS_WEEKS": "2"}

    with pytest.raises(SettingsError) as caught:
        settings_from(tmp_path, monkeypatch, toml=toml, environ=environ.items(), flags=["ventures.hardware_pue=1"])

    said = str(caught.value)
    assert "'ventures.migration_weeks'; it is now called alternatives.migration_weeks" in said
    assert "'ventures.kernels_weeks'; it is now called TRIMTAB_ALTERNATIVES_KERNELS_WEEKS" in said
    assert "'ventures.hardware_pue'; it is now called alternatives.hardware_pue" in said
