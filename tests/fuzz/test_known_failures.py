"""`beyond` explains only few cases, and other tests check them."""

from __future__ import annotations

import json
import re
from pathlib import Path

from tests.fuzz import known_failures

ROOT = Path(__file__).parents[2]


def error_response(*details: str, code: int = 1009) -> bytes:
    return json.dumps({"errors": [{"code": code, "title": "t", "details": text} for text in details]}).encode()


def test_every_exception_names_existing_tests() -> None:
    for entry in known_failures.KNOWN:
        assert (ROOT / entry.covered).is_file(), entry
        assert entry.reason
        assert re.compile(entry.operation)
        assert re.compile(entry.details)


def test_only_the_known_server_error_is_explained() -> None:
    there = error_response("Unable to create user. Already exist?", code=1014)
    assert known_failures.find(known_failures.SERVER_ERROR, "POST /v1/users", b"{}", there) is not None
    assert known_failures.find(known_failures.SERVER_ERROR, "POST /v1/groups", b"{}", there) is None
    assert (
        known_failures.find(
            known_failures.SERVER_ERROR, "POST /v1/users", b"{}", error_response("unexpected", code=1000)
        )
        is None
    )


def test_one_unknown_error_is_enough_for_a_failure() -> None:
    known, other = "code: should be the one that was sent", "body: should be a JSON object"
    operation = "POST /v1/account/verify"
    assert known_failures.find(known_failures.REJECTED, operation, b"{}", error_response(known)) is not None
    assert known_failures.find(known_failures.REJECTED, operation, b"{}", error_response(known, other)) is None


def test_an_accepted_request_is_explained_only_when_its_body_is_blank() -> None:
    for sent, is_known in ((b" \n", True), (b"", False), (b"{}", False), (b"\n{", False)):
        found = known_failures.find(known_failures.ACCEPTED, "PATCH /v1/settings/application", sent, b'{"meta": {}}')
        assert (found is not None) is is_known
    assert known_failures.find(known_failures.ACCEPTED, "POST /v1/users", b" ", error_response("")) is None


def test_a_response_in_another_format_is_never_explained() -> None:
    for body in (b"", b"<html>", b"[]", b"null", b'{"errors": [1]}', b'{"errors": []}'):
        assert known_failures.find(known_failures.REJECTED, "POST /v1/account/verify", b"{}", body) is None
