"""TLS between machines: admitted peers, renewed files, warnings before expiry, and bounded handshakes."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import logging
import os
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from harness import metrics
from tests.authority import NOW, Authority, private_key
from tests.coreapp.signals import soon
from tests.manual_clock import ManualClock
from tidings.net import socket_server, tls, tls_server
from tidings.net.tls import CertificateWatch, Clients, FileContext, TlsFiles, UnusableCertificate
from tidings.net.tls_server import Handshakes, TlsServer

OURS, THEIRS = Authority(), Authority("Another authority")
DAY = 86_400
NAME = "localhost"

Reader, Writer = asyncio.StreamReader, asyncio.StreamWriter
Serve = Callable[..., Awaitable[int]]


class Echo(asyncio.Protocol):
    """Server protocol that sends a greeting, then echoes."""

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        transport.write(b"hello\n")

    def data_received(self, data: bytes) -> None:
        self.transport.write(data)


@pytest.fixture
async def serve() -> AsyncIterator[Serve]:
    """Function that starts a listener with `Echo`: `await serve(context)` returns its port."""
    async with contextlib.AsyncExitStack() as stack:

        async def start(context: ssl.SSLContext, **options: Any) -> int:
            server = TlsServer(
                socket_server.listen("127.0.0.1", 0), Echo, context=context, handshakes=Handshakes("test", **options)
            )
            server.start()
            stack.push_async_callback(server.wait_closed)
            stack.callback(server.close)
            port: int = server.sockets[0].getsockname()[1]
            return port

        yield start


async def converse(port: int, context: ssl.SSLContext, name: str = NAME) -> str:
    """Exchange a line with the server and return the common name of its certificate."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname=name)
    try:
        writer.write(b"question\n")
        said = [await reader.readline(), await reader.readline()]
        if said != [b"hello\n", b"question\n"]:
            raise ConnectionResetError(f"it said {said}")
        found: Any = writer.get_extra_info("peercert")
        return str(dict(pair for part in found["subject"] for pair in part)["commonName"])
    finally:
        writer.close()


def count(result: str) -> float:
    return metrics.value("tidings_tls_handshakes_total", listener="test", result=result) or 0.0


