"""The page of a format: what is known of the answers, and what is to be done first."""

import pytest
from tests.emit.example import action

from trimtab.deployment.effects import SetPrecision
from trimtab.emit.manifests.program_settings import precision_page
from trimtab.physics.formats import WeightFormat
from trimtab.plan.model import Risk
from trimtab.provenance import Basis, Estimate

FASTER = Estimate(value=1.4, low=1.2, high=1.6, basis=Basis.MODELLED, because="bytes read")


def page(answers):
    change = SetPrecision(
        before=WeightFormat.BF16, after=WeightFormat.FP8, speed=FASTER, speed_there=FASTER, saved_gib=7.0,
        model="mistralai/Mistral-7B-Instruct-v0.3", answers=answers,
    )  # fmt: skip
    act = action(
        "a1", "quantization", "prod/chat", 1_000.0, {"prod/chat": change}, weeks=2.0, risk=Risk.HIGH, quarter=1, seen=(),
        rollback="serve the former weights again",
    )  # fmt: skip
    return precision_page(act, "prod/chat", change)


@pytest.mark.parametrize(
    ("answers", "said", "first"),
    [
        ("", "is not known to trimtab", "Run the model's own evaluation with both formats"),
        (
            "-0.10 points on 4,500 questions",
            "accepted: answers -0.10 points on 4,500 questions",
            "those that were evaluated",
        ),
    ],
)
def test_a_page_says_what_is_known_of_the_answers(answers, said, first):
    text = page(answers)

    assert said in text
    assert first in text
