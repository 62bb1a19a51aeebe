"""The audit as a page of sections, in the order used by every format."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence

from trimtab.emit.blocks import Block, Code, DetailLevel, Figure, Folded, Page, Section, Tone, Words, bullets, strong
from trimtab.emit.document import AuditDocument
from trimtab.emit.money import dollars, percent
from trimtab.emit.sections.bill import (
    broken_blocks,
    hygiene_blocks,
    long_tail_blocks,
    spend_blocks,
    token_blocks,
    use_blocks,
    waste_blocks,
)
from trimtab.emit.sections.plan import (
    bridge_blocks,
    closer_look_blocks,
    not_worth_blocks,
    plan_blocks,
    roadmap_blocks,
    undeclared_blocks,
    unjudged_blocks,
)
from trimtab.emit.sections.proof import laws_blocks, proof_blocks, robustness_blocks, what_if_blocks
from trimtab.emit.words import (
    GLOSSARY,
    days,
    joint_interval,
    kept_words,
    limit_line,
    moving_in,
    owned_lines,
    without_committed_rate,
)

_BRIEF_RATES = 9
"""The share, and the nodes that cost most."""

Made = Callable[[AuditDocument], Sequence[Block]]


def audit_page(document: AuditDocument, *, next_steps: Sequence[tuple[str, str]] = ()) -> Page:
    """Return the page. `next_steps` are pairs of a command and what it does, shown last."""
    coverage, seen = document.coverage, document.coverage.window
    return Page(
        brand="trimtab audit",
        title="GPU cost audit",
        subject=document.fleet,
        seen=f"History of {days(seen.start, seen.end)}: {coverage.summary}.",
        warnings=document.degraded,
        notes=(*coverage.notes, *(f"{count:,} x {what}" for what, count in coverage.counts.items())),
        headline=audit_headline(document),
        figures=audit_figures(document),
        sections=tuple(audit_sections(document, next_steps=next_steps)),
        foot=f"trimtab {document.trimtab_version}. Read-only: nothing was changed; people apply what it writes.",
    )


def audit_sections(
    document: AuditDocument, only: Collection[str] | None = None, *, next_steps: Sequence[tuple[str, str]] = ()
) -> Iterator[Section]:
    """Yield the sections that have content, in the order used by all formats; `only` those with these names."""
    bill = dollars(document.bill_usd_mo)
    what_if = "; ".join(document.what_if.scenario) if document.what_if else ""
    made: tuple[tuple[str, str, str, Made], ...] = (
        (
            "bridge",
            "From today's bill to the plan's",
            "dollars a month; savings overlap, so each step is an action's fair share; thin lines: 80% intervals",
            bridge_blocks,
        ),
        ("spend", "Where the money goes", "GPU active: mean share of the GPU in use while held", spend_blocks),
        (
            "tokens",
            "What tokens cost",
            "each service's share of the bill over its tokens; input: prompt tokens that had to be computed",
            token_blocks,
        ),
        ("buys", "What it buys", f"$/month; together they are the bill, {bill}", waste_blocks),
        (
            "broken",
            "What was broken",
            f"{dollars(sum(row.usd_mo for row in document.broken))} a month went into it",
            broken_blocks,
        ),
        ("hygiene", "What to tidy up", "offender by offender; part of the waste above", hygiene_blocks),
        ("long-tail", "Beside the GPUs", "$/month of traffic, volumes and waiting", long_tail_blocks),
        ("plan", "The plan", "in the order to do it" if document.plan.actions else "", plan_blocks),
        ("roadmap", "The year ahead", "one lever a month, each finished before the next starts", roadmap_blocks),
        (
            "closer-look",
            "Worth a closer look",
            "depend on the stated assumptions; not part of the plan",
            closer_look_blocks,
        ),
        (
            "undeclared",
            "What was not declared",
            "",
            undeclared_blocks,
        ),
        ("not-worth", "Not worth doing", "judged and refused", not_worth_blocks),
        ("unjudged", "Not judged", _unjudged_gloss(document), unjudged_blocks),
        (
            "rates",
            "No committed rate is known",
            "whether a commitment pays there is not known; ask the provider, and give the rate with --prices",
            _rates_blocks,
        ),
        ("limits", "Limits", "limits on the plan, and what each costs", _limits_blocks),
        ("held", "Commitments held", "judged on usage before the plan", _held_blocks),
        ("proof", "The proof", "replayed on history that the planner never saw", proof_blocks),
        (
            "laws",
            "How services answer under load",
            "assumed capacity of a replica, tested on busier hours than it was fitted on",
            laws_blocks,
        ),
        (
            "robustness",
            "Robustness",
            "the proof repeated under conditions that differ from the plan's assumptions",
            robustness_blocks,
        ),
        ("what-if", "What if", what_if, what_if_blocks),
        ("use", "How the GPUs are used", "", use_blocks),
        ("method", "How this was worked out", "", _method_blocks),
        ("next", "Next", "", lambda _: [Code(text=what, gloss=why) for what, why in next_steps]),
    )
    for name, title, gloss, make in made:
        if (only is None or name in only) and (blocks := make(document)):
            yield Section(name=name, title=title, gloss=gloss, blocks=tuple(blocks))


def audit_headline(document: AuditDocument) -> Words:
    """Give the bill, the plan's saving, and what the proof showed."""
    plan, proof = document.plan, document.proof
    return (
        "The bill is ",
        strong(f"{dollars(document.bill_usd_mo)} a month"),
        f". The plan brings it to {dollars(plan.shown_bill_usd_mo())}{moving_in(plan.moving_usd_mo)} and saves ",
        strong(f"{dollars(plan.joint_saving_usd_mo)} a month ({percent(plan.saving_frac, 1)})", Tone.GOOD),
        f"{joint_interval(plan)}. Replayed on {days(proof.window.start, proof.window.end)}, which the planner never saw, it "
        f"saves {percent(proof.saving_frac, 1)}, with {kept_words(proof)}.",
    )


