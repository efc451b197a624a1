"""Errors of the Cloud API: recorded bodies, and the Graph format in every case."""

from __future__ import annotations

import logging
import time
from typing import Any

import httpx
import jwt
import pytest
from starlette.types import Receive, Scope, Send

from tests.webapp import raw
from tests.webapp.cloud.conftest import NUMBER, Cloud, check_headers, details, error, recorded, untraced
from tests.webapp.conftest import Serve, Served, make_secrets
from tests.webapp.fake_coreapp import FakeCoreapp
from tidings.http.limited_protocol import ADMITTED
from tidings.wire import core


@pytest.mark.parametrize("case", [pytest.param(case, id=case["case"]) for case in recorded("errors")])
async def test_a_recorded_error_has_the_same_bytes(cloud: Cloud, case: dict[str, Any]) -> None:
    token = case.get("token")
    if token is not None:
        del cloud.http.headers["Authorization"]
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    path = case["path"].replace("NUMBER", NUMBER)
    response = await cloud.http.request(case["method"], path, json=case.get("json"), headers=headers)
    assert response.status_code == case["status"]
    assert untraced(response) == case["body"].replace("NUMBER", NUMBER).encode()
    check_headers(response)


async def test_a_400_names_its_message_in_www_authenticate(cloud: Cloud) -> None:
    response = await cloud.http.get(f"/{NUMBER}?fields=x")
    assert response.headers["www-authenticate"] == (
        'OAuth "Facebook Platform" "invalid_request" "(#100) Tried accessing nonexisting field (x) on node type '
        '(WhatsAppBusinessPhoneNumber)"'
    )


async def test_control_characters_of_a_path_do_not_reach_a_header(cloud: Cloud) -> None:
    response = await cloud.http.get(f"/{NUMBER}", params={"fields": 'a"\r\nX-Added: 1'})
    assert "x-added" not in response.headers
    assert error(response)[:2] == (400, 100)


async def test_an_expired_token_has_subcode_463(cloud: Cloud) -> None:
    claims = {"user": "admin", "iat": 1, "exp": int(time.time()) - 5, "jti": "x", "account": "15550000000"}
    token = jwt.encode(claims, make_secrets().jwt_key, "HS256")
    response = await cloud.http.get(f"/v25.0/{NUMBER}", headers={"Authorization": f"Bearer {token}"})
    assert error(response)[:2] == (401, 190)
    assert response.json()["error"]["error_subcode"] == 463
    assert response.json()["error"]["message"].startswith("Error validating access token: Session has expired on ")


@pytest.mark.parametrize("way", ["bearer", "oauth", "query", "form"])
async def test_a_token_is_accepted_in_each_place(cloud: Cloud, way: str) -> None:
    token = cloud.http.headers.pop("Authorization").split()[1]
    path = f"/v25.0/{NUMBER}/unknown" if way == "form" else f"/v25.0/{NUMBER}"
    if way == "query":
        response = await cloud.http.get(path, params={"access_token": token})
    elif way == "form":
        response = await cloud.http.post(path, data={"access_token": token})
        assert error(response)[1] == 100
        return
    else:
        response = await cloud.http.get(path, headers={"Authorization": f"{way} {token}"})
    assert response.status_code == 200, response.text


@pytest.mark.parametrize(
    ("body", "kind", "expected"),
    [
        (b"", "application/json", (400, 100, "(#100) The parameter messaging_product is required.")),
        (b"[]", "application/json", (400, 100, "(#100) The parameter messaging_product is required.")),
        (b"{", "application/json", (400, 100, "(#100) Invalid parameter")),
        (b"to=15550110001", "application/x-www-form-urlencoded", (400, 100, None)),
        (b'{"a":"' + b"x" * 3_000_000 + b'"}', "application/json", (413, 100, "(#100) Invalid parameter")),
    ],
    ids=["none", "a list", "broken", "a form", "3 MB"],
)
async def test_an_unusable_body_gets_a_graph_error(
    cloud: Cloud, body: bytes, kind: str, expected: tuple[int, int, str | None]
) -> None:
    response = await cloud.http.post(f"/v25.0/{NUMBER}/messages", content=body, headers={"Content-Type": kind})
    status, code, message = error(response)
    assert (status, code) == expected[:2]
    assert expected[2] is None or message == expected[2]


