"""Rotation of the secret that signs callbacks: receivers that know either of two accept them, and nothing stops."""

from __future__ import annotations

import asyncio
import base64
import logging
import time

import pytest

from coreapp import webhook_secrets
from coreapp.webhook_secrets import RotationPending, WebhookSecret, WebhookSecrets
from harness.webhook_body import Verifier
from tests.coreapp.conftest import BUSINESS, Running, World
from tests.coreapp.sink import SECRET, Post
from tidings.e2ee.installation_secrets import SecretSealer
from tidings.storage.database import Connection
from tidings.wire import core

NUMBER = "15550100001"
FRESH = "whsec_" + base64.b64encode(b"another secret of 32 bytes......").decode()
THIRD = "whsec_" + base64.b64encode(b"a third secret of just as many..").decode()


def test_a_rotation_keeps_the_previous_secret_until_it_retires() -> None:
    secrets = webhook_secrets.rotated([WebhookSecret(SECRET)], FRESH, now=1_000, retires_at=2_000)
    assert [entry.secret for entry in webhook_secrets.in_force(secrets, 1_999)] == [FRESH, SECRET]
    assert [entry.secret for entry in webhook_secrets.in_force(secrets, 2_000)] == [FRESH]
    with pytest.raises(RotationPending):
        webhook_secrets.rotated(secrets, THIRD, now=1_999, retires_at=3_000)
    again = webhook_secrets.rotated(secrets, THIRD, now=2_000, retires_at=3_000)
    assert [(entry.secret, entry.retires_at) for entry in again] == [(THIRD, 0), (FRESH, 3_000)]


def test_a_rotation_to_the_same_secret_changes_nothing_and_an_invalid_one_is_refused() -> None:
    same = webhook_secrets.rotated([WebhookSecret(SECRET)], SECRET, now=1, retires_at=2)
    assert list(same) == [WebhookSecret(SECRET)]
    with pytest.raises(ValueError, match="24 to 64 bytes"):
        webhook_secrets.rotated([WebhookSecret(SECRET)], "whsec_AAAA", now=1, retires_at=2)


def secrets_of(world: World, key: bytes | None = None) -> WebhookSecrets:
    return WebhookSecrets(BUSINESS, SECRET, SecretSealer(key or world.settings.secrets.settings_key.keys[0]))


async def test_one_of_two_concurrent_first_rotations_is_stored_and_the_other_refused(world: World) -> None:
    async def rotate(fresh: str) -> str:
        async def work(connection: Connection) -> None:
            found = await secrets_of(world).find(connection, for_update=True)
            await secrets_of(world).keep(connection, webhook_secrets.rotated(found, fresh, now=1_000, retires_at=2_000))

        try:
            await world.database.persist(work, retry_seconds=10.0)
        except RotationPending:
            return ""
        return fresh

    made = await asyncio.gather(*[rotate(fresh) for fresh in (FRESH, THIRD, FRESH, THIRD)])
    (kept,) = [fresh for fresh in made if fresh]
    async with world.database.reading() as connection:
        assert [entry.secret for entry in await secrets_of(world).find(connection)] == [kept, SECRET]


async def keep(world: World, running: Running, *secrets: WebhookSecret, key: bytes | None = None) -> None:
    async with world.database.transaction() as connection:
        await secrets_of(world, key).keep(connection, secrets)
    assert isinstance(await running.client.call(lambda n: core.SettingsChanged(n, BUSINESS)), core.Done)


async def posted(world: World, running: Running) -> Post:
    """Send a message and return its callback."""
    before = len(world.sink.posts)
    await running.client.send(NUMBER)
    await world.sink.signals.until(lambda: len(world.sink.posts) > before)
    return world.sink.posts[before]


async def test_callbacks_have_a_signature_for_each_valid_secret(world: World) -> None:
    world.add_phones(NUMBER)
    running = await world.start()
    await world.connected(running)
    await running.client.check(NUMBER)
    assert (await posted(world, running)).headers["webhook-signature"].count("v1,") == 1
    later = int((time.time() + 3600) * 1000)
    await keep(world, running, WebhookSecret(FRESH), WebhookSecret(SECRET, later))
    world.sink.verifier = Verifier(FRESH)
    post = await posted(world, running)
    assert post.headers["webhook-signature"].count("v1,") == 2
    world.sink.verifier = Verifier(SECRET)
    await posted(world, running)
    await keep(world, running, WebhookSecret(FRESH))
    world.sink.verifier = Verifier(FRESH)
    assert (await posted(world, running)).headers["webhook-signature"].count("v1,") == 1


async def test_unreadable_secrets_are_logged_and_delay_no_callback(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.add_phones(NUMBER)
    running = await world.start()
    await world.connected(running)
    await running.client.check(NUMBER)
    with caplog.at_level(logging.ERROR, "coreapp.config"):
        await keep(world, running, WebhookSecret(FRESH), key=b"x" * 32)
    assert "webhook.secrets_unreadable" in [record.message for record in caplog.records]
    await posted(world, running)
