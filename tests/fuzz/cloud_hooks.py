"""Hooks for the Cloud API: the caller, objects that exist, and what is restored after a call.

This module is loaded by the process of schemathesis, which `run.py` starts with the variables that are read here.
"""

from __future__ import annotations

import itertools
import json
import os
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import requests
import schemathesis

from tests.fuzz.rig import ECHO, PARTICIPANTS, UNKNOWN
from tests.media_samples import PNG
from tidings.wire.cloud import identity, wamid

BASE_URL = os.environ["FUZZ_URL"] + "/v25.0"
TOKEN = os.environ["FUZZ_TOKEN"]
WEBHOOK = os.environ["FUZZ_WEBHOOK"]
INBOUND = wamid.encode(os.environ["FUZZ_INBOUND"], ECHO, by_recipient=True)
# One line per call: method, path template and status; and one per response that breaks the format of the Cloud API.
TALLY = Path(os.environ["FUZZ_TALLY"]).open("a", buffering=1)  # noqa: SIM115 (until this process ends)
IDS = identity.derive("15550000000")
SECONDS = 30.0
COUNTER = itertools.count()
PIN = "246810"
TEMPLATES, TEMPLATE, FILE = "/{waba-id}/message_templates", "/{template-id}", "/{media-id}"
BYTES = "/whatsapp_business/attachments"
FILE_KINDS = ("image", "video", "audio", "document", "sticker")


def _call(method: str, path: str, **arguments: Any) -> requests.Response:
    headers = {"Authorization": f"Bearer {TOKEN}"}
    response = requests.request(method, BASE_URL + path, headers=headers, timeout=SECONDS, **arguments)
    response.raise_for_status()
    return response


class Existing:
    """A template and a file that exist, created again after a call has deleted them."""

    def __init__(self) -> None:
        self.template_name = ""
        self.template = ""
        self.file = ""
        self.create_template()
        self.upload()

    def create_template(self) -> None:
        self.template_name = f"fuzz_{next(COUNTER)}"
        definition = {
            "name": self.template_name,
            "language": "en_US",
            "category": "UTILITY",
            "components": [{"type": "BODY", "text": "Hello"}],
        }
        self.template = _call("POST", f"/{IDS.waba_id}/message_templates", json=definition).json()["id"]

    def upload(self) -> None:
        form = {"messaging_product": "whatsapp"}
        files = {"file": ("a.png", PNG, "image/png")}
        self.file = _call("POST", f"/{IDS.phone_number_id}/media", data=form, files=files).json()["id"]

    def link(self) -> dict[str, str]:
        """Return the query of the file's URL."""
        return dict(parse_qsl(urlsplit(_call("GET", f"/{self.file}").json()["url"]).query))


EXISTING = Existing()


@schemathesis.auth(refresh_interval=None)
class ByToken:
    def get(self, case: schemathesis.Case, context: schemathesis.AuthContext) -> str:
        return f"Bearer {TOKEN}"

    def set(self, case: schemathesis.Case, data: str, context: schemathesis.AuthContext) -> None:
        case.headers["Authorization"] = data


def _path(context: schemathesis.HookContext) -> str:
    return context.operation.path if context.operation is not None else ""


def _is_chosen() -> bool:
    """Return whether a value is replaced by an existing one: three times of four."""
    return bool(next(COUNTER) % 4)


@schemathesis.hook
def map_path_parameters(context: schemathesis.HookContext, path_parameters: dict[str, Any]) -> dict[str, Any]:
    """Let most ids name existing objects."""
    existing = {
        "phone-number-id": IDS.phone_number_id,
        "waba-id": IDS.waba_id,
        "app-id": IDS.app_id,
        "business-id": IDS.business_id,
        "template-id": EXISTING.template,
        "media-id": EXISTING.file,
    }
    return {
        name: existing[name] if name in existing and _is_chosen() else value
        for name, value in (path_parameters or {}).items()
    }


@schemathesis.hook
def map_query(context: schemathesis.HookContext, query: dict[str, Any]) -> dict[str, Any]:
    """Let most parameters name existing things."""
    path, found = _path(context), dict(query or {})
    if not _is_chosen():
        return found
    if path == BYTES:
        return EXISTING.link()
    if path == "/debug_token":
        return {"input_token": TOKEN}
    if "phone_number_id" in found:
        found["phone_number_id"] = IDS.phone_number_id
    if "fields" in found:
        found["fields"] = "messages" if path.endswith("/subscriptions") else "id"
    if path == TEMPLATES and "name" in found:
        found["name"] = EXISTING.template_name
        found.pop("hsm_id", None)
    return found


@schemathesis.hook
def map_body(context: schemathesis.HookContext, body: Any) -> Any:
    """Let most messages have existing recipients and files, and most callbacks be reachable."""
    path = _path(context)
    if not isinstance(body, dict) or not _is_chosen():
        return body
    found = dict(body)
    if path.endswith("/messages"):
        return _message(found)
    if "block_users" in found:
        found["block_users"] = [{"user": ECHO}]
    if "pin" in found:
        found["pin"] = PIN
    if path.endswith("/media") and "file" in found:
        found |= {"file": PNG, "type": "image/png"}
    if path == TEMPLATE:
        found = {"components": [{"type": "BODY", "text": "Hello again"}]}
    if "callback_url" in found:
        found |= {"callback_url": WEBHOOK, "verify_token": "fuzz", "fields": "messages"}
    for holder in (found, found.get("webhook_configuration")):
        if isinstance(holder, dict) and holder.get("override_callback_uri"):
            holder |= {"override_callback_uri": WEBHOOK, "verify_token": "fuzz"}
    return found


def _message(found: dict[str, Any]) -> dict[str, Any]:
    if "status" in found:
        return {**found, "message_id": INBOUND}
    if "to" in found:
        found["to"] = (PARTICIPANTS[0], UNKNOWN, ECHO)[next(COUNTER) % 3]
    kind = found.get("type")
    content = found.get(kind) if isinstance(kind, str) else None
    if kind in FILE_KINDS and isinstance(content, dict) and "id" in content:
        return {**found, "type": "image", "image": {"id": EXISTING.file}}
    if kind == "template" and isinstance(content, dict):
        template = {"name": EXISTING.template_name, "language": {"code": "en_US"}}
        return {**found, "template": template if _is_chosen() else content}
    return found


@schemathesis.hook
def after_call(context: schemathesis.HookContext, case: schemathesis.Case, response: schemathesis.Response) -> None:
    """Count the call, check that its response is JSON, and create again what it has deleted."""
    path = case.operation.path
    operation = f"{case.method} {path}"
    print(operation, response.status_code, file=TALLY)
    is_file = path == BYTES and response.status_code in (200, 206)
    if not is_file and not _is_well_formed(response):
        print("broken:", operation, file=TALLY)
    if case.method == "DELETE" and response.status_code == 200:
        if path == FILE:
            EXISTING.upload()
        if path == TEMPLATES:
            EXISTING.create_template()


def _is_well_formed(response: schemathesis.Response) -> bool:
    """Return whether a response is a JSON object, and an error has its code."""
    try:
        found = json.loads(response.content)
    except ValueError:
        return False
    if response.status_code < 400:
        return isinstance(found, dict)
    error = found.get("error") if isinstance(found, dict) else None
    return isinstance(error, dict) and isinstance(error.get("code"), int)
