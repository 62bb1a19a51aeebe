"""Refit the speed models' constants: `python -m benchmarks.refit --data measured.csv`.

Writes `src/trimtab/physics/data/{serving,training,workloads}.json`: fitted tables, intervals from held-out groups, the number
of rows, the error on held-out groups, the groups that were used and the source. The measured rows themselves stay outside.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np

import trimtab.physics
from benchmarks.fitted import KINDS, fit_tables, held_out, kind_of
from benchmarks.perf_rows import Row, groups_of, read_rows
from trimtab.physics.fitted import fit_intervals, intervals_to_json, terms_to_json
from trimtab.physics.predict import SKEWED

SOURCE = (
    "fitted on public measurements (LLM-Inference-Bench, InferenceX, MLPerf, Megatron-Bridge and 20 others), 2026-11-20"
)
FORMAT_VERSION = 1
DATA = Path(str(trimtab.physics.__file__)).parent / "data"


def refit(kind: str, rows: Sequence[Row]) -> dict[str, object]:
    """Return the content of one coefficient file."""
    mine = [row for row in rows if kind_of(row) == kind]
    held = held_out(kind, mine)
    errors = np.abs(np.exp([one.log_error for one in held]) - 1)
    intervals = fit_intervals([(one.classes, one.row.group, one.log_error) for one in held], centred=SKEWED)
    print(f"{kind}: {len(mine)} rows, held-out MdAPE {np.median(errors):.3f}, MAPE {np.mean(errors):.3f}")
    return {
        "version": FORMAT_VERSION,
        "source": SOURCE,
        "rows": len(mine),
        "held_out_mdape_frac": round(float(np.median(errors)), 4),
        "groups": groups_of(mine),
        "intervals": intervals_to_json(intervals),
        "tables": {name: terms_to_json(table) for name, table in fit_tables(kind, mine).items()},
    }


def main() -> None:
    """Refit the named models, all of them when none is named."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="measured rows")
    parser.add_argument("--only", choices=KINDS, action="append", help="refit this model only")
    options = parser.parse_args()
    rows = read_rows(options.data)
    for kind in options.only or KINDS:
        content = json.dumps(refit(kind, rows), separators=(",", ":"), sort_keys=False)
        (DATA / f"{kind}.json").write_text(content + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
