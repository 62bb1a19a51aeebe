"""Traces of torch.profiler: gaps, exposed copies, waits; damage is an error and not a guess."""

import gzip
import json

import pytest

from trimtab.errors import InputError
from trimtab.sources.traces.profiles import read_torch_trace


def event(category, name, start, length):
    return {"ph": "X", "cat": category, "name": name, "ts": start, "dur": length}


def written(path, events, compress=False):
    data = json.dumps({"traceEvents": events}).encode()
    path.write_bytes(gzip.compress(data) if compress else data)
    return path


@pytest.mark.parametrize("compress", [False, True])
def test_gaps_and_copies_that_no_kernel_hides_are_shares_of_the_trace(tmp_path, compress):
    events = [
        event("kernel", "a", 0, 100),
        event("kernel", "b", 50, 100),
        event("kernel", "c", 800, 200),
        event("gpu_memcpy", "Memcpy HtoD (Pinned -> Device)", 100, 250),
        event("gpu_memcpy", "Memcpy DtoH (Device -> Pinned)", 400, 100),
        {"ph": "M", "name": "process_name"},
    ]

    seen = read_torch_trace(written(tmp_path / "t.json", events, compress))

    assert seen.gap_frac == pytest.approx(0.65)
    assert seen.h2d_exposed_frac == pytest.approx(0.2)
    assert seen.loader_wait_frac is None
    assert seen.kernels == 3


@pytest.mark.parametrize("content", [b"", b"{", b'{"a": 1}', b"\x1f\x8b123", b'{"traceEvents": []}', b"3"])
def test_a_damaged_or_empty_trace_is_refused_by_name(tmp_path, content):
    path = tmp_path / "t.json"
    path.write_bytes(content)

    with pytest.raises(InputError, match="t\\.json"):
        read_torch_trace(path)
