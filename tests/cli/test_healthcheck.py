"""Health check of the image: finds the role and the address on its own, and imports very little."""

from __future__ import annotations

import http.server
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli import healthcheck
from tests.authority import Authority


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.server.requests.append(self.path)  # type: ignore[attr-defined]
        self.send_response(self.server.status)  # type: ignore[attr-defined]
        self.end_headers()
        self.wfile.write(b"said so")

    def log_message(self, format: str, *values: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[http.server.ThreadingHTTPServer]:
    made = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    made.requests, made.status = [], 200  # type: ignore[attr-defined]
    threading.Thread(target=made.serve_forever, daemon=True).start()
    yield made
    made.shutdown()
    made.server_close()


def check(*words: str, **variables: str) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-m", "cli.healthcheck", *words], env=variables, capture_output=True, text=True
    )
    return done.returncode, done.stdout + done.stderr


def test_a_ready_process_is_healthy_and_an_unready_one_is_not(server: http.server.ThreadingHTTPServer) -> None:
    address = f"127.0.0.1:{server.server_port}"
    assert check("coreapp", TIDINGS_COREAPP_METRICS_ADDRESS=address) == (0, "coreapp: 200 said so\n")
    server.status = 503  # type: ignore[attr-defined]
    assert check("coreapp", TIDINGS_COREAPP_METRICS_ADDRESS=address) == (1, "coreapp: 503 said so\n")


def test_a_refused_connection_is_unhealthy() -> None:
    status, said = check("network", TIDINGS_NETWORK_HTTP_ADDRESS="127.0.0.1:1")
    assert status == 1
    assert "refused" in said


def test_a_process_with_tls_is_checked_over_tls(server: http.server.ThreadingHTTPServer, tmp_path: Path) -> None:
    files = Authority().files(tmp_path, "network", "network.example")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files.chain, files.key)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    address = f"0.0.0.0:{server.server_port}"
    variables = {"TIDINGS_NETWORK_HTTP_ADDRESS": address, "TIDINGS_TLS_CERTIFICATE": files.chain}
    assert check("network", **variables)[0] == 0


@pytest.mark.parametrize(
    ("words", "role"),
    [
        (["/opt/tidings/bin/python3", "/opt/tidings/bin/tidings", "webapp", ""], "webapp"),
        (["/sbin/docker-init", "--", "tidings", "coreapp"], "coreapp"),
        (["/opt/tidings/bin/python3", "/opt/tidings/bin/tidings", "robots", ""], None),
    ],
)
def test_the_role_is_that_of_the_first_process(words: list[str], role: str | None) -> None:
    assert healthcheck.find_role(words) == role


@pytest.mark.parametrize(
    ("role", "variables", "expected"),
    [
        ("webapp", {}, ("127.0.0.1", 9090, False)),
        ("webapp", {"TIDINGS_API_ADDRESS": "0.0.0.0:443"}, ("127.0.0.1", 443, True)),
        ("webapp", {"TIDINGS_API_ADDRESS": "0.0.0.0:443", "TIDINGS_API_TLS": "0"}, ("127.0.0.1", 443, False)),
        ("webapp", {"TIDINGS_API_ADDRESS": "[::]:443"}, ("::1", 443, True)),
        ("webapp", {"TIDINGS_API_ADDRESS": "10.0.0.7:443"}, ("10.0.0.7", 443, True)),
        ("coreapp", {"TIDINGS_TLS_CERTIFICATE": "/x"}, ("127.0.0.1", 6253, False)),
        ("coreapp", {"TIDINGS_COREAPP_METRICS_ADDRESS": "0.0.0.0:6253"}, ("127.0.0.1", 6253, True)),
        (
            "coreapp",
            {"TIDINGS_COREAPP_METRICS_ADDRESS": "0.0.0.0:6253", "TIDINGS_ALLOW_PLAINTEXT": "link, metrics"},
            ("127.0.0.1", 6253, False),
        ),
        ("network", {"TIDINGS_NETWORK_HTTP_CERTIFICATE": "/x"}, ("127.0.0.1", 9095, True)),
    ],
)
def test_the_address_is_that_of_the_process(
    role: str, variables: dict[str, str], expected: tuple[str, int, bool]
) -> None:
    assert (*healthcheck.address_of(role, variables), healthcheck.speaks_tls(role, variables)) == expected


def test_the_health_check_imports_no_third_party_package() -> None:
    loaded = "import sys, cli.healthcheck; print([getattr(m, '__file__', '') for m in sys.modules.values()])"
    said = subprocess.run([sys.executable, "-S", "-c", loaded], capture_output=True, text=True).stdout
    assert "healthcheck.py" in said
    assert "site-packages" not in said
