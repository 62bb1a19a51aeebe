"""A million damaged inputs to the readers of scrapes, answers, bills and dumps: none may crash or hang one.

    python -m benchmarks.fuzz [--data FOLDER] [--inputs 1000000]

Seeded. Each input is a real one (or a piece of one) with characters cut, doubled, moved or swapped in. A reader may refuse an
input with an error of ours; anything else is a crash. `slowest_ms` is the longest that any input took.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import httpx

from benchmarks.fuzz_places import place_readers
from benchmarks.reference.scrape import read_scrape
from trimtab.errors import TrimtabError
from trimtab.sources.bills.cells import (
    find_instance_type,
    instance_type_in_details,
    read_labels,
    read_number,
    read_time,
)
from trimtab.sources.bills.focus import read_bills
from trimtab.sources.prometheus.client import Prometheus
from trimtab.tables.workloads import parse_workloads
from trimtab.units import MS_PER_S

DATA = Path("../shared/data")
SEED = 17
BUILT_IN = 'DCGM_FI_DEV_GPU_UTIL{gpu="0",UUID="GPU-1",Hostname="n"} 25\nvllm:num_requests_running{engine="0"} 3\n'
ANSWER = '{"status":"success","data":{"resultType":"matrix","result":[{"metric":{"UUID":"GPU-1"},"values":[[1,"2"]]}]}}'
BILL = 'BilledCost,ChargePeriodStart,ChargePeriodEnd,Tags\n1,2026-09-01,2026-09-02,"{""team"": ""a""}"\n'
YAML = "workloads:\n  prod/chat: {kind: serving, targets: [{metric: ttft, limit_s: 0.5}]}\n"
CELLS = ("2026-09-01T00:00:00Z", '{"InstanceType":"p4d.24xlarge"}', "1234.5", "$1.624 per g5.4xlarge hour", "NULL")
SHARES = {
    "scrape": 0.89, "cell": 0.09, "answer": 0.008, "yaml": 0.001, "bill": 0.001, "slurm": 0.005, "kubernetes": 0.005,
}  # fmt: skip


def main() -> None:
    """Feed the readers and print what happened."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--inputs", type=int, default=1_000_000)
    options = parser.parse_args()
    rng = random.Random(SEED)
    seeds = _lines(options.data)
    crashes: list[str] = []
    slowest_ms = 0.0
    counts = {name: int(options.inputs * share) for name, share in SHARES.items()}
    with tempfile.TemporaryDirectory() as folder:
        readers = _readers(Path(folder), seeds)
        for name, number in counts.items():
            for _ in range(number):
                took_ms, crash = _feed(readers[name], rng)
                slowest_ms = max(slowest_ms, took_ms)
                if crash is not None:
                    crashes.append(f"{name}: {crash}")
            print(f"{name}: {number:,} inputs, {len(crashes)} crashes so far", flush=True)
    answer = {"benchmark": "fuzz", "data": str(options.data), "inputs": sum(counts.values()), "by_reader": counts}
    print(json.dumps({**answer, "crashes": len(crashes), "slowest_ms": round(slowest_ms, 1), "examples": crashes[:5]}))


def _lines(folder: Path) -> list[str]:
    texts = [path.read_text(encoding="utf-8", errors="replace") for path in sorted(folder.glob("telemetry/samples/*"))]
    return [line for text in [BUILT_IN, *texts] for line in text.splitlines() if line]


Reader = Callable[[random.Random], None]


def _readers(folder: Path, lines: Sequence[str]) -> dict[str, Reader]:
    bill = folder / "bill.csv"

    def scrape(rng: random.Random) -> None:
        read_scrape(damaged(rng.choice(lines), rng))

    def cell(rng: random.Random) -> None:
        text = damaged(rng.choice(CELLS), rng)
        find_instance_type(text)
        instance_type_in_details(text)
        for read in (read_time, read_number, read_labels):
            try:
                read(text)
            except ValueError:
                continue

    def answer(rng: random.Random) -> None:
        body = damaged(ANSWER, rng)
        transport = httpx.MockTransport(lambda request: httpx.Response(200, content=body.encode("utf-8", "replace")))
        with Prometheus("http://fuzz.test", transport=transport, sleep=lambda seconds: None) as server:
            server.instant("up", 0.0)

    def yaml(rng: random.Random) -> None:
        parse_workloads(damaged(YAML, rng))

    def focus(rng: random.Random) -> None:
        bill.write_text(damaged(BILL, rng), encoding="utf-8", errors="replace")
        read_bills([bill])

    own = {"scrape": scrape, "cell": cell, "answer": answer, "yaml": yaml, "bill": focus}
    return {**own, **place_readers(folder, damaged)}


def _feed(reader: Reader, rng: random.Random) -> tuple[float, str | None]:
    """Feed one input; the crash, if any, as text: finding those is the point, so every exception is caught."""
    began = time.perf_counter()
    crash = None
    try:
        reader(rng)
    except TrimtabError:
        pass
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        crash = repr(error)[:200]
    return (time.perf_counter() - began) * MS_PER_S, crash


def damaged(text: str, rng: random.Random) -> str:
    """Return the text with one to four wounds."""
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(text) + 1)
        to = min(len(text), at + rng.randint(0, 8))
        match rng.randrange(5):
            case 0:
                text = text[:at] + text[to:]
            case 1:
                text = (
                    text[:at]
                    + chr(rng.choice((0, 9, 10, 13, 34, 44, 58, 92, 123, 125, 233, 0x2028, 0xFEFF)))
                    + text[at:]
                )
            case 2:
                text = text[:at] + text[at:to] * rng.randint(2, 20) + text[to:]
            case 3:
                text = (
                    text[:at]
                    + rng.choice(("NaN", "1e999", "-", "9223372036854775794", "{{", '""', "\\", "é"))
                    + text[to:]
                )
            case _:
                text = text[at:] + text[:at]
    return text


if __name__ == "__main__":
    main()
