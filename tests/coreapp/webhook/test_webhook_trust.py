"""Webhooks over TLS: the certificates that are trusted."""

from __future__ import annotations

from pathlib import Path

import pytest

from coreapp.webhook.poster import Poster
from tests.authority import Authority
from tests.coreapp.conftest import BUSINESS, Running, World
from tests.coreapp.sink import Sink
from tidings.egress import addresses
from tidings.egress.guard import EgressGuard
from tidings.egress.settings import OutgoingSettings
from tidings.storage.business import certificates
from tidings.wire import core

NUMBER = "15550110001"
# Companies' own authorities often lack what newer Python versions require of one.
AUTHORITY, OTHER = Authority(old=True), Authority("Another authority")


class SecureSink(Sink):
    """Webhook with a certificate of `AUTHORITY`."""

    def __init__(self, directory: Path) -> None:
        super().__init__(AUTHORITY.server_context(directory, "127.0.0.1"))


async def trust(world: World, running: Running, authorities: bytes | None) -> None:
    async with world.database.transaction() as connection:
        if authorities is None:
            await certificates.delete_certificate(connection, BUSINESS, certificates.WEBHOOK_CA)
        else:
            await certificates.set_certificate(connection, BUSINESS, certificates.WEBHOOK_CA, authorities)
    assert isinstance(await running.client.call(lambda n: core.SettingsChanged(n, BUSINESS)), core.Done)


async def posting_to(world: World, sink: Sink, authorities: bytes, **settings: object) -> Running:
    """Start a Coreapp that trusts these authorities, with a message sent whose status is to be posted to `sink`."""
    await world.configure(webhooks={"url": sink.url}, **settings)
    world.add_phones(NUMBER)
    running = await world.start()
    await trust(world, running, authorities)
    await world.connected(running)
    await running.client.check(NUMBER)
    await running.client.send(NUMBER)
    await world.network.signals.until(lambda: bool(world.network.sends))
    return running


async def test_only_the_uploaded_authority_is_trusted_for_a_webhook(world: World, tmp_path: Path) -> None:
    sink = SecureSink(tmp_path)
    await sink.start()
    try:
        running = await posting_to(world, sink, OTHER.pem)
        assert not sink.posts
        await trust(world, running, OTHER.pem + AUTHORITY.pem)
        await sink.signals.until(lambda: bool(sink.taken()))
    finally:
        await sink.stop()


async def test_a_change_of_authorities_closes_existing_connections(tmp_path: Path) -> None:
    sink = SecureSink(tmp_path)
    await sink.start()
    poster = Poster(EgressGuard(OutgoingSettings(addresses.LOOPBACK)), timeout=5)
    headers: dict[str, str] = {}
    try:
        with pytest.raises(OSError, match="CERTIFICATE_VERIFY_FAILED"):
            await poster.post(sink.url, headers, b"{}")
        poster.trust(AUTHORITY.pem)
        # The server is trusted, and reports that the signature is missing.
        assert await poster.post(sink.url, headers, b"{}") == 500
        poster.trust(OTHER.pem)
        with pytest.raises(OSError, match="CERTIFICATE_VERIFY_FAILED"):
            await poster.post(sink.url, headers, b"{}")
        poster.trust(b"")
        with pytest.raises(OSError, match="CERTIFICATE_VERIFY_FAILED"):
            await poster.post(sink.url, headers, b"{}")
    finally:
        poster.close()
        await sink.stop()


@pytest.mark.parametrize("authorities", [b"garbage", "ü".encode(), b"\xff"])
async def test_unusable_authorities_fail_the_attempts_and_not_the_service(
    world: World, tmp_path: Path, caplog: pytest.LogCaptureFixture, authorities: bytes
) -> None:
    sink = SecureSink(tmp_path)
    await sink.start()
    try:
        running = await posting_to(world, sink, authorities, callback_backoff_delay_ms=1)
        for _ in range(2):
            assert isinstance(await running.client.call(lambda n: core.SettingsChanged(n, BUSINESS)), core.Done)
        assert caplog.messages.count("webhook.authorities_unusable") == 1
        assert not sink.posts
        await trust(world, running, AUTHORITY.pem)
        await sink.signals.until(lambda: bool(sink.taken()))
    finally:
        await sink.stop()


async def test_without_loadable_authorities_no_server_is_trusted_over_tls(tmp_path: Path) -> None:
    sink = SecureSink(tmp_path)
    await sink.start()
    poster = Poster(EgressGuard(OutgoingSettings(addresses.LOOPBACK)), timeout=5)
    try:
        poster.trust(AUTHORITY.pem)
        assert await poster.post(sink.url, {}, b"{}") == 500
        for _ in range(2):
            poster.trust(b"garbage")
            with pytest.raises(OSError, match="CA certificates for webhooks cannot be loaded"):
                await poster.post(sink.url, {}, b"{}")
        poster.trust(AUTHORITY.pem)
        assert await poster.post(sink.url, {}, b"{}") == 500
    finally:
        poster.close()
        await sink.stop()
