"""Checkpoints reach a bucket in parts, whole or not at all, and come back verified on a fresh machine."""

import logging
import uuid

import numpy as np
import pytest
from packages.runtime.tests.checkpoint.small_job import Part

from trimtab_runtime.checkpoint.checkpointer import Checkpointer
from trimtab_runtime.checkpoint.files import FileOperations
from trimtab_runtime.checkpoint.layout import CheckpointName
from trimtab_runtime.checkpoint.remote import RemoteFolder, open_remote, part_name
from trimtab_runtime.checkpoint.settings import CheckpointSettings
from trimtab_runtime.checkpoint.upload import Uploader, upload
from trimtab_runtime.errors import CheckpointDamaged, CheckpointNotSaved, UsageError
from trimtab_runtime.notice.notice import NoticeBoard


@pytest.fixture(params=["file", "memory"])
def bucket(request, fsspec, memory_path):
    return f"file://{memory_path}/bucket" if request.param == "file" else f"memory://{uuid.uuid4().hex}"


def job(folder, bucket, part=None, **changes):
    settings = CheckpointSettings(keep=1, asynchronous=False, upload_to=bucket, upload_keep=2, **changes)
    return Checkpointer(folder, {"part": part or Part()}, settings, board=NoticeBoard())


def save(folder, bucket, *steps):
    part = Part()
    with job(folder, bucket, part) as checkpointer:
        checkpointer.resume()
        for step in steps:
            part.state = Part(step).state
            checkpointer.save(step)


def resumed_on_a_fresh_machine(folder, bucket):
    part = Part(-1)
    with job(folder, bucket, part) as checkpointer:
        resumed = checkpointer.resume()
    if resumed is not None:
        assert np.all(part.state["weights"] == resumed.step)
    return resumed and resumed.step


def test_a_fresh_machine_goes_on_from_the_bucket(memory_path, bucket):
    save(memory_path / "first", bucket, 1, 2)

    assert resumed_on_a_fresh_machine(memory_path / "second", bucket) == 2


def test_what_is_newer_here_is_not_replaced_by_the_bucket(memory_path, bucket):
    save(memory_path / "first", bucket, 1)
    save(memory_path / "second", bucket, 2)

    assert resumed_on_a_fresh_machine(memory_path / "second", bucket) == 2


def test_a_second_machine_continues_the_numbering(memory_path, bucket):
    save(memory_path / "first", bucket, 1, 2)
    save(memory_path / "second", bucket, 3)

    numbers = [name.save_number for name in open_remote(bucket).checkpoints()]
    assert numbers == sorted(set(numbers), reverse=True)
    assert resumed_on_a_fresh_machine(memory_path / "third", bucket) == 3


def test_the_bucket_keeps_the_newest_and_drops_parts_nobody_needs(memory_path, bucket):
    for step in range(1, 6):
        save(memory_path / "run", bucket, step)

    remote = open_remote(bucket)
    names = remote.checkpoints()
    needed = {part for name in names for file in remote.read_marker(name) for part in file.parts}
    assert [name.step for name in names] == [5, 4]
    assert remote.parts() == needed


def test_parts_that_are_there_are_not_sent_again(memory_path, bucket):
    save(memory_path / "run", bucket, 1)
    remote, files = open_remote(bucket), FileOperations()
    (folder,) = memory_path.glob("run/step-*")

    assert upload(files, folder, CheckpointName(9, 1), remote) == 0


def test_an_upload_that_was_cut_short_sends_only_the_rest(memory_path, bucket, monkeypatch):
    monkeypatch.setattr("trimtab_runtime.checkpoint.upload.PART_BYTES", 4096)
    save(memory_path / "run", bucket, 1)
    remote, files = open_remote(bucket), FileOperations()
    (name,) = remote.checkpoints()
    parts = remote.parts()
    remote.remove_marker(name)
    for part in sorted(parts)[:2]:
        remote.remove_part(part)

    sent = upload(files, memory_path / "run" / name.folder, name, remote)

    assert sent == sum(int(part.rpartition("-")[2]) for part in sorted(parts)[:2])
    assert resumed_on_a_fresh_machine(memory_path / "fresh", bucket) == 1


