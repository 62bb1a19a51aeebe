"""What moved to `trimtab_runtime` answers to its former name too: the same modules, classes and errors."""

import importlib
import pickle
import subprocess
import sys

import pytest

import trimtab
import trimtab.errors
import trimtab.runtime
import trimtab.units
import trimtab_runtime
import trimtab_runtime.errors
import trimtab_runtime.units


@pytest.mark.parametrize("name", trimtab_runtime.__all__)
def test_every_public_name_is_the_same_object_under_both_names(name):
    if name in {"lightning_callback", "accelerate_parts", "TransformersCallback"}:
        pytest.importorskip("transformers")

    assert getattr(trimtab.runtime, name) is getattr(trimtab_runtime, name)


@pytest.mark.parametrize("part", ["batcher", "batcher.bucketing", "checkpoint.files", "http", "notice.aws", "profile"])
def test_a_module_is_one_module_under_both_names(part):
    former = importlib.import_module(f"trimtab.runtime.{part}")

    assert former is importlib.import_module(f"trimtab_runtime.{part}")
    assert former.__spec__.name == former.__name__ == f"trimtab_runtime.{part}"


def test_the_former_name_first_gives_the_same_module_too():
    program = (
        "import trimtab.runtime.checkpoint.files as former, trimtab_runtime.checkpoint.files as now, trimtab.runtime as r\n"
        "from trimtab.runtime.batcher import Batcher\n"
        "assert former is now and r.checkpoint.files is now and r.Batcher is Batcher"
    )

    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def test_asking_for_modules_under_the_former_name_changes_no_public_name():
    program = (
        "import importlib, pkgutil, trimtab_runtime, trimtab_runtime.batcher as b, trimtab.runtime\n"
        "before = {name: getattr(b, name) for name in b.__all__}\n"
        "for module in pkgutil.iter_modules(b.__path__):\n"
        "    importlib.import_module(f'trimtab.runtime.batcher.{module.name}')\n"
        "assert {name: getattr(b, name) for name in b.__all__} == before"
    )

    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def test_a_module_that_is_nowhere_is_missed_by_the_name_that_was_asked_for():
    with pytest.raises(ModuleNotFoundError, match=r"trimtab\.runtime\.nothing"):
        importlib.import_module("trimtab.runtime.nothing")
    with pytest.raises(AttributeError, match="nothing"):
        _ = trimtab.runtime.nothing


def test_what_was_pickled_under_the_former_name_is_read():
    former = pickle.dumps(trimtab_runtime.CheckpointSettings(), protocol=0)
    former = former.replace(b"trimtab_runtime.", b"trimtab.runtime.")

    assert pickle.loads(former) == trimtab_runtime.CheckpointSettings()


def test_the_faces_of_the_package_are_the_runtimes_own():
    assert trimtab.batch is trimtab_runtime.batch
    assert trimtab.Checkpointer is trimtab_runtime.Checkpointer


@pytest.mark.parametrize("module", ["errors", "units"])
def test_errors_and_units_are_defined_once(module):
    here, there = vars(getattr(trimtab, module)), vars(getattr(trimtab_runtime, module))
    defined = {
        name
        for name, value in there.items()
        if (name.isupper() and not name.startswith("_"))
        or getattr(value, "__module__", "") == f"trimtab_runtime.{module}"
    }

    assert len(defined) > 10
    assert {name for name in defined if here.get(name) is not there[name]} == set()
