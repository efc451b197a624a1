"""TLS of webhooks: servers with an old version of TLS or a revoked certificate are refused."""

from __future__ import annotations

import asyncio
import contextlib
import os
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from coreapp.webhook.poster import Poster
from tests.authority import Authority
from tidings.egress import addresses
from tidings.egress.guard import EgressGuard
from tidings.egress.settings import OutgoingSettings

AUTHORITY = Authority()


async def respond(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError, asyncio.IncompleteReadError):
        await reader.readuntil(b"\r\n\r\n{}")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
    writer.close()


@contextlib.asynccontextmanager
async def webhook(context: ssl.SSLContext) -> AsyncIterator[str]:
    """Start a server that accepts every callback; yield its URL."""
    server = await asyncio.start_server(respond, "127.0.0.1", 0, ssl=context)
    yield f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
    server.close()


def shown(directory: Path, key: bytes, certificate: bytes) -> ssl.SSLContext:
    """Return the TLS context of a server with this certificate."""
    path = directory / "server.pem"
    path.write_bytes(key + certificate)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(path)
    return context


def make_poster(**options: Path) -> Poster:
    poster = Poster(EgressGuard(OutgoingSettings(addresses.LOOPBACK)), timeout=30, **options)
    poster.trust(AUTHORITY.pem)
    return poster


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion:DeprecationWarning")
@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1], ids=["1.0", "1.1"])
async def test_old_tls_versions_are_refused_even_if_the_system_allows_them(
    tmp_path: Path, version: ssl.TLSVersion, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = shown(tmp_path, *AUTHORITY.issue("127.0.0.1"))
    # OpenSSL supports these versions at this level only.
    context.set_ciphers("ALL:@SECLEVEL=0")
    context.minimum_version = context.maximum_version = version
    made = ssl.create_default_context

    def lenient(**options: str | None) -> ssl.SSLContext:
        """Return a context like that of a lenient system-wide configuration of OpenSSL."""
        found = made(cadata=options["cadata"])
        found.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
        found.set_ciphers("ALL:@SECLEVEL=0")
        return found

    poster = make_poster()
    async with webhook(context) as url:
        with pytest.raises(OSError):
            await poster.post(url, {}, b"{}")
        # The server supports the version: a client that allows it connects.
        client = lenient(cadata=AUTHORITY.pem.decode())
        _, writer = await asyncio.open_connection(*url[8:-1].split(":"), ssl=client)
        assert writer.get_extra_info("ssl_object").version() in ("TLSv1", "TLSv1.1")
        writer.close()
        monkeypatch.setattr(ssl, "create_default_context", lenient)
        careless = make_poster()
        with pytest.raises(OSError):
            await careless.post(url, {}, b"{}")
    poster.close()


async def test_a_revoked_certificate_is_refused_once_the_new_list_is_loaded(tmp_path: Path) -> None:
    key, certificate = AUTHORITY.issue("127.0.0.1")
    lists = tmp_path / "lists.pem"
    lists.write_bytes(AUTHORITY.revocations())
    poster = make_poster(revocations=lists)
    async with webhook(shown(tmp_path, key, certificate)) as url:
        assert await poster.post(url, {}, b"{}") == 200
        # Another certificate is revoked.
        replace(lists, AUTHORITY.revocations(AUTHORITY.issue("127.0.0.1")[1]))
        assert await poster.post(url, {}, b"{}") == 200
        replace(lists, AUTHORITY.revocations(certificate))
        with pytest.raises(ssl.SSLError, match="revoked"):
            await poster.post(url, {}, b"{}")
        replace(lists, AUTHORITY.revocations())
        assert await poster.post(url, {}, b"{}") == 200
    poster.close()


@pytest.mark.parametrize("what", ["gone", "garbage", "a certificate", "expired", "another authority's"])
async def test_no_server_is_trusted_without_a_current_revocation_list_of_its_issuer(tmp_path: Path, what: str) -> None:
    lists = tmp_path / "lists.pem"
    content = {
        "gone": None,
        "garbage": b"garbage",
        "a certificate": AUTHORITY.revocations() + AUTHORITY.pem,
        "expired": AUTHORITY.revocations(days=-1),
        "another authority's": Authority("Another authority").revocations(),
    }[what]
    if content is not None:
        lists.write_bytes(content)
    poster = make_poster(revocations=lists)
    async with webhook(shown(tmp_path, *AUTHORITY.issue("127.0.0.1"))) as url:
        with pytest.raises(ssl.SSLError):
            await poster.post(url, {}, b"{}")
        replace(lists, AUTHORITY.revocations())
        assert await poster.post(url, {}, b"{}") == 200
    poster.close()


def replace(path: Path, content: bytes) -> None:
    """Replace a file atomically, as operators should."""
    fresh = path.with_suffix(".new")
    fresh.write_bytes(content)
    os.replace(fresh, path)
