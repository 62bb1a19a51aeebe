"""One model x all GPUs x counts x formats x concurrencies: how long a warm search takes (`python -m benchmarks.fit_sweep`)."""

from __future__ import annotations

import argparse
import json
import statistics
import time

from trimtab.catalog import load_catalog
from trimtab.physics.ask import DEFAULT_ENGINE, FitMarket, offered
from trimtab.physics.models import model_named
from trimtab.physics.search_serving import CONCURRENCIES, search_serving, sweep
from trimtab.physics.serving_demand import Demand, ServingWay, ways_of

REPEATS = 7


def _median_s(times: list[float]) -> float:
    return round(statistics.median(times), 4)


def main() -> None:
    """Time the sweep and the whole search; the last line is one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="llama-3.1-8b")
    options = parser.parse_args()
    model, demand = model_named(options.model), Demand(input_tokens=1024, output_tokens=256, rate_req_s=20)
    ways: list[ServingWay] = []
    for gpu, offers in offered(FitMarket(catalog=load_catalog())):
        ways += ways_of(model, gpu, offers, demand, DEFAULT_ENGINE)[0]
    sweeps, searches = [], []
    for _ in range(REPEATS):
        start = time.process_time()
        sweep([way.query for way in ways])
        middle = time.process_time()
        search_serving(ways, demand)
        sweeps.append(middle - start)
        searches.append(time.process_time() - middle)
    figures = {"ways": len(ways), "concurrencies": len(CONCURRENCIES)}
    timed = {"sweep_cpu_s": _median_s(sweeps[1:]), "search_cpu_s": _median_s(searches[1:])}
    print(json.dumps({"benchmark": "fit_sweep", "model": model.name, **figures, **timed}))


if __name__ == "__main__":
    main()