async def test_a_full_webapp_and_an_unexpected_error_respond_in_the_graph_format(
    serve: Serve, coreapp: FakeCoreapp
) -> None:
    served = await serve(cloud_api=True, max_requests=0)
    response = await served.http.get(f"/v25.0/{NUMBER}")
    assert error(response) == (500, 131016, "(#131016) Service unavailable")
    assert "requests are in progress" in details(response)


@pytest.mark.parametrize("status", [400, 429])
async def test_a_rate_limit_has_the_configured_status(serve: Serve, coreapp: FakeCoreapp, status: int) -> None:
    served = await serve(cloud_api=True, cloud_throttle_status=status, messages_rate=0.001, messages_burst=1)
    await served.log_in()
    cloud = Cloud(served, served.http)
    assert (await cloud.send()).status_code == 200
    response = await cloud.send()
    assert error(response) == (status, 130429, "(#130429) Rate limit hit")
    assert details(response) == "Cloud API message throughput has been reached."
    assert int(response.headers["retry-after"]) >= 1


@pytest.mark.parametrize(
    ("refused", "status", "code"),
    [(1021, 400, 131021), (1014, 500, 131000), (1016, 500, 131016), (1011, 500, 131016), (1028, 400, 137000)],
)
async def test_a_refusal_of_the_coreapp_is_translated(
    cloud: Cloud, coreapp: FakeCoreapp, refused: int, status: int, code: int
) -> None:
    coreapp.refuse(core.AcceptMessage, refused, "why")
    response = await cloud.send()
    assert error(response)[:2] == (status, code)
    assert details(response) == "why"


async def test_v1_keeps_its_format_and_its_paths(cloud: Cloud) -> None:
    for path in ("/v1/messages/x/y", "/docs2", "/v25/1", "/unknown/123"):
        response = await cloud.http.get(path)
        assert "errors" in response.json(), path
        assert response.headers["cache-control"] == "no-cache, private"
        assert "facebook-api-version" not in response.headers


async def test_the_facade_is_off_by_default(serve: Serve) -> None:
    served = await serve()
    await served.log_in()
    response = await served.http.get(f"/v25.0/{NUMBER}")
    assert (response.status_code, response.json()["errors"][0]["code"]) == (404, 1006)


@pytest.mark.parametrize(
    ("path", "version", "warning"),
    [
        (f"/v26.0/{NUMBER}", "v26.0", None),
        (f"/v20.0/{NUMBER}/", "v20.0", None),
        (f"/{NUMBER}", "v25.0", None),
        (
            f"/v19.0/{NUMBER}",
            "v20.0",
            "The call has been auto-upgraded to v20.0 as v19.0 will be deprecated.",
        ),
    ],
)
async def test_a_version_is_served_or_upgraded(cloud: Cloud, path: str, version: str, warning: str | None) -> None:
    response = await cloud.http.get(path)
    assert response.status_code == 200
    check_headers(response, version)
    assert response.headers["etag"]
    assert response.headers.get("x-ad-api-version-warning") == warning
    assert response.json()["id"] == NUMBER


async def test_refusals_before_the_application_have_the_graph_format(serve: Serve) -> None:
    served = await serve(cloud_api=True, over_socket=True, http_hosts=frozenset({"127.0.0.1"}))
    status, _, payload = await raw.call(served, "GET", f"/v25.0/{NUMBER}", headers={"Host": "elsewhere.example"})
    assert status in (400, 421)
    assert list(payload) == ["error"]


