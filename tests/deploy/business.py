"""A business of the tests: it logs in, sends, and hears its webhook, with the standard library alone."""

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
    """What the server posts, from the moment that this is made."""

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
        """Of each message, by its id, in the order in which they came; one that came again counts once."""
        found: dict[str, list[str]] = {}
        for body in list(self._bodies):
            for status in body.get("statuses", []):
                if status["status"] not in found.setdefault(status["id"], []):
                    found[status["id"]].append(status["status"])
        return found

    def inbound(self) -> list[dict[str, Any]]:
        return [message for body in list(self._bodies) for message in body.get("messages", [])]

    def wait(self, is_there: Callable[[], bool], seconds: float) -> bool:
        """Is it there before so many seconds have passed?"""
        with self._changed:
            return self._changed.wait_for(is_there, seconds)


@dataclasses.dataclass
class Business:
    """Calls of the API at a URL, whose certificate nobody vouches for yet."""

    url: str
    bearer: str = ""

    def call(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
        """Status and JSON. Raises `OSError` where there was no answer."""
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
        status, answer = self.call("POST", "/v1/users/login", body, Authorization=basic)
        if status == 200:
            self.bearer = "Bearer " + answer["users"][0]["token"]
        return status, answer

    def send(self, to: str, text: str, seconds: float = 60) -> str:
        """A text, tried again as a careful client does, under one key: the id of the message."""
        body = {"to": to, "type": "text", "text": {"body": text}}
        key, end = uuid.uuid4().hex, time.monotonic() + seconds
        while True:
            try:
                status, answer = self.call("POST", "/v1/messages", body, Idempotency_Key=key)
                if status == 201:
                    return str(answer["messages"][0]["id"])
                seen = f"{status} {answer}"
                is_final = status not in (429, 500, 502, 503, 504)
            except (OSError, ValueError) as error:
                seen, is_final = repr(error), False
            if is_final or time.monotonic() > end:
                raise AssertionError(f"a message to {to} was not taken: {seen}")
            time.sleep(0.2)
