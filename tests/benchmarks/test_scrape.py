import csv

import pytest
from benchmarks.reference.scrape import canonical_metrics, parse_sample, read_scrape
from hypothesis import example, given, strategies as st

from trimtab.sources.prometheus.dcgm import METRICS


def only(line):
    scrape = read_scrape(line)
    assert not scrape.failed
    return scrape.readings[0]


@pytest.mark.parametrize(
    ("line", "canonical", "value"),
    [
        ('DCGM_FI_DEV_GPU_UTIL{gpu="0"} 25', "gpu_util_ratio", 0.25),
        ('DCGM_FI_DEV_GPU_UTIL_RATIO{gpu="0"} 0.25', "gpu_util_ratio", 0.25),
        ("DCGM_FI_PROF_SM_ACTIVE 0.5", "sm_active_ratio", 0.5),
        ("DCGM_FI_DEV_FB_USED 2", "fb_used_bytes", 2 * 1024**2),
        ("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION 5000", "energy_joules_total", 5.0),
        ("DCGM_FI_DEV_SM_CLOCK 1365", "sm_clock_hertz", 1.365e9),
        ("nvidia_smi_memory_used_bytes 7", "fb_used_bytes", 7.0),
        ('vllm:num_requests_waiting{engine="0"} 3', "requests_waiting", 3.0),
        ("vllm:gpu_cache_usage_perc 0.4", "kv_cache_usage_ratio", 0.4),
        ("sglang:weight_memory_usage_gb 16", "weights_bytes", 16e9),
        ("nv_inference_queue_duration_us 2000000", "queue_time_seconds_total", 2.0),
        ('kube_node_status_capacity{node="n",resource="nvidia_com_gpu"} 8', "node_gpu_capacity", 8.0),
        ("ray_serve_deployment_request_counter_total 9", "requests_total", 9.0),
    ],
)
def test_a_metric_lands_under_its_canonical_name_and_unit(line, canonical, value):
    reading = only(line)

    assert reading.canonical == canonical
    assert reading.value == pytest.approx(value)


def test_a_histogram_comes_in_parts_with_its_bounds_in_seconds():
    reading = only('ray_serve_deployment_processing_latency_ms_bucket{le="250.0"} 4')

    assert (reading.canonical, reading.part, reading.labels["le"], reading.value) == (
        "e2e_latency_seconds",
        "bucket",
        "0.25",
        4.0,
    )


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("# HELP x y", "comment, HELP or TYPE"),
        ("go_goroutines 5", "metric that we do not know"),
        ("vllm:lora_requests_info 1", "metric that we use for nothing"),
        ("vllm:prompt_tokens_created 1.7e9", "moment at which a counter was created"),
        ("DCGM_FI_PROF_SM_ACTIVE 9223372036854775794", "no reading (sentinel or NaN)"),
        ("DCGM_FI_PROF_SM_ACTIVE NaN", "no reading (sentinel or NaN)"),
        ('kube_node_status_capacity{resource="cpu"} 8', "Kubernetes resource that is no GPU"),
    ],
)
def test_every_other_line_is_counted_with_its_reason(line, reason):
    scrape = read_scrape(line)

    assert dict(+scrape.ignored) == {reason: 1}


@pytest.mark.parametrize("line", ["{", "9abc 1", "up", 'up{a="b" 1', "up{a=b} 1", "up one", "up 1 noon", 'up{a="b"}'])
def test_a_line_that_is_not_of_the_format_fails_with_its_number(line):
    scrape = read_scrape(f"up 1\n{line}\n", where="node.prom")

    assert scrape.failed[0].where == "node.prom line 2"


def test_escapes_braces_and_commas_in_label_values_are_text():
    name, labels, value = parse_sample(r'up{a="x\"y\\z\n",b="}{,="} 1 1395066363000')

    assert (name, labels, value) == ("up", {"a": 'x"y\\z\n', "b": "}{,="}, 1.0)


