"""A digest written by hand, for the golden files of its forms."""

from datetime import UTC, datetime, timedelta

from trimtab.emit.digest_document import (
    NO_VERIFICATION,
    CausePart,
    DigestPart,
    FormerWeekPart,
    MovedPart,
    PayerPart,
    RealisedActionPart,
    RealisedPart,
    TodoPart,
    TodosPart,
)
from trimtab.emit.document.part import WindowPart

MONDAY = datetime(2026, 10, 26, tzinfo=UTC)


def hours(start, count):
    return WindowPart(start=start, end=start + timedelta(hours=count), hours=count)


def payer(name, usd, former_usd, gpu_hours=0.0, idle_frac=None, shared=False, whole=46_224.44):
    return PayerPart(
        name=name, shared=shared, usd=usd, micro_usd=round(usd * 1e6), share_frac=round(usd / whole, 6),
        former_usd=former_usd, gpu_hours=gpu_hours, idle_frac=idle_frac,
    )  # fmt: skip


def todo(action, subject, effect, saving_usd_mo, effort_weeks, risk):
    return TodoPart(
        id=action, subject=subject, effect=effect, saving_usd_mo=saving_usd_mo, effort_weeks=effort_weeks, risk=risk,
        others=False,
    )  # fmt: skip


def done(action, subject, status, predicted_usd_mo, realised_usd_mo, cause=""):
    return RealisedActionPart(
        id=action, subject=subject, status=status, predicted_usd_mo=predicted_usd_mo, realised_usd_mo=realised_usd_mo,
        cause=cause,
    )  # fmt: skip


def fleet_digest():
    """A fleet's digest with all of its parts."""
    return DigestPart(
        team=None,
        fleet="fleet/",
        week="2026-W44",
        window=hours(MONDAY, 168),
        whole=True,
        basis="amortised charges",
        usd=46_224.44,
        micro_usd=46_224_437_952,
        share_frac=None,
        gpu_hours=14_272.0,
        idle_nodes_usd=8_597.31,
        idle_frac=0.0912,
        measured_frac=0.93,
        former=FormerWeekPart(
            week="2026-W43",
            window=hours(MONDAY - timedelta(hours=96), 96),
            whole=False,
            usd=43_079.58,
            gpu_hours=13_901.0,
        ),
        no_former="",
        causes=(
            CausePart(
                cause="GPU-hours held",
                usd=2_625.89,
                mostly=(MovedPart(name="vision: lab/exp_1", usd=3_000.0), MovedPart(name="nlp: lab/nlp", usd=-374.11)),
            ),
            CausePart(
                cause="idle nodes and unused commitments",
                usd=518.97,
                mostly=(MovedPart(name="unallocated", usd=518.97),),
            ),
        ),
        payers=(
            payer("search", 23_187.27, 23_187.27, 8_448.0, 0.05),
            payer("unallocated", 8_597.31, 8_078.34, shared=True),
            payer("vision", 7_779.83, 4_779.83, 2_881.0, 0.16),
            payer("nlp <b>", 6_660.03, 7_034.14, 2_943.0, None),
        ),
        todos=TodosPart(
            fleet="fleet/",
            until="25 Oct 2026",
            saving_usd_mo=133_604.5,
            actions=(
                todo("a1", "4 x p4d.24xlarge", "commit to 4 x p4d.24xlarge for 1 year", 23_466.72, 0.1, "high"),
                todo("a2", "lab/exp_1", "start nodes for runs that queue", 49_533.63, 1, "medium"),
                todo("a3", "1 unheld p3.8xlarge", "give back 1 node that no workload holds", 8_935.2, 0.75, "low"),
            ),
            left=5,
        ),
        no_todos="",
        realised=RealisedPart(
            window=hours(MONDAY - timedelta(days=28), 28 * 24),
            predicted_usd_mo=30_000.0,
            realised_usd_mo=21_500.0,
            on_track=1,
            actions=(
                done("a4", "prod/chat-api", "on track", 20_000.0, 21_500.0),
                done("a5", "notebooks/* (8 workloads)", "not enacted", 10_000.0, 0.0, "they still hold nodes at night"),
            ),
        ),
        no_realised="",
    )


def team_digest():
    """A team's digest of the first week of a history: nothing to compare with, nothing known to do."""
    return fleet_digest().model_copy(
        update={
            "team": "vision",
            "usd": 7_779.83,
            "micro_usd": 7_779_830_000,
            "share_frac": 0.168305,
            "idle_nodes_usd": None,
            "former": None,
            "no_former": "no former week to compare with: history begins on 26 Oct 2026",
            "causes": (),
            "payers": (payer("lab/exp_1", 7_779.83, None, 2_881.0, 0.16, whole=7_779.83),),
            "gpu_hours": 2_881.0,
            "idle_frac": 0.16,
            "todos": None,
            "no_todos": "Not known: no audit is kept here. Run `trimtab audit` on this history, or give one with --audit.",
            "realised": None,
            "no_realised": NO_VERIFICATION,
        }
    )