async def test_only_clients_with_a_certificate_of_the_authority_are_admitted(
    serve: Serve, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    server = OURS.files(tmp_path, "server", NAME)
    port = await serve(tls.server("link", server, clients=Clients.REQUIRED, least=ssl.TLSVersion.TLSv1_3))
    client = OURS.files(tmp_path, "client", "webapp")
    assert await converse(port, tls.client("link", client)) == NAME
    untrusted = {
        "no certificate": TlsFiles(authorities=client.authorities),
        "of another authority": TlsFiles(*_pair(THEIRS.files(tmp_path, "theirs", "webapp")), client.authorities),
        "expired": TlsFiles(*_pair(OURS.files(tmp_path, "old", "webapp", days=-1)), client.authorities),
    }
    for files in untrusted.values():
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await converse(port, tls.client("link", files))
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET / HTTP/1.1\r\n\r\n")
    assert b"hello" not in await reader.read()
    writer.close()
    old = ssl.create_default_context(cafile=client.authorities)
    old.load_cert_chain(client.chain, client.key)
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    with pytest.raises((ssl.SSLError, ConnectionError)):
        await converse(port, old)
    # A refused peer gets no reason, so the log has it. Unauthenticated clients cannot flood the log.
    (said,) = [vars(record) for record in caplog.records if record.message == "tls.handshake_failed"]
    assert said["error"] == "TLS: peer did not return a certificate"


async def test_a_server_with_a_wrong_name_authority_or_expired_certificate_is_refused(
    serve: Serve, tmp_path: Path
) -> None:
    trust = TlsFiles(authorities=OURS.files(tmp_path, "any", NAME).authorities)
    for authority, days, name, words in (
        (OURS, 30, "elsewhere", "Hostname mismatch"),
        (THEIRS, 30, NAME, "unable to get local issuer"),
        (OURS, -1, NAME, "expired"),
    ):
        port = await serve(tls.server("link", authority.files(tmp_path, "server", NAME, days=days)))
        with pytest.raises(ssl.SSLCertVerificationError, match=words) as caught:
            await converse(port, tls.client("link", trust), name)
        assert words.lower() in tls.describe(caught.value).lower()


async def test_servers_of_a_role_are_verified_by_the_role_name_on_any_host(serve: Serve, tmp_path: Path) -> None:
    port = await serve(tls.server("link", OURS.files(tmp_path, "server", "coreapp")))
    trust = TlsFiles(authorities=str(tmp_path / "server.ca"))
    with pytest.raises(ssl.SSLCertVerificationError, match="IP address mismatch"):
        await converse(port, tls.client("link", trust), "172.18.0.7")
    assert await converse(port, tls.client("link", trust, server_name="coreapp"), "172.18.0.7") == "coreapp"
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        await converse(port, tls.client("link", trust, server_name="webapp"), "coreapp")


async def test_new_connections_use_renewed_files_and_broken_files_are_ignored(
    serve: Serve, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    context = tls.server("link", OURS.files(tmp_path, "server", "first", NAME))
    trust = tls.client("link", TlsFiles(authorities=str(tmp_path / "server.ca")))
    port = await serve(context)
    assert await converse(port, trust) == "first"
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trust, server_hostname=NAME)
    assert await reader.readline() == b"hello\n"
    OURS.files(tmp_path, "server", "second", NAME)
    assert await converse(port, trust) == "second"
    # Existing connections stay open.
    writer.write(b"still here\n")
    assert await reader.readline() == b"still here\n"
    writer.close()
    (tmp_path / "server.key").write_bytes(OURS.issue("other")[0])
    with caplog.at_level(logging.ERROR, "tidings.net.tls"):
        assert await converse(port, trust) == "second"
        assert await converse(port, trust) == "second"
    assert [record.message for record in caplog.records] == ["tls.not_reloaded"]
    # A removed authority is no longer trusted.
    THEIRS.files(tmp_path, "server", "third", NAME)
    assert await converse(port, trust) == "third"
    (tmp_path / "server.ca").write_bytes(OURS.pem)
    with pytest.raises(ssl.SSLCertVerificationError):
        await converse(port, trust)


def test_unusable_tls_files_are_named_without_a_passphrase_prompt(tmp_path: Path) -> None:
    good = OURS.files(tmp_path, "good", NAME)
    (tmp_path / "other.key").write_bytes(OURS.issue("other")[0])
    (tmp_path / "empty.pem").write_bytes(b"")
    other, empty, absent = (str(tmp_path / name) for name in ("other.key", "empty.pem", "absent.pem"))
    for files, words in (
        (TlsFiles(absent, good.key), "absent.pem: No such file"),
        (TlsFiles(good.chain, absent), "absent.pem: No such file"),
        (TlsFiles(good.chain, other), "other.key cannot be used: key values mismatch"),
        (TlsFiles(empty, good.key), "empty.pem"),
        (TlsFiles(good.chain, good.key, empty), "empty.pem"),
    ):
        with pytest.raises(UnusableCertificate, match=words):
            tls.server("link", files, clients=Clients.REQUIRED if files.authorities else Clients.NONE)


def test_expiry_within_30_days_logs_a_daily_warning_and_sets_a_metric(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    files = OURS.files(tmp_path, "server", NAME, days=20)
    context = tls.server("test_ends", files, clients=Clients.REQUIRED)
    clock = ManualClock(NOW.timestamp() - 1)
    watch = CertificateWatch([context, None, ssl.create_default_context()], clock)
    watch.run_once()
    ends = metrics.value("tidings_certificate_expiry_timestamp_seconds", use="test_ends", kind="certificate")
    assert ends == pytest.approx(NOW.timestamp() + 20 * DAY, abs=1)

    def warned() -> list[Any]:
        said = [vars(record) for record in caplog.records if record.message == "tls.certificate_ends"]
        return [(record["kind"], record["days"]) for record in said]

    assert warned() == [("certificate", 20.0)]
    caplog.clear()
    clock.advance(DAY - 1)
    watch.run_once()
    assert [kind for kind, _ in warned()] == ["authority"]
    clock.advance(1)
    watch.run_once()
    assert warned()[1:] == [("certificate", 19.0)]
    OURS.files(tmp_path, "server", NAME, days=400)
    caplog.clear()
    clock.advance(DAY)
    watch.run_once()
    assert [kind for kind, _ in warned()] == ["authority"]


@pytest.mark.parametrize(
    ("last", "extensions"), [(98, [b"\x05\x00", b"\x05\x00"]), (17, [b"\x30\x02\xa3\x00"])], ids=["twice", "type"]
)
def test_a_certificate_whose_extensions_cannot_be_parsed_has_no_names(
    tmp_path: Path, last: int, extensions: list[bytes]
) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "a.example")])
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    builder = builder.serial_number(1).not_valid_before(NOW).not_valid_after(NOW + datetime.timedelta(days=30))
    for n, value in enumerate(extensions):
        identifier = x509.ObjectIdentifier(f"2.5.29.{98 + n}")
        builder = builder.add_extension(x509.UnrecognizedExtension(identifier, value), critical=False)
    made = builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.DER)
    for n in range(len(extensions)):
        # These identifiers differ in their last byte. That of the names is 2.5.29.17.
        made = made.replace(bytes((6, 3, 0x55, 0x1D, 98 + n)), bytes((6, 3, 0x55, 0x1D, last)))
    chain, private = tmp_path / "a.pem", tmp_path / "a.key"
    chain.write_text(ssl.DER_cert_to_PEM_cert(made))
    private.write_bytes(private_key(key))
    context = tls.server("link", TlsFiles(str(chain), str(private)))
    assert context.names == frozenset()


