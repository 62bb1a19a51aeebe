"""Lists of a Kubernetes API server, page by page: what is asked and the role that allows it, and the connection by lightkube.

An API server answers 410 Gone when a list's continue token is too old: the list is read again from its beginning. 429, 500,
502, 503 and 504 and timeouts are tried again with growing pauses, 429 after what Retry-After says.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import yaml

from trimtab.errors import CredentialsError, InputError, SourceError
from trimtab.sources.http import RETRY_STATUS, RetryPolicy, TransientError, retry_after_s
from trimtab.sources.kubernetes.objects import KINDS, Object, Objects, at, listed, text


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource:
    """A resource that is listed over all namespaces."""

    kind: str
    plural: str
    group: str = ""
    needed: bool = False
    """Without it there is no fleet; without any other the answer is weaker."""
    cost: str = ""
    """What is not known without it."""

    @property
    def name(self) -> str:
        """Return the name as `kubectl get` takes it."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def versions(self) -> tuple[str, ...]:
        """Return its API versions, the one to try first first."""
        return KINDS[self.kind][self.group]

    def paths(self) -> tuple[str, ...]:
        """Return the paths of its list, the one to try first first."""
        root = f"/apis/{self.group}" if self.group else "/api"
        return tuple(f"{root}/{version}/{self.plural}" for version in self.versions)


RESOURCES: tuple[Resource, ...] = (
    Resource(kind="Node", plural="nodes", needed=True),
    Resource(kind="Pod", plural="pods", needed=True),
    Resource(kind="Namespace", plural="namespaces", cost="teams named on namespaces"),
    Resource(kind="Event", plural="events", cost="notices that spot nodes were interrupted, how long images took to pull"),
    Resource(kind="PersistentVolumeClaim", plural="persistentvolumeclaims", cost="volumes"),
    Resource(kind="ResourceQuota", plural="resourcequotas", cost="quotas of namespaces that would refuse a plan's pods"),
    Resource(kind="LimitRange", plural="limitranges", cost="bounds of namespaces that would refuse a plan's pods"),
    Resource(kind="ReplicaSet", plural="replicasets", group="apps", cost="owners of pods, which are then guessed"),
    Resource(kind="Deployment", plural="deployments", group="apps", cost="owners of ReplicaSets"),
    Resource(kind="StatefulSet", plural="statefulsets", group="apps", cost="owners of StatefulSets"),
    Resource(kind="DaemonSet", plural="daemonsets", group="apps", cost="owners of DaemonSets"),
    Resource(kind="Job", plural="jobs", group="batch", cost="when runs were submitted, and how they ended"),
    Resource(kind="CronJob", plural="cronjobs", group="batch", cost="owners of CronJobs"),
    Resource(
        kind="PodDisruptionBudget", plural="poddisruptionbudgets", group="policy", cost="disruption budgets in place"
    ),
    Resource(
        kind="HorizontalPodAutoscaler", plural="horizontalpodautoscalers", group="autoscaling",
        cost="autoscalers in place",
    ),
    Resource(
        kind="ScaledObject", plural="scaledobjects", group="keda.sh",
        cost="KEDA scalers in place",
    ),
    Resource(
        kind="NodePool", plural="nodepools", group="karpenter.sh",
        cost="Karpenter pools in place",
    ),
    Resource(kind="RayCluster", plural="rayclusters", group="ray.io", cost="the RayService or RayJob of pods of Ray"),
    Resource(
        kind="ClusterQueue", plural="clusterqueues", group="kueue.x-k8s.io",
        cost="Kueue quotas",
    ),
    Resource(
        kind="LocalQueue", plural="localqueues", group="kueue.x-k8s.io",
        cost="Kueue queues",
    ),
    Resource(
        kind="ResourceFlavor", plural="resourceflavors", group="kueue.x-k8s.io",
        cost="which nodes Kueue sends runs to",
    ),
    Resource(
        kind="Workload", plural="workloads", group="kueue.x-k8s.io",
        cost="runs that wait in Kueue",
    ),
    Resource(kind="Job", plural="jobs", group="batch.volcano.sh", cost="Volcano jobs"),
    Resource(
        kind="Queue", plural="queues", group="scheduling.volcano.sh", cost="Volcano queues"
    ),
    Resource(
        kind="PodGroup", plural="podgroups", group="scheduling.volcano.sh",
        cost="runs that wait in Volcano",
    ),
    Resource(
        kind="ResourceClaim", plural="resourceclaims", group="resource.k8s.io",
        cost="which GPUs pods hold through claims: each claim counts as one GPU",
    ),
    Resource(
        kind="ResourceClaimTemplate", plural="resourceclaimtemplates", group="resource.k8s.io",
        cost="what claims are made from, so that they cannot be written again",
    ),
    Resource(
        kind="ResourceSlice", plural="resourceslices", group="resource.k8s.io",
        cost="the GPUs that can be claimed, which are then known by their names alone",
    ),
    Resource(
        kind="DeviceClass", plural="deviceclasses", group="resource.k8s.io",
        cost="classes of devices other than those of the drivers' own charts",
    ),
)  # fmt: skip
"""Everything that is asked, nodes and pods first."""