def test_without_its_marker_a_checkpoint_does_not_exist(memory_path, bucket):
    save(memory_path / "run", bucket, 1)
    save(memory_path / "run", bucket, 2)
    remote = open_remote(bucket)
    remote.remove_marker(remote.checkpoints()[0])

    assert resumed_on_a_fresh_machine(memory_path / "fresh", bucket) == 1


def test_a_damaged_part_in_the_bucket_falls_back_to_the_checkpoint_before(memory_path, bucket, caplog):
    caplog.set_level(logging.CRITICAL)
    save(memory_path / "run", bucket, 1)
    save(memory_path / "run", bucket, 2)
    remote = open_remote(bucket)
    newest, older = (
        {part for file in remote.read_marker(name) for part in file.parts} for name in remote.checkpoints()
    )
    for part in newest - older:
        remote.write_part(part, bytes(int(part.rpartition("-")[2])))

    assert resumed_on_a_fresh_machine(memory_path / "fresh", bucket) == 1


def test_a_part_is_known_by_its_content(fsspec):
    remote = open_remote(f"memory://{uuid.uuid4().hex}")
    remote.prove_writable()
    remote.write_part(part_name(b"right"), b"wrong")

    with pytest.raises(CheckpointDamaged, match="other bytes than were sent"):
        remote.read_part(part_name(b"right"))


class VanishedBucket(RemoteFolder):
    """A bucket that answers nothing, in the way of a client library that has its own exceptions."""

    class Refused(Exception):
        pass

    def __init__(self):
        super().__init__(None, "gone")

    def _names(self, folder):
        raise self.Refused("NoSuchBucket")

    prove_writable = parts = lambda self: self._names("")


def test_a_vanished_bucket_is_refused_at_the_start_when_nothing_is_here(memory_path, monkeypatch):
    monkeypatch.setattr("trimtab_runtime.checkpoint.mirror.open_remote", lambda url: VanishedBucket())

    with pytest.raises(CheckpointNotSaved, match="NoSuchBucket"):
        job(memory_path / "run", "s3://gone/run")

    with job(memory_path / "run", None) as checkpointer:
        assert checkpointer.resume() is None


def test_a_vanished_bucket_does_not_stop_a_job_that_can_go_on_from_here(memory_path, monkeypatch, caplog):
    save(memory_path / "run", None, 4)
    monkeypatch.setattr("trimtab_runtime.checkpoint.mirror.open_remote", lambda url: VanishedBucket())
    monkeypatch.setattr("trimtab_runtime.checkpoint.upload._FIRST_RETRY_S", 0.001)

    with job(memory_path / "run", "s3://gone/run") as checkpointer:
        assert checkpointer.resume().step == 4
        checkpointer.save(5)

    assert "going on from the checkpoint on this machine" in caplog.text
    assert "is on this machine only" in caplog.text


def test_a_checkpoint_overtaken_in_line_is_skipped(memory_path, bucket, monkeypatch):
    sent = []
    monkeypatch.setattr(
        "trimtab_runtime.checkpoint.upload.upload", lambda files, folder, name, remote: sent.append(name)
    )
    uploader = Uploader(FileOperations(), memory_path, open_remote(bucket), keep=2)
    with uploader._changed:
        uploader.offer(CheckpointName(1, 1))
        uploader.offer(CheckpointName(2, 2))

    assert uploader.flush(5.0)
    uploader.stop()
    assert sent == [CheckpointName(2, 2)]


def test_an_address_that_nothing_can_open_is_a_usage_error(fsspec):
    with pytest.raises(UsageError, match="nonsense"):
        open_remote("nonsense://x/y")