async def test_an_open_facade_accepts_any_token_from_this_machine_only(serve: Serve) -> None:
    served = await serve(cloud_api=True, cloud_open=True)
    bearer = {"Authorization": "Bearer anything"}

    async def call(**headers: str) -> httpx.Response:
        return await served.http.get(f"/v25.0/{NUMBER}", headers={**bearer, **headers})

    assert (await call()).status_code == 200
    debugged = await served.http.get("/debug_token", params={"input_token": "anything"}, headers=bearer)
    assert debugged.json()["data"]["is_valid"]
    assert error(await served.http.get(f"/v25.0/{NUMBER}"))[:2] == (401, 104)
    assert error(await call(Origin="https://page.example"))[:2] == (401, 190)
    assert error(await call(Host="page.example"))[:2] == (401, 190)


class Admission:
    """Place of a connection that is not authenticated yet, as the HTTP server puts it into each request."""

    def __init__(self) -> None:
        self.marked = False

    def mark_authenticated(self) -> None:
        self.marked = True

    def consume(self, tokens: float) -> None:
        pass


@pytest.mark.parametrize(
    ("headers", "is_marked"),
    [
        ({"Authorization": "Bearer anything"}, True),
        ({"Authorization": "Bearer anything", "Origin": "https://page.example"}, False),
        ({}, False),
    ],
)
async def test_a_connection_to_an_open_facade_is_not_limited_as_an_unauthenticated_one(
    serve: Serve, headers: dict[str, str], is_marked: bool
) -> None:
    served, admission = await serve(cloud_api=True, cloud_open=True), Admission()

    async def admitted(scope: Scope, receive: Receive, send: Send) -> None:
        await served.parts.app({**scope, ADMITTED: admission}, receive, send)

    async with httpx.AsyncClient(transport=httpx.ASGITransport(admitted), base_url="http://127.0.0.1") as http:
        await http.get(f"/v25.0/{NUMBER}", headers=headers)
    assert admission.marked == is_marked


async def test_a_request_is_counted_under_its_route(cloud: Cloud) -> None:
    await cloud.http.get(f"/v25.0/{NUMBER}")
    await cloud.http.get("/v25.0/123123/nothing")
    metrics = (await cloud.http.get("/metrics", params={"format": "prometheus"})).text
    assert 'handler="/{phone-number-id}"' in metrics
    assert NUMBER not in metrics
    assert "123123" not in metrics


@pytest.mark.parametrize(
    "path", ["/v25.0/%ff%fe", "/v25.0/" + "9" * 5_000, "/v25.0/%0d%0aX-Added:%201", "/v25.0/\u00e9%22"]
)
async def test_an_unknown_path_gets_a_graph_error(served_api: Served, serve: Serve, path: str) -> None:
    served = await serve(cloud_api=True, over_socket=True)
    served.http.headers["Authorization"] = served_api.http.headers["Authorization"]
    response = await served.http.get(path)
    assert error(response)[:2] == (400, 100)
    assert "x-added" not in response.headers


async def test_a_deeply_nested_form_value_stays_text(cloud: Cloud) -> None:
    form = {"messaging_product": "whatsapp", "to": "15550110001", "text": "[" * 500 + "]" * 500}
    response = await cloud.http.post(f"/{NUMBER}/messages", data=form)
    assert error(response)[:2] == (400, 131009)


async def test_a_form_may_contain_a_message(cloud: Cloud, coreapp: FakeCoreapp) -> None:
    form = {"messaging_product": "whatsapp", "to": "15550110001", "text": '{"body":"hi"}'}
    assert (await cloud.http.post(f"/{NUMBER}/messages", data=form)).status_code == 200
    assert coreapp.requested(core.AcceptMessage)[0].content == b'{"type":"text","text":{"body":"hi"}}'


async def test_a_form_without_a_known_caller_is_bounded(serve: Serve) -> None:
    served = await serve(cloud_api=True)
    form = {"access_token": "x", "text": "y" * 70_000}
    response = await served.http.post(f"/{NUMBER}/messages", data=form)
    assert error(response)[:2] == (413, 100)


async def test_a_log_line_names_the_route_and_no_id(cloud: Cloud, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        await cloud.http.get(f"/v25.0/{NUMBER}")
    [record] = [record for record in caplog.records if record.getMessage() == "http.responded"]
    assert vars(record)["route"] == "/{phone-number-id}"
