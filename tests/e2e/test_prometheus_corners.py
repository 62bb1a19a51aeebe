"""Corners of real telemetry, each a few series on a real server: MIG, shared boards, other exporters, other servers."""

from datetime import UTC, datetime, timedelta

import numpy as np
import pyarrow.compute as pc
import pytest
from tests.e2e.conftest import RunningPrometheus, backfill_text, collected_from

from trimtab.errors import SourceError
from trimtab.sources.prometheus.client import Prometheus
from trimtab.sources.prometheus.doctor import probe

pytestmark = pytest.mark.prometheus

START = datetime(2026, 9, 1, tzinfo=UTC)
HOURS = 6
STEP_S = 60
STEPS = HOURS * 60
HOUR = timedelta(hours=1)


class Page:
    """OpenMetrics text, a series at a time; NaN is no sample."""

    def __init__(self):
        self.lines = []

    def add(self, name, value, span=slice(0, STEPS), **labels):
        values = np.full(STEPS, np.nan)
        values[span] = value[span] if isinstance(value, np.ndarray) else value
        text = ",".join(f'{key}="{one}"' for key, one in labels.items())
        for step in np.flatnonzero(~np.isnan(values)):
            self.lines.append(f"{name}{{{text}}} {float(values[step])!r} {int(START.timestamp()) + step * STEP_S}\n")


def mig(page):
    """One A100 in two instances; GPU_UTIL is 0 and power is repeated on each."""
    board = {"UUID": "GPU-mig", "gpu": "0", "modelName": "NVIDIA A100-SXM4-40GB", "Hostname": "mig-node"}
    for number, profile, pod, engine in ((7, "1g.5gb", "small", 0.5), (5, "3g.20gb", "large", 0.9)):
        labels = {**board, "GPU_I_ID": number, "GPU_I_PROFILE": profile, "namespace": "ml", "pod": f"{pod}-0"}
        page.add("DCGM_FI_DEV_GPU_UTIL", 0.0, **labels)
        page.add("DCGM_FI_PROF_GR_ENGINE_ACTIVE", engine, **labels)
        page.add("DCGM_FI_DEV_POWER_USAGE", 300.0, **labels)
        page.add("DCGM_FI_DEV_FB_USED", 1024.0, **labels)
        page.add("DCGM_FI_DEV_FB_FREE", 3840.0, **labels)


def shared(page):
    """One T4 that two pods share by time-slicing: every reading comes twice."""
    for pod in ("a", "b"):
        labels = {"UUID": "GPU-shared", "gpu": "0", "modelName": "Tesla T4", "Hostname": "shared-node"}
        page.add("DCGM_FI_DEV_GPU_UTIL", 80.0, **labels, namespace="ml", pod=f"slice-{pod}-0")


def told_twice(page):
    """A T4 that two exporters tell: one of them hangs on its first reading. Another that both tell alike."""
    for number, stale in (("hung", 5.0), ("alike", 71.0)):
        board = {"UUID": f"GPU-{number}", "gpu": "0", "modelName": "Tesla T4", "Hostname": f"{number}-node"}
        for instance, value in (("10.0.0.1:9400", 70.0), ("10.0.0.2:9400", stale)):
            page.add("DCGM_FI_DEV_GPU_UTIL", value, **board, namespace="ml", pod=f"{number}-0", instance=instance)


def nvidia_smi(page):
    """One GPU behind nvidia_gpu_exporter, named by its instance alone."""
    labels = {"uuid": "GPU-smi", "instance": "smi-node:9835"}
    page.add("nvidia_smi_utilization_gpu_ratio", 0.25, **labels)
    page.add("nvidia_smi_memory_used_bytes", 2.0 * 1024**3, **labels)
    page.add("nvidia_smi_memory_total_bytes", 16.0 * 1024**3, **labels)
    page.add("nvidia_smi_energy_joules_total", np.arange(STEPS) * 60.0 * 100.0, **labels)


def unlabelled(page):
    """A node whose DCGM names no pod: requests and phases tell who held it; kube-state-metrics without honorLabels."""
    page.add("DCGM_FI_DEV_GPU_UTIL", 40.0, UUID="GPU-bare", gpu="0", modelName="Tesla T4", Hostname="bare-node")
    scraped = {"namespace": "monitoring", "pod": "kube-state-metrics-0", "exported_namespace": "ml"}
    page.add("kube_node_info", 1.0, node="bare-node", provider_id="gce://p/us-central1-a/bare-node")
    page.add("kube_node_info", 1.0, node="mig-node", provider_id="aws:///us-east-1b/i-1")
    request = {**scraped, "exported_pod": "run-x7k2p", "node": "bare-node", "resource": "nvidia_com_gpu"}
    page.add("kube_pod_container_resource_requests", 1.0, slice(0, STEPS), **request, container="c")
    phase = {**scraped, "exported_pod": "run-x7k2p", "phase": "Running"}
    page.add("kube_pod_status_phase", np.where(np.arange(STEPS) < 150, 1.0, 0.0), **phase)
    page.add("kube_pod_owner", 1.0, **scraped, exported_pod="run-x7k2p", owner_kind="Job", owner_name="run")


