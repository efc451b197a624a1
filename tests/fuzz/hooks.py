"""Hooks that tell schemathesis what the document cannot: the callers, and what is restored after a call.

This module is loaded by the process of schemathesis, which `run.py` starts with the variables that are read here.
"""

from __future__ import annotations

import base64
import itertools
import os
import re
import string
from pathlib import Path
from typing import Any

import requests
import schemathesis
from hypothesis import strategies as st

from tests.fuzz import known_failures
from tests.fuzz.rig import PARTICIPANTS, UNKNOWN
from webapp.api.groups.schemas import MAX_WA_IDS

BASE_URL = os.environ["FUZZ_URL"]
# The administrator's tokens, the latest one last: a new password revokes earlier ones.
ADMIN_TOKENS = [os.environ["FUZZ_TOKEN"]]
ADMIN, ADMIN_PASSWORD = "admin", os.environ["FUZZ_PASSWORD"]
# One line per call: method, path template and status; and one per failure that is explained.
TALLY = Path(os.environ["FUZZ_TALLY"]).open("a", buffering=1)  # noqa: SIM115 (until this process ends)
# Id of an inbound message.
INBOUND = os.environ["FUZZ_INBOUND"]
GROUP = os.environ["FUZZ_GROUP"]
# User for logouts. Other calls delete or change it at times, after which it is created again.
LEAVER, LEAVER_PASSWORD = "leaver", "Tidings-2026!"
USER = "/v1/users/{username}"
LOGIN, LOGOUT, MESSAGES, GROUPS = "/v1/users/login", "/v1/users/logout", "/v1/messages", "/v1/groups"
IDEMPOTENCY_KEY = re.compile("[!-~]{1,200}")
WA_ID = re.compile(r"\+?[0-9]{5,20}")
COUNTER = itertools.count()
NUMBER = re.compile(r"^[ .()\u00a0-]*\+?(?:[ .()\u00a0-]*[0-9]){1,36}[ .()\u00a0-]*$")
SECONDS = 30.0


