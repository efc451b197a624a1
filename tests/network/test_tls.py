"""Both listeners speak TLS when they are given a certificate."""

from __future__ import annotations

import datetime
import ipaddress
import ssl
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from network.errors import CannotListen
from network.settings import Certificate
from tests.network.support import Network
from tests.network.test_routing import ALICE
from tidings.wire import connection as wire
from tidings.wire import device


@pytest.fixture(params=[("tcp", "sqlite")], ids=["sqlite"])
def pair(request: pytest.FixtureRequest) -> tuple[str, str]:
    transport, database = request.param
    return transport, database


def self_signed(directory: Path) -> Certificate:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "network under test")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .sign(key, hashes.SHA256())
    )
    chain, private = directory / "chain.pem", directory / "key.pem"
    chain.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    private.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return Certificate(str(chain), str(private))


class Quiet:
    """A handler that nothing is expected of."""

    def opened(self, connection: wire.Connection) -> None: ...

    def received(self, connection: wire.Connection, frame: object) -> None: ...

    def closed(self, connection: wire.Connection, reason: str) -> None: ...


async def test_tcp_and_http_take_tls_and_nothing_else(network: Network, tmp_path: Path) -> None:
    certificate = self_signed(tmp_path)
    await network.start(tcp_certificate=certificate, http_certificate=certificate)
    trust = ssl.create_default_context(cafile=certificate.chain)
    connection = await wire.connect(*network.addresses.tcp, device.FromNetwork, Quiet(), tls=trust)
    assert connection.is_open
    connection.close("done")
    port = network.addresses.http[1]
    async with aiohttp.ClientSession() as client:
        async with client.get(f"https://127.0.0.1:{port}/health", ssl=trust) as answer:
            assert answer.status == 200
        with pytest.raises(aiohttp.ClientError):
            await client.get(f"http://127.0.0.1:{port}/health")
    plain = await network.connect()
    plain.link.send(device.Login(1, ALICE, "token"))
    await plain.closed.wait()


async def test_a_certificate_that_is_not_there_is_one_clear_error(network: Network, tmp_path: Path) -> None:
    missing = Certificate(str(tmp_path / "chain.pem"), str(tmp_path / "key.pem"))
    for name in ("TCP", "HTTP"):
        changes: dict[str, Any] = {f"{name.lower()}_certificate": missing}
        with pytest.raises(CannotListen, match=f"TIDINGS_NETWORK_{name}_CERTIFICATE"):
            await network.start(**changes)
