"""Client of the network's HTTP API, against a real network and against other servers."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
from collections.abc import AsyncIterator

import pytest
from aiohttp import web

from tests.client.conftest import TOKEN, register, unregistered_device
from tests.client.support import pieces
from tests.network.support import REGISTRATION_KEY, Network
from tidings import e2ee
from tidings.client import errors, keys
from tidings.client.groups import GroupApi
from tidings.client.http import CALLS, MAX_BULK, TRANSFERS, NetworkApi
from tidings.http.listener_settings import UnauthenticatedSettings
from tidings.wire import groups
from tidings.wire.device import Login
from tidings.wire.registration import DeviceRegistration

ADA, BEN, CAT = "15550001111", "15550002222", "15550003333"
MIB = 1024 * 1024


def body(number: str, *, code: str = "", token: str = "", epoch: int = 0) -> DeviceRegistration:
    identity = e2ee.IdentityKeyPair.generate()
    made, _ = keys.generate(identity, 1, lasting=True)
    return made.registration(number, 4711, identity.public, code=code, token=token, epoch=epoch)


@contextlib.asynccontextmanager
async def serving(response: bytes) -> AsyncIterator[str]:
    """Run a server that responds to every request with these bytes."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(response)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    server.close()


async def test_a_number_registers_with_its_registration_code(api: NetworkApi, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        await api.request_code(ADA)
    (code,) = [record.code for record in caplog.records if record.getMessage() == "code.issued"]  # type: ignore[attr-defined]
    with pytest.raises(errors.TooSoon, match="a moment ago"):
        await api.request_code(ADA)
    with pytest.raises(errors.WrongCode):
        await api.register(body(ADA, code="000000" if code != "000000" else "000001"))
    assert await api.register(body(ADA, code=code))


async def test_a_registration_with_the_clients_own_token_may_be_repeated(api: NetworkApi) -> None:
    made = body(ADA, token=keys.generate_token())
    assert await api.register(made, registration_key=REGISTRATION_KEY) == made.token
    # Without key or code: a client with the token need prove nothing else.
    assert await api.register(made) == made.token


async def test_a_wrong_registration_key_is_refused(api: NetworkApi) -> None:
    with pytest.raises(errors.Unauthorized) as refused:
        await api.register(body(ADA), registration_key="wrong")
    assert (refused.value.reason, refused.value.status) == ("unauthorized", 401)


async def test_devices_register_in_bulk(api: NetworkApi) -> None:
    numbers = [str(15550010000 + n) for n in range(MAX_BULK // 50)]
    tokens = await api.register_many([body(number) for number in numbers], REGISTRATION_KEY)
    assert sorted(tokens) == numbers
    assert len(set(tokens.values())) == len(numbers)


async def test_keys_are_added_counted_and_replaced(api: NetworkApi) -> None:
    device = await register(api, ADA, one_time=3, kyber_one_time=1)
    left = await api.count_keys(device)
    assert (left.prekeys, left.kyber_prekeys, left.prekey_ids, left.kyber_prekey_ids) == (3, 1, [3, 4, 5], [6])
    more, following = keys.generate(device.identity, 7, one_time=2)
    assert following == 9
    assert (await api.upload_keys(device, more.upload())).prekey_ids == [3, 4, 5, 7, 8]
    lasting, _ = keys.generate(device.identity, 9, lasting=True)
    assert (await api.upload_keys(device, lasting.upload())).prekeys == 5


async def test_a_stale_epoch_raises_stale_epoch(network: Network, api: NetworkApi) -> None:
    device = await register(api, ADA)
    client = await network.connect()
    await client.request(lambda n: Login(n, ADA, str(device.token), epoch=5))
    made, _ = keys.generate(device.identity, 3, one_time=1)
    with pytest.raises(errors.StaleEpoch):
        await api.upload_keys(device, made.upload(epoch=4))


async def test_an_unregistered_device_is_unauthorized(api: NetworkApi) -> None:
    device = await register(api, ADA)
    await api.block(device, BEN)
    await api.unblock(device, BEN)
    await api.unregister(device)
    with pytest.raises(errors.Unauthorized):
        await api.count_keys(device)


@pytest.mark.parametrize("size", [1, MIB // 4, 3 * MIB + 1])
async def test_an_uploaded_blob_downloads_unchanged(api: NetworkApi, size: int) -> None:
    device = await register(api, ADA)
    content = hashlib.shake_128(b"x").digest(size)
    stored = await api.upload_blob(device, pieces(content), size)
    assert stored.expires_at > 1_700_000_000_000
    async with api.download_blob(device, stored.id) as chunks:
        found = [chunk async for chunk in chunks]
    assert b"".join(found) == content


async def test_a_missing_blob_raises_file_lost(api: NetworkApi) -> None:
    device = await register(api, ADA)
    with pytest.raises(errors.FileLost):
        async with api.download_blob(device, "../nothing"):
            pass


async def test_an_exception_of_an_upload_source_propagates_unchanged(api: NetworkApi) -> None:
    device = await register(api, ADA)

    async def broken() -> AsyncIterator[bytes]:
        yield b"begun"
        raise OSError("the disk is gone")

    with pytest.raises(OSError, match="the disk is gone"):
        await api.upload_blob(device, broken(), MIB)
    # The connection stays usable for another call.
    assert (await api.count_keys(device)).prekeys == 0


async def test_an_exception_of_a_download_reader_propagates_unchanged(api: NetworkApi) -> None:
    device = await register(api, ADA)
    stored = await api.upload_blob(device, pieces(bytes(MIB)), MIB)
    with pytest.raises(OSError, match="no room"):
        async with api.download_blob(device, stored.id) as chunks:
            async for _ in chunks:
                raise OSError("no room")


async def test_groups_are_created_joined_and_changed(api: NetworkApi) -> None:
    ada, ben = [GroupApi(api, await register(api, number)) for number in (ADA, BEN)]
    group = await ada.create("Garden")
    assert [(member.number, member.admin) for member in group.participants] == [(ADA, True)]
    joined = await ben.join(await ada.invite(group.id))
    assert joined.epoch > group.epoch
    with pytest.raises(errors.NotAdmin):
        await ben.set_subject(group.id, "Ben's")
    assert (await ada.set_subject(group.id, "Roof")).subject == "Roof"
    assert all(member.admin for member in (await ada.promote(group.id, [BEN])).participants)
    await ada.demote(group.id, [BEN])
    (listed,) = await ben.list_mine()
    assert (listed.id, listed.participants) == (group.id, [])
    code = await ada.invite(group.id)
    assert await ada.revoke_invite(group.id) != code
    with pytest.raises(errors.NoSuchGroup) as gone:
        await ben.join(code)
    assert gone.value.reason == groups.NO_SUCH_INVITE
    await ada.remove(group.id, [BEN])
    with pytest.raises(errors.NoSuchGroup) as out:
        await ben.fetch(group.id)
    assert out.value.reason == groups.NOT_PARTICIPANT
    await ada.leave(group.id)


async def test_a_group_icon_is_set_fetched_and_deleted(api: NetworkApi) -> None:
    ada = GroupApi(api, await register(api, ADA))
    group = await ada.create("Garden")
    with pytest.raises(errors.NetworkRefusal) as none:
        await ada.icon(group.id)
    assert none.value.reason == groups.NO_ICON
    picture = b"\x89PNG\r\n\x1a\n" + bytes(100)
    assert (await ada.set_icon(group.id, picture)).has_icon
    assert await ada.icon(group.id) == ("image/png", picture)
    assert not (await ada.delete_icon(group.id)).has_icon


async def test_health_reports_a_healthy_network(api: NetworkApi) -> None:
    assert (await api.health(seconds=5))["database"] == "ok"


async def test_health_reports_an_unhealthy_network() -> None:
    response = b'HTTP/1.1 503 Busy\r\nContent-Length: 19\r\n\r\n{"database":"away"}'
    async with serving(response) as url, NetworkApi(url) as api:
        assert await api.health(seconds=5) == {"database": "away"}


async def test_an_unreachable_network_raises_network_unreached() -> None:
    async with NetworkApi("http://127.0.0.1:1") as api:
        with pytest.raises(errors.NetworkUnreached, match=r"http://127\.0\.0\.1:1"):
            await api.register(body(ADA))


async def test_a_network_that_sends_no_response_raises_network_silent() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with NetworkApi(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}") as api:
        with pytest.raises(errors.NetworkTimeout):
            await api.health(seconds=0.05)
    server.close()


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (503, errors.NetworkUnavailable),
        (507, errors.NetworkFull),
        (413, errors.NetworkRefusal),
        (403, errors.Unauthorized),
        (302, errors.NetworkRefusal),
    ],
)
async def test_a_status_without_a_reason_maps_to_its_error(status: int, kind: type[errors.ClientError]) -> None:
    response = b"HTTP/1.1 %d X\r\nContent-Length: 0\r\nLocation: http://127.0.0.1:1/\r\n\r\n" % status
    async with serving(response) as url, NetworkApi(url) as api:
        with pytest.raises(errors.ClientError) as raised:
            await api.count_keys(unregistered_device())
    assert type(raised.value) is kind
    if isinstance(raised.value, errors.NetworkRefusal):
        assert raised.value.status == status


@pytest.mark.parametrize(
    "response", [b"", b"no HTTP at all\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nshort"]
)
async def test_an_invalid_response_is_reported_without_the_token(response: bytes) -> None:
    device = unregistered_device()
    async with serving(response) as url, NetworkApi(url) as api:
        with pytest.raises(errors.NetworkUnavailable) as up:
            await api.upload_blob(device, pieces(b"ciphertext"), 10)
        with pytest.raises(errors.NetworkUnavailable) as down:
            async with api.download_blob(device, "x") as chunks:
                async for _ in chunks:
                    pass
    for error in (up.value, down.value):
        # As it is logged: alone, and with its cause.
        assert TOKEN not in f"{error} {error!r} {error.__cause__!r}"
        assert url in str(error)


async def test_concurrent_calls_share_few_connections(network: Network, api: NetworkApi) -> None:
    device = await register(api, ADA)
    await asyncio.gather(*(api.count_keys(device) for _ in range(4 * (CALLS + TRANSFERS))))
    text = await (await network.http.get("/metrics")).text()
    (opened,) = [line for line in text.splitlines() if line.startswith("tidings_network_http_connections ")]
    # One more for the test's own connection.
    assert float(opened.split()[1]) <= CALLS + TRANSFERS + 1


async def test_proxies_of_the_environment_are_not_used(api: NetworkApi, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    async with NetworkApi(api.url) as another:
        assert (await another.health(seconds=5))["database"] == "ok"


async def test_a_server_that_is_no_message_network_is_named_as_such() -> None:
    runner = web.AppRunner(web.Application())
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        async with NetworkApi(f"http://127.0.0.1:{runner.addresses[0][1]}") as other:
            with pytest.raises(errors.NetworkRefusal, match="does not respond like a message network: HTTP 404"):
                await other.request_code("15550100001")
    finally:
        await runner.cleanup()


@pytest.mark.parametrize(
    ("status", "reason", "kind"),
    [
        (429, "rate_limited", errors.TooSoon),
        (429, "", errors.NetworkUnavailable),
        (429, "slow_down", errors.NetworkUnavailable),
        (503, "", errors.NetworkUnavailable),
        (507, "", errors.NetworkFull),
        (403, "", errors.Unauthorized),
        (404, "no_such_group", errors.NoSuchGroup),
        (413, "too_large", errors.NetworkRefusal),
    ],
)
def test_a_status_and_reason_map_to_a_retryable_or_a_final_error(
    status: int, reason: str, kind: type[errors.ClientError]
) -> None:
    assert type(errors.from_response(status, reason, "")) is kind


@pytest.mark.parametrize("call", ["upload", "download", "keys"])
async def test_a_call_refused_because_of_unauthenticated_clients_counts_as_away(network: Network, call: str) -> None:
    """The network requests a repetition: unauthenticated clients behind the same address, such as a proxy's, were too
    fast."""
    await network.stop()
    await network.start(unauthenticated=UnauthenticatedSettings(rate=0.4, rate_each=0.4))
    url = f"http://127.0.0.1:{network.addresses.http[1]}"
    async with NetworkApi(url) as api:
        device = await register(api, ADA)
    async with NetworkApi(url) as other:
        with pytest.raises(errors.Unauthorized):
            await other.count_keys(unregistered_device())
    async with NetworkApi(url) as api:
        with pytest.raises(errors.NetworkUnavailable):
            if call == "upload":
                await api.upload_blob(device, pieces(b"content"), 7)
            elif call == "keys":
                await api.count_keys(device)
            else:
                async with api.download_blob(device, "a-blob"):
                    pass