def pod_named(page):
    """A node whose exporter takes its own pod's name for the host's."""
    labels = {"UUID": "GPU-named", "gpu": "0", "modelName": "Tesla T4", "Hostname": "nvidia-dcgm-exporter-tl46n"}
    page.add("DCGM_FI_DEV_GPU_UTIL", 10.0, **labels, namespace="ml", pod="named-0")
    page.add("kube_pod_info", 1.0, namespace="gpu-operator", pod="nvidia-dcgm-exporter-tl46n", node="named-node")
    page.add("kube_node_info", 1.0, node="named-node", provider_id="aws:///us-east-1b/i-2")


def servers(page):
    """An SGLang service with pods, and a Ray Serve deployment without."""
    pod = {"namespace": "prod", "pod": "sg-0", "model_name": "m"}
    page.add("sglang:num_running_reqs", 2.0, **pod)
    page.add("sglang:num_queue_reqs", 1.0, **pod)
    page.add("sglang:token_usage", 0.4, **pod)
    page.add("sglang:num_requests_total", np.arange(STEPS) * 30.0, **pod)
    ray = {"application": "shop", "deployment": "Ranker", "job": "ray"}
    page.add("ray_serve_num_ongoing_requests_at_replicas", 3.0, **ray)
    page.add("ray_serve_deployment_request_counter_total", np.arange(STEPS) * 6.0, **ray)
    for bound, share in (("100.0", 0.5), ("1000.0", 1.0), ("+Inf", 1.0)):
        name = "ray_serve_deployment_processing_latency_ms_bucket"
        page.add(name, np.arange(STEPS) * 6.0 * share, **ray, le=bound)


def more_servers(page):
    """A vLLM V1 service on two GPUs that estimates its work, a TGI service, a Triton service: a request every few seconds."""
    vllm = {"namespace": "prod", "pod": "vl-0", "model_name": "m"}
    page.add("vllm:num_requests_running", 4.0, **vllm, engine="0")
    for reason, rate in (("stop", 30.0), ("abort", 6.0)):
        page.add("vllm:request_success_total", np.arange(STEPS) * rate, **vllm, engine="0", finished_reason=reason)
    for engine, share in (("0", 0.5), ("1", 1.5)):
        for name, rate in (("flops", 6e15), ("read_bytes", 9e13), ("write_bytes", 3e12)):
            counter = np.arange(STEPS) * rate * share
            page.add(f"vllm:estimated_{name}_per_gpu_total", counter, **vllm, engine=engine)
    tgi = {"namespace": "prod", "pod": "tg-0"}
    page.add("tgi_batch_current_size", 3.0, **tgi)
    page.add("tgi_queue_size", 2.0, **tgi)
    for name, rate in (("tgi_request_count", 13.0), ("tgi_request_success", 12.0), ("tgi_request_failure", 1.0)):
        page.add(name, np.arange(STEPS) * rate, **tgi)
    for name, mean in (("tgi_request_input_length", 200.0), ("tgi_request_generated_tokens", 50.0)):
        page.add(f"{name}_sum", np.arange(STEPS) * 12.0 * mean, **tgi)
        page.add(f"{name}_count", np.arange(STEPS) * 12.0, **tgi)
    for bound, share in (("0.5", 0.25), ("2.0", 1.0), ("+Inf", 1.0)):
        page.add("tgi_request_duration_bucket", np.arange(STEPS) * 12.0 * share, **tgi, le=bound)
    batcher = {"namespace": "prod", "pod": "own-0", "batcher": "embed"}
    page.add("trimtab_batcher_running", 4.0, **batcher)
    page.add("trimtab_batcher_waiting", 2.0, **batcher)
    for outcome, each in (("answered", 10.0), ("failed", 1.0), ("refused_full", 2.0)):
        page.add("trimtab_batcher_requests_total", np.arange(STEPS) * each, **batcher, outcome=outcome)
    for bound, share in (("0.1", 5.0), ("0.5", 10.0), ("+Inf", 11.0)):
        page.add("trimtab_batcher_latency_seconds_bucket", np.arange(STEPS) * share, **batcher, le=bound)
    triton = {"namespace": "prod", "pod": "tr-0", "model": "bert", "version": "1"}
    page.add("nv_inference_pending_request_count", 5.0, **triton)
    page.add("nv_inference_request_success", np.arange(STEPS) * 20.0, **triton)
    page.add("nv_inference_request_failure", np.arange(STEPS) * 1.0, **triton, reason="OTHER")
    for bound, share in (("100.0", 0.5), ("+Inf", 1.0)):
        name = "nv_inference_first_response_histogram_ms_bucket"
        page.add(name, np.arange(STEPS) * 20.0 * share, **triton, le=bound)


def scraped_twice(page):
    """A vLLM pod that a ServiceMonitor and a PodMonitor read, and one whose two containers are two targets."""
    for job, port, pod in (
        ("chat", 8000, "tw-0"),
        ("ml/chat", 8000, "tw-0"),
        ("two", 8000, "on-0"),
        ("two", 8001, "on-0"),
    ):
        labels = {"namespace": "twice", "pod": pod, "model_name": "m", "job": job, "instance": f"10.1.0.7:{port}"}
        page.add("vllm:num_requests_running", 2.0, **labels, engine="0")
        page.add("vllm:request_success_total", np.arange(STEPS) * 30.0, **labels, engine="0", finished_reason="stop")


