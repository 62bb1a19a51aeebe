"""The share of prompt tokens that a prefix cache finds: counted, or by blocks that repeat."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from trimtab.errors import InputError
from trimtab.sources.demo import trace_fleet
from trimtab.sources.traces.request_mix import read_request_mix
from trimtab.tables.bundle import BundleMeta, write_bundle
from trimtab.tables.workloads import Workloads

MOONCAKE = Path(__file__).parents[3] / "shared" / "data" / "traces" / "requests" / "mooncake_conversation.parquet"


def trace_of(folder, **columns):
    path = folder / "trace.parquet"
    number = len(next(iter(columns.values())))
    pq.write_table(
        pa.table({"t_s": [float(at) for at in range(number)], "output_tokens": [10] * number, **columns}), path
    )
    return path


def test_counted_tokens_are_a_share_of_all_prompts(tmp_path):
    path = trace_of(tmp_path, input_tokens=[100, 300, 100], cached_tokens=[0, 150, None])

    assert read_request_mix(path).cached_frac == pytest.approx(150 / 400)


def test_blocks_that_came_before_are_found_up_to_the_first_that_did_not(tmp_path):
    blocks = [[1, 2, 3], [1, 2, 9], [7, 2, 3], [1, 2, 3]]
    path = trace_of(tmp_path, input_tokens=[48, 48, 48, 40], prefix_block_ids=blocks)

    # blocks of 16: two of the second prompt, none of the third, all 40 tokens of the last
    assert read_request_mix(path).cached_frac == pytest.approx((32 + 0 + 40) / 184)


def test_a_trace_without_either_tells_nothing(tmp_path):
    path = trace_of(tmp_path, input_tokens=[48, 48])

    assert read_request_mix(path).cached_frac is None


def test_more_cached_than_asked_is_refused_with_its_row(tmp_path):
    path = trace_of(tmp_path, input_tokens=[48, 48], cached_tokens=[0, 49])

    with pytest.raises(InputError, match="row 3: 49 cached tokens of 48"):
        read_request_mix(path)


@pytest.mark.skipif(not MOONCAKE.is_file(), reason="the recorded trace is not here")
def test_the_recorded_conversations_repeat_as_their_owners_say():
    """Mooncake (FAST 2025), table of traces: 12,035 tokens in, 343 out, about 40 % of them cached without a limit."""
    mix = read_request_mix(MOONCAKE)

    assert mix.input_tokens == pytest.approx(12_035, abs=1)
    assert mix.output_tokens == pytest.approx(343, abs=1)
    assert mix.cached_frac == pytest.approx(0.40, abs=0.03)


def test_a_bundle_tells_what_its_servers_counted(tmp_path):
    path = trace_of(tmp_path, input_tokens=[200] * 600, cached_tokens=[50] * 600)
    tables, workloads, meta = trace_fleet(path)
    # half of the intervals come from a server that does not count cached tokens
    demand = tables["demand"]
    cached = [value if at % 2 else None for at, value in enumerate(demand["cached_tokens"].to_pylist())]
    place = demand.column_names.index("cached_tokens")
    demand = demand.set_column(place, "cached_tokens", pa.array(cached, pa.float64()))
    write_bundle(
        tmp_path / "fleet",
        {**tables, "demand": demand},
        BundleMeta.model_validate(meta),
        Workloads.model_validate(workloads),
    )

    assert read_request_mix(tmp_path / "fleet").cached_frac == pytest.approx(0.25)
