"""Business for the tests: it logs in, sends, and receives its webhook, with the standard library alone."""

from __future__ import annotations

import base64
import dataclasses
import http.server
import json
import ssl
import threading
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Callable
from typing import Any

PASSWORD = "Tidings-2026!"


class Webhook:
    """Webhook that keeps what the server posts from its creation on."""

    def __init__(self, host: str) -> None:
        bodies: list[dict[str, Any]] = []
        changed = threading.Condition()

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                with changed:
                    bodies.append(body)
                    changed.notify_all()
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *values: object) -> None:
                pass

        self._bodies, self._changed = bodies, changed
        self._server = http.server.ThreadingHTTPServer((host, 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://{host}:{self._server.server_port}/callback"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def statuses(self) -> dict[str, list[str]]:
        """Return the statuses of each message by id, in order of arrival, each once."""
        found: dict[str, list[str]] = {}
        for body in list(self._bodies):
            for status in body.get("statuses", []):
                if status["status"] not in found.setdefault(status["id"], []):
                    found[status["id"]].append(status["status"])
        return found

    def inbound(self) -> list[dict[str, Any]]:
        return [message for body in list(self._bodies) for message in body.get("messages", [])]

    def wait(self, is_there: Callable[[], bool], seconds: float) -> bool:
        """Wait until the condition holds. Returns False when it does not within `seconds`."""
        with self._changed:
            return self._changed.wait_for(is_there, seconds)


@dataclasses.dataclass
class Business:
    """Caller of the API at a URL whose certificate is not verified."""

    url: str
    bearer: str = ""

    def call(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
        """Return status and JSON. Raises `OSError` when there is no response."""
        request = urllib.request.Request(self.url + path, method=method)
        if body is not None:
            request.data = json.dumps(body).encode()
            request.add_header("Content-Type", "application/json")
        for name, value in ({"Authorization": self.bearer} | headers).items():
            request.add_header(name.replace("_", "-"), value)
        try:
            with urllib.request.urlopen(request, timeout=40, context=ssl._create_unverified_context()) as reply:
                return reply.status, json.loads(reply.read() or b"null")
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.loads(error.read() or b"null")

    def login(self, password: str, new_password: str = "") -> tuple[int, Any]:
        basic = "Basic " + base64.b64encode(f"admin:{password}".encode()).decode()
        body = {"new_password": new_password} if new_password else {}
        status, response = self.call("POST", "/v1/users/login", body, Authorization=basic)
        if status == 200:
            self.bearer = "Bearer " + response["users"][0]["token"]
        return status, response

    def upload(self, content: bytes, kind: str) -> str:
        """Upload a file of a MIME type and return its id."""
        request = urllib.request.Request(self.url + "/v1/media", data=content, method="POST")
        request.add_header("Authorization", self.bearer)
        request.add_header("Content-Type", kind)
        with urllib.request.urlopen(request, timeout=40, context=ssl._create_unverified_context()) as reply:
            return str(json.loads(reply.read())["media"][0]["id"])

    def download(self, media: str) -> bytes:
        """Return the content of a file."""
        request = urllib.request.Request(f"{self.url}/v1/media/{media}", headers={"Authorization": self.bearer})
        with urllib.request.urlopen(request, timeout=40, context=ssl._create_unverified_context()) as reply:
            return bytes(reply.read())

    def send(self, to: str, text: str, seconds: float = 60) -> str:
        """Send a text and return the id of the message. It is retried under one idempotency key for `seconds`."""
        body = {"to": to, "type": "text", "text": {"body": text}}
        key, end = uuid.uuid4().hex, time.monotonic() + seconds
        while True:
            try:
                status, response = self.call("POST", "/v1/messages", body, Idempotency_Key=key)
                if status == 201:
                    return str(response["messages"][0]["id"])
                seen = f"{status} {response}"
                is_final = status not in (429, 500, 502, 503, 504)
            except (OSError, ValueError) as error:
                seen, is_final = repr(error), False
            if is_final or time.monotonic() > end:
                raise AssertionError(f"a message to {to} was not taken: {seen}")
            time.sleep(0.2)
