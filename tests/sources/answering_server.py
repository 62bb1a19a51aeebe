"""A server on loopback that answers by script and remembers what it was asked."""

import contextlib
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qsl, urlsplit


@dataclass
class Asked:
    """One request: its method, path, query, headers and body."""

    method: str
    path: str
    query: dict
    headers: dict
    body: bytes


@dataclass
class Script:
    """What to answer: `answer` maps a request to (status, headers, body); `faults` are answered first, one a request."""

    answer: object = None
    faults: list = field(default_factory=list)
    seen: list = field(default_factory=list)


@contextlib.contextmanager
def answering(answer):
    """Serve on loopback; gives the script and the address."""
    script = Script(answer=answer)

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_):
            pass

        def _serve(self):
            url = urlsplit(self.path)
            length = int(self.headers.get("Content-Length") or 0)
            asked = Asked(
                self.command, url.path, dict(parse_qsl(url.query)), dict(self.headers), self.rfile.read(length)
            )
            script.seen.append(asked)
            status, headers, body = script.faults.pop(0) if script.faults else script.answer(asked)
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST = do_PATCH = _serve

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield script, f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
