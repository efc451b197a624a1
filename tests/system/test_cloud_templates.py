"""Templates of A's number are those of the WABA at B: over v1 and by the command they are changed there."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from harness.client import Business, UnexpectedResponse
from harness.cloud_client import VERSION
from harness.cloud_pair import CloudPair
from harness.proxy import Proxy

pytestmark = [pytest.mark.whole_system, pytest.mark.asyncio(loop_scope="module")]

PATH = "/v1/configs/templates"
ORDER = {"name": "order", "language": "en_US", "category": "UTILITY", "components": [{"type": "BODY", "text": "Hello"}]}
EDITED = [{"type": "BODY", "text": "Good morning"}]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def proxied(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[tuple[CloudPair, Proxy]]:
    """Installations that run and are connected by a proxy, for all tests of this module."""
    async with CloudPair(tmp_path_factory.mktemp("pair"), b={"TIDINGS_ROBOTS_PER_KIND": "1"}) as pair:
        proxy = Proxy("127.0.0.1", pair.b.api_port)
        await proxy.start()
        try:
            await pair.start(f"{proxy.url}/{VERSION}")
            yield pair, proxy
        finally:
            await proxy.stop()


async def listed(business: Business, path: str, field: str) -> Mapping[tuple[str, str], Mapping[str, Any]]:
    found = (await business.check_call("GET", path))[field]
    return {(one["name"], one["language"]): one for one in found}


async def test_templates_are_changed_in_the_waba_over_v1_and_by_the_command(
    proxied: tuple[CloudPair, Proxy], tmp_path: Path
) -> None:
    pair, _ = proxied
    business, owner = await pair.a.business(), await pair.b.business()
    edge = f"/{VERSION}/{pair.a.ids.waba_id}/message_templates"

    async def agreed() -> Mapping[tuple[str, str], Mapping[str, Any]]:
        """Return the templates at B, after a check that A shows the same."""
        at_b = await listed(owner, edge, "data")
        at_a = await listed(business, PATH, "templates")
        assert at_a.keys() == at_b.keys()
        assert all(at_a[key]["components"] == at_b[key]["components"] for key in at_b)
        assert {one["namespace"] for one in at_a.values()} <= {namespace}
        return at_b

    waba = await owner.check_call("GET", f"/{VERSION}/{pair.a.ids.waba_id}?fields=message_template_namespace")
    namespace = waba["message_template_namespace"]
    made = await business.check_call("POST", PATH, ORDER)
    assert made["templates"][0]["namespace"] == namespace
    await business.check_call("POST", PATH, {**ORDER, "language": "de"})
    assert (await agreed()).keys() == {("order", "en_US"), ("order", "de")}
    with pytest.raises(UnexpectedResponse, match="1004"):
        await business.check_call("POST", PATH, ORDER)
    await business.check_call("PATCH", f"{PATH}/order?language=de", {"components": EDITED})
    assert (await agreed())["order", "de"]["components"] == EDITED
    await business.check_call("DELETE", f"{PATH}/order?language=de")
    assert (await agreed()).keys() == {("order", "en_US")}

    file = tmp_path / "templates.json"
    file.write_text(json.dumps([{**ORDER, "components": EDITED}]))
    edited = await pair.run("template", "edit", str(file))
    assert edited == f"order  en_US  APPROVED  namespace {namespace}\n"
    assert (await agreed())["order", "en_US"]["components"] == EDITED
    file.write_text(json.dumps([{**ORDER, "name": "one"}, {**ORDER, "name": "two"}]))
    await pair.run("template", "create", str(file))
    assert (await agreed()).keys() == {("order", "en_US"), ("one", "en_US"), ("two", "en_US")}
    assert await pair.run("template", "delete", "one") == "one is deleted\n"
    assert (await agreed()).keys() == {("order", "en_US"), ("two", "en_US")}
    with pytest.raises(UnexpectedResponse, match="already exists"):
        await pair.run("template", "create", str(file))
    with pytest.raises(UnexpectedResponse, match="one by one"):
        await pair.run("template", "import", str(file))
    with pytest.raises(UnexpectedResponse, match="one by one"):
        await pair.run("template", "pause", "two")


async def test_while_the_cloud_api_hangs_a_call_gets_503_within_9_seconds(proxied: tuple[CloudPair, Proxy]) -> None:
    pair, proxy = proxied
    business = await pair.a.business()
    others = (await listed(business, PATH, "templates")).keys()
    await business.check_call("POST", PATH, {**ORDER, "name": "slow"})
    proxy.shut()
    try:

        async def hang(method: str, path: str, body: Any = None) -> None:
            started_at = time.monotonic()
            status, response = await business.call(method, path, body)
            assert (status, response["errors"][0]["code"]) == (503, 1011)
            assert time.monotonic() - started_at < 9.0

        await asyncio.gather(
            hang("POST", PATH, {**ORDER, "name": "slow", "language": "de"}),
            hang("PATCH", f"{PATH}/slow", {"components": EDITED}),
            hang("DELETE", f"{PATH}/slow"),
        )
        assert (await listed(business, PATH, "templates")).keys() == {*others, ("slow", "en_US")}
    finally:
        # The webhooks that were held back are lost.
        proxy.cut()
        proxy.open()
    await business.check_call("DELETE", f"{PATH}/slow")
    assert (await listed(business, PATH, "templates")).keys() == others
