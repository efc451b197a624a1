"""Responses of the Cloud API become outcomes: of the message, of its recipient, or of the number."""

from __future__ import annotations

import json
from typing import Any

import pytest

from coreapp.upstream import outcomes
from coreapp.upstream.outcomes import (
    FileMissing,
    NumberStopped,
    PostAccepted,
    PostDelayed,
    PostRefused,
    PostUnknown,
    of_response,
)


def error(code: int, message: str = "Title", **more: Any) -> bytes:
    return json.dumps({"error": {"message": message, "type": "OAuthException", "code": code, **more}}).encode()


def test_a_recorded_success_is_accepted_with_its_id() -> None:
    body = (
        b'{"messaging_product":"whatsapp","contacts":[{"input":"13437772910","wa_id":"13437772910"}],'
        b'"messages":[{"id":"wamid.HBgLMTM0Mzc3NzI5MTAVAgARGBI=","message_status":"accepted"}]}'
    )
    assert of_response(200, body) == PostAccepted("wamid.HBgLMTM0Mzc3NzI5MTAVAgARGBI=")


@pytest.mark.parametrize(
    ("status", "content"),
    [
        (200, b"<html>"),
        (200, b'{"messages":[]}'),
        (200, b'{"messages":[{"id":""}]}'),
        (200, b'{"messages":[{"id":"a\\nb"}]}'),
        (200, json.dumps({"messages": [{"id": "x" * 256}]}).encode()),
        (200, b'{"messaging_product":"whatsapp"}'),
        (200, b'{"messages":[{"id":"wam'),
        (200, b"\xff"),
        (200, b'{"messages":[{"id":' + b"[" * 20_000),
        (500, b'{"error":{"code":100,"error_data":' + b"[" * 20_000 + b"]" * 20_000 + b"}}"),
        (500, b"<html>"),
        (502, b""),
        (408, b""),
        (101, b""),
        (500, error(131000)),
        (500, error(1)),
        (503, error(99999)),
    ],
)
def test_an_unclear_response_leaves_the_outcome_open(status: int, content: bytes) -> None:
    assert isinstance(of_response(status, content), PostUnknown)


@pytest.mark.parametrize(
    ("status", "content"),
    [
        (401, error(190, error_subcode=463)),
        (401, error(0)),
        (401, error(104)),
        (403, error(10)),
        (403, error(200)),
        (403, error(299)),
        (403, error(131005)),
        (400, error(3)),
        (400, error(33)),
        (400, error(133010)),
        (500, error(131045)),
    ],
)
def test_a_fault_of_credentials_or_number_stops_the_number(status: int, content: bytes) -> None:
    assert isinstance(of_response(status, content), NumberStopped)


@pytest.mark.parametrize(
    ("content", "otherwise"),
    [
        # The phone number id may be wrong as well.
        (error(100, error_subcode=33), NumberStopped),
        (error(131053), PostRefused),
        (error(131052), PostRefused),
        (error(100, error_data={"details": "Param image['id'] is not a valid media attachment ID"}), PostRefused),
    ],
)
def test_an_error_that_may_concern_a_file_has_an_alternative_outcome(content: bytes, otherwise: type) -> None:
    found = of_response(400, content)
    assert isinstance(found, FileMissing)
    assert isinstance(found.otherwise, otherwise)


@pytest.mark.parametrize("code", [2, 4, 80007, 130429, 131016, 131057, 133004, 2494100])
@pytest.mark.parametrize("status", [400, 429, 500, 503])
def test_a_limit_or_an_overload_delays_the_number(code: int, status: int) -> None:
    found = of_response(status, error(code, "(#4) Title"), "7")
    assert found == PostDelayed("(#4) Title", of_recipient=False, seconds=7.0)


def test_the_pair_limit_delays_the_recipient_only() -> None:
    assert of_response(400, error(131056, "(#131056) Pair"), "") == PostDelayed("(#131056) Pair", of_recipient=True)