def audit_figures(document: AuditDocument) -> tuple[Figure, ...]:
    """Return the four key figures of an audit."""
    plan, proof = document.plan, document.proof
    mood = Tone.GOOD if proof.targets_kept == len(proof.targets) else Tone.BAD
    return (
        Figure(name="The bill today", value=dollars(document.bill_usd_mo), note="a month"),
        Figure(
            name="With the plan",
            value=dollars(plan.shown_bill_usd_mo()),
            note=f"a month{moving_in(plan.moving_usd_mo)}",
        ),
        Figure(
            name="Saved",
            value=dollars(plan.joint_saving_usd_mo),
            note=f"a month, {percent(plan.saving_frac, 1)} of the bill",
            tone=Tone.GOOD,
        ),
        Figure(
            name="Proved on unseen history",
            value=percent(proof.saving_frac, 1),
            note=f"less; {proof.targets_kept} of {len(proof.targets)} targets kept"
            if proof.targets
            else kept_words(proof),
            tone=mood if proof.targets else Tone.PLAIN,
        ),
    )


def _unjudged_gloss(document: AuditDocument) -> str:
    total = sum(row.usd_mo for row in document.unjudged)
    share = total / document.bill_usd_mo if document.bill_usd_mo else 0.0
    return f"{percent(share, 1)} of the bill; left unchanged"


def _rates_blocks(document: AuditDocument) -> list[Block]:
    """Return how much could not be judged for lack of a committed rate, and on which nodes."""
    known = document.committed_rates
    if known is None or not known.unjudged_pools:
        return []
    share = without_committed_rate(known.unjudged_usd_mo, known.on_demand_usd_mo)
    return [bullets([*share, *known.unjudged_pools], brief=_BRIEF_RATES)]


def _limits_blocks(document: AuditDocument) -> list[Block]:
    return [bullets([limit_line(limit) for limit in document.plan.limits])] if document.plan.limits else []


def _held_blocks(document: AuditDocument) -> list[Block]:
    held = owned_lines(document)
    return [bullets(held)] if held else []


def _method_blocks(document: AuditDocument) -> list[Block]:
    plan = document.plan
    steps = (
        "The bill is computed hour by hour from the nodes that were up and the prices at that time, and divided among the "
        "workloads "
        "that ran on them. Hours without any workload stay on the bill.",
        "Each possible change is tested on the workload's own history: the same requests and runs are replayed on the "
        "changed fleet, which gives a cost and shows whether its targets are met.",
        f"All workloads are decided together, because they share nodes and commitments. {plan.options:,} options "
        "were considered. A lower bound shows how far from the optimum the plan can be.",
        f"The joint saving is shared among the actions ({plan.attribution}): what an action adds on average over the orders "
        "in which they could be taken. Shares add up; stand-alone savings do not.",
        "A workload without a declared target must stay no worse than it was observed to be.",
        "The last part of the history is hidden from the planner. The proof replays the finished plan on it.",
        "Months have 730 hours. Prices are those of the price book at the date of the audit, or your own rates.",
    )
    terms = [(strong(term), f": {meaning}") for term, meaning in GLOSSARY.items()]
    dropped = [f"{count:,}: {why}" for why, count in plan.pruned.items()]
    why_dropped = Folded(title="Options dropped, by reason", blocks=(bullets(dropped),), level=DetailLevel.PAGE)
    return [
        bullets(steps, level=DetailLevel.PAGE),
        *([why_dropped] if dropped else []),
        bullets(terms, title="Words used here", level=DetailLevel.PAGE),
    ]