def _basic(username: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{username}:{password}".encode()).decode()


def _call(method: str, path: str, authorization: str, body: Any = None) -> requests.Response:
    headers = {"Authorization": authorization}
    return requests.request(method, BASE_URL + path, json=body, headers=headers, timeout=SECONDS)


def _leaver_token() -> str:
    """Return a token that may be revoked."""
    authorization = _basic(LEAVER, LEAVER_PASSWORD)
    found = _call("POST", LOGIN, authorization)
    if found.status_code != 200:
        _call("DELETE", f"/v1/users/{LEAVER}", f"Bearer {ADMIN_TOKENS[-1]}")
        user = {"username": LEAVER, "password": LEAVER_PASSWORD}
        _call("POST", "/v1/users", f"Bearer {ADMIN_TOKENS[-1]}", user).raise_for_status()
        found = _call("POST", LOGIN, authorization)
    token: str = found.json()["users"][0]["token"]
    return token


class _Provider:
    def get(self, case: schemathesis.Case, context: schemathesis.AuthContext) -> str:
        raise NotImplementedError

    def set(self, case: schemathesis.Case, data: str, context: schemathesis.AuthContext) -> None:
        case.headers["Authorization"] = data


@schemathesis.auth().apply_to(path=LOGIN)
class ByPassword(_Provider):
    def get(self, case: schemathesis.Case, context: schemathesis.AuthContext) -> str:
        return _basic(ADMIN, ADMIN_PASSWORD)


@schemathesis.auth(refresh_interval=None).apply_to(path=LOGOUT)
class ByTokenOfItsOwn(_Provider):
    """Token for logouts only. Otherwise the first logout would end the run."""

    def get(self, case: schemathesis.Case, context: schemathesis.AuthContext) -> str:
        return f"Bearer {_leaver_token()}"


@schemathesis.auth(refresh_interval=None).skip_for(path=[LOGIN, LOGOUT])
class ByToken(_Provider):
    def get(self, case: schemathesis.Case, context: schemathesis.AuthContext) -> str:
        return f"Bearer {ADMIN_TOKENS[-1]}"


@schemathesis.hook
def before_call(context: schemathesis.HookContext, case: schemathesis.Case, kwargs: dict[str, Any]) -> None:
    """Keep the business in the group: leaving cannot be undone."""
    if case.operation.path.endswith("/leave") and case.path_parameters.get("group_id") == GROUP:
        case.path_parameters["group_id"] = f"{GROUP}0"


@schemathesis.hook
def after_call(context: schemathesis.HookContext, case: schemathesis.Case, response: schemathesis.Response) -> None:
    """Count the call, and restore the administrator's password and token when a call has changed or revoked them."""
    path = case.operation.path
    print(case.method, path, response.status_code, file=TALLY)
    changes = {("POST", LOGIN): "new_password", ("PUT", USER): "password", ("DELETE", f"{USER}/tokens"): ""}
    field = changes.get((case.method, path))
    if field is None or response.status_code != 200 or response.json()["users"][0].get("username", ADMIN) != ADMIN:
        return
    password = case.body.get(field) if field and isinstance(case.body, dict) else None
    if password is not None or not field:
        body = {"new_password": ADMIN_PASSWORD}
        found = _call("POST", LOGIN, _basic(ADMIN, password or ADMIN_PASSWORD), body)
        found.raise_for_status()
        ADMIN_TOKENS[:] = [found.json()["users"][0]["token"]]


def _is_wa_id(value: object) -> bool:
    return isinstance(value, str) and WA_ID.fullmatch(value) is not None


def _are_wa_ids(value: object) -> bool:
    """Return whether all are numbers, at most as many as one call may name. Other values are to be refused
    unchanged."""
    return isinstance(value, list) and 0 < len(value) <= MAX_WA_IDS and all(map(_is_wa_id, value))


@schemathesis.hook
def map_body(context: schemathesis.HookContext, body: Any) -> Any:
    """Let most messages and most numbers name existing recipients, which random digits never would."""
    path = context.operation.path if context.operation is not None else ""
    if not isinstance(body, dict):
        return body
    to, wa_ids = body.get("to"), body.get("wa_ids")
    if path == MESSAGES and isinstance(to, str) and len(to) <= 64 and NUMBER.fullmatch(to):
        if body.get("recipient_type") == "group":
            return {**body, "to": GROUP}
        return {**body, "to": UNKNOWN if len(to) % 4 == 0 else PARTICIPANTS[0]}
    if path.startswith(f"{GROUPS}/") and _are_wa_ids(wa_ids):
        # The first participant is made an admin and an ordinary participant again, the second is removed.
        return {**body, "wa_ids": [PARTICIPANTS[path.endswith("/participants")]]}
    return body


@schemathesis.hook
def map_path_parameters(context: schemathesis.HookContext, path_parameters: dict[str, Any]) -> dict[str, Any]:
    """Let some of the messages that are marked as read, and some groups, exist."""
    path = context.operation.path if context.operation is not None else ""
    name, there = ("group_id", GROUP) if path.startswith(f"{GROUPS}/") else ("message_id", INBOUND)
    given = (path_parameters or {}).get(name)
    if isinstance(given, str) and len(given) % 4:
        return {**path_parameters, name: there}
    return path_parameters


@schemathesis.hook
def map_headers(context: schemathesis.HookContext, headers: dict[str, Any]) -> dict[str, Any]:
    """Make most idempotency keys unique."""
    key = (headers or {}).get("Idempotency-Key")
    if isinstance(key, str) and IDEMPOTENCY_KEY.fullmatch(key):
        number = next(COUNTER)
        if number % 4:
            return {**headers, "Idempotency-Key": f"{key}-{number}"}
    return headers


def _passwords() -> st.SearchStrategy[str]:
    words = st.text(string.ascii_letters + string.digits, min_size=4, max_size=20)
    return words.map(lambda word: f"Aa1!{word}")


schemathesis.openapi.format("password", _passwords())


@schemathesis.hook
def filter_failure(
    context: schemathesis.HookContext, failure: Any, case: schemathesis.Case, response: schemathesis.Response
) -> bool:
    """Return whether the failure counts."""
    sent = response.request.body or b""
    operation = f"{case.method} {case.operation.path}"
    sent = sent if isinstance(sent, bytes) else b""
    known = known_failures.find(failure.code, operation, sent, response.content, failure.message)
    if known is not None:
        print("explained:", known.failure, known.reason, file=TALLY)
    return known is None
