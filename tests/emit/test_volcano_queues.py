"""Volcano's queues that would keep a plan's pods waiting, by its plugins' own rules; numbers worked by hand."""

import pytest
from hypothesis import given, settings, strategies as st
from tests.emit.cluster_example import example_facts
from tests.emit.test_cluster_quotas import GPU, LOCAL_QUEUE, cluster_queue, pods, said, scaled, standing

from trimtab.emit.manifests.cluster_quotas import with_preconditions


def volcano(name, limit=None, used=None, *, parent=None, resource=GPU, kept=None):
    return {
        "kind": "Queue", "namespace": None, "name": name, "parent": parent, "resource": resource, "limit_gpus": limit,
        "used_gpus": used, "guaranteed_gpus": kept,
    }  # fmt: skip


def in_volcano(*queues, most=10, boards=None):
    read = pods("prod/search-rank", 3, queue="q2")
    return said(scaled(most), [], queues, read=read, boards=None if boards is None else {"": boards})


@pytest.mark.parametrize(
    ("queue", "to"),
    [
        (volcano("q2", 8.0, 3.0), "from 8 to 10"),
        (volcano("q2", 8.0, 5.0), "from 8 to 12"),
        (volcano("q2", 8.0), "from 8 to 10"),
        (volcano("q2", 10.0, 3.0), None),
        (volcano("q2", None, 3.0), None),
        (volcano("q2", 1.0, 0.0, resource="rdma/hca"), None),
        (volcano("q1", 1.0, 0.0), None),
    ],
)
def test_a_volcano_queue_lets_nobody_in_above_its_capability_of_what_that_names(queue, to):
    """Volcano's TestProportion (realcapability-test) binds a pod whose rdma/hca its queue q2 does not name."""
    found = in_volcano(queue)

    assert [to in words for words in found] == ([] if to is None else [True])


def test_the_capability_of_each_queue_above_limits_as_well():
    """TestCapacityPluginHierarchy: case4 and case6 wait for an ancestor, case11 takes what its parent leaves it."""
    parents = [
        volcano("root", None, 6.0),
        volcano("q8", 9.0, 4.0, parent="root"),
        volcano("q2", None, 3.0, parent="q8"),
    ]

    (only,) = in_volcano(*parents)

    assert only == (
        "raise nvidia.com/gpu in capability of Volcano's Queue q8 from 9 to 11: prod/search-rank may ask for 10 at once, "
        "beside 1 of other pods, and Volcano keeps the rest waiting"
    )
    assert in_volcano(volcano("q2", None, 3.0, parent="q2")) == []


def test_a_local_queue_of_kueue_is_none_of_volcano_though_both_have_one_name():
    local = LOCAL_QUEUE | {"name": "q2"}

    assert in_volcano(local, cluster_queue("gpus", GPU, 20.0), volcano("q2", 1.0, 0.0)) == []


def test_the_command_raises_the_capability_of_a_volcano_queue():
    read = pods("prod/search-rank", 3, queue="q2")
    plan = with_preconditions(scaled(10), example_facts(), standing([], [volcano("q2", 8.0, 3.0)], read=read))

    (condition,) = plan.actions[0].preconditions

    assert condition.command == (
        "kubectl patch queues.scheduling.volcano.sh q2 --type=merge "
        """-p '{"spec": {"capability": {"nvidia.com/gpu": "10"}}}'"""
    )


FLAT = "(its queues seem flat; with enableHierarchy these guarantees do not limit)"


@pytest.mark.parametrize("parent", [None, "root"])
@pytest.mark.parametrize(
    ("boards", "has"), [(14.0, "it has 14"), (None, "how many it has was not read"), (15.0, None), (30.0, None)]
)
def test_what_other_queues_are_guaranteed_is_not_for_a_queue_of_a_flat_cluster(parent, boards, has):
    """Volcano's design of guarantees: five GPUs are queue1's alone, even if no job runs in it."""
    queues = [
        volcano("root"),
        volcano("q2", used=3.0, parent=parent),
        volcano("queue1", kept=5.0, used=0.0, parent=parent),
    ]

    found = in_volcano(*queues, boards=boards)

    assert found == (
        []
        if has is None
        else [
            f"have 15 nvidia.com/gpu in the cluster ({has}), or lower the guarantees of Volcano's queues (5 for queue1), "
            "which Queue q2 may not use: prod/search-rank may ask for 10 at once, and Volcano keeps the rest waiting "
            + FLAT
        ]
    )


def test_what_a_queue_is_guaranteed_itself_it_may_use_however_much_others_are():
    """max(total - guarantees, 0) + own guarantee: ten of twelve GPUs are its own, though eighteen are promised."""
    assert in_volcano(volcano("q2", used=3.0, kept=10.0), volcano("q1", kept=8.0), boards=12.0) == []
    assert len(in_volcano(volcano("q2", used=3.0, kept=9.0), volcano("q1", kept=8.0), boards=12.0)) == 1


def test_guarantees_of_another_resource_keep_no_boards():
    assert in_volcano(volcano("q2", used=3.0), volcano("q1", kept=8.0, resource="rdma/hca"), boards=10.0) == []


def test_in_a_hierarchy_the_capability_above_must_hold_what_queues_beside_are_guaranteed():
    """checkHierarchicalQueue: what a parent may use less its children's guarantees; the root may use any amount."""
    queues = [
        volcano("root"),
        volcano("team", 12.0, 3.0, parent="root"),
        volcano("q2", None, 3.0, parent="team"),
        volcano("night", kept=4.0, used=0.0, parent="team"),
        volcano("elsewhere", kept=50.0, used=0.0, parent="root"),
    ]

    assert in_volcano(*queues, boards=10.0) == [
        "raise nvidia.com/gpu in capability of Volcano's Queue team from 12 to 14: prod/search-rank may ask for 10 at once, "
        "beside what queues below it are guaranteed (4 for night), and Volcano keeps the rest waiting"
    ]


AMOUNTS = st.integers(0, 20).map(float)
LIMITS = st.none() | AMOUNTS
CHAINS = st.lists(st.tuples(LIMITS, LIMITS, st.lists(AMOUNTS, max_size=2)), min_size=2, max_size=4)
"""Queues from just under the root down to the one of the pods: capability, guarantee, guarantees of those beside it."""


@given(chain=CHAINS)
@settings(max_examples=100, deadline=None)
def test_a_hierarchy_is_silent_exactly_where_every_real_capability_holds_what_is_asked_for(chain):
    """The formula of checkHierarchicalQueue, from the root down, against the words made from the leaves up."""
    names = [f"level{depth}" for depth in range(len(chain) - 1)] + ["q2"]
    rows, real, holds = [volcano("root")], float("inf"), True
    for depth, (name, (limit, kept, beside)) in enumerate(zip(names, chain, strict=True)):
        parent = names[depth - 1] if depth else "root"
        rows.append(volcano(name, limit, 3.0, parent=parent, kept=kept))
        rows += [volcano(f"{name}-{at}", None, 0.0, parent=parent, kept=other) for at, other in enumerate(beside)]
        real = max(real - sum(beside) - (kept or 0.0), 0.0) + (kept or 0.0)
        real = real if limit is None else min(real, limit)
        holds &= real >= 10.0

    assert (in_volcano(*rows) == []) is holds
