"""`tidings-healthcheck [ROLE]`: health check of a container image, tests whether the container's process is ready.

It runs every few seconds next to a server, so it imports only a few modules of the standard library, and it needs no
secret. The default role is that of the container's first process.
"""

from __future__ import annotations

import http.client
import os
import ssl
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

READY, NOT_READY, WRONG_USE = 0, 1, 2
SECONDS = 4.0
FIRST_PROCESS = Path("/proc/1/cmdline")

PATH = "/health/ready"
# Per role, the variable with the address that serves `PATH`, and its default.
_ANSWERS = {
    "webapp": ("TIDINGS_API_ADDRESS", "127.0.0.1:9090"),
    "coreapp": ("TIDINGS_COREAPP_METRICS_ADDRESS", "127.0.0.1:6253"),
    "network": ("TIDINGS_NETWORK_HTTP_ADDRESS", "127.0.0.1:9095"),
}
# Values in TIDINGS_ALLOW_PLAINTEXT that allow metrics without TLS.
_PLAINTEXT_METRICS = {"1", "true", "yes", "on", "all", "metrics"}
_LOOPBACK = ("127.", "::1", "localhost")
_EVERY_ADDRESS = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}  # noqa: S104


def main() -> int:
    """Print one line about the process. Returns exit status 0 if it is ready, 1 if not, 2 without a known role."""
    words = sys.argv[1:] or FIRST_PROCESS.read_bytes().decode(errors="replace").split("\0")
    role = find_role(words)
    if role is None:
        print(f"none of the roles {', '.join(_ANSWERS)} in {' '.join(words).strip()!r}", file=sys.stderr)
        return WRONG_USE
    try:
        status, body = fetch_health(role, os.environ)
    except (OSError, ValueError, http.client.HTTPException) as error:
        print(f"{role}: {error}", file=sys.stderr)
        return NOT_READY
    print(f"{role}: {status} {body}")
    return READY if status == http.client.OK else NOT_READY


def find_role(words: Sequence[str]) -> str | None:
    """Return the first word that is a role, such as `webapp` in `python -m cli.main webapp`; None without one."""
    return next((word for word in words if word in _ANSWERS), None)


def fetch_health(role: str, variables: Mapping[str, str]) -> tuple[int, str]:
    """Request `PATH`. Returns the HTTP status and up to 300 bytes of the response body.

    Raises `OSError`, `ValueError` and `HTTPException`.
    """
    host, port = address_of(role, variables)
    connection: http.client.HTTPConnection
    if speaks_tls(role, variables):
        connection = http.client.HTTPSConnection(host, port, timeout=SECONDS, context=_own())
    else:
        connection = http.client.HTTPConnection(host, port, timeout=SECONDS)
    try:
        connection.request("GET", PATH)
        answer = connection.getresponse()
        return answer.status, answer.read(300).decode(errors="replace").strip()
    finally:
        connection.close()


def address_of(role: str, variables: Mapping[str, str]) -> tuple[str, int]:
    """Return host and port by which the process is reached from inside its container."""
    variable, default = _ANSWERS[role]
    host, _, port = (variables.get(variable) or default).rpartition(":")
    host = host.strip("[]")
    return _EVERY_ADDRESS.get(host, host), int(port)


def speaks_tls(role: str, variables: Mapping[str, str]) -> bool:
    """Return whether the address uses TLS, by the same rules as the settings of the processes."""
    if role == "webapp":
        given = variables.get("TIDINGS_API_TLS")
        address = variables.get("TIDINGS_API_ADDRESS") or _ANSWERS[role][1]
        return given.lower() in ("1", "true", "yes", "on") if given else not address.strip("[").startswith(_LOOPBACK)
    if role == "coreapp":
        address = variables.get("TIDINGS_COREAPP_METRICS_ADDRESS") or _ANSWERS[role][1]
        plaintext = {word.strip().lower() for word in variables.get("TIDINGS_ALLOW_PLAINTEXT", "").split(",")}
        return not address.strip("[").startswith(_LOOPBACK) and not plaintext & _PLAINTEXT_METRICS
    names = ("TIDINGS_NETWORK_HTTP_CERTIFICATE", "TIDINGS_TLS_CERTIFICATE")
    return any(variables.get(name) for name in names)


def _own() -> ssl.SSLContext:
    """Return a context that does not verify certificates: the server is in this container and no secret is sent."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


if __name__ == "__main__":
    sys.exit(main())
