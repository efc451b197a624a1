"""With the identity check of the Cloud API on, its webhooks name the identity of a message's sender, those of v1 do
not."""

from __future__ import annotations

import pytest

from tests.coreapp import media_scene as scene
from tests.coreapp.conftest import BUSINESS, World
from tests.coreapp.webhook.cloud.test_cloud_webhooks import PEER, TEXT, CloudSink, cloud_sink, started, subscribe
from tidings.storage.business import cloud_settings
from tidings.storage.business.cloud_settings import CloudSettingsRow
from tidings.wire import core
from tidings.wire.cloud import wamid

__all__ = ["cloud_sink"]


@pytest.mark.parametrize("is_checked", [True, False])
async def test_a_message_names_the_identity_of_its_sender_if_it_is_checked(
    world: World, cloud_sink: CloudSink, is_checked: bool
) -> None:
    await subscribe(world, cloud_sink.url)
    async with world.database.transaction() as connection:
        content = {"user_identity_change": {"enable_identity_key_check": is_checked}}
        await cloud_settings.put(connection, CloudSettingsRow(BUSINESS, "settings", content))
    running, phone = await started(world)
    scene.Inbox(world, phone)
    await running.client.send(PEER)
    await world.network.signals.until(lambda: phone.record is not None)
    kind, body = phone.write(TEXT)
    world.network.deliver(PEER, kind, id="in-1", body=body)
    await cloud_sink.taken((wamid.encode("in-1", PEER, by_recipient=True), "text"))
    (contact,) = cloud_sink.posts[-1].values[0]["contacts"]
    known = await running.client.call(lambda n: core.GetIdentity(n, BUSINESS, PEER))
    assert contact == {
        "profile": {"name": PEER},
        "wa_id": PEER,
        **({"identity_key_hash": known.hash} if is_checked else {}),
    }
    await world.sink.signals.until(lambda: ("in-1", "received") in world.sink.labels())
    (post,) = [post for post in world.sink.taken() if post.label == ("in-1", "received")]
    assert "identity" not in post.body["messages"][0]