async def test_missing_handshakes_are_limited_and_time_out(serve: Serve, tmp_path: Path) -> None:
    port = await serve(tls.server("link", OURS.files(tmp_path, "server", NAME)), of_one=4, of_all=6, seconds=0.5)
    late, refused = count("late"), count("refused")
    silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(7)]
    # The last three connections of this address are closed unread.
    await asyncio.gather(*(reader.read() for reader, _ in silent[4:]))
    assert count("refused") - refused == 3
    others = [await asyncio.open_connection("127.0.0.1", port, local_addr=(f"127.9.9.{n}", 0)) for n in (1, 2, 3)]
    await others[2][0].read()
    assert count("refused") - refused == 4
    await asyncio.gather(*(reader.read() for reader, _ in (*silent[:4], *others[:2])))
    assert count("late") - late == 6
    for _, writer in (*silent, *others):
        writer.close()
    await soon(lambda: not metrics.value("tidings_tls_handshakes_under_way", listener="test"))
    assert metrics.value("tidings_tls_handshakes_under_way", listener="test") == 0
    assert await converse(port, tls.client("link", TlsFiles(authorities=str(tmp_path / "server.ca")))) == NAME


async def test_unfinished_handshakes_are_closed_for_new_connections(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tls_server, "GRACE", 0.0)
    port = await serve(tls.server("link", OURS.files(tmp_path, "server", NAME)), of_one=4, of_all=6)
    silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(40)]
    trust = tls.client("link", TlsFiles(authorities=str(tmp_path / "server.ca")))
    assert await converse(port, trust) == NAME
    assert metrics.value("tidings_tls_handshakes_under_way", listener="test") == 3
    # The oldest connections are closed, the latest still wait.
    await asyncio.gather(*(reader.read() for reader, _ in silent[:37]))
    for _, writer in silent:
        writer.close()


async def test_handshakes_of_unauthenticated_clients_are_rate_limited(serve: Serve, tmp_path: Path) -> None:
    server = tls.server("link", OURS.files(tmp_path, "server", NAME), clients=Clients.REQUIRED)
    port = await serve(server, rate=0.001, burst=2)
    known = tls.client("link", OURS.files(tmp_path, "client", "webapp"))
    refused = count("refused")
    for _ in range(5):
        assert await converse(port, known) == NAME
    bare = tls.client("link", TlsFiles(authorities=str(tmp_path / "server.ca")))
    for address in ("127.9.8.1", "127.9.8.2"):
        with contextlib.suppress(ssl.SSLError, ConnectionError):
            reader, _ = await asyncio.open_connection(
                "127.0.0.1", port, ssl=bare, server_hostname=NAME, local_addr=(address, 0)
            )
            assert not await reader.read()
    assert count("refused") - refused == 1
    assert await converse(port, known) == NAME


async def test_a_disconnect_during_the_handshake_frees_its_slot(serve: Serve, tmp_path: Path) -> None:
    port = await serve(tls.server("link", OURS.files(tmp_path, "server", NAME)), of_one=1)
    failed = count("failed")
    for _ in range(3):
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"\x16\x03\x01\x02\x00\x01")
        await soon(lambda: metrics.value("tidings_tls_handshakes_under_way", listener="test") == 1)
        writer.transport.abort()
        await soon(lambda: metrics.value("tidings_tls_handshakes_under_way", listener="test") == 0)
    assert count("failed") - failed == 3


async def test_data_in_the_last_handshake_segment_is_not_lost(serve: Serve, tmp_path: Path) -> None:
    files = OURS.files(tmp_path, "server", NAME)
    port = await serve(tls.server("link", files))
    context: FileContext = tls.client("link", TlsFiles(authorities=files.authorities))
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = context.wrap_bio(incoming, outgoing, server_hostname=NAME)
    while True:
        try:
            client.do_handshake()
            break
        except ssl.SSLWantReadError:
            writer.write(outgoing.read())
            incoming.write(await reader.read(65536))
    # One segment: the client's last message of the handshake, and its request.
    client.write(b"in the same segment\n")
    writer.write(outgoing.read())
    said = b""
    while b"segment" not in said:
        incoming.write(await reader.read(65536))
        with contextlib.suppress(ssl.SSLWantReadError):
            said += client.read()
            said += client.read()
    assert said == b"hello\nin the same segment\n"
    writer.close()


def _pair(files: TlsFiles) -> tuple[str, str]:
    return files.chain, files.key


def test_a_key_with_a_passphrase_is_refused_without_a_prompt(tmp_path: Path) -> None:
    command = "openssl ec -aes256 -passout pass:secret -in {0} -out {1} 2>/dev/null"
    files = OURS.files(tmp_path, "server", NAME)
    locked = str(tmp_path / "locked.key")
    if os.system(command.format(files.key, locked)):
        pytest.skip("no openssl")
    with pytest.raises(UnusableCertificate, match=r"locked\.key"):
        tls.server("link", TlsFiles(files.chain, locked))
