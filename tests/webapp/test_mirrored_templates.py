"""Messages from templates that were mirrored from the Cloud API as they are, without the checks of our own ones."""

from __future__ import annotations

from typing import Any

import pytest

from tests.webapp.conftest import Served
from tidings.storage.business import templates
from tidings.storage.business.templates import TemplateRow
from tidings.storage.database import Database

ACCOUNT = "15550000000"
BODY = {"type": "BODY", "text": "hello"}


@pytest.mark.parametrize(
    "components",
    [
        [BODY, {"type": "LIMITED_TIME_OFFER", "limited_time_offer": {"text": "Now"}}],
        [BODY, {"type": "FOOTER", "code_expiration_minutes": 5}],
        [{"type": "BODY", "add_security_recommendation": True}],
        [{"type": "HEADER"}, BODY],
        [BODY, {"type": "BUTTONS", "buttons": [{"type": "MPM", "text": "View items"}]}],
        [BODY, {"type": "BUTTONS", "buttons": [{"type": "VOICE_CALL", "text": "Call"}]}],
        [BODY, {"type": "BUTTONS", "buttons": [{"type": "QUICK_REPLY"}]}],
        [BODY, {"type": "CALL_PERMISSION_REQUEST"}],
    ],
    ids=lambda parts: "+".join(part["type"] for part in parts) + str(parts[-1].get("buttons", ""))[:24],
)
async def test_a_template_in_a_form_that_ours_have_not_gets_no_500(
    api: Served, database: Database, components: list[dict[str, Any]]
) -> None:
    row = TemplateRow(ACCOUNT, "mirrored", "en_US", "ns", "MARKETING", "APPROVED", components, 1)
    async with database.transaction() as connection:
        await templates.put_templates(connection, ACCOUNT, [row])
    template = {"name": "mirrored", "language": {"code": "en_US"}}
    response = await api.http.post("/v1/messages", json={"to": "15550110001", "type": "template", "template": template})
    assert response.status_code in (201, 400), response.text


async def test_an_hsm_from_a_template_without_a_body_gets_no_500(api: Served, database: Database) -> None:
    row = TemplateRow(
        ACCOUNT, "mirrored", "en_US", "ns", "MARKETING", "APPROVED", [{"type": "FOOTER", "text": "bye"}], 1
    )
    async with database.transaction() as connection:
        await templates.put_templates(connection, ACCOUNT, [row])
    hsm = {"namespace": "ns", "element_name": "mirrored", "language": {"code": "en_US"}}
    response = await api.http.post("/v1/messages", json={"to": "15550110001", "type": "hsm", "hsm": hsm})
    assert response.status_code == 400, response.text
