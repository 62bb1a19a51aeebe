"""Resuming a PyTorch job is bitwise: every part, every random generator, the very batch."""

import importlib.util
import json
import random
import subprocess
import sys
from pathlib import Path

import pytest

from trimtab_runtime.checkpoint.checkpointer import Checkpointer
from trimtab_runtime.checkpoint.loader import ResumableLoader
from trimtab_runtime.checkpoint.settings import CheckpointSettings
from trimtab_runtime.errors import CheckpointMismatch, UsageError
from trimtab_runtime.notice.notice import NoticeBoard

ROOT = Path(__file__).resolve().parents[4]
SETTINGS = CheckpointSettings(every_s=0.0)


@pytest.fixture
def example(torch):
    spec = importlib.util.spec_from_file_location("spot_training", ROOT / "examples" / "spot_training.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def checkpointer(folder, parts):
    return Checkpointer(folder, parts, SETTINGS, board=NoticeBoard())


def test_the_example_ends_with_the_loss_curve_of_an_unbroken_run(example, memory_path):
    steps = 60
    unbroken = example.train(memory_path / "unbroken", steps, seed=2)

    broken, interruptions = example.train_through_interruptions(memory_path / "spot", steps, 2, random.Random(4))

    assert interruptions >= 3
    assert broken == unbroken


def test_resuming_at_any_step_repeats_the_curve(example, memory_path):
    steps = 24
    unbroken = example.train(memory_path / "unbroken", steps, seed=3)

    for stop in range(1, steps - 1, 2):
        folder = memory_path / f"stop{stop}"
        with pytest.raises(example.Killed) as killed:
            example.train(folder, steps, seed=3, kill_at=stop)
        resumed = example.train(folder, steps, seed=3)
        assert killed.value.args[0] | resumed == unbroken


def test_every_element_type_and_shape_comes_back(torch, memory_path):
    kinds = [torch.float64, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.int64, torch.uint8, torch.bool]
    tensors = {str(kind): (torch.arange(6).reshape(2, 3) % 2).to(kind) for kind in kinds}
    tensors |= {"scalar": torch.tensor(3.5), "empty": torch.empty(0, 4), "complex": torch.tensor([1 + 2j])}
    tensors |= {"transposed": torch.arange(6.0).reshape(2, 3).t(), "requires": torch.ones(2, requires_grad=True)}
    box = Box({"tensors": tensors, "dtype": torch.bfloat16, "nothing": None, "pair": (1, float("inf"))})

    with checkpointer(memory_path, {"box": box}) as writer:
        writer.save(0)
    saved, box.content = box.content, None
    with checkpointer(memory_path, {"box": box}) as reader:
        reader.resume()

    assert box.content["dtype"] is torch.bfloat16
    assert box.content["pair"] == (1, float("inf"))
    for name, tensor in saved["tensors"].items():
        loaded = box.content["tensors"][name]
        assert loaded.dtype == tensor.dtype
        assert loaded.shape == tensor.shape
        assert torch.equal(_wide(loaded), _wide(tensor))


def _wide(tensor):
    return tensor.detach().double() if tensor.is_floating_point() else tensor


class Box:
    def __init__(self, content=None):
        self.content = content

    def state_dict(self):
        return self.content

    def load_state_dict(self, state):
        self.content = state


def test_tied_weights_are_stored_once(torch, memory_path):
    weight = torch.ones(10_000)

    with checkpointer(memory_path, {"box": Box({"a": weight, "b": weight})}) as writer:
        writer.save(0)

    (data,) = memory_path.glob("step-*/rank-00000.bin")
    assert 40_000 < data.stat().st_size < 80_000


def test_an_asynchronous_save_holds_the_values_of_its_own_step(torch, memory_path):
    box = Box({"w": torch.zeros(4_000_000)})

    with checkpointer(memory_path, {"box": box}) as writer:
        pending = writer.save(0, wait=False)
        box.content["w"].fill_(1.0)
        pending.wait()
    with checkpointer(memory_path, {"box": box}) as reader:
        reader.resume()

    assert torch.count_nonzero(box.content["w"]) == 0


def test_a_checkpoint_of_another_model_is_refused_by_name(torch, memory_path):
    with checkpointer(memory_path, {"model": torch.nn.Linear(2, 3)}) as writer:
        writer.save(0)

    with (
        checkpointer(memory_path, {"model": torch.nn.Linear(2, 4)}) as reader,
        pytest.raises(CheckpointMismatch, match="model does not accept"),
    ):
        reader.resume()


def test_state_that_would_need_pickle_is_refused_with_its_path(torch, memory_path):
    box = Box({"layers": [{"hook": object()}], "sparse": torch.eye(2).to_sparse()})

    with checkpointer(memory_path, {"box": box}) as writer, pytest.raises(UsageError) as refused:
        writer.save(0)

    assert "parts/box/layers/0/hook: builtins.object" in str(refused.value)
    assert "parts/box/sparse" in str(refused.value)


def test_a_part_without_state_is_refused_at_once(torch, memory_path):
    with pytest.raises(UsageError, match="learning_rate"):
        checkpointer(memory_path, {"learning_rate": 0.1})


def test_generators_are_parts_too(torch, memory_path):
    import numpy as np

    parts = {"torch": torch.Generator().manual_seed(1), "numpy": np.random.default_rng(1)}
    with checkpointer(memory_path, parts) as writer:
        writer.save(0)
    expected = (torch.rand(3, generator=parts["torch"]).tolist(), parts["numpy"].random(3).tolist())

    fresh = {"torch": torch.Generator().manual_seed(9), "numpy": np.random.default_rng(9)}
    with checkpointer(memory_path, fresh) as reader:
        reader.resume()

    assert (torch.rand(3, generator=fresh["torch"]).tolist(), fresh["numpy"].random(3).tolist()) == expected


class Numbers:
    """Samples that are their own index plus noise from the global generator."""

    def __len__(self):
        return 22

    def __getitem__(self, index):
        return index + 0.5 * sys.modules["torch"].rand(1).item()


def batches_of(loader, count):
    taken, iterator = [], iter(loader)
    while len(taken) < count:
        batch = next(iterator, None)
        if batch is None:
            iterator = iter(loader)
        else:
            taken.append(batch.tolist())
    return taken


@pytest.mark.parametrize("stop", [0, 1, 4, 5, 6, 9, 11])
def test_the_loader_goes_on_at_the_very_batch(torch, stop):
    def loader():
        torch.manual_seed(0)
        return ResumableLoader(Numbers(), 4, seed=7, num_workers=0)

    whole = [[int(value) for value in batch] for batch in batches_of(loader(), 18)]
    first = loader()
    taken = batches_of(first, stop)
    second = loader()
    second.load_state_dict(first.state_dict())

    rest = batches_of(second, 18 - stop)

    assert [[int(value) for value in batch] for batch in taken + rest] == whole
    assert sorted(sample for batch in whole[:6] for sample in batch) == list(range(22))
    assert whole[:6] != whole[6:12]


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_augmentation_in_workers_does_not_depend_on_where_training_resumed(torch):
    options = {"num_workers": 2, "multiprocessing_context": "fork"}
    whole = batches_of(ResumableLoader(Numbers(), 4, seed=7, **options), 6)
    first = ResumableLoader(Numbers(), 4, seed=7, **options)
    iterator = iter(first)
    next(iterator)
    next(iterator)
    second = ResumableLoader(Numbers(), 4, seed=7, **options)

    second.load_state_dict(first.state_dict())

    assert batches_of(second, 4) == whole[2:]


def test_ranks_split_each_batch_without_overlap_and_a_new_world_size_goes_on_after_it(torch):
    def part(rank, world_size):
        return ResumableLoader(range(40), 2, seed=1, rank=rank, world_size=world_size)

    two = [part(rank, 2) for rank in range(2)]
    taken = [batches_of(loader, 3) for loader in two]
    four = [part(rank, 4) for rank in range(4)]
    for loader in four:
        loader.load_state_dict(two[0].state_dict())
    rest = [[batch.tolist() for batch in loader] for loader in four]

    samples = [sample for rank in taken + rest for batch in rank for sample in batch]
    assert sorted(set(samples)) == list(range(40))


def test_a_position_in_other_data_is_refused(torch):
    state = ResumableLoader(range(40), 2, seed=1).state_dict()

    with pytest.raises(CheckpointMismatch, match="length"):
        ResumableLoader(range(41), 2, seed=1).load_state_dict(state)


def resumed_on_ranks(folder, *options):
    command = [
        sys.executable,
        "-m",
        "benchmarks.distributed_resume",
        str(folder / "ranks"),
        "--ranks",
        "2",
        "--steps",
        "5",
    ]
    done = subprocess.run([*command, *options], capture_output=True, text=True, timeout=300, check=True, cwd=ROOT)
    return json.loads(done.stdout.splitlines()[-1])


def test_ranks_agree_save_and_resume_bit_for_bit_under_ddp_and_fsdp(torch, memory_path):
    results = resumed_on_ranks(memory_path, "--wrap", "ddp", "--wrap", "fsdp")

    for wrap in ("ddp", "fsdp"):
        assert results[wrap]["resumed_step"] == 3
        assert results[wrap]["weights_equal"]
        assert results[wrap]["losses_equal"]


def test_a_sharded_checkpoint_resumes_on_another_number_of_ranks(torch, memory_path):
    result = resumed_on_ranks(memory_path, "--wrap", "fsdp", "--resume-ranks", "1")["fsdp"]

    assert result["resumed_step"] == 3
    assert result["weights_equal"]
    assert "saved by 2 ranks, resumed on 1" in result["notes"][0]
