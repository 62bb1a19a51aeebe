"""A manifest that was written by somebody else, checksums and all, is answered like damage: said, and the older one is used."""

import json
import logging
import os
import time
import zlib

import numpy as np
import pytest
from packages.runtime.tests.checkpoint.small_job import SETTINGS, Part, resumed_step, save_steps

from trimtab_runtime.checkpoint import store
from trimtab_runtime.checkpoint.checkpointer import Checkpointer
from trimtab_runtime.checkpoint.files import FileOperations
from trimtab_runtime.checkpoint.layout import CheckpointName, parse_name
from trimtab_runtime.checkpoint.mirror import fetch_newest
from trimtab_runtime.checkpoint.remote import open_remote
from trimtab_runtime.checkpoint.sealed import seal, unseal
from trimtab_runtime.cli import checkpoints as checkpoints_command
from trimtab_runtime.errors import CheckpointError
from trimtab_runtime.notice.notice import NoticeBoard

SOON_S = 20.0
HUGE = 1 << 45


@pytest.fixture(autouse=True)
def _quiet(caplog):
    caplog.set_level(logging.CRITICAL)


def newest(root):
    return root / store.committed(FileOperations(), root)[0].folder


def reseal(path, change):
    body = unseal(path.read_bytes(), "")
    change(body)
    path.write_bytes(seal(body))


def forge(folder, change):
    """Change a manifest and make seal and marker agree with it, as a forger would."""
    reseal(folder / "rank-00000.json", change)
    recommit(folder)


def recommit(folder):
    content = (folder / "rank-00000.json").read_bytes()

    def change(body):
        data, manifest = body["files"]
        data["size_bytes"] = (folder / "rank-00000.bin").stat().st_size
        manifest |= {"size_bytes": len(content), "crc32": zlib.crc32(content)}

    reseal(folder / "commit.json", change)


def setter(*path, to):
    def change(body):
        place = body
        for key in path[:-1]:
            place = place[key]
        place[path[-1]] = to

    return change


def without(*path):
    def change(body):
        place = body
        for key in path[:-1]:
            place = place[key]
        del place[path[-1]]

    return change


def nested(depth):
    made = []
    for _ in range(depth):
        made = [made]
    return made


def part_is(form):
    return setter("values", "parts", "part", to=form)


