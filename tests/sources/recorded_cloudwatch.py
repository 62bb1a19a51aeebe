"""CloudWatch and EC2 in a few answers: two agents, one Container Insights node, pages, a rolled-up metric."""

import json
from urllib.parse import parse_qs

HOUR_S = 3600
START_S = 1_790_000_000 // HOUR_S * HOUR_S


def agent(instance, index, **more):
    """Return the dimensions under which the CloudWatch agent sends a board."""
    return {"InstanceId": instance, "InstanceType": "g6.12xlarge", "index": str(index), "name": "NVIDIA L4", "host": "h",
            "AutoScalingGroupName": "serve", **more}  # fmt: skip


def insights(instance, board):
    """Return the dimensions of Container Insights' node metrics."""
    return {"ClusterName": "prod", "InstanceId": instance, "InstanceType": "p4d.24xlarge", "NodeName": "ip-10-0-0-1",
            "GpuDevice": f"nvidia{board}"}  # fmt: skip


LISTED = {
    "nvidia_smi_utilization_gpu": [agent("i-a", 0), agent("i-a", 1), {"InstanceId": "i-a"}],
    "nvidia_smi_power_draw": [agent("i-a", 0), agent("i-b", 0)],
    "nvidia_smi_memory_used": [agent("i-a", 0)],
    "nvidia_smi_memory_total": [agent("i-a", 0)],
    "node_gpu_utilization": [insights("i-c", 0), {"ClusterName": "prod"}],
    "node_gpu_memory_used": [insights("i-c", 0)],
}
VALUES = {
    ("nvidia_smi_utilization_gpu", "Average"): 40.0,
    ("nvidia_smi_utilization_gpu", "p50"): 35.0,
    ("nvidia_smi_utilization_gpu", "p95"): 90.0,
    ("nvidia_smi_utilization_gpu", "Maximum"): 100.4,
    ("nvidia_smi_power_draw", "Average"): 36.0,
    ("nvidia_smi_power_draw", "p50"): 35.0,
    ("nvidia_smi_power_draw", "p95"): 71.5,
    ("nvidia_smi_power_draw", "Maximum"): 72.0,
    ("nvidia_smi_memory_used", "Average"): 10240.0,
    ("nvidia_smi_memory_used", "Maximum"): 11264.0,
    ("nvidia_smi_memory_total", "Maximum"): 23034.0,
    ("node_gpu_utilization", "Average"): 75.0,
    ("node_gpu_memory_used", "Average"): 2.0 * 1024**3,
}
INSTANCES = (
    b'<DescribeInstancesResponse xmlns="http://ec2.amazonaws.com/doc/2016-11-15/"><requestId>r</requestId><reservationSet>'
    b"<item><reservationId>r-1</reservationId><instancesSet><item><instanceId>i-b</instanceId>"
    b"<instanceType>g6.12xlarge</instanceType><instanceLifecycle>spot</instanceLifecycle>"
    b"<placement><availabilityZone>us-east-1b</availabilityZone></placement>"
    b"<tagSet><item><key>Name</key><value>trainer</value></item></tagSet></item></instancesSet></item>"
    b"</reservationSet></DescribeInstancesResponse>"
)


def cloudwatch(hours=4):
    """Return what answers for `hours` hours from START_S; the last hour of i-a was never told."""

    def answer(asked):
        if b"Action=DescribeInstances" in asked.body:
            assert parse_qs(asked.body.decode())["Filter.1.Name"] == ["instance-id"]
            return 200, {"Content-Type": "text/xml"}, INSTANCES
        wanted = json.loads(asked.body)
        operation = {key.lower(): value for key, value in asked.headers.items()}["x-amz-target"].rpartition(".")[2]
        page = _metrics(wanted) if operation == "ListMetrics" else _data(wanted, hours)
        return 200, {"Content-Type": "application/x-amz-json-1.0"}, json.dumps(page).encode()

    return answer


def _metrics(wanted):
    found = LISTED.get(wanted["MetricName"], [])
    found = [
        {"MetricName": wanted["MetricName"], "Dimensions": [{"Name": k, "Value": v} for k, v in one.items()]}
        for one in found
    ]
    if wanted.get("NextToken"):
        return {"Metrics": found[1:]}
    return {"Metrics": found[:1], **({"NextToken": "more"} if len(found) > 1 else {})}


def _data(wanted, hours):
    second = bool(wanted.get("NextToken"))
    results = []
    for query in wanted["MetricDataQueries"]:
        stat = query["MetricStat"]
        name = stat["Metric"]["MetricName"]
        instance = {one["Name"]: one["Value"] for one in stat["Metric"]["Dimensions"]}["InstanceId"]
        told = range(hours - 1 if instance == "i-a" else hours)
        part = [hour for hour in told if (hour % 2 == 1) == second]
        value = 60.0 if stat["Stat"] == "SampleCount" else VALUES.get((name, stat["Stat"]))
        values = [] if value is None else [value] * len(part)
        times = [START_S + HOUR_S * hour for hour in part] if values else []
        results.append({"Id": query["Id"], "Timestamps": times, "Values": values, "StatusCode": "Complete"})
    return {"MetricDataResults": results, **({} if second else {"NextToken": "more"})}
