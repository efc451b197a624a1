"""Responses of the Cloud API have the bytes of recorded ones: order of fields, types, escapes and headers.

Values that belong to a number (its ids and names) are those of the test's number.
"""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from tests.webapp.cloud.conftest import NUMBER, WABA, Cloud, check_headers, recorded, untraced
from tests.webapp.fake_coreapp import FakeCoreapp
from tidings.wire import core


def placed(text: str) -> str:
    return text.replace("NUMBER", NUMBER).replace("WABA", WABA)


def usage(response: httpx.Response) -> str:
    """Return the kind of allowance that a response counts against."""
    found: str = json.loads(response.headers["x-business-use-case-usage"])[WABA][0]["type"]
    return found


@pytest.mark.parametrize("case", [pytest.param(case, id=case["case"]) for case in recorded("responses")])
async def test_a_recorded_response_has_the_same_bytes(cloud: Cloud, case: dict[str, Any]) -> None:
    response = await cloud.http.request(
        case["method"], placed(case["path"]), json=case.get("json"), data=case.get("form")
    )
    assert response.status_code == case["status"], response.text
    assert untraced(response) == placed(case["body"]).encode()
    check_headers(response)
    if "then" in case:
        assert untraced(await cloud.http.get(placed(case["then"]["path"]))) == placed(case["then"]["body"]).encode()


async def test_messages_and_other_calls_have_separate_rate_limits(cloud: Cloud) -> None:
    assert usage(await cloud.send()) == "whatsapp"
    assert usage(await cloud.http.get(f"/v25.0/{NUMBER}")) == "whatsapp_business_management"


async def test_only_a_get_has_an_etag_which_stays_while_the_response_does(cloud: Cloud) -> None:
    first, second = [await cloud.http.get(f"/v25.0/{NUMBER}") for _ in range(2)]
    assert first.headers["etag"] == second.headers["etag"]
    other = await cloud.http.get(f"/v25.0/{NUMBER}?fields=account_mode")
    assert other.headers["etag"] != first.headers["etag"]
    assert "etag" not in (await cloud.send()).headers


async def test_the_input_of_a_number_is_a_string(cloud: Cloud) -> None:
    assert (await cloud.send(to=15550110001)).json()["contacts"][0]["input"] == "15550110001"


@pytest.mark.parametrize(
    ("kind", "link"),
    [
        ("image", "https://files.example/a.gif"),
        ("document", "https://files.example/a.exe"),
        ("audio", "https://files.example/a.wav"),
    ],
)
async def test_a_link_to_a_file_of_an_unsupported_type_is_accepted(
    cloud: Cloud, coreapp: FakeCoreapp, kind: str, link: str
) -> None:
    response = await cloud.send(**{"type": kind, "text": ..., kind: {"link": link}})
    assert response.status_code == 200, response.text
    [request] = coreapp.requested(core.AcceptMessage)
    assert json.loads(request.content)[kind]["link"] == link
