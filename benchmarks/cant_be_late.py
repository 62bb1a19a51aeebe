"""Frontier-CS's public benchmark `cant_be_late`, run by its own evaluator on this project's policy: an outside score.

`--frontier DIR` is a checkout of github.com/FrontierCS/Frontier-CS. Its evaluator is started as a process for each variant, on
a copy in a temporary folder with its traces unpacked; nothing of it ships here. It needs `configargparse` and `wandb`. Scores
are theirs: 100 is all work on spot, 0 all on demand; our solution file raises where a deadline passes. `--published NAME ...`
scores solutions that come with the checkout (`research/solutions`) beside ours. Where the checkout is absent the benchmark
says so and ends.

Our policy learns its markets on other sources than the ones it is scored on: zones of AWS in February and April 2023
(`skypilot_spot_availability.parquet`, without the recording of October 2022, which covers two of the scored zones). Nothing is
tuned on the evaluator's traces.

Run: python -m benchmarks.cant_be_late --frontier DIR [--data DIR] [--published NAME ...] [--variants NAME ...]
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from benchmarks.reference.kept_mixture import FOLDER_VARIABLE, keep_mixture
from benchmarks.reference.spot_mixture import plan_mixture
from benchmarks.reference.spot_plan import Market, learn_market
from benchmarks.traces import data_argument
from trimtab.units import S_PER_HR

PROBLEM = Path("research") / "problems" / "cant_be_late"
PUBLISHED = Path("research") / "solutions" / "cant_be_late"
OURS = "trimtab"
LEARNED_FROM = ("aws-02-15-2023", "aws-04-19-2023", "aws-04-22-2023")
GAP_S = 600
WORK_HR = 48
DEADLINES_HR = {"tight_deadline": 52, "loose_deadline": 70}
LAUNCHES_HR = {"small_overhead": 0.05, "large_overhead": 0.20}
SPOT_PRICE = 0.9731 / 3.06
"""Both prices of p3.2xlarge in us-west-2, as their simulator has them."""
SOLUTION = Path(__file__).parent / "reference" / "frontier_solution.py"


def learned_markets(traces: Path) -> list[Market]:
    """Return a market for each zone recorded elsewhere, on steps of the evaluator's length: up where all probes are."""
    table = pq.read_table(traces / "spot" / "skypilot_spot_availability.parquet").to_pandas()
    markets = []
    for _, probes in table[table["dataset"].isin(LEARNED_FROM)].groupby(["dataset", "zone"], observed=True):
        step = (probes["t_s"] // GAP_S).to_numpy()
        up = (probes["available_nodes"] > 0).groupby(step).min().to_numpy(dtype=bool)
        markets.append(learn_market(up))
    return markets


def keep_plans(markets: list[Market], folder: Path) -> None:
    """Work out and keep a mixture for each deadline and overhead of the variants."""
    for deadline_hr in DEADLINES_HR.values():
        for launch_hr in LAUNCHES_HR.values():
            plan = plan_mixture(
                markets,
                work=WORK_HR * S_PER_HR // GAP_S,
                deadline=deadline_hr * S_PER_HR // GAP_S,
                spot_price=SPOT_PRICE,
                launch_steps=launch_hr * S_PER_HR / GAP_S,
            )
            keep_mixture(plan, folder)


def unpacked(frontier: Path, folder: Path) -> Path:
    """Copy the problem into a folder and unpack its traces where its evaluator looks for them."""
    problem = folder / "cant_be_late"
    shutil.copytree(frontier / PROBLEM, problem)
    with tarfile.open(problem / "common" / "real_traces.tar.gz") as traces:
        traces.extractall(problem / "common" / "cant-be-late-simulator" / "data", filter="data")
    return problem


def their_score(problem: Path, variant: str, solution: Path, plans: Path) -> dict[str, float | str]:
    """Start one variant's own evaluator on a solution file and return the JSON that it prints."""
    here = Path(__file__).resolve().parents[1]
    paths = [str(here), str(here / "src"), str(here / "packages" / "runtime" / "src"), os.environ.get("PYTHONPATH", "")]
    environment = {
        "CBL_LOG_LEVEL": "ERROR",
        **os.environ,
        FOLDER_VARIABLE: str(plans),
        "PYTHONPATH": os.pathsep.join(paths),
        "WANDB_MODE": "disabled",
    }
    command = [sys.executable, str(problem / variant / "evaluator.py"), "--solution", str(solution)]
    ended = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if ended.returncode or not ended.stdout.strip():
        raise RuntimeError(f"{variant} on {solution.name}: {ended.stderr[-2000:]}")
    found: dict[str, float | str] = json.loads(ended.stdout.strip().splitlines()[-1])
    return found


def main() -> None:
    parser = data_argument(__doc__)
    parser.add_argument(
        "--frontier", type=Path, required=True, metavar="DIR", help="checkout of FrontierCS/Frontier-CS"
    )
    parser.add_argument(
        "--also", type=Path, nargs="*", default=[], metavar="FILE", help="other solution files to score"
    )
    parser.add_argument("--variants", nargs="*", metavar="NAME", help="default: all twelve")
    options = parser.parse_args()
    if not (options.frontier / PROBLEM / "common" / "real_traces.tar.gz").is_file():
        print(
            json.dumps({"benchmark": "cant_be_late", "skipped": f"no {PROBLEM} with its traces in {options.frontier}"})
        )
        return
    result: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory(prefix="trimtab-frontier-") as folder:
        problem, plans = unpacked(options.frontier, Path(folder)), Path(folder) / "plans"
        plans.mkdir()
        keep_plans(learned_markets(options.data), plans)
        known = sorted(path.name for path in problem.iterdir() if (path / "evaluator.py").is_file())
        for variant in options.variants or known:
            files = {name: options.frontier / PUBLISHED / variant / f"{name}.py" for name in options.published}
            for name, solution in {OURS: SOLUTION, **files}.items():
                found = their_score(problem, variant, solution.resolve(), plans)
                if "error" in found and name == OURS:
                    raise RuntimeError(f"{variant}: {found['error']}")
                # a published solution that fails has the score that their evaluator gives it
                points, usd = float(found.get("score_unbounded", 0)), float(found.get("avg_cost", 0))
                result.setdefault(name, {})[variant] = round(points, 2)
                print(f"{variant} {name}: {points:.2f} ({usd:.2f} USD a run)", flush=True)
    means = {name: round(float(np.mean(list(scores.values()))), 2) for name, scores in result.items()}
    print(json.dumps({"benchmark": "cant_be_late", "mean_score": means, "scores": result}))


if __name__ == "__main__":
    main()
