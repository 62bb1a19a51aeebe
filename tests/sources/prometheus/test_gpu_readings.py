import re
from urllib.parse import parse_qs

import httpx
import numpy as np
import pytest

from trimtab.sources.hour_grid import Cube, HourGrid, UsageKey
from trimtab.sources.prometheus.client import Prometheus
from trimtab.sources.prometheus.dcgm import METRICS
from trimtab.sources.prometheus.gpu_readings import HourlyValues, collect_counts, nearest_step_s, sound_readings
from trimtab.sources.prometheus.gpu_series import Tally

GRID = HourGrid(start_s=0, hours=2)
SM = next(metric for metric in METRICS if metric.name == "DCGM_FI_PROF_SM_ACTIVE")
DEVICES = [f"GPU-{number:04x}" for number in range(40)] + ["GPU-X"]


def stingy(request):
    """A server that answers for at most five boards at a time."""
    form = {key: values[0] for key, values in parse_qs(request.content.decode()).items()}
    wanted = DEVICES
    for operator, pattern in re.findall(r'UUID(=~|!~)"([^"]*)"', form["query"]):
        wanted = [one for one in wanted if bool(re.fullmatch(pattern, one)) == (operator == "=~")]
    if len(wanted) > 5:
        return httpx.Response(422, json={"status": "error", "error": "query would load too many samples into memory"})
    times = np.arange(float(form["start"]), float(form["end"]) + 1, float(form["step"]))
    values = [[time, "12"] for time in times.tolist()]
    result = [{"metric": {"UUID": one, "Hostname": "n"}, "values": values} for one in wanted]
    return httpx.Response(200, json={"status": "success", "data": {"resultType": "matrix", "result": result}})


def test_a_server_that_refuses_one_hour_of_all_boards_is_asked_by_shards():
    server = Prometheus("http://prometheus.test", transport=httpx.MockTransport(stingy))
    cube = Cube(grid=GRID)

    collect_counts(HourlyValues(server=server).ask, SM, cube, Tally())

    counts = {key: cube.of("samples", key).tolist() for key in cube.keys("samples")}
    assert counts == {UsageKey(device, "", ""): [12.0, 12.0] for device in DEVICES}


@pytest.mark.parametrize(
    ("seen_s", "step_s"), [(15.06, 15.0), (59.0, 60.0), (300.0, 300.0), (7.3, 7.3), (29.6, 30.0), (3600.0, 3600.0)]
)
def test_jitter_does_not_change_the_scrape_interval(seen_s, step_s):
    assert nearest_step_s(seen_s) == step_s


def test_readings_that_are_none_are_dropped_and_those_above_their_bound_clamped():
    tally = Tally()

    kept = sound_readings(np.array([0.5, np.nan, -1.0, 9223372036854775794.0, 1.3]), SM, tally)

    assert kept.tolist() == [0.5, 1.0]
    assert tally.counts == {
        "DCGM_FI_PROF_SM_ACTIVE: readings dropped (sentinel, NaN or negative)": 3,
        "DCGM_FI_PROF_SM_ACTIVE: readings clamped to their bound": 1,
    }
