"""Parse every scrape of a folder: lines parsed, ignored by reason, failed.

python -m benchmarks.scrapes [--data FOLDER]
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from pathlib import Path

from benchmarks.reference.scrape import read_scrape

DATA = Path("../shared/data/telemetry/samples")


def main() -> None:
    """Read the files, print a line each and the sums as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=DATA)
    folder = parser.parse_args().data
    total: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    canonical: set[str] = set()
    by_file = {}
    for path in sorted(one for one in folder.rglob("*") if one.is_file()):
        scrape = read_scrape(path.read_text(encoding="utf-8", errors="replace"), where=path.name)
        counted = {
            "lines": scrape.lines,
            "parsed": len(scrape.readings),
            "ignored": scrape.ignored.total(),
            "failed": len(scrape.failed),
        }
        by_file[path.name] = {**counted, "reasons": dict(+scrape.ignored)}
        total.update(counted)
        reasons.update(scrape.ignored)
        canonical.update(reading.canonical for reading in scrape.readings)
        print(path.name, by_file[path.name], flush=True)
        for fault in scrape.failed[:5]:
            print("  ", fault)
    answer = {"benchmark": "scrapes", "data": str(folder), **total, "reasons": dict(+reasons)}
    print(json.dumps({**answer, "canonical_names": len(canonical), "by_file": by_file}))


if __name__ == "__main__":
    main()
