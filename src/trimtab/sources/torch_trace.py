"""Chrome traces of torch.profiler: gaps between kernels, copies to the GPU, waits for the data loader.

Events are those that `export_chrome_trace` writes: complete ones ("ph": "X") whose category is kernel, gpu_memcpy, gpu_memset,
user_annotation or cpu_op, times in microseconds. The loader's wait is the event that torch.utils.data names
`enumerate(DataLoader)#...__next__`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import median

from trimtab.diagnose.profiled import TraceSigns
from trimtab.errors import InputError
from trimtab.inputs.files import read_packed
from trimtab.inputs.json_text import load_json
from trimtab.units import US_PER_S

Span = tuple[float, float]
"""Start and end, microseconds."""


def read_trace(path: Path) -> TraceSigns:
    """Read a trace, gzipped or not; raises InputError where it is damaged or holds no GPU work."""
    events = [event for event in _events(path) if event.get("ph") == "X"]
    kernels = _spans(event for event in events if event.get("cat") in ("kernel", "gpu_memset"))
    copies = _spans(event for event in events if event.get("cat") == "gpu_memcpy" and "HtoD" in str(event.get("name")))
    waits = _spans(
        event for event in events if "DataLoader" in str(event.get("name")) and "__next__" in str(event.get("name"))
    )
    if not kernels:
        raise InputError(
            f"{path}: no GPU kernels in it; record with activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]"
        )
    everything = [*kernels, *copies, *waits]
    start, end = min(span[0] for span in everything), max(span[1] for span in everything)
    length = end - start
    busy = _union(kernels)
    exposed = _length(_union([*copies, *busy])) - _length(busy)
    return TraceSigns(
        length_s=length / US_PER_S,
        gap_frac=1 - _length(busy) / length if length > 0 else None,
        h2d_exposed_frac=exposed / length if length > 0 else None,
        loader_wait_frac=_length(_union(waits)) / length if waits and length > 0 else None,
        kernel_median_us=median(stop - begin for begin, stop in kernels),
        kernels=len(kernels),
    )


def _events(path: Path) -> Sequence[Mapping[str, object]]:
    document = load_json(read_packed(path), f"the trace {path}")
    events = document.get("traceEvents") if isinstance(document, dict) else document
    if not isinstance(events, list):
        raise InputError(f"{path} is no Chrome trace: it has no list of traceEvents")
    return [event for event in events if isinstance(event, dict)]


def _spans(events: Iterable[Mapping[str, object]]) -> list[Span]:
    found = []
    for event in events:
        begin, length = event.get("ts"), event.get("dur")
        if isinstance(begin, int | float) and isinstance(length, int | float) and length >= 0:
            found.append((float(begin), float(begin + length)))
    return found


def _union(spans: Iterable[Span]) -> list[Span]:
    joined: list[Span] = []
    for begin, end in sorted(spans):
        if joined and begin <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(joined[-1][1], end))
        else:
            joined.append((begin, end))
    return joined


def _length(spans: Iterable[Span]) -> float:
    return sum(end - begin for begin, end in spans)
