"""The client of the network's HTTP API, against a real network and against servers that are none."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from tests.client.conftest import Registered, register
from tests.network.support import REGISTRATION_KEY, Network
from tidings import e2ee
from tidings.client import errors, http, keys
from tidings.client.groups import GroupApi
from tidings.client.http import CALLS, MAX_BULK, TRANSFERS, NetworkApi
from tidings.wire import groups
from tidings.wire.device import Login
from tidings.wire.registration import DeviceRegistration

ADA, BEN, CAT = "15550001111", "15550002222", "15550003333"
TOKEN = "a-token-that-nobody-may-read"
MIB = 1024 * 1024
KEPT = b'HTTP/1.1 200 OK\r\nContent-Length: 17\r\n\r\n{"database":"ok"}'

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def body(number: str, *, code: str = "", token: str = "", epoch: int = 0) -> DeviceRegistration:
    identity = e2ee.IdentityKeyPair.generate()
    made, _ = keys.generate(identity, 1, lasting=True)
    return made.registration(number, 4711, identity.public, code=code, token=token, epoch=epoch)


async def pieces(content: bytes, size: int = 64 * 1024) -> AsyncIterator[bytes]:
    for start in range(0, len(content), size):
        yield content[start : start + size]


@contextlib.asynccontextmanager
async def serving(answer: bytes) -> AsyncIterator[str]:
    """Something that answers every request with these bytes."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    server.close()


