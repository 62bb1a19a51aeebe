"""How fast price lists and cloud monitors are read: an EC2 offer file, and CloudWatch on loopback.

python -m benchmarks.clouds --rows 700000 --gpus 400 --days 14
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import threading
import time
from collections.abc import Iterator
from datetime import date
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from trimtab.catalog import load_catalog
from trimtab.sources.clouds.aws import CloudWatch
from trimtab.sources.clouds.fleet import cloud_fleet
from trimtab.sources.hour_grid import HourGrid
from trimtab.sources.price_lists import PriceReading
from trimtab.sources.price_lists.aws import csv_lines, term_rates
from trimtab.units import BYTES_PER_MIB, HR_PER_DAY, MIB_PER_GIB, S_PER_HR

_HEADER = (
    "SKU,OfferTermCode,TermType,Unit,PricePerUnit,Currency,LeaseContractLength,PurchaseOption,OfferingClass,Instance Type,"
    "Tenancy,Operating System,Pre Installed S/W,CapacityStatus"
)
_ROW = (
    '"S{number}","JRTCKXETXF","OnDemand","Hrs","{price}","USD","","","","{name}","Shared","Linux","NA","Used",'
    + ",".join(['"an attribute"'] * 20)
)
_NAMES = ("nvidia_smi_utilization_gpu", "nvidia_smi_power_draw", "nvidia_smi_memory_used", "nvidia_smi_memory_total")
_BOARDS_PER_MACHINE = 8
_START_S = 497_222 * S_PER_HR


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=700_000)
    parser.add_argument("--gpus", type=int, default=400)
    parser.add_argument("--days", type=int, default=14)
    given = parser.parse_args()
    _offer_file(given.rows)
    _cloudwatch(given.gpus, given.days * HR_PER_DAY)


def _offer_file(rows: int) -> None:
    types = frozenset(one.name for one in load_catalog().instance_types if one.provider == "aws")
    known, reading, size = sorted(types), PriceReading(), 0

    def lines() -> Iterator[str]:
        nonlocal size
        yield _HEADER
        for number in range(rows):
            name = known[number % len(known)] if number % 20 == 0 else "m5.large"
            line = _ROW.format(number=number, price=number % 97 + 1, name=name)
            size += len(line) + 1
            yield line

    before, begun_s = _peak_mib(), time.process_time()
    term_rates(csv_lines(lines(), "us-east-1", types, "made up", reading), types, date(2026, 11, 20), reading)
    spent_s = time.process_time() - begun_s
    print(
        f"offer file: {rows:,} rows, {size / BYTES_PER_MIB:.0f} MiB: {spent_s:.1f} CPU s, {_peak_mib() - before:.0f} MiB more"
    )


def _cloudwatch(gpus: int, hours: int) -> None:
    os.environ.update(AWS_ACCESS_KEY_ID="none", AWS_SECRET_ACCESS_KEY="none")
    catalog, grid = load_catalog(), HourGrid(start_s=_START_S, hours=hours)
    asked = [0]
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(gpus, hours, asked))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    begun_s = time.perf_counter()
    monitor = CloudWatch(region="us-east-1", endpoint=f"http://127.0.0.1:{server.server_address[1]}")
    fleet = cloud_fleet(monitor.read(grid, lambda stage, done: None), catalog)
    spent_s = time.perf_counter() - begun_s
    server.shutdown()
    print(
        f"CloudWatch: {gpus} GPUs, {hours} hours: {spent_s:.1f} s with the server in the same process, {asked[0]} requests, "
        f"{fleet.tables['gpu_usage'].num_rows:,} rows, peak {_peak_mib():.0f} MiB"
    )


def _handler(gpus: int, hours: int, asked: list[int]) -> type[BaseHTTPRequestHandler]:
    times = [_START_S + S_PER_HR * hour for hour in range(hours)]

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

        def do_POST(self) -> None:
            """Answer ListMetrics, GetMetricData and DescribeInstances."""
            asked[0] += 1
            body = self.rfile.read(int(self.headers["Content-Length"]))
            operation = (self.headers["X-Amz-Target"] or "").rpartition(".")[2]
            answer = (
                _described() if not operation else json.dumps(_told(operation, json.loads(body), gpus, times)).encode()
            )
            self.send_response(200)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

    return Handler


def _described() -> bytes:
    return b'<DescribeInstancesResponse xmlns="http://ec2.amazonaws.com/doc/2016-11-15/"><reservationSet/></DescribeInstancesResponse>'


def _told(operation: str, question: dict[str, object], gpus: int, times: list[int]) -> dict[str, object]:
    if operation == "ListMetrics":
        if question["MetricName"] not in _NAMES:
            return {"Metrics": []}
        return {
            "Metrics": [{"MetricName": question["MetricName"], "Dimensions": _dimensions(one)} for one in range(gpus)]
        }
    queries = question["MetricDataQueries"]
    if not isinstance(queries, list):
        raise TypeError("GetMetricData without queries")
    values = [float(MIB_PER_GIB % 97)] * len(times)
    results = [{"Id": one["Id"], "Timestamps": times, "Values": values, "StatusCode": "Complete"} for one in queries]
    return {"MetricDataResults": results}


def _dimensions(board: int) -> list[dict[str, str]]:
    machine, index = divmod(board, _BOARDS_PER_MACHINE)
    told = {"InstanceId": f"i-{machine}", "InstanceType": "g6.48xlarge", "index": str(index), "name": "NVIDIA L4"}
    return [{"Name": name, "Value": value} for name, value in told.items()]


def _peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / MIB_PER_GIB


if __name__ == "__main__":
    main()
