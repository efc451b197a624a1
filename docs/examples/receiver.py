"""Receive callbacks at a webhook URL, check their signatures, and print each event once."""

import base64
import hashlib
import hmac
import json
import os
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

KEY = base64.b64decode(os.environ["WEBHOOK_SECRET"].removeprefix("whsec_"))
handled: set[str] = set()  # in production a table, written in the transaction that stores the events


def handle(events: dict[str, list[dict[str, Any]]]) -> None:
    for status in events.get("statuses", []):
        print("status", status["status"], status["id"], status.get("errors", ""), flush=True)
    for message in events.get("messages", []):
        print("message", message["type"], message["from"], message.get("text", {}).get("body", ""), flush=True)


class Receiver(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        event_id, sent = self.headers.get("webhook-id", ""), self.headers.get("webhook-timestamp", "")
        mac = hmac.new(KEY, f"{event_id}.{sent}.".encode() + body, hashlib.sha256).digest()
        expected = b"v1," + base64.b64encode(mac)
        given = self.headers.get("webhook-signature", "").encode().split()  # two while a secret is rotated
        recent = sent.isdecimal() and abs(time.time() - int(sent)) <= 300
        genuine = recent and any(hmac.compare_digest(expected, one) for one in given)
        if genuine and event_id not in handled:  # the same callback may arrive again
            handle(json.loads(body))
            handled.add(event_id)
        self.send_response(200 if genuine else 401)  # after any other status than 200 the callback comes again
        self.end_headers()


print("ready", flush=True)
ThreadingHTTPServer(("127.0.0.1", int(os.environ.get("PORT", "8800"))), Receiver).serve_forever()
