"""Send a text message: client.py TO TEXT [KEY]. Calls with the same KEY send one message."""

import os
import sys
import time
import uuid

import httpx

PASSWORD = os.environ["API_PASSWORD"]
http = httpx.Client(base_url=os.environ.get("API_URL", "http://127.0.0.1:9090"), timeout=40)


def log_in(password: str, **body: str) -> None:
    response = http.post("/v1/users/login", auth=("admin", password), json=body).raise_for_status()
    http.headers["Authorization"] = f"Bearer {response.json()['users'][0]['token']}"


def call(method: str, path: str, body: dict[str, object], key: str = "") -> httpx.Response:
    headers = {"Idempotency-Key": key or str(uuid.uuid4())}  # makes it safe to repeat the call
    for delay in (1, 2, 4, 8, 16):
        try:
            response = http.request(method, path, json=body, headers=headers)
        except httpx.TransportError:  # whether the call took effect is unknown
            time.sleep(delay)
            continue
        if response.status_code == 401:  # the token has expired
            log_in(PASSWORD)
        elif response.status_code in (409, 429, 500, 503):
            time.sleep(float(response.headers.get("Retry-After", delay)))
        else:
            return response if response.is_success else sys.exit(response.text)
    sys.exit(f"{method} {path}: no success in 5 attempts")


if first := os.environ.get("API_FIRST_PASSWORD"):
    log_in(first, new_password=PASSWORD)
call("PATCH", "/v1/settings/application", {"webhooks": {"url": os.environ["WEBHOOK_URL"]}, "sent_status": True})
to, text, *key = sys.argv[1:]
print(call("POST", "/v1/messages", {"to": to, "text": {"body": text}}, *key).json()["messages"][0]["id"])
