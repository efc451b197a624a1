"""Limits on the creation of templates, with a review: per hour, per WABA, and names that were deleted."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from tests.webapp.cloud.conftest import WABA, Cloud, error
from tests.webapp.conftest import Serve
from tests.webapp.fake_coreapp import FakeCoreapp
from tidings.storage import database_clock
from tidings.storage.business import cloud_settings, templates
from tidings.storage.business.cloud_settings import CloudSettingsRow
from tidings.storage.business.templates import TemplateRow
from tidings.storage.database import Database

ACCOUNT = "15550000000"
PATH = f"/v25.0/{WABA}/message_templates"
COMPONENTS = [{"type": "BODY", "text": "Hello"}]
HOUR_MS, DAY_MS = 3_600_000, 86_400_000


@pytest.fixture
async def reviewed(serve: Serve, coreapp: FakeCoreapp) -> Cloud:
    served = await serve(cloud_api=True, template_review_ms=0)
    await served.log_in()
    await coreapp.until(lambda: coreapp.greetings > 0)
    return Cloud(served, served.http)


async def create(cloud: Cloud, name: str, language: str = "en_US") -> httpx.Response:
    definition = {"name": name, "language": language, "category": "UTILITY", "components": COMPONENTS}
    return await cloud.http.post(PATH, json=definition)


async def delete(cloud: Cloud, name: str, **more: str) -> None:
    response = await cloud.http.delete(PATH, params={"name": name, **more})
    assert response.text == '{"success":true}'


async def remember(database: Database, content: dict[str, Any]) -> None:
    """Replace the history of creations and deletions."""
    async with database.transaction() as connection:
        await cloud_settings.put(connection, CloudSettingsRow(ACCOUNT, "template_history", content))


async def now(database: Database) -> int:
    async with database.reading() as connection:
        return await database_clock.read(connection)


async def test_the_name_of_a_deleted_template_is_blocked_for_30_days(reviewed: Cloud, database: Database) -> None:
    english = (await create(reviewed, "order")).json()["id"]
    assert (await create(reviewed, "order", "de")).is_success
    await delete(reviewed, "order", hsm_id=english)
    # The name still exists in another language.
    assert (await create(reviewed, "order")).is_success
    await delete(reviewed, "order")
    refused = await create(reviewed, "order")
    assert error(refused) == (400, 100, "Invalid parameter")
    assert refused.json()["error"]["error_subcode"] == 2388023
    assert (await reviewed.http.get(PATH)).json() == {"data": []}
    assert (await create(reviewed, "another")).is_success
    await remember(database, {"created": [], "deleted": {"order": await now(database) - 30 * DAY_MS - 1}})
    assert (await create(reviewed, "order")).is_success


async def test_a_name_deleted_over_v1_is_blocked_and_v1_creates_it_nevertheless(reviewed: Cloud) -> None:
    assert (await create(reviewed, "order")).is_success
    assert (await reviewed.http.delete("/v1/configs/templates/order")).is_success
    assert (await create(reviewed, "order")).json()["error"]["error_subcode"] == 2388023
    definition = {"name": "order", "language": "en_US", "category": "UTILITY", "components": COMPONENTS}
    assert (await reviewed.http.post("/v1/configs/templates", json=definition)).status_code == 201
    assert (await create(reviewed, "order", "de")).is_success


async def test_100_templates_can_be_created_in_an_hour(reviewed: Cloud, database: Database) -> None:
    at = await now(database)
    await remember(database, {"created": [at - HOUR_MS + 90_000, *([at] * 98)], "deleted": {}})
    assert (await create(reviewed, "first")).is_success
    refused = await create(reviewed, "second")
    assert error(refused)[:2] == (400, 80008)
    assert 60 < int(refused.headers["retry-after"]) <= 90
    await remember(database, {"created": [at - HOUR_MS - 1, *([at] * 99)], "deleted": {}})
    assert (await create(reviewed, "second")).is_success


async def test_a_waba_has_at_most_250_templates(reviewed: Cloud, database: Database) -> None:
    rows = [
        TemplateRow(ACCOUNT, f"t{n}", "en_US", "space", "UTILITY", "APPROVED", COMPONENTS, created_at=1)
        for n in range(249)
    ]
    async with database.transaction() as connection:
        await templates.put_templates(connection, ACCOUNT, rows)
    assert (await create(reviewed, "last")).is_success
    refused = await create(reviewed, "beyond")
    assert error(refused)[:2] == (400, 100)
    assert refused.json()["error"]["error_subcode"] == 2388019
    summary = (
        await reviewed.http.get(PATH, params={"summary": "message_template_count,message_template_limit"})
    ).json()
    assert summary["summary"] == {"message_template_count": 250, "message_template_limit": 250}
    await delete(reviewed, "t7")
    assert (await create(reviewed, "beyond")).is_success


async def test_without_a_review_there_are_no_limits(cloud: Cloud, database: Database) -> None:
    at = await now(database)
    await remember(database, {"created": [at] * 100, "deleted": {"order": at}})
    assert (await create(cloud, "order")).is_success
    await delete(cloud, "order")
    assert (await create(cloud, "order")).is_success
