from hypothesis import given, settings, strategies as st

from trimtab.sources.traces.runs import pack

RUNS = st.lists(
    st.tuples(
        st.integers(0, 40).map(float),
        st.integers(1, 20).map(float),
        st.sampled_from([0.25, 0.5, 1.0, 2.0, 3.0, 5.0, 9.0]),
    ).map(lambda one: (one[0], one[0] + one[1], one[2])),
    max_size=30,
)


@settings(max_examples=60)
@given(RUNS)
def test_no_node_ever_holds_more_than_it_has_and_every_run_gets_what_it_asked_for(runs):
    pieces, count = pack(runs, 4)

    for index, (_, _, gpus) in enumerate(runs):
        assert sum(piece.gpus for piece in pieces if piece.run == index) == gpus
    for moment in {start for start, _, _ in runs}:
        for node in range(count):
            held = sum(
                piece.gpus
                for piece in pieces
                if piece.node == node and runs[piece.run][0] <= moment < runs[piece.run][1]
            )
            assert held <= 4


def test_a_small_run_goes_where_least_is_free_and_a_large_one_takes_whole_nodes():
    pieces, count = pack([(0.0, 9.0, 3.0), (1.0, 9.0, 1.0), (2.0, 9.0, 6.0)], 4)

    assert [(piece.run, piece.node, piece.gpus) for piece in pieces] == [
        (0, 0, 3.0),
        (1, 0, 1.0),
        (2, 1, 4.0),
        (2, 2, 2.0),
    ]
    assert count == 3


def test_what_was_let_go_is_used_again():
    assert pack([(0.0, 1.0, 4.0), (1.0, 2.0, 4.0)], 4)[1] == 1
