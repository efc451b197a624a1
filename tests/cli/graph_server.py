"""Cloud API for commands: it responds with what a test sets, from a thread, because commands are processes."""

from __future__ import annotations

import contextlib
import http.server
import json
import threading
from collections.abc import Iterator
from typing import Any

P, W = "106540352242922", "102290129340398"  # ids of phone number and WABA


class Graph(http.server.ThreadingHTTPServer):
    """Cloud API that responds with what a test sets, by the last part of the path."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.responses: dict[str, tuple[int, Any]] = {
            P: (200, {"id": P, "display_phone_number": "+1 555-000-0000", "status": "CONNECTED"}),
            "phone_numbers": (200, {"data": [{"id": P}]}),
            "subscribed_apps": (200, {"data": [{"whatsapp_business_api_data": {"id": "1"}}]}),
        }
        self.requests: list[str] = []
        self.date = ""  # value of the header; empty for the present time

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v25.0"


class _Handler(http.server.BaseHTTPRequestHandler):
    server: Graph

    def do_GET(self) -> None:
        self.server.requests.append(f"{self.path} {self.headers['Authorization']}")
        status, body = self.server.responses[self.path.partition("?")[0].rpartition("/")[2]]
        content = json.dumps(body).encode()
        self.send_response_only(status)
        self.send_header("Date", self.server.date or self.date_time_string())
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing."""


@contextlib.contextmanager
def serving() -> Iterator[Graph]:
    """Serve during the block."""
    server = Graph()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
