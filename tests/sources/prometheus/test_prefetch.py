import threading
import time

import pytest

from trimtab.sources.prometheus.gpu_usage import prefetch


def test_answers_are_those_of_their_questions_in_whatever_order_they_are_taken():
    with prefetch(range(20), lambda number: number * number, 3) as ahead:
        taken = {number: ahead.take(number) for number in (5, *range(5), *range(6, 20), 99)}

    assert taken == {number: number * number for number in taken}


def test_no_more_are_fetched_at_once_than_was_said():
    running, most, lock = 0, 0, threading.Lock()

    def fetch(number):
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        time.sleep(0.002)
        with lock:
            running -= 1
        return number

    with prefetch(range(30), fetch, 2) as ahead:
        assert [ahead.take(number) for number in range(30)] == list(range(30))

    assert most == 2


def test_an_error_comes_where_its_answer_is_taken_and_ends_the_fetching():
    fetched = []

    def fetch(number):
        fetched.append(number)
        if number == 2:
            raise OSError("gone")
        return number

    def take_all():
        with prefetch(range(1000), fetch, 2) as ahead:
            for number in range(1000):
                ahead.take(number)

    with pytest.raises(OSError, match="gone"):
        take_all()

    assert len(fetched) <= 6
