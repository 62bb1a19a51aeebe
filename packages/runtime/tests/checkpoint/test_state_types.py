"""What a checkpoint gives back is what was given: of the very types, bits, order in memory; or the save refuses by name."""

import enum
import json
import math
import struct
import subprocess
import sys
import tempfile
from collections import Counter, OrderedDict, UserDict, defaultdict, namedtuple
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from hypothesis.extra import numpy as nps

from trimtab_runtime.checkpoint.checkpointer import Checkpointer
from trimtab_runtime.checkpoint.settings import CheckpointSettings
from trimtab_runtime.errors import UsageError
from trimtab_runtime.notice.notice import NoticeBoard

MEMORY = Path("/dev/shm")
Point = namedtuple("Point", "x y")


class Place(NamedTuple):
    epoch: int
    sample: float


class Stage(enum.Enum):
    WARM = "warm"
    COLD = "cold"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Mode(enum.Flag):
    FAST = 1
    EXACT = 2
    ALL = 3


class Text(str):
    """A subclass of a plain type."""


class Config(dict):
    """A subclass of a container."""


class Marked(np.ndarray):
    """A subclass of an array."""


class Part:
    def __init__(self, state):
        self.state = state

    def state_dict(self):
        return self.state

    def load_state_dict(self, state):
        self.state = state


SETTINGS = CheckpointSettings(asynchronous=False)


def there_and_back(folder, state):
    """Save a state and return what another job resumes with."""
    with Checkpointer(folder, {"part": Part({"state": state})}, SETTINGS, board=NoticeBoard()) as checkpointer:
        checkpointer.save(0)
    part = Part(None)
    with Checkpointer(folder, {"part": part}, SETTINGS, board=NoticeBoard()) as checkpointer:
        checkpointer.resume()
    return part.state["state"]


def assert_same(one, other):
    """Compare types and bits, all the way down."""
    assert type(one) is type(other)
    match one:
        case np.ma.MaskedArray():
            assert_same(one.data, other.data)
            assert_same(np.ma.getmaskarray(one), np.ma.getmaskarray(other))
            assert (np.ma.getmask(one) is np.ma.nomask) == (np.ma.getmask(other) is np.ma.nomask)
            assert one.hardmask == other.hardmask
            assert_same(np.asarray(one.fill_value), np.asarray(other.fill_value))
        case np.ndarray():
            assert (one.dtype, one.shape) == (other.dtype, other.shape)
            assert one.dtype.type is other.dtype.type
            assert one.tobytes() == other.tobytes()
            if one.flags.f_contiguous and one.size:
                assert other.flags.f_contiguous
        case np.generic():
            assert (one.dtype, one.tobytes()) == (other.dtype, other.tobytes())
        case float():
            assert struct.pack(">d", one) == struct.pack(">d", other)
        case dict():
            assert len(one) == len(other)
            assert getattr(one, "default_factory", None) is getattr(other, "default_factory", None)
            for (key, item), (other_key, other_item) in zip(one.items(), other.items(), strict=True):
                assert_same(key, other_key)
                assert_same(item, other_item)
            assert getattr(one, "__dict__", {}) == getattr(other, "__dict__", {})
        case list() | tuple():
            assert len(one) == len(other)
            for item, other_item in zip(one, other, strict=True):
                assert_same(item, other_item)
        case int():
            assert one == other
        case _:
            assert one == other
            assert repr(one) == repr(other)


numpy_scalars = nps.scalar_dtypes().flatmap(lambda dtype: nps.arrays(dtype, ())).map(lambda array: array[()])
numpy_arrays = st.one_of(nps.scalar_dtypes(), nps.array_dtypes(max_size=3), nps.nested_dtypes(max_itemsize=64)).flatmap(
    lambda dtype: nps.arrays(dtype, nps.array_shapes(max_dims=3, max_side=3, min_side=0, min_dims=0))
)
fortran_arrays = numpy_arrays.map(np.asfortranarray)
scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(-(2**2400), 2**2400),
    st.floats(),
    st.complex_numbers(),
    st.text(),
    st.binary(max_size=8),
    st.binary(max_size=8).map(bytearray),
    st.sampled_from([*Stage, *Level, *Mode, Mode(0), Mode.FAST | Mode.EXACT]),
)
hashables = st.one_of(
    st.text(), st.integers(), st.booleans(), st.sampled_from(Level), numpy_scalars.filter(lambda x: x == x)
)


def containers(inner):
    pairs = st.dictionaries(hashables, inner, max_size=3)
    return st.one_of(
        st.lists(inner, max_size=3),
        pairs,
        pairs.map(OrderedDict),
        st.builds(defaultdict, st.sampled_from([None, int, float, list, dict]), pairs),
        st.dictionaries(hashables, st.integers(), max_size=3).map(Counter),
        st.builds(Point, inner, inner),
        st.builds(Place, st.integers(), inner),
        st.tuples(inner, inner),
        st.sets(hashables, max_size=1),
        st.frozensets(hashables, max_size=1),
    )


