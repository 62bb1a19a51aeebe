"""The cluster under the example audit: what is known of its workloads and pools."""

from tests.emit.example import G5, P3, P3_SMALL, P4D, target

from trimtab.emit.manifests.facts import (
    SERVERS,
    Autoscaler,
    EmitFacts,
    NodeFacts,
    PricedPool,
    ServiceFacts,
    Toleration,
    WorkloadFacts,
)
from trimtab.tables.workloads import TargetMetric


def service(name, server, capacity_req_s, replicas, pool=P4D, gpus_per_node=8, targets=(), **more):
    return WorkloadFacts(
        name=name,
        replicas=replicas,
        pool=pool,
        gpus_per_node=gpus_per_node,
        pod_labels={"app": name.partition("/")[2]},
        service=ServiceFacts(
            capacity_req_s=capacity_req_s, signals=SERVERS[server], targets=targets, server_is_known=True
        ),
        **more,
    )


WORKLOADS = (
    service("prod/chat-api", "vllm", 3.2, 24, targets=(target(TargetMetric.LATENCY, 0.95, 4.0, declared=True),)),
    service("prod/search-rank", "triton", 41.0, 8, targets=(target(TargetMetric.LATENCY, 0.95, 0.13),)),
    WorkloadFacts(name="prod/embed-api", replicas=8, pool=P4D, gpus_per_node=8, owner_kind="StatefulSet"),
    WorkloadFacts(name="research/vision-exp", owner_kind="Job", gpus_per_pod=4.0, pool=P3, gpus_per_node=4),
    WorkloadFacts(name="research/nlp-exp", owner_kind="PyTorchJob", gpus_per_pod=4.0, pool=P3, gpus_per_node=4),
    WorkloadFacts(
        name="eval/weekly-eval", owner_kind="CronJob", gpus_per_pod=8.0, pool=P4D, gpus_per_node=8, run_starts=(0, 98)
    ),
    WorkloadFacts(
        name="notebooks/ana",
        owner_kind="StatefulSet",
        pool=G5,
        tolerations=(Toleration(key="team", operator="Equal", value="vision", effect="NoSchedule"),),
    ),
    WorkloadFacts(name="notebooks/bo", owner_kind="Notebook", pool=G5),
    WorkloadFacts(name="data/nightly-embed", owner_kind="CronJob", gpus_per_pod=4.0, pool=G5),
)


def nodes(group, pool, held_by):
    return tuple(
        NodeFacts(name=name, pool=pool, group=group, held_by=tuple(holders)) for name, holders in held_by.items()
    )


NODES = (
    *nodes(
        ("eks.amazonaws.com/nodegroup", "gpu-p4d"),
        P4D,
        {
            "ip-10-0-1-1": ["prod/chat-api"],
            "ip-10-0-1-2": ["prod/chat-api", "prod/search-rank"],
            "ip-10-0-1-3": ["prod/embed-api", "ml/ranker-train"],
        },
    ),
    *nodes(("karpenter.sh/nodepool", "experiments"), P3, {"ip-10-0-2-1": ["research/vision-exp"]}),
    *nodes(None, G5, {"ip-10-0-3-1": ["notebooks/ana"], "ip-10-0-3-2": []}),
)


def example_facts(autoscaler=Autoscaler.KEDA):
    return EmitFacts(
        workloads=WORKLOADS,
        autoscaler=autoscaler,
        nodes=NODES,
        pools=(
            PricedPool(pool=P4D, gpus_per_node=8, rate_micro_usd_hr=21_957_642, quota_nodes=12),
            PricedPool(pool=P3_SMALL, gpus_per_node=1, rate_micro_usd_hr=3_060_000, quota_nodes=40),
            PricedPool(pool=G5, gpus_per_node=1, rate_micro_usd_hr=1_006_000),
        ),
    )
