"""A time-weighted distribution in bounded memory."""

from hypothesis import given, strategies as st

from trimtab_runtime.profile.sketch import MOST_BINS, Sketch

readings = st.lists(st.tuples(st.integers(0, 10**6), st.integers(1, 50)), min_size=1, max_size=200)


def filled(pairs):
    sketch = Sketch()
    values, seconds = [value for value, _ in pairs], [float(held) for _, held in pairs]
    sketch.add(values, seconds, sum(seconds), sum(v * s for v, s in pairs))
    return sketch


def exact_quantile(pairs, share):
    ordered = sorted(value for value, held in pairs for _ in range(held))
    return ordered[max(0, -int(-share * len(ordered) // 1) - 1)]


@given(readings, st.sampled_from([0.05, 0.5, 0.95]))
def test_a_quantile_of_few_values_is_the_value_that_held_for_that_share_of_the_time(pairs, share):
    assert filled(pairs).quantile(share) == exact_quantile(pairs, share)


@given(readings)
def test_mean_and_extremes_are_exact(pairs):
    sketch = filled(pairs)

    assert sketch.mean == sum(v * s for v, s in pairs) / sum(s for _, s in pairs)
    assert (sketch.low, sketch.high) == (min(v for v, _ in pairs), max(v for v, _ in pairs))


def test_a_hundred_thousand_values_stay_within_the_bins_and_a_thousandth_of_their_range():
    pairs = [((k * 7919) % 100_003 * 13, 1) for k in range(100_003)]

    sketch = filled(pairs)

    assert len(sketch.bins) <= MOST_BINS
    assert abs(sketch.quantile(0.95) - exact_quantile(pairs, 0.95)) <= 100_003 * 13 / 1024


@given(readings, readings)
def test_two_sketches_added_up_are_the_sketch_of_both(one, other):
    joined, both = filled(one), filled(one + other)
    joined.merge(filled(other))

    assert joined.bins == both.bins
    assert (joined.low, joined.high, joined.seconds) == (both.low, both.high, both.seconds)


def test_a_sketch_of_nothing_has_no_mean_and_no_quantile():
    assert (Sketch().mean, Sketch().quantile(0.95)) == (None, None)
