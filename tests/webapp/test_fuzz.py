"""Any JSON and any bytes: never a 5xx, always the API's format."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import hypothesis
import pytest
from hypothesis import strategies as st

from tests.webapp import strategies
from tests.webapp.conftest import Served, body, errors
from webapp.api.messages import schemas

_MESSAGES = st.fixed_dictionaries(
    {},
    optional={
        "to": st.just("15550110001") | st.from_regex(r"\+?[0-9 ().-]{0,25}") | strategies.JSON,
        "type": st.sampled_from(sorted(schemas.MODELS)) | strategies.JSON,
        **dict.fromkeys(sorted(schemas.MODELS), strategies.JSON),
        "interactive": strategies.shaped(
            ["type", "header", "body", "action"],
            st.sampled_from(["list", "button", "flow"])
            | strategies.JSON
            | strategies.shaped(["text", "type", "sections", "buttons", "parameters"], strategies.JSON),
        ),
        "template": strategies.shaped(
            ["name", "language", "components"],
            strategies.JSON
            | strategies.shaped(["code", "policy"], st.text())
            | st.lists(strategies.shaped(["type", "parameters"], strategies.JSON)),
        ),
        "recipient_type": st.sampled_from(["individual", "group"]) | strategies.JSON,
        "preview_url": strategies.JSON,
        "text": strategies.shaped(["body"], st.text() | strategies.JSON),
    },
)
_SETTINGS = st.fixed_dictionaries(
    {},
    optional={
        **dict.fromkeys(body("settings_defaults"), strategies.JSON),
        "webhooks": strategies.shaped(
            ["url", "max_concurrent_requests", "message"], strategies.JSON | st.from_regex(r"https?://[^ ]{0,9}")
        ),
        "media": strategies.shaped(["auto_download"], strategies.JSON),
        "garbagecollector_enable": strategies.shaped(["messages", "media"], strategies.JSON),
    },
)
_TEMPLATES = st.fixed_dictionaries(
    {},
    optional={
        "name": st.from_regex("[a-z]{1,5}", fullmatch=True) | strategies.JSON,
        "language": st.just("en") | strategies.JSON,
        "components": st.lists(
            strategies.shaped(
                ["type", "format", "text", "buttons"], st.sampled_from(["BODY", "HEADER", "{{1}}"]) | strategies.JSON
            )
        )
        | strategies.JSON,
    },
)
_CONTACTS = st.fixed_dictionaries(
    {},
    optional={
        "contacts": st.lists(st.text()) | strategies.JSON,
        "blocking": strategies.JSON,
        "force_check": strategies.JSON,
    },
)


@pytest.mark.parametrize(
    ("method", "path", "bodies"),
    [
        ("POST", "/v1/messages", _MESSAGES),
        ("POST", "/v1/configs/templates", _TEMPLATES),
        ("PUT", "/v1/messages/x", strategies.JSON),
        ("PATCH", "/v1/settings/application", _SETTINGS),
        ("POST", "/v1/contacts", _CONTACTS),
    ],
)
async def test_no_json_breaks_the_server(
    api: Served, examples: Callable[[int], int], method: str, path: str, bodies: st.SearchStrategy[Any]
) -> None:
    contents = (bodies | strategies.JSON).map(lambda value: json.dumps(value).encode())
    await _fuzz(api, method, path, contents, count=examples(300))


@pytest.mark.parametrize(
    ("method", "path"), [("POST", "/v1/messages"), ("PATCH", "/v1/settings/application"), ("POST", "/v1/users/login")]
)
async def test_no_bytes_break_the_server(api: Served, examples: Callable[[int], int], method: str, path: str) -> None:
    good = json.dumps(body("message_text")).encode()
    spliced = st.builds(
        lambda start, end, middle: good[:start] + middle + good[end:],
        st.integers(0, len(good)),
        st.integers(0, len(good)),
        st.binary(max_size=20),
    )
    await _fuzz(api, method, path, st.binary(max_size=200) | spliced, count=examples(300))


async def _fuzz(api: Served, method: str, path: str, contents: st.SearchStrategy[bytes], *, count: int) -> None:
    loop = asyncio.get_running_loop()

    async def send(content: bytes) -> None:
        response = await api.http.request(method, path, content=content)
        assert response.status_code < 500, response.text
        if response.status_code >= 400:
            errors(response)
        else:
            assert response.json()["meta"]

    @hypothesis.settings(max_examples=count)
    @hypothesis.given(contents)
    def attempt(content: bytes) -> None:
        asyncio.run_coroutine_threadsafe(send(content), loop).result(20)

    await asyncio.to_thread(attempt)
