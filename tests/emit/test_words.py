import pytest
from tests.emit.example import example_audit

from trimtab.diagnose.findings import WasteKind
from trimtab.emit.audit_document import audit_document
from trimtab.emit.words import RISK_MEANING, WASTE_MEANING, plan_note, repair_lines, span, target_words
from trimtab.fleet.model import Target
from trimtab.levers.registry import BUILT_IN, title_of
from trimtab.plan.model import Risk
from trimtab.tables.workloads import TargetMetric


@pytest.mark.parametrize(("kinds", "words"), [(WasteKind, WASTE_MEANING), (Risk, RISK_MEANING)])
def test_every_member_of_a_closed_set_has_its_words(kinds, words):
    assert set(words) == set(kinds)


@pytest.mark.parametrize("lever", BUILT_IN, ids=lambda lever: lever.name)
def test_every_lever_has_a_title_of_its_own(lever):
    assert title_of(lever.name) == lever.title
    assert [one for one in BUILT_IN if one.title == lever.title] == [lever]


@pytest.mark.parametrize(
    ("seconds", "shown"), [(0.13, "130 ms"), (4, "4 s"), (1930, "32.2 min"), (7200, "2 h"), (100_000, "27.8 h")]
)
def test_a_length_of_time_is_shown_in_the_unit_that_reads_best(seconds, shown):
    assert span(seconds) == shown


def test_every_target_is_said_in_words():
    for metric in TargetMetric:
        target = Target(metric=metric, required_frac=0.95, limit_s=4.0, declared=True, because="declared")

        assert "95%" in target_words(target)


def test_an_action_without_which_others_miss_a_target_is_explained():
    plan = audit_document(example_audit()).plan
    first, *others = plan.actions
    update = {"enables": ("a2", "a3")}

    note = plan_note(plan.model_copy(update={"actions": (first.model_copy(update=update), *others)}))

    assert note.startswith(f"Without {first.id}, a2, a3 would miss a target")
    assert "Without" not in plan_note(plan)


def test_what_overflow_enables_would_exceed_a_quota():
    plan = audit_document(example_audit()).plan
    first, *others = plan.actions
    update = {"enables": ("a2",), "lever": "overflow"}

    note = plan_note(plan.model_copy(update={"actions": (first.model_copy(update=update), *others)}))

    assert note.startswith(f"Without {first.id}, a2 would exceed a quota, or miss a target.")


def test_a_way_that_misses_only_on_slow_gpus_says_so():
    document = audit_document(example_audit())
    (repair,) = document.proof.repairs
    slow = document.proof.model_copy(update={"repairs": (repair.model_copy(update={"when_slow": True}),)})

    (_, plain), (_, doubtful) = (repair_lines(proof, document.plan) for proof in (document.proof, slow))

    assert "at the slow end of the prediction" not in plain
    assert doubtful.startswith(f"{repair.workload}: with its new GPUs at the slow end of the prediction, ")


@pytest.mark.parametrize(
    ("work_gap_frac", "said"),
    [
        (None, "considered is more than 8.0% cheaper ("),
        (
            0.0,
            "considered is cheaper, bill and work together; counting the bill alone, including work that does not pay "
            "off, none is more than 8.0% cheaper (",
        ),
        (0.012, "considered is more than 1.2% cheaper, bill and work together; counting the bill alone"),
    ],
)
def test_the_certificate_tells_what_work_that_does_not_pay_would_save(work_gap_frac, said):
    plan = audit_document(example_audit()).plan

    assert said in plan_note(plan.model_copy(update={"gap_frac": 0.08, "work_gap_frac": work_gap_frac}))
