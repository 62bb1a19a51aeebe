"""Series of a small cluster in promtool's notation: healthy, but for what a test plants; in every style of exporter."""

import json
from dataclasses import dataclass, field

from trimtab.catalog.kinds import CapacityType
from trimtab.emit.verify_document import parse_verification
from trimtab.monitor.watched import Board, NodeRate, PaidNodes, Watched

VERIFIED = {
    "schema_version": 1,
    "window": {"start": "2026-10-01T00:00:00Z", "end": "2026-10-29T00:00:00Z"},
    "rows": [
        {
            "id": "a1", "lever": "autoscaling", "subject": "prod/chat-api", "status": "on track",
            "predicted_usd_mo": 900.0, "realised_usd_mo": 1000.5, "cause": "",
        },
        {
            "id": "a2", "lever": "spot", "subject": "ml/train", "status": "short",
            "predicted_usd_mo": 400.0, "realised_usd_mo": -25.25, "cause": "more interruptions",
        },
    ],
}  # fmt: skip
WATCHED = Watched(
    verified=parse_verification(json.dumps(VERIFIED), where="a test"),
    node_rates=(
        NodeRate(
            instance_type="p4d.24xlarge", region="us-east-1", capacity_type=CapacityType.ON_DEMAND, usd_gpu_hr=2.75
        ),
        NodeRate(instance_type="p4d.24xlarge", region="us-east-1", capacity_type=CapacityType.SPOT, usd_gpu_hr=1.0),
    ),
    boards=(
        Board(
            name="A100-SXM4-40GB",
            models=("NVIDIA A100-SXM4-40GB", "A100-SXM4-40GB"),
            power_limit_w=400.0,
            usd_gpu_hr=2.5,
        ),
    ),
    runs=(("ml", "sweep"),),
    paid=(PaidNodes(instance_type="p4d.24xlarge", region="us-east-1", nodes=4, usd_node_hr=22.0),),
    teams={"prod": "assistant", "ml": "search"},
)
HEALTHY = {
    "sm_active": 0.6,
    "sm_occupancy": 0.6,
    "used_mib": 16_000,
    "free_mib": 24_000,
    "temperature_c": 60,
    "power_w": 280,
    "reasons": 0,
}
OLD_NAMES = {
    "sm_active": "DCGM_FI_PROF_SM_ACTIVE",
    "sm_occupancy": "DCGM_FI_PROF_SM_OCCUPANCY",
    "used_mib": "DCGM_FI_DEV_FB_USED",
    "free_mib": "DCGM_FI_DEV_FB_FREE",
    "temperature_c": "DCGM_FI_DEV_GPU_TEMP",
    "power_w": "DCGM_FI_DEV_POWER_USAGE",
    "reasons": "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS",
}
NEW_NAMES = OLD_NAMES | {
    "sm_active": "DCGM_FI_PROF_SM_UTIL_RATIO",
    "sm_occupancy": "DCGM_FI_PROF_SM_OCCUPANCY_RATIO",
    "temperature_c": "DCGM_FI_DEV_GPU_TEMP_CELSIUS",
    "power_w": "DCGM_FI_DEV_BOARD_POWER_WATTS",
    "reasons": "DCGM_FI_DEV_CLOCKS_EVENT_REASONS",
}
SCRAPES = 660
"""At 10 s: 110 minutes, in which every alert of minutes must have fired."""


@dataclass(frozen=True, kw_only=True)
class Style:
    """How a cluster's exporters and scrapes spell things."""

    names: dict[str, str] = field(default_factory=lambda: OLD_NAMES)
    node_label: str = "Hostname"
    exported: bool = False
    """Prometheus keeps its own `pod` and `namespace`, and renames the workload's."""
    interval_s: int = 30


STYLES = {
    "old names": Style(),
    "new names, exported labels": Style(names=NEW_NAMES, node_label="hostname", exported=True),
    "every 10 s": Style(interval_s=10),
    "every 60 s": Style(interval_s=60, exported=True),
}


def gpu(style, node, number, pod="", namespace="", *, mig="", owner_kind="", **readings):
    """Series of one GPU (or MIG instance), held by a pod or by nobody; a reading of None is not exported."""
    if style.exported:
        owner = (
            f'pod="dcgm-exporter-x7k2p",namespace="gpu-operator",exported_pod="{pod}",exported_namespace="{namespace}"'
        )
    else:
        owner = f'pod="{pod}",namespace="{namespace}"'
    instance = f',GPU_I_ID="{mig}",GPU_I_PROFILE="3g.20gb"' if mig else ""
    labels = (
        f'gpu="{number}",UUID="GPU-{node}-{number}",modelName="NVIDIA A100-SXM4-40GB",{style.node_label}="{node}",'
        f'instance="10.0.0.1:9400"{instance},{owner}'
    )
    for name, value in (HEALTHY | readings).items():
        if value is not None:
            values = value if isinstance(value, str) else f"{value}x{SCRAPES}"
            yield {"series": f"{style.names[name]}{{{labels}}}", "values": values}


def node(name, *, spot=False, paid=False, resource=8):
    """What kube-state-metrics says of a node."""
    capacity = ',label_karpenter_sh_capacity_type="spot"' if spot else ""
    where = 'label_node_kubernetes_io_instance_type="p4d.24xlarge",label_topology_kubernetes_io_region="us-east-1"'
    yield {"series": f'kube_node_labels{{node="{name}",{where}{capacity}}}', "values": f"1x{SCRAPES}"}
    yield {
        "series": f'kube_node_status_allocatable{{node="{name}",resource="nvidia_com_gpu"}}',
        "values": f"{resource}x{SCRAPES}",
    }


def owner(namespace, pod, kind):
    """What kube-state-metrics says of a pod's owner."""
    yield {
        "series": f'kube_pod_owner{{namespace="{namespace}",pod="{pod}",owner_kind="{kind}",owner_name="x"}}',
        "values": f"1x{SCRAPES}",
    }