@pytest.mark.parametrize("status", [301, 400, 403, 404, 407, 429])
def test_a_response_of_another_server_delays_the_number(status: int) -> None:
    assert isinstance(of_response(status, b"<html>"), PostDelayed)


@pytest.mark.parametrize(
    ("given", "seconds"), [("", 0.0), ("5", 5.0), ("100000", 64.0), ("-1", 0.0), ("soon", 0.0), ("1.5", 0.0)]
)
def test_retry_after_is_bounded(given: str, seconds: float) -> None:
    found = of_response(429, error(4), given)
    assert isinstance(found, PostDelayed)
    assert found.seconds == seconds


@pytest.mark.parametrize(
    ("status", "code", "message", "v1"),
    [
        (400, 100, "(#100) The parameter messaging_product is required.", 1008),
        (400, 100, "(#100) Invalid parameter", 1009),
        (400, 131008, "(#131008) Required parameter is missing", 1008),
        (400, 131009, "(#131009) Parameter value is not valid", 1009),
        (400, 131021, "(#131021) Recipient cannot be sender", 1021),
        (403, 131031, "(#131031) Account has been locked", 1031),
        (403, 368, "Temporarily blocked for policies violations", 1031),
        (403, 130497, "(#130497) Business account is restricted", 1031),
        (400, 132000, "(#132000) Number of parameters does not match the expected number of params", 2000),
        (404, 132001, "(#132001) Template name does not exist in the translation", 2001),
        (400, 132005, "(#132005) Translated text too long", 2005),
        (400, 132007, "(#132007) Character policy violated", 2006),
        (400, 132012, "(#132012) Parameter format does not match", 2012),
        (400, 132015, "(#132015) Template is paused", 2061),
        (400, 132016, "(#132016) Template is disabled", 2062),
        (400, 132068, "(#132068) Flow is blocked", 2068),
        (400, 132069, "(#132069) Flow is throttled", 2069),
        # Codes of the Cloud API that are translated where they are reported.
        (400, 131047, "(#131047) Re-engagement message", 131047),
        (400, 131026, "(#131026) Message undeliverable", 131026),
        (400, 131048, "(#131048) Spam rate limit hit", 131048),
        (400, 131049, "(#131049) Not delivered", 131049),
        (400, 1, "API Unknown", 500),
    ],
)
def test_a_refusal_has_the_code_that_v1_has_for_it(status: int, code: int, message: str, v1: int) -> None:
    found = of_response(status, error(code, message, error_data={"details": "why"}))
    assert isinstance(found, PostRefused)
    assert found.code == v1


def test_details_are_taken_from_the_error() -> None:
    recorded = error(
        132000,
        "(#132000) Number of parameters does not match the expected number of params",
        error_data={"messaging_product": "whatsapp", "details": "body: number of localizable_params (1)"},
    )
    assert of_response(400, recorded) == PostRefused(2000, "body: number of localizable_params (1)")
    assert of_response(400, error(131009, "(#131009) T", error_data="in words")) == PostRefused(1009, "in words")
    # The code of v1 is a general one, so the details name the reason.
    assert of_response(400, error(131049, "(#131049) T", error_data={"details": "d"})) == PostRefused(
        131049, "(#131049) T: d"
    )


def test_error_data_of_any_form_is_read() -> None:
    given: tuple[Any, ...] = (None, 5, [], {"details": 5}, {}, "x" * 5000)
    for data in given:
        found = of_response(400, error(131009, "(#131009) T", error_data=data))
        assert isinstance(found, PostRefused)
        assert len(found.details) <= 1_000


def test_an_error_is_found_only_in_an_error_body() -> None:
    assert outcomes.find_error(b'{"error":"text"}') is None
    assert outcomes.find_error(b'{"data":[]}') is None
    found = outcomes.find_error(error(190, "Invalid OAuth access token - Cannot parse access token"))
    assert found is not None
    assert found.shown == "(#190) Invalid OAuth access token - Cannot parse access token"
