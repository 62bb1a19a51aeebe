"""What measured rows leave open, and how it is filled in."""

from benchmarks.perf_rows import least_tensor_parallel

from trimtab.catalog import load_catalog
from trimtab.physics.formats import WeightFormat
from trimtab.physics.models import model_named

GPUS = load_catalog()


def test_the_smallest_tensor_parallel_degree_leaves_room_for_the_cache():
    seventy = model_named("llama-3-70b")

    assert least_tensor_parallel(seventy, WeightFormat.FP8, GPUS.gpu("H200-SXM-141GB"), 8) == 1
    assert least_tensor_parallel(seventy, WeightFormat.BF16, GPUS.gpu("H100-SXM5-80GB"), 8) == 4
