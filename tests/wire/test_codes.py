"""Error codes match the On-Premises API's documentation wherever they are sent."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from coreapp.webhook import bodies
from tidings.storage.business.messages import Status
from tidings.wire import codes
from webapp.http.errors import InvalidRequest
from webapp.http.responses import error_response

RECORDED: dict[str, dict[str, Any]] = json.loads((Path(__file__).parent.parent / "data/wire/codes.json").read_text())


def test_every_code_has_the_documented_name_title_and_status() -> None:
    table = {
        name: {"code": code, "title": codes.CODES[code].title, "status": codes.CODES[code].status}
        for name, code in vars(codes).items()
        if name.isupper() and isinstance(code, int)
    }
    assert table == RECORDED
    assert len(codes.CODES) == len(RECORDED)


@pytest.mark.parametrize("name", [name for name, entry in RECORDED.items() if entry["code"] >= 1000])
def test_an_api_response_has_the_title_and_status_of_its_code(name: str) -> None:
    recorded = RECORDED[name]
    response = error_response(InvalidRequest.because(recorded["code"], "why"))
    assert response.status_code == recorded["status"]
    entry = {"code": recorded["code"], "title": recorded["title"], "details": "why"}
    assert json.loads(response.body)["errors"] == [entry]


@pytest.mark.parametrize("name", RECORDED)
def test_a_callback_has_the_title_of_its_code(name: str) -> None:
    recorded = RECORDED[name]
    body = json.loads(bodies.status("id", "15550110001", Status.FAILED, 1, (recorded["code"], "why")))
    entry = {"code": recorded["code"], "title": recorded["title"], "details": "why"}
    assert body["statuses"][0]["errors"] == [entry]


def test_an_unknown_code_is_a_generic_error() -> None:
    assert codes.find(77) == codes.Code("Generic error", 500)
