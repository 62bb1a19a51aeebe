"""Interruptions are seen in time on emulated metadata servers, whatever the clock of this machine says."""

import json
import logging
import os
import signal
import threading
import time
from datetime import UTC, datetime, timedelta

import pytest
from benchmarks.metadata_emulator import MetadataEmulator

from trimtab_runtime.notice.aws import AwsSpotNotices
from trimtab_runtime.notice.azure import AzureScheduledEvents
from trimtab_runtime.notice.detect import automatic_watcher, cloud_sources
from trimtab_runtime.notice.file_source import FileNotices
from trimtab_runtime.notice.gcp import GcpPreemptionNotices
from trimtab_runtime.notice.metadata import MetadataAnswer, MetadataServer, seconds_until
from trimtab_runtime.notice.notice import Notice, NoticeBoard, NoticeKind
from trimtab_runtime.notice.signals import SignalNotices
from trimtab_runtime.notice.watcher import NoticeWatcher


@pytest.fixture
def emulator():
    with MetadataEmulator() as running:
        yield running


def seen_after_s(board, emulator, lead_s):
    time.sleep(0.3)
    announced_s = time.monotonic()
    emulator.announce(lead_s)
    assert board.wait(8.0)
    return board.interruption.seen_s - announced_s


def test_aws_is_asked_often_enough_to_see_a_notice_within_six_seconds(emulator):
    source = AwsSpotNotices(emulator.url)

    began_s = time.monotonic()
    assert list(source.look()) == []
    emulator.announce(120.0)
    (notice,) = source.look()

    assert source.pause_s + (time.monotonic() - began_s) < 6.0
    assert notice.detail == "terminate"
    assert 117.0 < notice.deadline_s - notice.seen_s <= 120.0


def test_aws_session_tokens_are_renewed_when_they_expire(emulator):
    source = AwsSpotNotices(emulator.url)
    source.look()

    emulator.token = "another-token"

    assert list(source.look()) == []
    assert sum("token" in request for request in emulator.requests) == 2


def test_aws_rebalance_is_a_warning_without_a_deadline(emulator):
    emulator.rebalance = True
    board = NoticeBoard()

    for notice in AwsSpotNotices(emulator.url).look():
        board.post(notice)

    assert board.rebalance.kind is NoticeKind.REBALANCE
    assert board.interruption is None


def test_gcp_notice_is_seen_within_a_second_by_the_long_poll(emulator):
    board = NoticeBoard()

    with NoticeWatcher(board, [GcpPreemptionNotices(emulator.url)]):
        latency_s = seen_after_s(board, emulator, 30.0)

    assert latency_s < 1.0
    assert 29.0 < board.interruption.deadline_s - board.interruption.seen_s <= 30.0


def test_azure_notice_is_seen_within_a_second_and_other_machines_are_ignored(emulator):
    board = NoticeBoard()

    with NoticeWatcher(board, [AzureScheduledEvents(emulator.url)]):
        latency_s = seen_after_s(board, emulator, 30.0)

    assert latency_s <= 1.0
    assert 27.0 < board.interruption.deadline_s - board.interruption.seen_s <= 30.0


def test_a_file_announces_and_may_say_how_long(tmp_path):
    source = FileNotices(tmp_path / "notice", lead_s=30.0)
    assert list(source.look()) == []

    (tmp_path / "notice").write_text("12.5 node is drained\n")

    (notice,) = source.look()
    assert notice.deadline_s - notice.seen_s == 12.5


def test_an_unreachable_metadata_server_is_reported_once_and_never_raises(caplog):
    board = NoticeBoard()
    with MetadataEmulator() as gone:
        url = gone.url

    with caplog.at_level(logging.WARNING), NoticeWatcher(board, [AwsSpotNotices(url, pause_s=0.01)]):
        time.sleep(0.3)

    assert board.interruption is None
    assert sum("no notice can be had from aws" in record.message for record in caplog.records) == 1


def test_a_wrong_local_clock_moves_no_deadline():
    server_time = datetime(2020, 1, 1, tzinfo=UTC)
    answer = MetadataAnswer(status=200, body="", etag="", server_time=server_time)

    assert seconds_until(server_time + timedelta(seconds=110), answer, 120.0) == 110.0
    assert seconds_until(server_time + timedelta(days=3), answer, 120.0) == 120.0
    assert seconds_until(server_time - timedelta(days=3), answer, 120.0) == 0.0


def test_the_earliest_deadline_stands():
    board = NoticeBoard()
    for deadline_s in (50.0, 20.0, 90.0):
        board.post(Notice(source="x", kind=NoticeKind.INTERRUPTION, seen_s=0.0, deadline_s=deadline_s))

    assert board.interruption.deadline_s == 20.0


def test_a_signal_is_one_flag_that_the_next_look_turns_into_a_notice():
    board = NoticeBoard()
    signals = SignalNotices(board, {signal.SIGUSR2: 30.0})
    signals.install()
    try:
        sent_s = time.monotonic()
        os.kill(os.getpid(), signal.SIGUSR2)
        time.sleep(0.01)
        notice = board.interruption
    finally:
        signals.restore()

    assert notice.source == "signal"
    assert notice.deadline_s - sent_s == pytest.approx(30.0, abs=1.0)


def test_a_handler_that_was_there_before_still_runs_and_comes_back():
    calls = []
    before = signal.signal(signal.SIGUSR2, lambda number, frame: calls.append(number))
    ours = signal.getsignal(signal.SIGUSR2)
    signals = SignalNotices(NoticeBoard(), {signal.SIGUSR2: 30.0})
    signals.install()
    os.kill(os.getpid(), signal.SIGUSR2)
    time.sleep(0.01)
    signals.restore()

    assert calls == [signal.SIGUSR2]
    assert signal.getsignal(signal.SIGUSR2) is ours
    signal.signal(signal.SIGUSR2, before)