def amd(page):
    """Two MI300X as AMD's exporter tells them, one held, scraped without honorLabels; and a board that has a number alone."""
    own = {"namespace": "amd", "pod": "amd-device-metrics-exporter-x2k4p"}
    for number, pod in ((0, {"exported_namespace": "ml", "exported_pod": "tune-0"}), (1, {})):
        board = {
            "gpu_id": number, "gpu_uuid": f"ccff74a1-{number}", "serial_number": f"69240900540{number}",
            "card_series": "AMD Instinct MI300X OAM", "card_model": "102-G30211-0C", "card_vendor": "AMD",
            "gpu_partition_id": 0, "gpu_compute_partition_type": "spx", "hostname": "tw038",
        }  # fmt: skip
        page.add("gpu_gfx_activity", 60.0 * (1 - number), **board, **own, **pod)
        page.add("gpu_umc_activity", 30.0, **board, **own, **pod)
        page.add("gpu_used_vram", 98304.0, **board, **own, **pod)
        page.add("gpu_total_vram", 196608.0, **board, **own, **pod)
        page.add("gpu_package_power", 500.0, **board, **own, **pod)
        page.add("gpu_energy_consumed", np.arange(STEPS) * 60.0 * 500e6, **board, **own, **pod)
    short = {"gpu_id": 3, "card_model": "MI355X", "hostname": "tw039"}
    page.add("amd_gpu_gfx_activity", 20.0, **short, namespace="ml", pod="short-0")


def neuron(page):
    """A trn1.32xlarge of which a program runs on chip 5 and on one core of chip 6; Kubernetes tells whose chips these are.

    Labels and values as neuron-monitor-prometheus.py of aws-neuronx-tools writes them (the scrape in
    open-telemetry/opentelemetry-collector-contrib, receiver/awscontainerinsightreceiver/internal/neuron).
    """
    machine = {
        "availability_zone": "us-east-1c", "instance_id": "i-09db9b55e0095612f", "instance_name": "",
        "instance_type": "trn1.32xlarge", "region": "us-east-1", "subnet_id": "subnet-06a7754948e8a000f",
        "namespace": "neuron-monitor", "pod": "neuron-monitor-27h2p",
    }  # fmt: skip
    page.add("neuron_hardware_info", 1.0, **machine, neuron_device_count=16, neuroncore_per_device_count=2)
    for core, share in ((10, 0.2), (11, 0.6), (12, 0.5)):
        page.add("neuroncore_utilization_ratio", share, **machine, neuroncore=core, runtime_tag=367)
        page.add("neuroncore_memory_usage_tensors", 6.3e6, **machine, neuroncore=core, runtime_tag=367)
    node = {"node": "ip-10-0-1-7.ec2.internal"}
    page.add("kube_node_info", 1.0, **node, provider_id="aws:///us-east-1c/i-09db9b55e0095612f")
    labels = {
        "label_node_kubernetes_io_instance_type": "trn1.32xlarge",
        "label_topology_kubernetes_io_region": "us-east-1",
    }
    page.add("kube_node_labels", 1.0, **node, **labels)
    for resource, amount in (("neuron", 16), ("neurondevice", 16), ("neuroncore", 32)):
        page.add(
            "kube_node_status_capacity", float(amount), **node, resource=f"aws_amazon_com_{resource}", unit="integer"
        )
    for pod, resource, amount in (("pretrain-0", "neuron", 4), ("embed-0", "neuroncore", 6)):
        asked = {"namespace": "ml", "pod": pod, **node, "resource": f"aws_amazon_com_{resource}", "container": "c"}
        page.add("kube_pod_container_resource_requests", float(amount), **asked)
        page.add("kube_pod_status_phase", 1.0, namespace="ml", pod=pod, phase="Running")


def tpu(page):
    """A v6e node: chip 0 is held by a pod whose runtime tells of it, chip 1 by nobody, which the host tells.

    Names and labels as in pkg/metrics/prom_metrics.go of ai-on-gke/tpu-device-plugin at 4626a9f4; scraped without honorLabels.
    """
    own = {"namespace": "kube-system", "pod": "tpu-device-plugin-4x8kd", "node": "gke-tpu-1"}
    for number, busy in ((0, 70.0), (1, 0.0)):
        chip = {
            "make": "cloud-tpu", "accelerator_id": f"4804690994094478883-{number}", "model": "tpu-v6e-slice",
            "tpu_topology": "2x4",
        }  # fmt: skip
        page.add("tensorcore_utilization_node", busy / 2, **chip, **own)
        page.add("memory_bandwidth_utilization_node", busy / 2, **chip, **own)
        if not busy:
            continue
        holder = {"exported_namespace": "ml", "exported_pod": "jax-0", "exported_container": "train"}
        page.add("duty_cycle_node", busy, **chip, **own)
        page.add("duty_cycle", busy, **chip, **own, **holder)
        page.add("tensorcore_utilization", busy / 2, **chip, **own, **holder)
        page.add("memory_bandwidth_utilization", 20.0, **chip, **own, **holder)
        page.add("memory_used", 8.0 * 1024**3, **chip, **own, **holder)
        page.add("memory_total", 31.25 * 1024**3, **chip, **own, **holder)
    page.add("memory_used", 5e9, make="nvidia", accelerator_id="GPU-theirs", model="nvidia-l4", pod="gke-dcgm")