MANIFESTS = {
    **{
        f"without {key}": without(key)
        for key in ("step", "rank", "size_bytes", "chunk_bytes", "chunk_crc32", "records")
    },
    "without values": without("values"),
    "without parts": without("values", "parts"),
    "parts that are a list": setter("values", "parts", to=[]),
    "another step": setter("step", to=77),
    "another rank": setter("rank", to=3),
    "a truth for a number": setter("size_bytes", to=True),
    "a size of text": setter("size_bytes", to="4096"),
    "a negative size": setter("size_bytes", to=-4096),
    "chunks of nothing": setter("chunk_bytes", to=0),
    "negative chunks": setter("chunk_bytes", to=-16),
    "chunks of a byte": setter("chunk_bytes", to=1),
    "huge chunks": setter("chunk_bytes", to=HUGE),
    "too few checksums": setter("chunk_crc32", to=[]),
    "checksums of text": setter("chunk_crc32", to=["a"]),
    "a record that is a number": setter("records", 0, to=5),
    "a record without a name": without("records", 0, "name"),
    "a negative place": setter("records", 0, "offset_bytes", to=-64),
    "a place behind the end": setter("records", 0, "offset_bytes", to=1 << 20),
    "a huge shape": setter("records", 0, "shape", to=[HUGE]),
    "a huge record": lambda body: body["records"][0].update(shape=[HUGE // 8], size_bytes=HUGE),
    "a negative shape": setter("records", 0, "shape", to=[-1500]),
    "a fractional shape": setter("records", 0, "shape", to=[1.5]),
    "an element type of objects": setter("records", 0, "dtype", to="object"),
    "another element type of objects": setter("records", 0, "dtype", to="O,O"),
    "records upon one another": lambda body: body["records"].append(dict(body["records"][0], name="other")),
    "two of one name": lambda body: body["records"].append(
        dict(body["records"][0], offset_bytes=12032, size_bytes=0, shape=[0])
    ),
    "a whole smaller than its piece": lambda body: body["records"][0].update(whole_shape=[1], piece_offset=[9]),
    "a tensor that no record holds": part_is({"$array": "missing"}),
    "an unknown form": part_is({"$pickle": "gASVAAAA"}),
    "bytes that are none": part_is({"$bytes": "?"}),
    "a number that is none": part_is({"$float": "x"}),
    "a bare list as a key": part_is({"$map": [[["a"], 1]]}),
    "pairs of three": part_is({"$map": [[1, 2, 3]]}),
    "a set of lists": part_is({"$set": [[1]]}),
    "a factory of nothing": part_is({"$default": ["system", []]}),
    "a scalar of objects": part_is({"$scalar": ["|O", "AAAAAAAAAAA="]}),
    "a scalar cut short": part_is({"$scalar": ["<f8", "AAAA"]}),
    "an array of objects in disguise": part_is({"$typed": [["|O", [1500]], {"$array": "parts/part/weights"}]}),
    "a type within itself": part_is({"$typed": [[{"fields": [[1]]}, [1]], {"$array": "parts/part/weights"}]}),
    "axes that there are not": part_is({"$permuted": [[5, 6], {"$array": "parts/part/weights"}]}),
    "a permuted number": part_is({"$permuted": [[0], 5]}),
    "a mask of text": part_is({"$masked": ["a", "b", "c", False]}),
    "deep nesting": part_is(nested(900)),
    "attributes that are a number": part_is({"$ordered": [[], 5]}),
    "records of nonsense": setter("records", to={"a": 1}),
}
UNKNOWN_HERE = {
    "an element type": setter("records", 0, "dtype", to="(((("),
    "a class that there is not": part_is({"$namedtuple": ["os:system", [1]]}),
    "a class of another kind": part_is({"$enum": ["subprocess:Popen", "x"]}),
    "a tuple without names": part_is({"$namedtuple": ["builtins:tuple", [1]]}),
}
"""What another version of the job's own program may know: an error, since the older checkpoint would lose work in silence."""
MARKERS = {
    "without files": without("files"),
    "another step": setter("step", to=9),
    "another save": setter("save_number", to=9),
    "a million ranks": setter("world_size", to=1_000_000_000),
    "no rank": setter("world_size", to=0),
    "a name that leads out": setter("files", 0, "name", to="../../etc/passwd"),
    "an absolute name": setter("files", 0, "name", to="/etc/passwd"),
    "a folder's own name": setter("files", 0, "name", to=".."),
    "a negative size": setter("files", 0, "size_bytes", to=-1),
    "a list for a file": setter("files", 0, to=[]),
    "a truth for a step": setter("step", to=True),
}


def assert_the_older_one_is_used(root):
    part, began_s = Part(-1), time.monotonic()
    with Checkpointer(root, {"part": part}, SETTINGS, board=NoticeBoard()) as checkpointer:
        resumed = checkpointer.resume()
    assert time.monotonic() - began_s < SOON_S
    assert (resumed.step, part.state["step"]) == (1, 1)
    assert np.all(part.state["weights"] == 1)
    assert len(resumed.skipped) == 1
    assert "step-000000000002" in resumed.skipped[0].folder


@pytest.mark.parametrize("name", MANIFESTS)
def test_a_forged_manifest_is_passed_over(memory_path, name):
    root = memory_path / "run"
    save_steps(root, (1, 2))
    forge(newest(root), MANIFESTS[name])

    assert_the_older_one_is_used(root)


@pytest.mark.parametrize("name", UNKNOWN_HERE)
def test_what_this_program_does_not_know_is_an_error_that_names_it(memory_path, name):
    root = memory_path / "run"
    save_steps(root, (1, 2))
    forge(newest(root), UNKNOWN_HERE[name])

    with (
        Checkpointer(root, {"part": Part()}, SETTINGS, board=NoticeBoard()) as checkpointer,
        pytest.raises(CheckpointError, match="checkpoint"),
    ):
        checkpointer.resume()


@pytest.mark.parametrize("name", MARKERS)
def test_a_forged_marker_is_passed_over(memory_path, name):
    root = memory_path / "run"
    save_steps(root, (1, 2))
    reseal(newest(root) / "commit.json", MARKERS[name])

    assert_the_older_one_is_used(root)


TEXTS = {
    "nested deeper than a parser bears": b"[" * 200_000,
    "a number of 100,000 digits": b'{"format":"trimtab-checkpoint","version":2,"step":' + b"9" * 100_000 + b"}",
    "no JSON": b"{",
    "bytes that are no text": b"\xff\xfe",
    "a list": b"[]",
    "what JSON has not": b'{"format":"trimtab-checkpoint","version":2,"step":NaN}',
}


@pytest.mark.parametrize("name", TEXTS)
@pytest.mark.parametrize("file", ["commit.json", "rank-00000.json"])
def test_a_sealed_text_that_is_no_object_is_passed_over(memory_path, name, file):
    root = memory_path / "run"
    save_steps(root, (1, 2))
    path = newest(root) / file
    path.write_bytes(TEXTS[name] + b"\ncrc32 %08x\n" % zlib.crc32(TEXTS[name]))
    if file != "commit.json":
        recommit(newest(root))

    assert_the_older_one_is_used(root)


@pytest.mark.parametrize("file", ["commit.json", "rank-00000.json", "rank-00000.bin"])
@pytest.mark.parametrize("kind", ["sparse", "pipe", "folder"])
def test_a_file_that_would_take_for_ever_to_read_is_passed_over(memory_path, file, kind):
    root = memory_path / "run"
    save_steps(root, (1, 2))
    path = newest(root) / file
    if kind == "sparse":
        os.truncate(path, HUGE)
    else:
        path.unlink()
        os.mkfifo(path) if kind == "pipe" else path.mkdir()

    assert_the_older_one_is_used(root)


def test_a_sparse_file_whose_manifest_agrees_is_not_read_for_ever(memory_path):
    root = memory_path / "run"
    save_steps(root, (1, 2))
    folder = newest(root)
    chunk_bytes, size_bytes = 1 << 30, 1 << 42
    os.truncate(folder / "rank-00000.bin", size_bytes)
    checksum = zlib.crc32(bytes(chunk_bytes))

    def change(body):
        body.update(
            size_bytes=size_bytes, chunk_bytes=chunk_bytes, chunk_crc32=[checksum] * (size_bytes // chunk_bytes)
        )

    forge(folder, change)

    assert_the_older_one_is_used(root)


def test_a_forged_random_state_is_an_error_that_says_so(memory_path):
    root = memory_path / "run"
    save_steps(root, (1,))
    forge(newest(root), setter("values", "rank", "random", to={"python": "no"}))

    with (
        Checkpointer(root, {"part": Part()}, SETTINGS, board=NoticeBoard()) as checkpointer,
        pytest.raises(CheckpointError, match="random"),
    ):
        checkpointer.resume()


def test_the_command_lists_forged_ones_as_bad(memory_path, capsys):
    root = memory_path / "run"
    save_steps(root, (1, 2))
    forge(newest(root), setter("chunk_bytes", to=0))

    assert checkpoints_command.run([str(root), "--verify"], "checkpoints") == 1
    assert "BAD" in capsys.readouterr().out


@pytest.mark.parametrize("prefix", [".trash-", ".saving-", ".damaged-"])
def test_a_link_named_like_a_leftover_costs_its_target_nothing(memory_path, prefix):
    root, target = memory_path / "run", memory_path / "precious"
    save_steps(root, (1,))
    target.mkdir()
    (target / "thesis.txt").write_text("mine")
    (root / f"{prefix}step-000000000001.00000000").symlink_to(target, target_is_directory=True)

    save_steps(root, (2, 3))

    assert (target / "thesis.txt").read_text() == "mine"
    assert not [path for path in root.iterdir() if path.is_symlink()]
    assert resumed_step(root) == 3


def test_an_old_checkpoint_that_is_a_link_costs_its_target_nothing(memory_path):
    root, target = memory_path / "run", memory_path / "precious"
    save_steps(root, (1,))
    target.mkdir()
    (target / "thesis.txt").write_text("mine")
    (root / "step-000000000000.00000000").symlink_to(target, target_is_directory=True)

    save_steps(root, (2, 3, 4))

    assert (target / "thesis.txt").read_text() == "mine"


def test_a_link_in_the_place_of_the_lock_costs_its_target_nothing(memory_path):
    root, target = memory_path / "run", memory_path / "thesis.txt"
    root.mkdir()
    target.write_text("mine")
    (root / ".lock").symlink_to(target)

    with pytest.raises(CheckpointError):
        Checkpointer(root, {"part": Part()}, SETTINGS, board=NoticeBoard())

    assert target.read_text() == "mine"


def test_saves_go_on_after_a_folder_with_the_last_number_of_eight_digits(memory_path):
    root = memory_path / "run"
    save_steps(root, (1,))
    newest(root).rename(root / ".damaged-step-000000000001.99999999")

    save_steps(root, (2, 3))

    assert resumed_step(root) == 3
    assert parse_name(CheckpointName(10**9, 10**13).folder) == CheckpointName(10**9, 10**13)


@pytest.mark.parametrize(
    "entry",
    [
        {"name": "..", "parts": []},
        {"name": "/etc/passwd", "parts": []},
        {"name": ".lock", "parts": []},
        {"name": "rank-00000.bin", "parts": ["../../secret"]},
        {"name": "rank-00000.bin", "parts": 5},
        5,
    ],
)
def test_a_forged_marker_in_a_bucket_is_passed_over(memory_path, fsspec, entry):
    remote = open_remote(f"file://{memory_path / 'bucket'}")
    remote.prove_writable()
    body = {"format": "trimtab-checkpoint", "version": 2, "files": [entry]}
    (memory_path / "bucket" / "step-000000000001.00000001.json").write_bytes(seal(body))
    (memory_path / "secret").write_text("secret")
    (memory_path / "run").mkdir()

    assert fetch_newest(FileOperations(), memory_path / "run", remote) is None
    assert json.dumps(os.listdir(memory_path / "run")) == "[]"
