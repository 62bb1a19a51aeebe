"""An API server on loopback that serves recorded lists page by page, with faults by script."""

import contextlib
import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

from tests.kube_cluster import cluster

from trimtab.sources.kubernetes.api import RESOURCES

VERSION = {"Workload": "v1beta1", "ClusterQueue": "v1beta1", "LocalQueue": "v1beta1"}


def lists():
    """Return path -> items, of those resources that the small cluster has."""
    found = {}
    for resource in RESOURCES:
        items = [
            one
            for one in cluster()
            if one["kind"] == resource.kind and one["apiVersion"].rpartition("/")[0] == resource.group
        ]
        version = VERSION.get(resource.kind, resource.versions[0])
        path = next(path for path in resource.paths() if f"/{version}/" in path)
        if items:
            found[path] = [{key: value for key, value in one.items() if key != "kind"} for one in items]
    return found


class Script:
    """What the server answers: `faults` gives by path what comes before the true answer: a status or seconds to be silent."""

    def __init__(self):
        self.lists = lists()
        self.faults = {}
        self.seen = []
        self.token = "secret"
        self.headers = {}

    def fault(self, path):
        waiting = self.faults.get(path, [])
        return waiting.pop(0) if waiting else None


@contextlib.contextmanager
def api_server():
    """Serve; gives the script and the address."""
    script = Script()

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_):
            pass

        def do_GET(self):
            url = urlsplit(self.path)
            asked = {key: values[0] for key, values in parse_qs(url.query).items()}
            script.seen.append((url.path, asked))
            status, body = self.answer(url.path, asked)
            content = body.encode() if isinstance(body, str) else json.dumps(body).encode()
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                self.send_response(status)
                for name, value in script.headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

        def answer(self, path, asked):
            fault = script.fault(path)
            if isinstance(fault, float):
                time.sleep(fault)
            elif isinstance(fault, str):
                return 200, fault
            elif fault is not None:
                return fault, {"kind": "Status", "message": f"scripted {fault}"}
            if self.headers.get("Authorization") != f"Bearer {script.token}":
                return 401, {"kind": "Status", "message": "Unauthorized"}
            if path not in script.lists:
                return 404, {"kind": "Status", "message": "the server could not find the requested resource"}
            items, first = script.lists[path], int(asked.get("continue", "0"))
            last = first + int(asked["limit"])
            more = {"continue": str(last)} if last < len(items) else {}
            return 200, {"metadata": more, "items": items[first:last]}

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield script, f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def kubeconfig(folder, url, *, token="secret"):
    """Write a kubeconfig and return its path."""
    file = folder / "kubeconfig"
    content = {
        "apiVersion": "v1", "kind": "Config", "current-context": "here",
        "clusters": [{"name": "c", "cluster": {"server": url}}],
        "users": [{"name": "u", "user": {"token": token}}],
        "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u"}}],
    }  # fmt: skip
    file.write_text(json.dumps(content))
    return file