states = st.recursive(st.one_of(scalars, numpy_scalars, numpy_arrays, fortran_arrays), containers, max_leaves=12)


@settings(max_examples=100, deadline=None)
@given(state=states)
def test_any_nested_state_comes_back_as_it_was(state):
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as folder:
        assert_same(state, there_and_back(folder, state))


LONG = np.longdouble(1) / 3
RECORDS = np.array([(1, 0.5, "ab"), (2, 1.5, "c")], dtype=[("a", "i4"), ("b", "f8"), ("c", "U3")])
KEPT = {
    "a torch-like state with attributes": OrderedDict([("a", 1)]),
    "a huge whole number": 10**5000,
    "a negative one": -(10**5000),
    "the sign of a NaN": -math.nan,
    "a long double": LONG,
    "an array of them": np.array([LONG, -LONG]),
    "records": RECORDS,
    "one record": RECORDS[0],
    "a record array": RECORDS.view(np.recarray),
    "one of its records": RECORDS.view(np.recarray)[0],
    "fields in a field": np.zeros(2, dtype=[("a", [("b", "i2"), ("c", "f4", (2, 3))])]),
    "aligned fields": np.zeros(2, dtype=np.dtype([("a", "i1"), ("b", "f8")], align=True)),
    "the other byte order": np.array([1.5, 2.5], dtype=">f4"),
    "a masked array": np.ma.MaskedArray([1.0, 2.0, 3.0], mask=[0, 1, 0], fill_value=7.0),
    "one without a mask": np.ma.MaskedArray([1, 2]),
    "one with a hard mask": np.ma.MaskedArray([1, 2], mask=[1, 0], hard_mask=True),
    "dates": np.array(["2026-01-02", "NaT"], dtype="M8[D]"),
    "a date": np.datetime64("2026-01-02T03:04", "m"),
    "text of NumPy": np.str_("aé\0"),
    "bytes of NumPy": np.bytes_(b"a\0"),
    "a half": np.float16(0.1),
    "a truth of NumPy": np.bool_(True),
    "an array of nothing": np.array(3.0),
    "columns first": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
    "axes in another order": np.arange(24.0).reshape(2, 3, 4).transpose(1, 2, 0),
    "every second one": np.arange(10.0)[::2],
    "text that is none": "\ud800",
}


@pytest.mark.parametrize("name", KEPT)
def test_a_value_comes_back_as_it_was(memory_path, name):
    assert_same(KEPT[name], there_and_back(memory_path, KEPT[name]))


def test_many_masked_arrays_whose_parts_are_made_on_the_way_stay_apart(memory_path):
    state = [np.ma.MaskedArray(np.full((2, 3), float(index), order="F"), mask=False) for index in range(50)]

    back = there_and_back(memory_path, state)

    assert [array.data[0, 0] for array in back] == list(range(50))


def test_an_ordered_dictionary_keeps_its_attributes(memory_path):
    state = OrderedDict([("a", 1)])
    state._metadata = OrderedDict([("", {"version": 2})])

    back = there_and_back(memory_path, state)

    assert_same(back._metadata, state._metadata)


def test_weights_that_a_numpy_scalar_scales_go_on_bit_for_bit(memory_path):
    rate, weights = np.float32(0.1), np.arange(1000, dtype=np.float32)

    back = there_and_back(memory_path, {"rate": rate})

    assert (weights - back["rate"] * weights).tobytes() == (weights - rate * weights).tobytes()


def cycle():
    made = {"a": []}
    made["a"].append(made)
    return made


def deep():
    made = []
    for _ in range(5000):
        made = [made]
    return made


class Inside(enum.Enum):
    ONE = object()


def local_class():
    return namedtuple("Local", "x")(1)