def test_every_metric_of_nvidia_that_collect_asks_for_is_in_the_table():
    asked = {metric.name for metric in METRICS if metric.name.startswith(("DCGM_", "nvidia_"))}

    assert asked
    assert asked <= set(canonical_metrics())


def test_the_samples_are_read_without_a_failure(shared_dir):
    files = sorted((shared_dir / "data" / "telemetry" / "samples").glob("*.prom"))

    for path in files:
        scrape = read_scrape(path.read_text())
        assert not scrape.failed, path.name
        assert len(scrape.readings) + scrape.ignored.total() == scrape.lines
    assert len(files) == 9


def test_a_t4_of_the_samples_reads_as_its_file_says(shared_dir):
    scrape = read_scrape((shared_dir / "data" / "telemetry" / "samples" / "dcgm_t4_4gpu.prom").read_text())

    clocks = {
        reading.labels["gpu"]: reading.value for reading in scrape.readings if reading.canonical == "sm_clock_hertz"
    }
    assert clocks == {"0": 1.365e9, "1": 3e8, "2": 3e8, "3": 3e8}


def test_every_canonical_metric_of_the_wire_is_known(shared_dir):
    with (shared_dir / "data" / "telemetry" / "metric_names.csv").open(newline="") as stream:
        rows = [row for row in csv.DictReader(stream) if row["source"].startswith(("dcgm", "vllm", "sglang", "tgi"))]
    known = canonical_metrics()

    assert [row["metric"] for row in rows if row["metric"] not in known] == []
    assert all(known[row["metric"]].canonical == row["canonical"] for row in rows)


FACTORS = {"%": 0.01, "MiB": 2**20, "mJ": 1e-3, "MHz": 1e6, "us": 1e-6, "ms": 1e-3, "ns": 1e-9}
"""Unit as its exporter states it -> factor to the canonical one; every other unit is canonical already."""
EXPORTERS = (
    "dcgm-exporter",
    "nvidia_gpu_exporter",
    "kube-state-metrics",
    "vllm",
    "sglang",
    "triton",
    "tgi",
    "ray serve",
)


def test_every_metric_with_a_canonical_name_lands_under_it_with_its_value_in_its_unit(shared_dir):
    with (shared_dir / "data" / "telemetry" / "metric_names.csv").open(newline="") as stream:
        rows = [row for row in csv.DictReader(stream) if row["canonical"] and row["source"].startswith(EXPORTERS)]
    read = 0
    for row in rows:
        metric = canonical_metrics().get(row["metric"])
        if metric is None:
            assert row["canonical"] == "(as DCGM)" or "*" in row["metric"], row
            continue
        part = "_sum" if metric.kind == "histogram" else ""
        factor = 1e9 if row["metric"].endswith("_gb") else FACTORS.get(row["unit"], 1.0)

        reading = only(f'{row["metric"]}{part}{{resource="nvidia_com_gpu"}} 8')

        assert reading.canonical == row["canonical"]
        assert reading.value == pytest.approx(8 * factor, rel=1e-12)
        read += 1
    assert read >= 140


label_texts = st.text(max_size=12)


@given(st.dictionaries(st.from_regex(r"[a-z_][a-z0-9_]{0,5}", fullmatch=True), label_texts, max_size=4), st.floats())
def test_what_is_written_reads_back(labels, value):
    escaped = {
        name: text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n") for name, text in labels.items()
    }
    line = "up{" + ",".join(f'{name}="{text}"' for name, text in escaped.items()) + "} " + repr(value)

    _, read, number = parse_sample(line)

    assert read == labels
    assert number == value or value != value


@given(st.text(alphabet=st.sampled_from('ab{}=",\\ 1.#\n_:eEN'), max_size=120))
@example('a{a="' + "\\" * 60)
def test_any_text_is_counted_line_by_line(text):
    scrape = read_scrape(text)

    assert len(scrape.readings) + scrape.ignored.total() + len(scrape.failed) == scrape.lines
