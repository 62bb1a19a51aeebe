"""Batch functions in processes of their own."""

import asyncio
import time

import pytest
from packages.runtime.tests.batcher import models

from trimtab_runtime import batch
from trimtab_runtime.batcher.processes import ProcessCall, find_function
from trimtab_runtime.errors import UsageError, WorkerLost


def all_of(batcher, items):
    async def scenario():
        return await asyncio.gather(*[batcher(item) for item in items], return_exceptions=True)

    return asyncio.run(scenario())


@pytest.fixture(scope="module", autouse=True)
def _ended():
    yield
    for batcher in (models.invert, models.crash_on_seven, models.unpicklable):
        batcher.drain_wait(20)


def test_a_process_answers_and_its_errors_come_back_to_the_item_at_fault():
    answers = all_of(models.invert, [1, 2, 0, 4])

    assert isinstance(answers.pop(2), ZeroDivisionError)
    assert answers == [1, 0.5, 0.25]


def test_an_item_that_kills_the_process_fails_alone_and_the_process_comes_back():
    answers = all_of(models.crash_on_seven, range(6, 10))

    lost = answers.pop(1)
    assert isinstance(lost, WorkerLost)
    assert "exit code 3" in str(lost)
    assert answers == [6, 8, 9]


def test_a_process_that_hangs_while_it_imports_its_function_is_killed_and_the_next_batch_starts_another(
    tmp_path, monkeypatch
):
    (tmp_path / "slow_to_import.py").write_text(
        "import os, pathlib, time\nonce = pathlib.Path(__file__).with_suffix('.once')\n"
        "if not once.exists():\n    once.touch()\n    time.sleep(600)\n"
        "def double(items):\n    return [2 * i for i in items]\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    began_s = time.monotonic()

    with ProcessCall("slow_to_import", "double", None, start_limit_s=5.0) as call:
        with pytest.raises(WorkerLost, match="did not import"):
            call([1])
        assert time.monotonic() - began_s < 60
    with ProcessCall("slow_to_import", "double", None) as call:
        assert call([4]) == [8]


def test_results_that_cannot_be_pickled_are_a_clear_error():
    (error,) = all_of(models.unpicklable, [1])

    assert isinstance(error, WorkerLost)
    assert "cannot be pickled" in str(error)


def test_a_worker_process_finds_the_function_inside_its_batcher():
    assert find_function("packages.runtime.tests.batcher.models", "invert")([4]) == [0.25]


def test_a_function_that_no_other_process_can_import_is_refused():
    with pytest.raises(UsageError, match="import its function by name"):

        @batch(worker="process")
        def local(items: list[int]) -> list[int]:
            return items


def test_asynchronous_functions_and_methods_do_not_run_in_processes():
    with pytest.raises(UsageError, match="asynchronous"):

        @batch(worker="process")
        async def model(items: list[int]) -> list[int]:
            return items

    with pytest.raises(UsageError, match="method"):

        class Service:
            @batch(worker="process")
            def model(self, items: list[int]) -> list[int]:
                return items