READER = "trimtab-reader"


def rbac_objects(namespace: str) -> list[dict[str, object]]:
    """Return a namespace, and an account in it that may list and read what trimtab reads, and change nothing."""
    groups = dict.fromkeys(resource.group for resource in RESOURCES)
    rules = [
        {
            "apiGroups": [group],
            "resources": sorted(resource.plural for resource in RESOURCES if resource.group == group),
            "verbs": ["get", "list"],
        }
        for group in groups
    ]
    subject = {"kind": "ServiceAccount", "name": READER, "namespace": namespace}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": READER}
    return [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}},
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": READER, "namespace": namespace}},
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRole",
            "metadata": {"name": READER},
            "rules": rules,
        },
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": READER},
            "subjects": [subject],
            "roleRef": role,
        },
    ]


def rbac_manifest(namespace: str = "trimtab") -> str:
    """Return the YAML of the account and its role."""
    head = (
        "# Lets trimtab list what it reads; it can change nothing and read no Secret and no ConfigMap.\n"
        f"# kubectl apply -f this-file; a token for an hour: kubectl create token {READER} -n {namespace}\n"
    )
    return head + yaml.safe_dump_all(rbac_objects(namespace), sort_keys=False)


logger = logging.getLogger(__name__)

PAGE = 500
"""Objects a page: what kubectl asks for by default."""
_RETRIES = RetryPolicy(waits_s=(0.5, 1.0, 2.0, 4.0))
_MOST_RESTARTS = 3
_APPLY = "trimtab collect --rbac | kubectl apply -f -"