def intel(page):
    """A Max 1550 behind XPU Manager, a series a tile beside the board's, and a Gaudi3 that nobody holds.

    Names and labels as in rest/prometheus_exporter/prometheus_exporter.py of intel/xpumanager at 57e44f55 and in the Prometheus
    metric exporter of Gaudi 1.23.
    """
    board = {
        "uuid": "00000000-0000-003f-0000-002f0bd58086", "dev_name": "Intel(R) Data Center GPU Max 1550", "pci_dev": "0x0bd5",
        "vendor": "Intel(R) Corporation", "pci_bdf": "0000:3f:00.0", "dev_file": "card1", "node": "xpu-1",
        "kube_pod": "sycl-0", "kube_namespace": "ml", "kube_container": "c", "namespace": "xpum", "pod": "xpu-manager-9s2",
    }  # fmt: skip
    for tile, share in (({}, 0.5), ({"sub_dev": 0}, 0.9), ({"sub_dev": 1}, 0.1)):
        page.add("xpum_engine_ratio", share, **board, **tile)
        page.add("xpum_memory_bandwidth_ratio", share / 2, **board, **tile)
        page.add("xpum_power_watts", 800.0 * share, **board, **tile)
        page.add("xpum_energy_joules_total", np.arange(STEPS) * 60.0 * 800.0 * share, **board, **tile)
    page.add("xpum_power_watts", 400.0, card=2147483649)
    gaudi = {
        "Serial": "AO22013377", "UUID": "01P4-HL3090A0-18-U4V193-22-07-00", "device": "AO22013377", "id": "0",
        "driver": "1.23.0-ab12cd3", "pod_namespace": "", "pod_name": "", "namespace": "habana", "node": "gaudi-1",
        "pod": "habana-metric-exporter-ds-jj2", "instance": "10.0.0.9:41611",
    }  # fmt: skip
    page.add("habanalabs_utilization", 0.0, **gaudi)
    page.add("habanalabs_memory_used_bytes", 1024.0**3, **gaudi)
    page.add("habanalabs_memory_total_bytes", 128 * 1024.0**3, **gaudi)
    page.add("habanalabs_power_mW", 220_000.0, **gaudi)


def gke(page):
    """A GPU whose DCGM runs as part of GKE: exported labels, the node under `node`, the exporter's pod in `pod`."""
    labels = {"UUID": "GPU-gke", "gpu": "0", "modelName": "NVIDIA L4", "cluster": "c", "location": "us-central1"}
    labels |= {"namespace": "gke-managed-system", "pod": "dcgm-exporter-x", "node": "gke-pool-1"}
    labels |= {"exported_namespace": "ml", "exported_pod": "gke-train-0", "exported_container": "main"}
    page.add("DCGM_FI_DEV_GPU_UTIL", 60.0, **labels)
    page.add("DCGM_FI_PROF_SM_ACTIVE", 0.3, **labels)


def kserve(page):
    """A GPU of a pod whose Deployment KServe made, as kube-state-metrics 2.18 tells (`kube_deployment_owner`)."""
    name, replica_set = "chat-predictor", "chat-predictor-7c9f8d6b5"
    pod = {"namespace": "ml", "pod": f"{replica_set}-x2k9p"}
    page.add(
        "DCGM_FI_DEV_GPU_UTIL", 50.0, UUID="GPU-kserve", gpu="0", modelName="NVIDIA L4", Hostname="kserve-node", **pod
    )
    page.add("kube_pod_owner", 1.0, **pod, owner_kind="ReplicaSet", owner_name=replica_set)
    above = {"owner_kind": "Deployment", "owner_name": name, "owner_is_controller": "true"}
    page.add("kube_replicaset_owner", 1.0, namespace="ml", replicaset=replica_set, **above)
    top = {"owner_kind": "InferenceService", "owner_name": "chat", "owner_is_controller": "true"}
    page.add("kube_deployment_owner", 1.0, namespace="ml", deployment=name, **top)


def renamed(page):
    """Two T4s that the device plugin advertises as nvidia.com/t4, of which DCGM's exporter names no pod."""
    node = {"node": "renamed-node"}
    for number in range(2):
        page.add(
            "DCGM_FI_DEV_GPU_UTIL", 0.0, UUID=f"GPU-renamed-{number}", gpu=number, modelName="Tesla T4",
            Hostname="renamed-node",
        )  # fmt: skip
    page.add("kube_node_info", 1.0, **node, provider_id="aws:///us-east-1b/i-77")
    for resource, count in (("nvidia_com_t4", 2.0), ("nvidia_com_hostdev", 4.0), ("nvidia_com_gpu", 0.0)):
        page.add("kube_node_status_capacity", count, **node, resource=resource, unit="integer")
    pod = {"namespace": "ml", "pod": "quiet-0"}
    page.add("kube_pod_container_resource_requests", 1.0, **pod, **node, resource="nvidia_com_t4", container="c")
    page.add("kube_pod_status_phase", 1.0, **pod, phase="Running")
    page.add("kube_pod_info", 1.0, **pod, **node)
    page.add("kube_pod_owner", 1.0, **pod, owner_kind="StatefulSet", owner_name="quiet")
    daemon = {"namespace": "net", "pod": "rdma-x2k4p"}
    page.add(
        "kube_pod_container_resource_requests", 1.0, **daemon, **node, resource="nvidia_com_hostdev", container="c"
    )
    page.add("kube_pod_status_phase", 1.0, **daemon, phase="Running")
    page.add("kube_pod_info", 1.0, **daemon, **node)
    page.add("kube_pod_owner", 1.0, **daemon, owner_kind="DaemonSet", owner_name="rdma")


