"""An API server on loopback that answers what kubectl asks: discovery, lists of objects, OpenAPI, and refusals by script.

The answers have the forms of the Kubernetes API reference: APIVersions, APIGroupList, APIResourceList, `{Kind}List`, and Status
for what is refused or not there.
"""

import contextlib
import json
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit


@dataclass(frozen=True)
class Served:
    """A resource that the server has."""

    group: str
    version: str
    kind: str
    plural: str
    namespaced: bool = True

    @property
    def group_version(self):
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def root(self):
        return f"/apis/{self.group_version}" if self.group else f"/api/{self.version}"


BUILT_IN = (
    Served("", "v1", "Namespace", "namespaces", namespaced=False),
    Served("", "v1", "Service", "services"),
    Served("apps", "v1", "Deployment", "deployments"),
    Served("apps", "v1", "StatefulSet", "statefulsets"),
    Served("apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions", namespaced=False),
)
NODE_POOLS = Served("karpenter.sh", "v1", "NodePool", "nodepools", namespaced=False)


@dataclass
class Cluster:
    """What the server has, whether it knows who asks, and which resources it does not show."""

    served: tuple = (*BUILT_IN, NODE_POOLS)
    objects: list = field(default_factory=list)
    forbidden: tuple = ()
    signed_in: bool = True
    seen: list = field(default_factory=list)

    def answer(self, path):
        """Return the status and body of a GET."""
        self.seen.append(path)
        if not self.signed_in:
            return 401, status(401, "Unauthorized", "Unauthorized")
        if path == "/api":
            return 200, {"kind": "APIVersions", "versions": ["v1"]}
        if path == "/apis":
            return 200, {"kind": "APIGroupList", "apiVersion": "v1", "groups": self.groups()}
        if path == "/openapi/v3":
            return 200, {"paths": {one.root.removeprefix("/"): {"serverRelativeURL": one.root} for one in self.served}}
        here = [one for one in self.served if one.root == path]
        if here:
            return 200, {"kind": "APIResourceList", "groupVersion": here[0].group_version,
                         "resources": [self.resource(one) for one in here]}  # fmt: skip
        found = next((one for one in self.served if path == f"{one.root}/{one.plural}"), None)
        if found is None:
            return 404, status(404, "NotFound", "the server could not find the requested resource")
        if found.plural in self.forbidden:
            name = f"{found.plural}.{found.group}" if found.group else found.plural
            said = f'{name} is forbidden: User "ann" cannot list resource "{found.plural}" at the cluster scope'
            return 403, status(403, "Forbidden", said)
        items = [one for one in self.objects if (one["apiVersion"], one["kind"]) == (found.group_version, found.kind)]
        return 200, {"kind": f"{found.kind}List", "apiVersion": found.group_version, "metadata": {}, "items": items}

    def groups(self):
        names = {one.group: one for one in self.served if one.group}
        found = []
        for name, one in names.items():
            version = {"groupVersion": one.group_version, "version": one.version}
            found.append({"name": name, "versions": [version], "preferredVersion": version})
        return found

    @staticmethod
    def resource(one):
        return {"name": one.plural, "singularName": one.kind.lower(), "namespaced": one.namespaced, "kind": one.kind,
                "verbs": ["get", "list"]}  # fmt: skip


def status(code, reason, message):
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "message": message,
        "reason": reason,
        "code": code,
    }


@contextlib.contextmanager
def answering(cluster):
    """Serve a cluster on loopback; gives the address."""

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_):
            pass

        def do_GET(self):
            code, body = cluster.answer(urlsplit(self.path).path)
            content = json.dumps(body).encode()
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                self.send_response(code)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
