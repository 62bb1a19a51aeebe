"""The proof in the HTML report: the bill by hour, and every target."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from trimtab.emit.document import AuditDocument, TargetPart
from trimtab.emit.html.charts import bill_by_hour
from trimtab.emit.html.markup import Html, join, tag
from trimtab.emit.html.sections import bullets, keys, number, scroll, section, table
from trimtab.emit.money import dollars, percent
from trimtab.emit.words import days, late_words, moving_in, repair_lines

_TARGETS_UNFOLDED = 8


def proof_section(document: AuditDocument) -> Html:
    """Return the section."""
    proof = document.proof
    window = f"{days(proof.window.start, proof.window.end)}"
    return section(
        "proof",
        "The proof",
        f"The plan was made without the history of {window}. Replayed on it, the bill of {dollars(proof.before_usd)} becomes "
        f"{dollars(proof.after_usd)}{moving_in(proof.moving_usd)}: {percent(proof.saving_frac, 1)} less. With the future "
        "known, no plan could have gone "
        f"below {dollars(proof.clairvoyant_usd)}. {proof.interruptions} interruptions (spot, or a block that "
        f"ended); {proof.lost_gpu_hr:.1f} GPU-hours of work done twice.",
        tag("h3", "Bill by hour"),
        keys(("key-before", "as it was"), ("key-after", "with the plan")),
        scroll(bill_by_hour(document.pictures.bill_by_hour)),
        tag("h3", "Planned again after this proof") if proof.repairs else Html(),
        bullets(repair_lines(proof, document.plan)),
        _actions(document),
        _targets(proof.targets),
        bullets(proof.notes),
        tag("h3", "Given up within the targets") if proof.given_up else Html(),
        bullets(proof.given_up),
    )


def _actions(document: AuditDocument) -> Html:
    """Return predicted beside replayed saving of each action; nothing where it was not worked out."""
    subjects = {action.id: f"{action.subject}: {action.lever}" for action in document.plan.actions}
    rows = [
        (
            tag("code", one.id),
            subjects.get(one.id, ""),
            number(dollars(one.predicted_usd_mo)),
            number(dollars(one.replayed_usd_mo)),
            number(dollars(one.replayed_usd_mo - one.predicted_usd_mo)),
            "" if one.held is None else "within its interval" if one.held else "outside its interval",
        )
        for one in document.proof.actions
    ]
    if not rows:
        return Html()
    kind = "shares of the joint saving" if document.proof.actions[0].measure == "share" else "lost without it alone"
    heads = ("", "what", "#predicted", "#replayed", "#difference", "")
    return scroll(table(f"Action by action, dollars a month ({kind})", heads, rows))


def _targets(targets: Sequence[TargetPart]) -> Html:
    """Return the table of targets: missed and declared ones first, the rest folded away where they are many."""
    if not targets:
        return tag("p", "No workload has a target that could be checked.", class_="notice")
    order = sorted(targets, key=lambda target: (target.kept, not target.declared))
    first = [target for target in order if target.declared or not target.kept]
    if len(order) <= _TARGETS_UNFOLDED or not first:
        return _target_table("Targets", order)
    rest = order[len(first) :]
    summary = tag("summary", f"{len(rest)} more that nobody declared, all kept: no worse than observed")
    return join(
        [_target_table("Targets", first), tag("details", summary, _target_table("No worse than observed", rest))]
    )


def _beneath(target: TargetPart) -> str:
    left = "" if target.touched else "; the plan leaves it as it is"
    late = late_words(target)
    return f"{target.because}{left}{f'; {late}' if late and target.touched else ''}"


def _target_table(title: str, targets: Iterable[TargetPart]) -> Html:
    rows = (
        (
            target.workload,
            join([target.target, tag("div", _beneath(target), class_="query")]),
            number(percent(target.before_frac, 1)),
            number(percent(target.attained_frac, 1)),
            tag("span", "✓ kept", class_="kept") if target.kept else tag("span", "✗ missed", class_="missed"),
        )
        for target in targets
    )
    return scroll(table(title, ("workload", "target", "#before", "#with the plan", ""), rows))