class Server:
    """Does as it is told with each connection, of which it counts how many there were."""

    def __init__(self, serve: Serve) -> None:
        self._serve = serve
        self.connections = 0
        self.url = ""

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            await self._serve(reader, writer)
        writer.close()

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[NetworkApi]:
        server = await asyncio.start_server(self, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with NetworkApi(self.url) as api:
            yield api
        server.close()


def answering(*answers: bytes) -> Server:
    """One after the other, each to a request without a body; then the connection ends."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for answer in answers:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(answer)
            await writer.drain()

    return Server(serve)


def stranger() -> Registered:
    return Registered(ADA, TOKEN, e2ee.IdentityKeyPair.generate())


async def test_a_number_is_registered_by_its_code(api: NetworkApi, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        await api.request_code(ADA)
    (code,) = [record.code for record in caplog.records if record.getMessage() == "code.issued"]  # type: ignore[attr-defined]
    with pytest.raises(errors.TooSoon, match="just now"):
        await api.request_code(ADA)
    with pytest.raises(errors.WrongCode):
        await api.register(body(ADA, code="000000" if code != "000000" else "000001"))
    assert await api.register(body(ADA, code=code))


async def test_a_registration_with_a_token_of_ones_own_may_be_repeated(api: NetworkApi) -> None:
    made = body(ADA, token=keys.generate_token())
    assert await api.register(made, registration_key=REGISTRATION_KEY) == made.token
    # Without key or code: whoever has the token need prove nothing else.
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


async def test_an_outdated_epoch_is_refused_by_name(network: Network, api: NetworkApi) -> None:
    device = await register(api, ADA)
    client = await network.connect()
    await client.ask(lambda n: Login(n, ADA, str(device.token), epoch=5))
    made, _ = keys.generate(device.identity, 3, one_time=1)
    with pytest.raises(errors.StaleEpoch):
        await api.upload_keys(device, made.upload(epoch=4))


async def test_an_unregistered_device_is_nobody(api: NetworkApi) -> None:
    device = await register(api, ADA)
    await api.block(device, BEN)
    await api.unblock(device, BEN)
    await api.unregister(device)
    with pytest.raises(errors.Unauthorized):
        await api.count_keys(device)


@pytest.mark.parametrize("size", [1, MIB // 4, 3 * MIB + 1])
async def test_a_blob_comes_back_as_it_went(api: NetworkApi, size: int) -> None:
    device = await register(api, ADA)
    content = hashlib.shake_128(b"x").digest(size)
    stored = await api.upload_blob(device, pieces(content), size)
    assert stored.expires_at > 1_700_000_000_000
    async with api.download_blob(device, stored.id) as chunks:
        found = [chunk async for chunk in chunks]
    assert b"".join(found) == content


async def test_a_blob_that_is_not_there_is_lost(api: NetworkApi) -> None:
    device = await register(api, ADA)
    with pytest.raises(errors.FileLost):
        async with api.download_blob(device, "../nothing"):
            pass


async def test_what_the_source_of_a_blob_raises_comes_out_as_it_is(api: NetworkApi) -> None:
    device = await register(api, ADA)

    async def broken() -> AsyncIterator[bytes]:
        yield b"begun"
        raise OSError("the disk is gone")

    with pytest.raises(OSError, match="the disk is gone"):
        await api.upload_blob(device, broken(), MIB)
    # The connection is not left in a state that another call stumbles over.
    assert (await api.count_keys(device)).prekeys == 0


async def test_what_the_reader_of_a_blob_raises_comes_out_as_it_is(api: NetworkApi) -> None:
    device = await register(api, ADA)
    stored = await api.upload_blob(device, pieces(bytes(MIB)), MIB)
    with pytest.raises(OSError, match="no room"):
        async with api.download_blob(device, stored.id) as chunks:
            async for _ in chunks:
                raise OSError("no room")


async def test_groups_are_made_joined_and_changed(api: NetworkApi) -> None:
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


async def test_a_group_has_a_picture(api: NetworkApi) -> None:
    ada = GroupApi(api, await register(api, ADA))
    group = await ada.create("Garden")
    with pytest.raises(errors.NetworkRefusal) as none:
        await ada.icon(group.id)
    assert none.value.reason == groups.NO_ICON
    picture = b"\x89PNG\r\n\x1a\n" + bytes(100)
    assert (await ada.set_icon(group.id, picture)).has_icon
    assert await ada.icon(group.id) == ("image/png", picture)
    assert not (await ada.delete_icon(group.id)).has_icon


async def test_health_is_told_of_a_network_that_is_well(api: NetworkApi) -> None:
    assert (await api.health(seconds=5))["database"] == "ok"


async def test_health_is_told_of_a_network_that_is_not_well() -> None:
    answer = b'HTTP/1.1 503 Busy\r\nContent-Length: 19\r\n\r\n{"database":"away"}'
    async with serving(answer) as url, NetworkApi(url) as api:
        assert await api.health(seconds=5) == {"database": "away"}


async def test_a_network_that_cannot_be_reached_was_asked_nothing() -> None:
    async with NetworkApi("http://127.0.0.1:1") as api:
        with pytest.raises(errors.NetworkUnreached, match=r"http://127\.0\.0\.1:1"):
            await api.register(body(ADA))


async def test_a_network_that_says_nothing_is_silent() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with NetworkApi(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}") as api:
        with pytest.raises(errors.NetworkSilent):
            await api.health(seconds=0.05)
    server.close()


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (503, errors.NetworkAway),
        (507, errors.NetworkFull),
        (413, errors.NetworkRefusal),
        (403, errors.Unauthorized),
        (302, errors.NetworkRefusal),
    ],
)
async def test_a_status_says_enough_without_a_reason(status: int, kind: type[errors.ClientError]) -> None:
    answer = b"HTTP/1.1 %d X\r\nContent-Length: 0\r\nLocation: http://127.0.0.1:1/\r\n\r\n" % status
    async with serving(answer) as url, NetworkApi(url) as api:
        with pytest.raises(errors.ClientError) as raised:
            await api.count_keys(Registered(ADA, TOKEN, e2ee.IdentityKeyPair.generate()))
    assert type(raised.value) is kind
    if isinstance(raised.value, errors.NetworkRefusal):
        assert raised.value.status == status


@pytest.mark.parametrize(
    "answer", [b"", b"no HTTP at all\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nshort"]
)
async def test_what_is_no_answer_is_told_without_the_token(answer: bytes) -> None:
    device = Registered(ADA, TOKEN, e2ee.IdentityKeyPair.generate())
    async with serving(answer) as url, NetworkApi(url) as api:
        with pytest.raises(errors.NetworkAway) as up:
            await api.upload_blob(device, pieces(b"ciphertext"), 10)
        with pytest.raises(errors.NetworkAway) as down:
            async with api.download_blob(device, "x") as chunks:
                async for _ in chunks:
                    pass
    for error in (up.value, down.value):
        # As it is logged: by itself, and with its cause.
        assert TOKEN not in f"{error} {error!r} {error.__cause__!r}"
        assert url in str(error)


async def test_many_calls_share_few_connections(network: Network, api: NetworkApi) -> None:
    device = await register(api, ADA)
    await asyncio.gather(*(api.count_keys(device) for _ in range(4 * (CALLS + TRANSFERS))))
    text = await (await network.http.get("/metrics")).text()
    (opened,) = [line for line in text.splitlines() if line.startswith("tidings_network_http_connections ")]
    # With the test's own.
    assert float(opened.split()[1]) <= CALLS + TRANSFERS + 1


async def test_the_environments_proxies_are_not_used(api: NetworkApi, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    async with NetworkApi(api.url) as another:
        assert (await another.health(seconds=5))["database"] == "ok"


@pytest.mark.parametrize(
    ("status", "reason", "kind"),
    [
        (429, "rate_limited", errors.TooSoon),
        (429, "", errors.NetworkAway),
        (429, "slow_down", errors.NetworkAway),
        (503, "", errors.NetworkAway),
        (507, "", errors.NetworkFull),
        (403, "", errors.Unauthorized),
        (404, "no_such_group", errors.NoSuchGroup),
        (413, "too_large", errors.NetworkRefusal),
    ],
)
def test_what_a_proxy_puts_off_is_asked_again_and_what_the_network_refuses_is_not(
    status: int, reason: str, kind: type[errors.ClientError]
) -> None:
    assert type(errors.of_answer(status, reason, "")) is kind


async def test_calls_one_after_the_other_share_a_connection() -> None:
    server = answering(KEPT, KEPT, KEPT)
    async with server.running() as api:
        for _ in range(3):
            await api.health(seconds=5)
    assert server.connections == 1


async def test_a_connection_that_was_idle_for_too_long_is_not_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "KEPT_SECONDS", 0.0)
    server = answering(KEPT, KEPT)
    async with server.running() as api:
        for _ in range(2):
            await api.health(seconds=5)
    assert server.connections == 2


async def test_a_connection_that_is_closed_while_it_is_kept_is_not_used_again() -> None:
    gone = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(KEPT)
        writer.write_eof()
        # The other side has noticed.
        await reader.read()
        gone.set()

    server = Server(serve)
    async with server.running() as api:
        for _ in range(3):
            await api.health(seconds=5)
            await gone.wait()
            gone.clear()
    assert server.connections == 3


async def test_what_follows_an_answer_is_not_taken_for_the_next_one() -> None:
    foreign = b'HTTP/1.1 200 OK\r\nContent-Length: 22\r\n\r\n{"database":"foreign"}'
    server = answering(KEPT + foreign)
    async with server.running() as api:
        for _ in range(2):
            with contextlib.suppress(errors.NetworkAway):
                assert await api.health(seconds=5) == {"database": "ok"}
    assert server.connections == 2


async def test_what_may_have_been_done_is_asked_once_and_is_not_called_unreached() -> None:
    asked = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal asked
        await reader.readuntil(b"\r\n\r\n")
        asked += 1

    async with Server(serve).running() as api:
        with pytest.raises(errors.NetworkAway) as raised:
            await api.block(stranger(), BEN)
    assert type(raised.value) is errors.NetworkAway
    assert asked == 1


async def test_a_refusal_before_the_end_of_a_blob_is_heard_and_no_more_is_sent() -> None:
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 507 Full\r\nContent-Length: 4\r\n\r\nfu")
        writer.write(b"ll")
        await reader.read()

    sent = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal sent
        while True:
            sent += MIB
            yield bytes(MIB)
            await asyncio.sleep(0)

    server = Server(refuse)
    async with server.running() as api:
        for _ in range(2):
            with pytest.raises(errors.NetworkFull):
                await api.upload_blob(stranger(), endless(), 2**40)
    assert server.connections == 2
    assert sent < 256 * MIB


async def test_no_more_of_a_blob_is_taken_than_its_reader_wants() -> None:
    written = 0

    async def pour(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal written
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (64 * MIB))
        for _ in range(64):
            writer.write(bytes(MIB))
            await writer.drain()
            written += MIB

    async with Server(pour).running() as api, api.download_blob(stranger(), "x") as chunks:
        size = len(await anext(chunks))
        for _ in range(3000):
            await asyncio.sleep(0)
        assert written < 32 * MIB
        async for chunk in chunks:
            size += len(chunk)
        assert size == 64 * MIB


async def test_a_network_that_falls_silent_is_waited_for_only_so_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "SILENCE_SECONDS", 0.05)

    async def stall(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nok")
        await reader.read()

    async with Server(stall).running() as api:
        with pytest.raises(errors.NetworkSilent):
            async with api.download_blob(stranger(), "x") as chunks:
                async for _ in chunks:
                    pass


async def test_a_network_that_stops_taking_a_blob_is_waited_for_only_so_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "SILENCE_SECONDS", 0.2)
    over = asyncio.Event()

    async def stall(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await over.wait()

    async with Server(stall).running() as api:
        with pytest.raises(errors.NetworkSilent):
            await api.upload_blob(stranger(), pieces(bytes(64 * MIB)), 64 * MIB)
        over.set()


async def test_a_token_with_a_line_break_is_not_sent() -> None:
    server = answering(KEPT)
    async with server.running() as api:
        with pytest.raises(ValueError, match="header"):
            await api.count_keys(Registered(ADA, "a\r\nX: y", e2ee.IdentityKeyPair.generate()))
