"""What schemathesis is told of our API beyond its document: who calls, and what is put back after a call."""

from __future__ import annotations

import base64
import os
from typing import Any

import requests
import schemathesis

from tests.fuzz import beyond

BASE_URL = os.environ["FUZZ_URL"]
ADMIN_TOKEN = os.environ["FUZZ_TOKEN"]
ADMIN, ADMIN_PASSWORD = "admin", os.environ["FUZZ_PASSWORD"]
# Who logs out; deleted or changed by other calls at times, then made again.
LEAVER, LEAVER_PASSWORD = "leaver", "Tidings-2026!"
LOGIN, LOGOUT = "/v1/users/login", "/v1/users/logout"
SECONDS = 30.0


def _basic(username: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{username}:{password}".encode()).decode()


def _call(method: str, path: str, authorization: str, body: Any = None) -> requests.Response:
    headers = {"Authorization": authorization}
    return requests.request(method, BASE_URL + path, json=body, headers=headers, timeout=SECONDS)


def _leaver_token() -> str:
    """A token that may be ended."""
    authorization = _basic(LEAVER, LEAVER_PASSWORD)
    answer = _call("POST", LOGIN, authorization)
    if answer.status_code != 200:
        _call("DELETE", f"/v1/users/{LEAVER}", f"Bearer {ADMIN_TOKEN}")
        user = {"username": LEAVER, "password": LEAVER_PASSWORD}
        _call("POST", "/v1/users", f"Bearer {ADMIN_TOKEN}", user).raise_for_status()
        answer = _call("POST", LOGIN, authorization)
    token: str = answer.json()["users"][0]["token"]
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
    """Else the first logout would end the run."""

    def get(self, case: schemathesis.Case, context: schemathesis.AuthContext) -> str:
        return f"Bearer {_leaver_token()}"


@schemathesis.auth().skip_for(path=[LOGIN, LOGOUT])
class ByToken(_Provider):
    def get(self, case: schemathesis.Case, context: schemathesis.AuthContext) -> str:
        return f"Bearer {ADMIN_TOKEN}"


@schemathesis.hook
def after_call(context: schemathesis.HookContext, case: schemathesis.Case, response: schemathesis.Response) -> None:
    """The administrator's password is put back when a call has changed it."""
    changed = case.operation.path == LOGIN or (case.method == "PUT" and case.operation.path == "/v1/users/{username}")
    if changed and response.status_code == 200 and isinstance(case.body, dict):
        new = case.body.get("new_password" if case.operation.path == LOGIN else "password")
        if new is not None and response.json()["users"][0].get("username", ADMIN) == ADMIN:
            body = {"password": ADMIN_PASSWORD}
            _call("PUT", f"/v1/users/{ADMIN}", f"Bearer {ADMIN_TOKEN}", body).raise_for_status()


@schemathesis.hook
def filter_failure(
    context: schemathesis.HookContext, failure: Any, case: schemathesis.Case, response: schemathesis.Response
) -> bool:
    """Whether it counts."""
    return beyond.find(failure.code, f"{case.method} {case.operation.path}", response.content) is None