REFUSED = {
    "a cycle": (cycle(), "/state/a/0: contains itself"),
    "depth": (deep(), "nested deeper than"),
    "a subclass of text": (Text("a"), "Text"),
    "a subclass of a dictionary": (Config(a=1), "Config"),
    "another mapping": (UserDict(a=1), "UserDict"),
    "a view of a mapping": (MappingProxyType({"a": 1}), "mappingproxy"),
    "values made by a function": (defaultdict(lambda: 1), "defaultdict"),
    "a class that nobody finds": (local_class(), "Local"),
    "a subclass of an array": (np.ones(2).view(Marked), "Marked"),
    "objects": (np.array([None]), "Python objects"),
    "objects in a field": (np.zeros(1, dtype=[("a", "O")]), "Python objects"),
    "a set of objects": ({object()}, "object"),
    "a function": (print, "builtin_function_or_method"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_would_come_back_as_something_else_is_refused_by_path_and_name(memory_path, name):
    state, said = REFUSED[name]
    with (
        Checkpointer(memory_path, {"part": Part({"state": state})}, SETTINGS, board=NoticeBoard()) as checkpointer,
        pytest.raises(UsageError) as refused,
    ):
        checkpointer.save(0)

    assert "/part/state" in str(refused.value)
    assert said in str(refused.value)


def test_a_class_that_is_gone_is_named_and_nothing_is_imported(memory_path):
    with Checkpointer(memory_path, {"part": Part({"state": Place(1, 2.0)})}, SETTINGS, board=NoticeBoard()) as saving:
        saving.save(0)
    program = f"""
import sys
from trimtab_runtime import Checkpointer
from trimtab_runtime.errors import CheckpointMismatch
class Part:
    def state_dict(self): return {{}}
    def load_state_dict(self, state): pass
try:
    Checkpointer({str(memory_path)!r}, {{"part": Part()}}).resume()
except CheckpointMismatch as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)

    assert "Place" in done.stdout


def test_checkpoints_of_the_first_format_are_read():
    from trimtab_runtime.checkpoint.tree import decode

    old = {"a": {"$complex": ["0.5", "nan"]}, "b": {"$float": "inf"}, "c": {"$set": [1]}, "d": {"$map": [[1, 2]]}}

    back = decode(json.loads(json.dumps(old)), lambda name: name)

    assert back["a"].real == 0.5
    assert math.isnan(back["a"].imag)
    assert (back["b"], back["c"], back["d"]) == (math.inf, {1}, {1: 2})


class TestTorch:
    def test_order_in_memory_sizes_and_parameters_come_back(self, torch, memory_path):
        image = torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)
        state = {
            "image": image,
            "tied": image,
            "transposed": torch.arange(6.0).reshape(2, 3).t(),
            "size": torch.Size([2, 3]),
            "parameter": torch.nn.Parameter(torch.ones(2)),
            "frozen": torch.nn.Parameter(torch.ones(2), requires_grad=False),
            "leaf": torch.ones(2, requires_grad=True),
            "expanded": torch.ones(1, 3).expand(2, 3),
            "scalar": torch.tensor(1.5, dtype=torch.bfloat16),
            "conjugate": torch.tensor([1 + 2j]).conj(),
            "dtype": torch.float8_e4m3fn,
        }

        back = there_and_back(memory_path, state)

        assert {name: type(value) for name, value in back.items()} == {
            name: type(value) for name, value in state.items()
        }
        for name, value in state.items():
            if isinstance(value, torch.Tensor):
                assert torch.equal(back[name], value), name
                assert back[name].requires_grad == value.requires_grad
        assert back["image"].stride() == image.stride()
        assert back["image"].is_contiguous(memory_format=torch.channels_last)
        assert back["tied"].data_ptr() == back["image"].data_ptr()
        assert back["transposed"].stride() == (1, 3)
        assert (back["size"], back["dtype"]) == (state["size"], state["dtype"])

    def test_a_state_dict_keeps_the_versions_of_its_modules(self, torch, memory_path):
        state = torch.nn.Sequential(torch.nn.Conv2d(1, 2, 3), torch.nn.BatchNorm2d(2)).state_dict()

        back = there_and_back(memory_path, state)

        assert list(back) == list(state)
        assert back._metadata == state._metadata

    def test_a_scheduler_with_milestones_goes_on_at_the_same_rates(self, torch, memory_path):
        def scheduler():
            optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=1.0)
            return torch.optim.lr_scheduler.MultiStepLR(optimizer, [2, 2, 4], gamma=0.5)

        before = scheduler()
        back = there_and_back(memory_path, before.state_dict())

        assert type(back["milestones"]) is Counter
        assert back["milestones"] == before.state_dict()["milestones"]

    @pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors:UserWarning")
    def test_tensors_without_memory_of_their_own_are_refused_by_name(self, torch, memory_path):
        from torch._subclasses.fake_tensor import FakeTensorMode
        from torch.testing._internal.two_tensor import TwoTensor

        freed = torch.ones(4)
        freed.untyped_storage().resize_(0)
        with FakeTensorMode():
            fake = torch.ones(3)
        state = {
            "wrapper": TwoTensor(torch.ones(2), torch.ones(2)),
            "fake": fake,
            "fake_parameter": torch.nn.Parameter(fake),
            "freed": freed,
            "lazy": torch.nn.LazyLinear(2).weight,
            "meta": torch.ones(2, device="meta"),
            "nested": torch.nested.nested_tensor([torch.ones(1), torch.ones(2)]),
            "sparse": torch.eye(3).to_sparse(),
        }

        with (
            Checkpointer(memory_path, {"part": Part(state)}, SETTINGS, board=NoticeBoard()) as checkpointer,
            pytest.raises(UsageError) as refused,
        ):
            checkpointer.save(0)

        assert all(f"/part/{name}: " in str(refused.value) for name in state)
        assert "TwoTensor" in str(refused.value)