def test_off_the_main_thread_signals_are_declined_with_a_reason(caplog):
    signals = SignalNotices(NoticeBoard(), {signal.SIGUSR2: 30.0})
    before = signal.getsignal(signal.SIGUSR2)

    thread = threading.Thread(target=signals.install)
    thread.start()
    thread.join()

    assert "main thread only" in caplog.text
    assert signal.getsignal(signal.SIGUSR2) is before


@pytest.mark.parametrize(
    ("file", "text", "expected"),
    [
        ("sys_vendor", "Amazon EC2", "aws"),
        ("product_name", "Google Compute Engine", "gcp"),
        ("chassis_asset_tag", "7783-7084-3265-9085-8269-3286-77", "azure"),
    ],
)
def test_the_cloud_is_told_from_the_firmware(tmp_path, file, text, expected):
    (tmp_path / file).write_text(text + "\n")

    assert [source.name for source in cloud_sources(tmp_path)] == [expected]


def test_a_machine_of_no_known_cloud_has_no_metadata_source(tmp_path):
    (tmp_path / "sys_vendor").write_text("Microsoft Corporation\n")

    assert cloud_sources(tmp_path) == []


def test_the_automatic_watcher_takes_a_file_from_the_environment(tmp_path):
    path = tmp_path / "notice"
    board = NoticeBoard()

    with automatic_watcher(board, {"TRIMTAB_NOTICE_FILE": str(path), "TRIMTAB_GRACE_S": "45"}):
        path.touch()
        assert board.wait(3.0)

    assert board.interruption.deadline_s - board.interruption.seen_s == 45.0


DEEP = "[" * 100_000
ODD_AWS = {
    "year one": '{"action": "terminate", "time": "0001-01-01T00:00:00+14:00"}',
    "deep": DEEP,
    "a list": "[]",
    "a number": '{"time": 5}',
    "another alphabet": '{"time": "²"}',
}


class OddServer(MetadataServer):
    """Answers what a test chooses."""

    def __init__(self, body, etag=""):
        self.body, self.etag, self.paths = body, etag, []

    def ask(self, method, path, headers, timeout_s):
        self.paths.append(path)
        body = self.body if "action" in path or "event" in path or "preempted" in path else "name"
        status = 404 if "rebalance" in path else 200
        return MetadataAnswer(status=status, body=body, etag=self.etag, server_time=datetime.now(UTC))


@pytest.mark.parametrize("name", ODD_AWS)
def test_an_aws_notice_that_cannot_be_read_is_one_all_the_same(name):
    source = AwsSpotNotices("http://127.0.0.1:1")
    source._server = OddServer(ODD_AWS[name])

    (notice,) = source.look()

    assert 0 <= notice.deadline_s - notice.seen_s <= 120.0


@pytest.mark.parametrize(
    "body", ['{"Events": null}', '{"Events": []}', '{"Events": [5, null, {"EventType": ["Preempt"]}]}']
)
def test_azure_events_of_other_forms_are_none(body):
    source = AzureScheduledEvents("http://127.0.0.1:1")
    source._server = OddServer(body)

    assert list(source.look()) == []


@pytest.mark.parametrize("date", ["", "nonsense", "Mon, 01 Jan 0001 00:00:00 +1400", 5])
def test_an_azure_event_with_an_odd_time_leaves_the_least_lead(date):
    source = AzureScheduledEvents("http://127.0.0.1:1")
    source._server = OddServer(json.dumps({"Events": [{"EventType": "Preempt", "NotBefore": date}]}))

    (notice,) = source.look()

    assert notice.deadline_s - notice.seen_s <= 30.0


def test_an_odd_etag_is_sent_back_in_ascii():
    source = GcpPreemptionNotices("http://127.0.0.1:1")
    source._server = OddServer("FALSE", etag="é &x=1\n")
    source.look()
    source.look()

    assert source._server.paths[-1].isascii()
    assert " " not in source._server.paths[-1]


@pytest.mark.parametrize("text", ["²", "1e999", "nan", "-5", "\x00", "12,5"])
def test_a_file_that_holds_no_number_announces_an_interruption_all_the_same(tmp_path, text):
    (tmp_path / "notice").write_text(text)

    (notice,) = FileNotices(tmp_path / "notice", 30.0).look()

    assert 0 <= notice.deadline_s - notice.seen_s <= 30.0


class Odd:
    """A source whose first answers raise what a test chooses."""

    name, pause_s = "odd", 0.0

    def __init__(self, error):
        self.error, self.looks = error, 0

    def look(self):
        self.looks += 1
        if self.looks < 3:
            raise self.error
        return [Notice(source="odd", kind=NoticeKind.INTERRUPTION, seen_s=0.0, deadline_s=1.0)]


@pytest.mark.parametrize(
    "error", [ValueError("a token\n"), OverflowError(), RecursionError(), TypeError(), KeyError("x")]
)
def test_the_watch_outlives_any_odd_answer_which_is_counted_and_said_once(monkeypatch, caplog, error):
    monkeypatch.setattr("trimtab_runtime.notice.watcher._FIRST_RETRY_S", 0.01)
    board = NoticeBoard()

    with NoticeWatcher(board, [Odd(error)]) as watcher:
        assert board.wait(5.0)

    assert watcher.failed_looks == 2
    assert len([record for record in caplog.records if record.levelno == logging.WARNING]) == 1
