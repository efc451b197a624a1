"""Both listeners speak TLS when a certificate is configured."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from network.errors import CannotListen
from tests.authority import Authority
from tests.network.support import ALICE, BOB, REGISTRATION_KEY, TIMEOUT, Network
from tidings.client.errors import NetworkUnavailable, Unauthorized
from tidings.client.http import NetworkApi
from tidings.client.memory_device import MemoryDevice
from tidings.net import tls
from tidings.net.tls import TlsFiles
from tidings.wire import connection as wire
from tidings.wire import content, device

OURS, THEIRS = Authority(), Authority("Another authority")


@pytest.fixture(params=[("tcp", "sqlite")], ids=["sqlite"])
def pair(request: pytest.FixtureRequest) -> tuple[str, str]:
    transport, database = request.param
    return transport, database


class Quiet:
    """Handler that ignores everything."""

    def opened(self, connection: wire.Connection) -> None: ...

    def received(self, connection: wire.Connection, frame: object) -> None: ...

    def closed(self, connection: wire.Connection, reason: str) -> None: ...


async def test_tcp_and_http_listeners_accept_only_tls(network: Network, tmp_path: Path) -> None:
    files = OURS.files(tmp_path, "network", "127.0.0.1")
    certificate = TlsFiles(files.chain, files.key)
    await network.start(tcp_certificate=certificate, http_certificate=certificate)
    trust = ssl.create_default_context(cafile=files.authorities)
    connection = await wire.connect(*network.addresses.tcp, device.FromNetwork, Quiet(), tls=trust)
    assert connection.is_open
    connection.close("done")
    port = network.addresses.http[1]
    async with aiohttp.ClientSession() as client:
        async with client.get(f"https://127.0.0.1:{port}/health", ssl=trust) as response:
            assert response.status == 200
        with pytest.raises(aiohttp.ClientError):
            await client.get(f"http://127.0.0.1:{port}/health")
    plain = await network.connect()
    plain.link.send(device.Login(1, ALICE, "token"))
    await plain.closed.wait()


class Recipient(MemoryDevice):
    """Device that records what it has received."""

    def __init__(self, url: str, number: str, tls: ssl.SSLContext) -> None:
        super().__init__(url, number, tls=tls)
        self.online = asyncio.Event()
        self.come: asyncio.Queue[bytes] = asyncio.Queue()

    def ready(self) -> None:
        self.online.set()

    def received(self, peer: str, plaintext: bytes) -> None:
        self.come.put_nowait(plaintext)


async def test_only_the_registration_key_requires_a_client_certificate(network: Network, tmp_path: Path) -> None:
    certificate = OURS.files(tmp_path, "network", "127.0.0.1")
    await network.start(tcp_certificate=certificate, http_certificate=certificate)
    url = f"https://127.0.0.1:{network.addresses.http[1]}"
    ours = tls.client("network", OURS.files(tmp_path, "robots", "robots"))
    bare = tls.client("network", TlsFiles(authorities=certificate.authorities))
    theirs = THEIRS.files(tmp_path, "theirs", "robots")
    strange = tls.client("network", TlsFiles(theirs.chain, theirs.key, certificate.authorities))
    # The right key and a wrong one get the same response, so that no key can be tried.
    for key in (REGISTRATION_KEY, "wrong"):
        with pytest.raises(Unauthorized, match="only from clients with a certificate"):
            await Recipient(url, ALICE, bare).register(key)
    with pytest.raises(NetworkUnavailable):
        await Recipient(url, ALICE, strange).register(REGISTRATION_KEY)
    async with NetworkApi(url, tls=bare) as api:
        with pytest.raises(Unauthorized, match="only from clients with a certificate"):
            await api.register_many([], REGISTRATION_KEY)
    with pytest.raises(Unauthorized, match="is wrong"):
        await Recipient(url, ALICE, ours).register("wrong")
    # The token works without a certificate.
    alice, bob = Recipient(url, ALICE, bare), Recipient(url, BOB, bare)
    for person in (alice, bob):
        person._tls = ours
        await person.register(REGISTRATION_KEY)
    stop = asyncio.Event()
    running = [asyncio.create_task(person.run(stop)) for person in (alice, bob)]
    async with asyncio.timeout(TIMEOUT):
        await asyncio.gather(alice.online.wait(), bob.online.wait())
        await alice.send(BOB, content.encode_text("over TLS"))
        assert content.decode(await bob.come.get()).text == content.Text("over TLS")
    stop.set()
    await asyncio.gather(*running)


async def test_a_missing_certificate_is_one_clear_error(network: Network, tmp_path: Path) -> None:
    missing = TlsFiles(str(tmp_path / "chain.pem"), str(tmp_path / "key.pem"))
    for name in ("TCP", "HTTP"):
        changes: dict[str, Any] = {f"{name.lower()}_certificate": missing}
        with pytest.raises(CannotListen, match=f"TIDINGS_NETWORK_{name}_CERTIFICATE"):
            await network.start(**changes)