def quotas(page):
    """Quotas and a LimitRange as kube-state-metrics tells them: by two of its replicas, raised, beside secrets."""
    gpus = {"resourcequota": "team", "resource": "requests.nvidia.com/gpu"}
    for instance in ("10.0.0.1:8080", "10.0.0.2:8080"):
        page.add("kube_resourcequota", 8.0, **gpus, namespace="ml", type="hard", instance=instance)
        page.add("kube_resourcequota", 6.0, **gpus, namespace="ml", type="used", instance=instance)
    memory = {
        "resourcequota": "team",
        "resource": "requests.memory",
        "namespace": "monitoring",
        "exported_namespace": "web",
    }
    raised = np.where(np.arange(STEPS) < 100, 1.0, 2.0) * 64 * 1024**3
    page.add("kube_resourcequota", raised, **memory, type="hard")
    for resource, most in (("secrets", 5.0), ("pods", 20.0)):
        page.add("kube_resourcequota", most, namespace="ml", resourcequota="all", resource=resource, type="hard")
    stated = {"namespace": "ml", "limitrange": "each", "type": "Container", "resource": "nvidia.com/gpu"}
    for instance, most in (("10.0.0.1:8080", 4.0), ("10.0.0.2:8080", 2.0)):
        page.add("kube_limitrange", most, **stated, constraint="max", instance=instance)
    page.add("kube_limitrange", 1.0, **stated, constraint="defaultRequest")
    memory = {
        "namespace": "monitoring",
        "exported_namespace": "web",
        "limitrange": "each",
        "type": "Pod",
        "resource": "memory",
    }
    page.add("kube_limitrange", 2.1 * 1024**3, **memory, constraint="max")
    page.add("kube_limitrange", 2.0, **memory, constraint="maxLimitRequestRatio")
    page.add(
        "kube_limitrange", 1.0, **memory | {"type": "PersistentVolumeClaim", "resource": "storage"}, constraint="max"
    )


@pytest.fixture(scope="module")
def bundle(prometheus_bin, promtool_bin, tmp_path_factory):
    folder = tmp_path_factory.mktemp("corners")
    page = Page()
    exporters = (
        mig,
        shared,
        told_twice,
        nvidia_smi,
        unlabelled,
        pod_named,
        servers,
        more_servers,
        gke,
        amd,
        neuron,
        tpu,
        intel,
    )
    for part in (*exporters, kserve, scraped_twice, quotas, renamed):
        part(page)
    binaries = (prometheus_bin, promtool_bin)
    return collected_from("".join(page.lines), folder, binaries, START, HOURS)


def usage(bundle, device):
    table = bundle.table("gpu_usage")
    return table.filter(pc.equal(table["device"], device)).to_pylist()


def held(bundle, workload):
    table = bundle.table("allocations")
    return table.filter(pc.equal(table["workload"], workload)).to_pylist()


def demand(bundle, workload):
    table = bundle.table("demand")
    return table.filter(pc.equal(table["workload"], workload)).to_pylist()


def test_quotas_are_those_at_the_end_of_the_window_and_have_no_scopes_only_where_they_could_have_none(bundle):
    """An API server refuses a quota of secrets that has scopes; whether the others have some is not told."""
    found = {(row["namespace"], row["resource"]): row for row in bundle.table("resource_quotas").to_pylist()}

    assert {key: (row["hard"], row["used"], row["scopes"]) for key, row in found.items()} == {
        ("ml", "requests.nvidia.com/gpu"): (8.0, 6.0, "unknown"),
        ("web", "requests.memory"): (128.0, None, "unknown"),
        ("ml", "pods"): (20.0, None, None),
    }


def test_limit_ranges_are_the_strictest_that_was_told_with_the_defaults_of_an_api_server(bundle):
    gpus, memory = sorted(bundle.table("limit_ranges").to_pylist(), key=lambda row: row["namespace"])

    assert gpus == {
        "namespace": "ml", "name": "each", "place": None, "type": "Container", "resource": "nvidia.com/gpu",
        "min": None, "max": 2.0, "default_limit": 2.0, "default_request": 1.0, "max_ratio": None,
    }  # fmt: skip
    assert (memory["namespace"], memory["type"], memory["max"], memory["max_ratio"]) == ("web", "Pod", 2.1, 2.0)


def test_a_pod_that_asks_for_gpus_under_another_name_holds_them_and_is_no_stray(bundle):
    (row,) = held(bundle, "ml/quiet")

    assert (row["node"], row["gpus"]) == ("renamed-node", 1.0)
    assert held(bundle, "net/rdma") == []


def test_exporters_that_disagree_about_a_board_are_counted_and_their_mean_is_taken(bundle):
    key = "DCGM_FI_DEV_GPU_UTIL: GPUs for which two exporters report shares 10 points or more apart, counted as their mean"

    assert bundle.meta.counts[key] == 1
    assert {round(row["gpu_util_mean"], 4) for row in usage(bundle, "GPU-hung")} == {0.375}
    assert {round(row["gpu_util_mean"], 4) for row in usage(bundle, "GPU-alike")} == {0.705}


