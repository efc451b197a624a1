"""Ids of users on real processes: a user without a visible number writes, and gets a reply by the id."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.installation import Installation
from tests.system.test_cloud_webhooks import NUMBER, subscribed

pytestmark = pytest.mark.whole_system

NAMED = "15550370007"


async def test_a_user_without_a_visible_number_gets_a_reply_by_the_id(tmp_path: Path) -> None:
    variables = {
        "TIDINGS_ROBOTS_PER_KIND": "1",
        "TIDINGS_CLOUD_API": "1",
        "TIDINGS_CLOUD_BSUID": "1",
        "TIDINGS_TESTING": "1",
    }
    async with Installation(tmp_path, None, variables) as installation:
        await installation.start()
        business = await installation.business()
        async with subscribed(installation, business) as receiver:
            path, text = f"/v25.0/{NUMBER}/messages", {"messaging_product": "whatsapp", "text": {"body": "hi"}}
            first = (await business.check_call("POST", path, {**text, "to": NAMED}))["messages"][0]["id"]
            await receiver.until(lambda: len(receiver.messages()) == 1 and len(receiver.statuses(first)) == 3)
            (reply,) = receiver.messages()
            assert "from" not in reply
            user_id = reply["from_user_id"]
            response = await business.check_call("POST", path, {**text, "recipient": user_id})
            assert response["contacts"] == [{"input": user_id, "user_id": user_id}]
            second = response["messages"][0]["id"]
            await receiver.until(lambda: len(receiver.messages()) == 2 and len(receiver.statuses(second)) == 3)
        contacts = [contact for value in receiver.values for contact in value["contacts"]]
        assert len(contacts) == 8
        assert all(
            contact == {"profile": {"name": contact["profile"]["name"], "username": "user0007"}, "user_id": user_id}
            for contact in contacts
        )
        assert not any(NAMED in str(value) for value in receiver.values)
        assert receiver.forged == 0
