"""Being let in, over a real socket: TLS with a certificate of one's own, bearer, basic, tenant."""

import json
import shutil
import ssl
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx
import pytest

from trimtab.errors import CredentialsError, SourceError, UsageError
from trimtab.sources.http import Access
from trimtab.sources.prometheus.client import Prometheus

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificate")
WANTED = {"bearer": "Bearer secret", "basic": "Basic bWU6cHc="}


class Gate(BaseHTTPRequestHandler):
    """Answers those whose Authorization is one of the wanted, of tenant `prod`."""

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        let_in = self.headers["Authorization"] in WANTED.values() and self.headers["X-Scope-OrgID"] == "prod"
        body = (
            {"status": "success", "data": {"resultType": "scalar", "result": [0, "1"]}}
            if let_in
            else {"error": "no org id"}
        )
        text = json.dumps(body).encode()
        self.send_response(200 if let_in else 401)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_):
        """Say nothing."""


@pytest.fixture(scope="module")
def gate(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tls")
    key, certificate = folder / "key.pem", folder / "certificate.pem"
    subject = ("-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1")
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", *subject]
    subprocess.run([*command, "-keyout", str(key), "-out", str(certificate)], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Gate)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"https://127.0.0.1:{server.server_port}", certificate
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.parametrize("who", [{"bearer": "secret"}, {"user": "me", "password": "pw"}])
def test_those_who_show_who_they_are_are_let_in(gate, who):
    url, certificate = gate

    with Prometheus(url, Access(**who, tenant="prod", ca_file=certificate)) as server:
        server.check()

    assert server.requests == 1


def test_a_missing_tenant_is_a_matter_of_credentials(gate):
    url, certificate = gate

    with (
        Prometheus(url, Access(bearer="secret", ca_file=certificate)) as server,
        pytest.raises(CredentialsError, match="no org id"),
    ):
        server.check()


def test_a_certificate_that_nobody_vouches_for_is_refused_unless_told_otherwise(gate):
    url, _ = gate

    with (
        Prometheus(url, Access(bearer="secret", tenant="prod"), sleep=lambda _: None) as server,
        pytest.raises(SourceError, match="certificate"),
    ):
        server.check()
    with Prometheus(url, Access(bearer="secret", tenant="prod", insecure=True)) as server:
        server.check()


def test_a_token_with_a_line_break_is_refused_and_not_shown():
    with pytest.raises(UsageError) as raised:
        Access(bearer="hunter22\nhunter33").request_headers()

    assert "hunter" not in str(raised.value)


def test_a_refusal_that_echoes_the_token_does_not_show_it():
    transport = httpx.MockTransport(
        lambda request: httpx.Response(401, json={"error": f"bad {request.headers['Authorization']}"})
    )
    with (
        Prometheus("http://me:pass-word@prom.test", Access(bearer="hunter22"), transport=transport) as server,
        pytest.raises(CredentialsError) as raised,
    ):
        server.check()

    assert "hunter22" not in str(raised.value)
    assert "pass-word" not in str(raised.value)
