"""A folder that is replaced whole: what a killed writer leaves, what the umask says, what others write meanwhile."""

import os
import signal
import time

import pytest

from trimtab.tables import whole_folder
from trimtab.tables.whole_folder import replaced_whole, settle


def write(path, text):
    with replaced_whole(path) as fresh:
        (fresh / "a").write_text(text)


def killed_while_writing(path):
    """Fork a writer, kill it inside the block, and return."""
    child = os.fork()
    if child == 0:
        with replaced_whole(path) as fresh:
            (fresh / "a").write_text("half")
            time.sleep(60)
        os._exit(0)
    while not list(path.parent.glob(".*.unfinished")):
        time.sleep(0.01)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


def test_the_old_folder_goes_when_the_new_one_stands(tmp_path):
    write(tmp_path / "b", "old")
    write(tmp_path / "b", "new")

    assert (tmp_path / "b" / "a").read_text() == "new"
    assert os.listdir(tmp_path) == ["b"]


def test_a_block_that_fails_leaves_the_old_folder_and_nothing_else(tmp_path):
    write(tmp_path / "b", "old")

    with pytest.raises(ValueError), replaced_whole(tmp_path / "b"):
        raise ValueError

    assert (tmp_path / "b" / "a").read_text() == "old"
    assert os.listdir(tmp_path) == ["b"]


def test_what_a_killed_writer_left_goes_with_the_next_read(tmp_path):
    write(tmp_path / "b", "old")
    killed_while_writing(tmp_path / "b")
    assert len(os.listdir(tmp_path)) == 2

    settle(tmp_path / "b")

    assert os.listdir(tmp_path) == ["b"]


def test_the_folder_of_a_writer_that_lives_is_left_alone(tmp_path):
    with replaced_whole(tmp_path / "b") as fresh:
        settle(tmp_path / "b")

        assert fresh.is_dir()


@pytest.mark.parametrize("umask", [0o077, 0o022, 0o002])
def test_a_new_folder_keeps_to_the_umask(tmp_path, umask):
    before = os.umask(umask)
    try:
        write(tmp_path / "b", "new")
    finally:
        os.umask(before)

    assert (tmp_path / "b").stat().st_mode & 0o777 == 0o777 & ~umask


def test_a_replaced_folder_keeps_its_mode(tmp_path):
    write(tmp_path / "b", "old")
    (tmp_path / "b").chmod(0o750)

    write(tmp_path / "b", "new")

    assert (tmp_path / "b").stat().st_mode & 0o777 == 0o750


def test_a_file_system_without_exchange_gets_two_renames_and_a_way_back(tmp_path, monkeypatch):
    monkeypatch.setattr(whole_folder, "_exchanged", lambda one, other: False)
    write(tmp_path / "b", "old")
    write(tmp_path / "b", "new")
    assert os.listdir(tmp_path) == ["b"]
    assert (tmp_path / "b" / "a").read_text() == "new"

    (tmp_path / "b").rename(tmp_path / ".b.former")  # where a writer died between the two
    settle(tmp_path / "b")

    assert (tmp_path / "b" / "a").read_text() == "new"
    assert os.listdir(tmp_path) == ["b"]