def test_a_pod_that_two_scrape_jobs_read_is_read_from_one_and_two_targets_of_a_pod_are_added_up(bundle):
    (told,) = [name for name in bundle.meta.counts if name.startswith("services whose pods several scrape jobs read")]
    of = {}
    for row in bundle.table("demand").to_pylist():
        if row["workload"].startswith("twice/"):
            of.setdefault(row["workload"], []).append(row)
    once, both = of["twice/tw"], of["twice/on"]

    assert bundle.meta.counts[told] == 1
    assert {row["scrape_job"] for row in once} == {"chat"}
    assert {row["scrape_job"] for row in both} == {None}
    # each series rises by 30 a step: two targets answer twice what one does, and two jobs no more than one
    answered, of_two = (sum(row["completed"] or 0.0 for row in rows) for rows in (once, both))
    assert of_two == pytest.approx(2 * answered)
    assert {row["running_mean"] for row in once} == {2.0}


def test_a_mig_instance_has_its_own_activity_and_memory_and_no_power(bundle):
    device = {row["device"]: row for row in bundle.table("devices").to_pylist()}["GPU-mig/7"]
    rows = usage(bundle, "GPU-mig/7")

    assert (device["mig_profile"], device["memory_gib"]) == ("1g.5gb", 4.75)
    assert {row["gpu_util_mean"] for row in rows} == {0.5}
    assert {row["power_w_mean"] for row in rows} == {None}


def test_a_mig_instance_holds_its_slices_of_the_board(bundle):
    assert held(bundle, "ml/small")[0]["gpus"] == pytest.approx(1 / 7)
    assert held(bundle, "ml/large")[0]["gpus"] == pytest.approx(3 / 7)


def test_pods_that_share_a_board_hold_equal_parts_of_it(bundle):
    rows = [row for name in ("ml/slice-a", "ml/slice-b") for row in held(bundle, name)]

    assert [row["gpus"] for row in rows] == [0.5, 0.5]


def test_another_exporters_names_units_and_node_are_read(bundle):
    rows = usage(bundle, "GPU-smi")
    device = {row["device"]: row for row in bundle.table("devices").to_pylist()}["GPU-smi"]

    assert (device["node"], device["memory_gib"]) == ("smi-node", 16.0)
    assert rows[0]["gpu_util_mean"] == 0.25
    assert rows[0]["memory_used_gib_mean"] == 2.0
    # 100 W for an hour
    assert rows[1]["energy_kwh"] == pytest.approx(0.1, rel=0.02)


def test_where_dcgm_names_no_pod_the_running_pods_requests_tell(bundle):
    (row,) = held(bundle, "ml/run")

    assert (row["node"], row["gpus"], row["device"]) == ("bare-node", 1.0, None)
    assert row["end"] == START + timedelta(minutes=150)


def test_a_deployment_of_kserve_is_known_as_its_inference_service(bundle):
    (row,) = held(bundle, "ml/chat-predictor")

    assert row["owner_kind"] == "InferenceService"


def test_nodes_without_labels_keep_what_their_provider_id_says(bundle):
    nodes = {row["node"]: row for row in bundle.table("nodes").to_pylist()}

    assert (nodes["bare-node"]["provider"], nodes["bare-node"]["region"]) == ("gcp", "us-central1")
    assert nodes["bare-node"]["instance_type"] == "unknown"
    assert any("instance type" in reason for reason in bundle.meta.counts)


def test_nodes_that_only_telemetry_saw_are_there_as_unknown(bundle):
    nodes = {row["node"]: row for row in bundle.table("nodes").to_pylist()}

    assert nodes["shared-node"]["provider"] == "unknown"
    assert nodes["shared-node"]["gpu_count"] == 1
    assert nodes["shared-node"]["end"] is None


def test_other_servers_land_in_the_same_demand(bundle):
    sglang, ray = demand(bundle, "prod/sg"), demand(bundle, "default/shop")

    assert sglang[10]["completed"] == 30.0
    assert (sglang[10]["running_mean"], sglang[10]["waiting_mean"], sglang[10]["kv_cache_frac_max"]) == (2.0, 1.0, 0.4)
    assert ray[10]["completed"] == 6.0
    buckets = bundle.table("demand", ["workload", "latency_le_s", "latency_count"])
    row = buckets.filter(pc.equal(buckets["workload"], "default/shop")).to_pylist()[10]
    assert row["latency_le_s"] == [0.1, 1.0, float("inf")]
    assert row["latency_count"] == [3.0, 3.0, 0.0]


def test_an_exporter_that_gives_its_pods_name_for_the_hosts_is_placed_on_its_node(bundle):
    nodes = {row["device"]: row["node"] for row in bundle.table("devices").to_pylist()}

    assert nodes["GPU-named"] == "named-node"
    assert held(bundle, "ml/named")[0]["node"] == "named-node"


def test_vllm_says_what_it_computed_and_moved_by_gpu(bundle):
    row = demand(bundle, "prod/vl")[10]

    assert (row["completed"], row["failed"]) == (30.0, 6.0)
    # Two GPUs with half and one and a half of it: their mean.
    assert row["flops_per_gpu"] == pytest.approx(6e15)
    assert row["read_bytes_per_gpu"] == pytest.approx(9e13)
    assert row["write_bytes_per_gpu"] == pytest.approx(3e12)


def test_a_server_that_estimates_nothing_leaves_its_work_absent(bundle):
    assert {row["flops_per_gpu"] for row in demand(bundle, "prod/tg")} == {None}