Report = Callable[[str, float], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiAnswer:
    """What an API server answered."""

    status: int
    body: str
    retry_after: str = ""


class Carrier(Protocol):
    """What carries a request: its address, authentication and certificates are its own business."""

    def get(self, path: str, parameters: Mapping[str, str]) -> ApiAnswer:
        """Return the answer to a GET; raises TransientError."""
        ...


@dataclass(slots=True, kw_only=True)
class KubeApi:
    """Reads lists; `server` is what errors call the server, `pause` sleeps for seconds."""

    carrier: Carrier
    server: str
    page: int = PAGE
    pause: Callable[[float], None] = time.sleep
    requests: int = field(default=0, init=False)

    def read(self, report: Report = lambda stage, done_frac: None) -> Objects:
        """List every resource that trimtab reads.

        A resource whose API is not installed is passed over; one that may not be listed is counted, with what is then not
        known. Raises CredentialsError where nodes or pods may not be listed, SourceError where the server does not answer.
        """
        objects = Objects()
        for index, resource in enumerate(RESOURCES):
            report(f"listing {resource.name}", index / len(RESOURCES))
            try:
                items = self.items(resource)
            except CredentialsError:
                if resource.needed:
                    raise
                objects.count(f"resource {resource.name} that may not be listed; not known: {resource.cost}")
                continue
            for item in items:
                objects.take({"apiVersion": _version(resource), **item, "kind": resource.kind})
        return objects

    def items(self, resource: Resource) -> list[Object]:
        """Return all objects of a resource, of the first of its API versions that the server has; none where it has none."""
        for path in resource.paths():
            for _ in range(_MOST_RESTARTS):
                found = self._pages(path, resource)
                if found is not None:
                    return found
        if resource.needed:
            raise SourceError(
                f"{self.server}: no {resource.name} there (404); is it the address of a Kubernetes API server?"
            )
        logger.debug("%s: %s is not installed", self.server, resource.name)
        return []

    def _pages(self, path: str, resource: Resource) -> list[Object] | None:
        """Return a list's items; None where there is no such list, or it must be read again from its beginning."""
        items: list[Object] = []
        token = ""
        while True:
            parameters = {"limit": str(self.page)} | ({"continue": token} if token else {})
            answer = self._ask(path, parameters, resource)
            if answer.status in (404, 410):
                return None
            page = self._parsed(answer, resource)
            items += listed(page, "items")
            token, before = text(page, "metadata", "continue"), token
            if not token:
                return items
            if token == before:
                raise SourceError(f"{self.server}: the list of {resource.name} repeats its continue token; report it")

    def _ask(self, path: str, parameters: Mapping[str, str], resource: Resource) -> ApiAnswer:
        """Ask until there is an answer. Raises SourceError where there is none, CredentialsError where it is refused."""
        try:
            return _RETRIES.answer(lambda: self._once(path, parameters, resource), sleep=self.pause)
        except TransientError as error:
            raise SourceError(
                f"{self.server}: listing {resource.name} failed {_RETRIES.tries} times, at last with {error}; "
                "is the cluster reachable (kubectl get nodes)? else read a dump: kubectl get ... -o json, --kube-dump FILE"
            ) from error

    def _once(self, path: str, parameters: Mapping[str, str], resource: Resource) -> ApiAnswer:
        self.requests += 1
        answer = self.carrier.get(path, parameters)
        if answer.status in RETRY_STATUS:
            raise TransientError(f"HTTP {answer.status}: {_message(answer)}", wait_s=retry_after_s(answer.retry_after))
        return self._allowed(answer, resource)

    def _allowed(self, answer: ApiAnswer, resource: Resource) -> ApiAnswer:
        """Return an answer that is a list, that there is none (404), or that it must be read again (410)."""
        match answer.status:
            case 200 | 404 | 410:
                return answer
            case 401:
                raise CredentialsError(
                    f"{self.server}: not signed in while listing {resource.name} (401: {_message(answer)}); "
                    "renew the credentials of the kubeconfig context (kubectl get nodes must work)"
                )
            case 403:
                raise CredentialsError(
                    f"{self.server}: not allowed to list {resource.name} (403: {_message(answer)}); grant it with: {_APPLY}"
                )
            case status:
                raise SourceError(f"{self.server}: listing {resource.name} answered HTTP {status}: {_message(answer)}")

    def _parsed(self, answer: ApiAnswer, resource: Resource) -> object:
        try:
            return json.loads(answer.body)
        except (ValueError, RecursionError) as error:
            raise SourceError(
                f"{self.server}: the list of {resource.name} is not JSON ({error}); "
                "is it the address of a Kubernetes API server, or of a proxy's sign-in page?"
            ) from error


def _version(resource: Resource) -> str:
    return f"{resource.group}/{resource.versions[0]}" if resource.group else resource.versions[0]


def _message(answer: ApiAnswer) -> str:
    """Return what the server said: a Status object's message, else the first line."""
    try:
        said = at(json.loads(answer.body), "message")
    except (ValueError, RecursionError):
        said = None
    plain = said if isinstance(said, str) else answer.body
    return " ".join(plain.split())[:200] or "no message"


TIMEOUT_S = 30.0


@contextmanager
def cluster_api(
    context: str | None = None, kubeconfig: Path | None = None, *, timeout_s: float = TIMEOUT_S
) -> Iterator[KubeApi]:
    """Open the cluster that a context names (default: the current one, or the pod's own account inside a cluster).

    Raises InputError where lightkube is not installed or the kubeconfig cannot be used.
    """
    try:
        from lightkube.config import client_adapter
        from lightkube.config.kubeconfig import KubeConfig
        from lightkube.config.models import User
        from lightkube.core.exceptions import ConfigError
    except ImportError as error:
        raise InputError(
            "reading a live cluster needs lightkube: pip install 'trimtab[kubernetes]'; "
            "or read a dump: kubectl get nodes,pods,... -A -o json > dump.json and --kube-dump dump.json"
        ) from error
    http = vars(client_adapter)["httpx"]
    try:
        config = (KubeConfig.from_file(kubeconfig) if kubeconfig else KubeConfig.from_env()).get(context)
        if config is None:
            raise ConfigError("no context")
        usable = config if config.user else config._replace(user=User())
        client = client_adapter.Client(usable, client_adapter.ConnectionParams(timeout=http.Timeout(timeout_s)))
    except (ConfigError, OSError, KeyError, TypeError, ValueError) as error:
        named = f"context {context!r} of " if context else ""
        raise InputError(
            f"cannot use {named}{kubeconfig or 'the kubeconfig'}: {error}; see: kubectl config get-contexts"
        ) from error
    with client:
        yield KubeApi(
            carrier=_Lightkube(
                get_=client.get,
                timeout=http.TimeoutException,
                transport=http.TransportError,
                other=http.HTTPError,
                credentials=ConfigError,
            ),
            server=str(config.cluster.server),
        )


class _Response(Protocol):
    @property
    def status_code(self) -> int: ...
    @property
    def text(self) -> str: ...
    @property
    def headers(self) -> Mapping[str, str]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class _Lightkube:
    """Carries requests over lightkube's client; maps every error of it (the classes are those of the httpx it brought)."""

    get_: Callable[..., _Response]
    timeout: type[Exception]
    transport: type[Exception]
    other: type[Exception]
    credentials: type[Exception]

    def get(self, path: str, parameters: Mapping[str, str]) -> ApiAnswer:
        """Return the answer to a GET; raises TransientError, CredentialsError or SourceError."""
        try:
            answer = self.get_(path, params=dict(parameters))
        except self.timeout as error:
            raise TransientError(f"no answer in time ({type(error).__name__})") from error
        except self.transport as error:
            raise TransientError(f"{type(error).__name__}: {error}") from error
        except self.other as error:
            raise SourceError(f"{path}: {error}") from error
        except self.credentials as error:
            raise CredentialsError(f"the credentials of the kubeconfig do not work: {error}") from error
        return ApiAnswer(status=answer.status_code, body=answer.text, retry_after=answer.headers.get("Retry-After", ""))