def test_tgi_lands_in_demand_with_arrivals_tokens_and_latency(bundle):
    row = demand(bundle, "prod/tg")[10]
    buckets = bundle.table("demand", ["workload", "latency_le_s", "latency_count"])
    latency = buckets.filter(pc.equal(buckets["workload"], "prod/tg")).to_pylist()[10]

    assert (row["arrivals"], row["completed"], row["failed"]) == (13.0, 12.0, 1.0)
    assert (row["running_mean"], row["waiting_mean"]) == (3.0, 2.0)
    assert (row["input_tokens_mean"], row["output_tokens_mean"]) == (200.0, 50.0)
    assert latency["latency_le_s"] == [0.5, 2.0, float("inf")]
    assert latency["latency_count"] == [3.0, 9.0, 0.0]


def test_triton_lands_in_demand_with_failures_beside_successes(bundle):
    row = demand(bundle, "prod/tr")[10]
    buckets = bundle.table("demand", ["workload", "ttft_le_s", "ttft_count"])
    ttft = buckets.filter(pc.equal(buckets["workload"], "prod/tr")).to_pylist()[10]

    assert (row["completed"], row["failed"], row["waiting_mean"]) == (20.0, 1.0, 5.0)
    assert ttft["ttft_le_s"] == [0.1, float("inf")]
    assert ttft["ttft_count"] == [10.0, 10.0]


def test_our_batcher_lands_in_demand_with_what_it_refused(bundle):
    row = demand(bundle, "prod/own")[10]
    buckets = bundle.table("demand", ["workload", "latency_le_s", "latency_count"])
    latency = buckets.filter(pc.equal(buckets["workload"], "prod/own")).to_pylist()[10]

    assert (row["arrivals"], row["completed"], row["failed"]) == (13.0, 10.0, 3.0)
    assert (row["running_mean"], row["waiting_mean"], row["server"]) == (4.0, 2.0, "trimtab-batcher")
    assert latency["latency_count"] == [5.0, 5.0, 1.0]


def test_a_gpu_under_gkes_own_dcgm_is_held_by_the_exported_pod_on_its_node(bundle):
    rows = usage(bundle, "GPU-gke")

    assert {row["workload"] for row in rows} == {"ml/gke-train"}
    assert held(bundle, "ml/gke-train")[0]["node"] == "gke-pool-1"
    assert rows[0]["sm_active_mean"] == pytest.approx(0.3)


def test_amds_exporter_is_read_as_nvidias_are(bundle):
    devices = {row["device"]: row for row in bundle.table("devices").to_pylist()}
    rows = usage(bundle, "ccff74a1-0")

    assert (devices["ccff74a1-0"]["gpu"], devices["ccff74a1-0"]["node"]) == ("MI300X", "tw038")
    assert devices["ccff74a1-0"]["memory_gib"] == 192.0
    assert {row["workload"] for row in rows} == {"ml/tune"}
    assert [row["gpu_util_mean"] for row in rows] == pytest.approx([0.6] * HOURS)
    assert {row["memory_used_gib_mean"] for row in rows} == {96.0}
    assert {row["power_w_mean"] for row in rows} == {500.0}
    assert rows[2]["energy_kwh"] == pytest.approx(0.5, rel=1e-3)
    assert {row["sm_active_mean"] for row in rows} == {row["dram_active_mean"] for row in rows} == {None}
    assert held(bundle, "ml/tune")[0]["gpus"] == 1.0


def test_a_board_of_amd_that_nobody_holds_is_not_its_exporters(bundle):
    assert {row["workload"] for row in usage(bundle, "ccff74a1-1")} == {None}
    assert not [row for row in bundle.table("allocations").to_pylist() if "exporter" in row["workload"]]


def test_a_board_of_amd_without_a_uuid_is_known_by_its_number(bundle):
    (row, *_) = usage(bundle, "tw039/gpu3")

    assert (row["workload"], row["gpu_util_mean"]) == ("ml/short", pytest.approx(0.2))
    assert {found["device"]: found["gpu"] for found in bundle.table("devices").to_pylist()}["tw039/gpu3"] == "MI355X"


def readings(bundle, device):
    """Return the readings in each hour's histogram of a device."""
    rows = bundle.table("gpu_usage", ["device", "activity_histogram"]).to_pylist()
    return [sum(row["activity_histogram"]) for row in rows if row["device"] == device]


def test_a_chip_of_neuroncores_is_as_busy_as_its_cores_that_are_told(bundle):
    assert [row["gpu_util_mean"] for row in usage(bundle, "i-09db9b55e0095612f/neuron5")] == pytest.approx(
        [0.4] * HOURS
    )
    assert [row["gpu_util_max"] for row in usage(bundle, "i-09db9b55e0095612f/neuron5")] == pytest.approx([0.6] * HOURS)
    rows = usage(bundle, "i-09db9b55e0095612f/neuron6")
    assert [row["gpu_util_mean"] for row in rows] == pytest.approx([0.5] * HOURS)
    assert {row["samples"] for row in rows} == {60}
    assert {row["memory_used_gib_mean"] for row in rows} == {row["sm_active_mean"] for row in rows} == {None}
    assert readings(bundle, "i-09db9b55e0095612f/neuron5") == [120] * HOURS


def test_chips_on_which_no_program_runs_are_not_told_and_not_idle(bundle):
    chips = {row["device"] for row in bundle.table("devices").to_pylist() if row["node"] == "ip-10-0-1-7.ec2.internal"}

    assert chips == {"i-09db9b55e0095612f/neuron5", "i-09db9b55e0095612f/neuron6"}


def test_a_node_of_trainium_is_known_by_its_instance_and_its_chips_are_held_as_asked(bundle):
    (node,) = [row for row in bundle.table("nodes").to_pylist() if row["node"] == "ip-10-0-1-7.ec2.internal"]

    assert (node["gpu"], node["gpu_count"], node["instance_type"]) == ("Trainium", 16, "trn1.32xlarge")
    assert [row["gpus"] for row in held(bundle, "ml/pretrain")] == [4.0]
    assert [row["gpus"] for row in held(bundle, "ml/embed")] == [3.0]  # 6 cores of chips that have 2


def test_a_tpu_is_held_by_the_pod_whose_runtime_tells_of_it(bundle):
    rows = usage(bundle, "4804690994094478883-0")
    devices = {row["device"]: row for row in bundle.table("devices").to_pylist()}

    assert {row["workload"] for row in rows} == {"ml/jax"}
    assert [row["gpu_util_mean"] for row in rows] == pytest.approx([0.7] * HOURS)
    assert [row["tensor_active_mean"] for row in rows] == pytest.approx([0.35] * HOURS)
    assert [row["dram_active_mean"] for row in rows] == pytest.approx([0.2] * HOURS)
    assert {row["memory_used_gib_mean"] for row in rows} == {8.0}
    assert readings(bundle, "4804690994094478883-0") == [60] * HOURS
    assert (devices["4804690994094478883-0"]["gpu"], devices["4804690994094478883-0"]["memory_gib"]) == (
        "TPU-v6e",
        31.25,
    )
    assert [row["gpus"] for row in held(bundle, "ml/jax")] == [1.0]


def test_a_tpu_that_nobody_uses_is_idle_by_what_its_host_tells(bundle):
    rows = usage(bundle, "4804690994094478883-1")

    assert {row["workload"] for row in rows} == {None}
    assert {row["gpu_util_mean"] for row in rows} == {0.0}


def test_metrics_that_gke_names_alike_for_gpus_are_no_tpus(bundle):
    assert usage(bundle, "GPU-theirs") == []


def test_a_gpu_of_intel_is_read_as_a_board_and_not_by_its_tiles(bundle):
    rows = usage(bundle, "00000000-0000-003f-0000-002f0bd58086")
    devices = {row["device"]: row for row in bundle.table("devices").to_pylist()}

    assert {row["workload"] for row in rows} == {"ml/sycl"}
    assert [row["gpu_util_mean"] for row in rows] == pytest.approx([0.5] * HOURS)
    assert [row["dram_active_mean"] for row in rows] == pytest.approx([0.25] * HOURS)
    assert {row["power_w_mean"] for row in rows} == {400.0}
    assert rows[2]["energy_kwh"] == pytest.approx(0.4, rel=1e-3)
    assert (devices["00000000-0000-003f-0000-002f0bd58086"]["gpu"]) == "Max-1550"
    assert not [device for device in devices if "2147483649" in device]


def test_a_gaudi_that_nobody_holds_is_idle_and_not_its_exporters(bundle):
    (row, *_) = usage(bundle, "01P4-HL3090A0-18-U4V193-22-07-00")
    devices = {found["device"]: found for found in bundle.table("devices").to_pylist()}

    assert (row["workload"], row["gpu_util_mean"], row["power_w_mean"]) == (None, 0.0, 220.0)
    assert devices[row["device"]]["memory_gib"] == 128.0
    assert devices[row["device"]]["node"] == "gaudi-1"


def test_copies_of_two_replicas_of_prometheus_are_refused_with_the_label_and_the_cure(
    prometheus_bin, promtool_bin, tmp_path
):
    """As an old Thanos querier gives them that was not told the replica label; with one of them chosen it works."""
    page = Page()
    for replica in ("prometheus-k8s-0", "prometheus-k8s-1"):
        for number in range(3):
            board = {
                "UUID": f"GPU-{number}",
                "gpu": number,
                "modelName": "Tesla T4",
                "Hostname": "n",
                "pod": f"p-{number}",
            }
            page.add("DCGM_FI_DEV_GPU_UTIL", 50.0, **board, namespace="ml", prometheus_replica=replica)
    text, binaries = "".join(page.lines), (prometheus_bin, promtool_bin)

    with pytest.raises(SourceError) as refused:
        collected_from(text, tmp_path, binaries, START, HOURS)

    assert "prometheus_replica: prometheus-k8s-0, prometheus-k8s-1" in str(refused.value)
    assert """--selector 'prometheus_replica="prometheus-k8s-0"'""" in str(refused.value)


def test_a_server_that_has_been_up_for_an_afternoon_tells_its_scrape_interval_as_it_is(
    prometheus_bin, promtool_bin, tmp_path
):
    """Of the first of the hours that are looked at it has seen 24 minutes, which looked like a scrape every 150 s."""
    page = Page()
    labels = {"UUID": "GPU-new", "gpu": "0", "modelName": "Tesla T4", "Hostname": "new-node"}
    page.add("DCGM_FI_DEV_GPU_UTIL", 40.0, slice(36, STEPS), **labels)
    backfill_text("".join(page.lines), promtool_bin, tmp_path / "blocks")
    server = RunningPrometheus(prometheus_bin, tmp_path / "blocks", tmp_path)
    server.start()
    try:
        with Prometheus(server.url) as client:
            facts = probe(client, START + HOURS * HOUR)
    finally:
        server.stop()

    assert facts.scrape_s == STEP_S
