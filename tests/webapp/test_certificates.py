"""`/v1/certificates`, and the API over HTTPS."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import httpx
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from hypothesis import given, strategies

from tests.authority import NOW, Authority, private_key
from tests.manual_clock import ManualClock
from tests.webapp.conftest import Serve, Served, basic, check_headers, code, errors, make_settings
from tests.webapp.fake_coreapp import FakeCoreapp
from tests.webapp.roles import check_is_for_administrators, check_takes_a_token, ordinary
from tidings.config.env import SettingsError
from tidings.e2ee.installation_secrets import SecretSealer
from tidings.net import tls as net_tls
from tidings.net.tls import FileContext
from tidings.storage.business import certificates
from tidings.storage.database import Database
from tidings.wire import core
from webapp import services, settings
from webapp.http import pem, tls
from webapp.http.pem import CertificateBundle

EXTERNAL, EXTERNAL_CA = "/v1/certificates/external", "/v1/certificates/external/ca"
WEBHOOKS = "/v1/certificates/webhooks/ca"
META = {"version": "2.57.2", "api_status": "stable"}
AUTHORITY, OTHER = Authority(), Authority("Another authority")
KEY, CERTIFICATE = AUTHORITY.issue("localhost")


async def test_a_webhook_authority_is_stored_and_announced_to_coreapps(api: Served, coreapp: FakeCoreapp) -> None:
    assert code(await api.http.get(WEBHOOKS)) == (404, 1006)
    response = await api.http.post(
        WEBHOOKS, content=b"a comment\n" + AUTHORITY.pem, headers={"Content-Type": "text/plain"}
    )
    assert (response.status_code, response.json()) == (200, {"meta": META})
    found = await api.http.get(WEBHOOKS)
    assert (found.status_code, found.content) == (200, AUTHORITY.pem)
    assert found.headers["Content-Type"].startswith("text/plain")
    check_headers(found)
    await api.http.post(WEBHOOKS, content=OTHER.pem + AUTHORITY.pem)
    assert (await api.http.get(WEBHOOKS)).content == OTHER.pem + AUTHORITY.pem
    response = await api.http.delete(WEBHOOKS)
    assert (response.status_code, response.json()) == (200, {"meta": META})
    assert code(await api.http.get(WEBHOOKS)) == (404, 1006)
    assert code(await api.http.delete(WEBHOOKS)) == (404, 1006)
    assert len(coreapp.requested(core.SettingsChanged)) == 3


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "should be certificates in PEM"),
        (b"{}", "should be certificates in PEM"),
        (KEY, "should hold certificates only"),
        (AUTHORITY.pem + KEY, "should hold certificates only"),
        (AUTHORITY.pem[:200] + b"x" + AUTHORITY.pem[200:], "cannot be read"),
        (b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----", "cannot be read"),
        (b"\xff\x00" * 500, "should be certificates in PEM"),
    ],
)
async def test_an_invalid_authority_is_refused(api: Served, coreapp: FakeCoreapp, content: bytes, words: str) -> None:
    response = await api.http.post(WEBHOOKS, content=content)
    assert code(response) == (400, 1009)
    assert words in errors(response)[0]["details"]
    assert code(await api.http.get(WEBHOOKS)) == (404, 1006)
    assert not coreapp.requested(core.SettingsChanged)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "should begin with a private key"),
        (AUTHORITY.pem, "should begin with a private key"),
        (CERTIFICATE + KEY + AUTHORITY.pem, "should begin with a private key"),
        (KEY + CERTIFICATE, "at least one intermediate"),
        (KEY, "at least one intermediate"),
        (KEY + AUTHORITY.pem + CERTIFICATE, "not that of the private key"),
        (KEY + CERTIFICATE + OTHER.pem, "was not issued by"),
        (KEY + CERTIFICATE + KEY + AUTHORITY.pem, "only certificates"),
        (AUTHORITY.bundle("localhost", days=-1), "not valid now"),
        (private_key(ec.generate_private_key(ec.SECP256R1())) + CERTIFICATE + AUTHORITY.pem, "not that of the private"),
        (private_key(AUTHORITY.key, b"secret") + CERTIFICATE + AUTHORITY.pem, "should not be encrypted"),
        (b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----" + CERTIFICATE, "cannot be read"),
    ],
)
async def test_an_invalid_bundle_is_refused_with_the_reason(api: Served, content: bytes, words: str) -> None:
    response = await api.http.post(EXTERNAL, content=content)
    assert code(response) == (400, 1009)
    assert words in errors(response)[0]["details"]
    assert b"PRIVATE" not in response.content
    assert code(await api.http.get(EXTERNAL_CA)) == (404, 1006)


async def test_a_bundle_is_stored_sealed_and_its_authority_is_readable_by_every_user(
    api: Served, database: Database
) -> None:
    response = await api.http.post(EXTERNAL, content=KEY + CERTIFICATE + AUTHORITY.pem)
    assert (response.status_code, response.json()) == (200, {"meta": META})
    found = await api.http.get(EXTERNAL_CA, headers=await ordinary(api))
    assert (found.status_code, found.content) == (200, AUTHORITY.pem)
    async with database.reading() as connection:
        kept = await certificates.find_certificate(connection, "15550000000", certificates.EXTERNAL)
    assert kept is not None
    assert b"PRIVATE" not in kept


async def test_a_private_key_may_follow_its_curve_parameters(api: Served) -> None:
    # prime256v1, as `openssl ecparam -genkey` writes it before the key.
    curve = b"-----BEGIN EC PARAMETERS-----\nBggqhkjOPQMBBw==\n-----END EC PARAMETERS-----\n"
    response = await api.http.post(EXTERNAL, content=curve + KEY + CERTIFICATE + AUTHORITY.pem)
    assert response.status_code == 200


LARGE = 256 * 1024


@pytest.mark.parametrize(
    "text",
    [
        b"-----BEGIN A-----" * (LARGE // 17),
        b"-----BEGIN " * (LARGE // 11),
        (b"-----BEGIN " + b"A" * 40) * (LARGE // 51),
        b"".join(b"-----BEGIN %05d-----" % n for n in range(LARGE // 21)),
        b"".join(b"-----BEGIN A-----BEGIN %05d-----END A-----" % n for n in range(LARGE // 48)),
        b"-----END A-----" * (LARGE // 15),
        b"-----BEGIN A-----END A-----" * (LARGE // 27),
        b"-" * LARGE,
        b"-----BEGIN CERTIFICATE-----"
        + b"-----BEGIN CERTIFICATE-----\n" * (LARGE // 29)
        + b"-----END CERTIFICATE-----",
        b"-----BEGIN PRIVATE KEY-----\n" + b"-----BEGIN A-----\n" * (LARGE // 19) + b"-----END PRIVATE KEY-----",
    ],
    ids=lambda text: text[:40].decode(),
)
def test_repetitive_pem_is_refused_in_linear_time(text: bytes) -> None:
    started = time.process_time()
    for read_it in (pem.parse_authorities, CertificateBundle.load, lambda given: CertificateBundle.parse(given, NOW)):
        with pytest.raises(pem.UnusablePem):
            read_it(text)
    # Some hundredths of a second; seconds if the time grew with the square.
    assert time.process_time() - started < 1


_PIECES = (AUTHORITY.pem, b"a comment\n", b"\n", b"-----", b"-----BEGIN A-----\n", b"-----END CERTIFICATE-----\n")


@given(strategies.lists(strategies.sampled_from(_PIECES), max_size=10))
def test_text_between_certificates_is_ignored_or_refused_without_losing_one(
    pieces: list[bytes],
) -> None:
    try:
        found = pem.parse_authorities(b"".join(pieces))
    except pem.UnusablePem:
        return
    assert found == AUTHORITY.pem * pieces.count(AUTHORITY.pem)


async def test_a_large_bundle_is_refused(api: Served) -> None:
    for path in (EXTERNAL, WEBHOOKS):
        assert code(await api.http.post(path, content=AUTHORITY.pem * 1000)) == (413, 1025)


@pytest.mark.parametrize(
    ("method", "path"), [("POST", EXTERNAL), ("POST", WEBHOOKS), ("GET", WEBHOOKS), ("DELETE", WEBHOOKS)]
)
async def test_certificates_require_an_administrator(api: Served, method: str, path: str) -> None:
    await check_is_for_administrators(api, method, path)
    await check_takes_a_token(api, "GET", EXTERNAL_CA)


# HTTPS.


def trusting(pem: bytes) -> ssl.SSLContext:
    return ssl.create_default_context(cadata=pem.decode())


class Running:
    """Whole Webapp over TLS."""

    def __init__(self, database: Database, coreapp: FakeCoreapp) -> None:
        chosen = make_settings(database, coreapp=("127.0.0.1", coreapp.port), tls=True)
        self._settings = chosen.model_copy(update={"tls_names": ("localhost", "127.0.0.1", "api.example")})
        self._database = database
        self._stop = asyncio.Event()
        self.url = ""

    async def __aenter__(self) -> Running:
        ready = asyncio.Queue[services.ServingAddress]()
        self._task = asyncio.create_task(services.run(self._settings, self._stop, ready.put_nowait))
        self.url = (await asyncio.wait_for(ready.get(), 20)).url
        return self

    async def __aexit__(self, *_: object) -> None:
        self._stop.set()
        await self._task

    async def made(self) -> bytes:
        """Return the self-signed certificate of the Webapp."""
        async with self._database.reading() as connection:
            sealed = await certificates.find_certificate(connection, "15550000000", certificates.SELF_SIGNED)
        assert sealed is not None
        content = SecretSealer(b"s" * 32).open("15550000000", certificates.SELF_SIGNED, sealed)
        return CertificateBundle.load(content).authorities

    async def get(self, path: str, trusted: bytes, host: str = "127.0.0.1") -> httpx.Response:
        url = self.url.replace("127.0.0.1", host)
        async with httpx.AsyncClient(base_url=url, verify=trusting(trusted), trust_env=False) as http:
            return await http.get(path)


async def test_the_api_serves_https_with_a_generated_certificate_for_each_name(
    database: Database, coreapp: FakeCoreapp
) -> None:
    async with Running(database, coreapp) as webapp:
        assert webapp.url.startswith("https://127.0.0.1:")
        made = await webapp.made()
        for host in ("127.0.0.1", "localhost"):
            response = await webapp.get("/v1/health", made, host)
            assert response.status_code == 401
        with pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
            await webapp.get("/v1/health", AUTHORITY.pem)
    async with Running(database, coreapp) as webapp:
        assert await webapp.made() == made, "a restart shows the same certificate"


async def test_an_uploaded_certificate_is_served_without_a_restart(database: Database, coreapp: FakeCoreapp) -> None:
    async with Running(database, coreapp) as webapp:
        made = await webapp.made()
        async with httpx.AsyncClient(base_url=webapp.url, verify=trusting(made), trust_env=False) as http:
            response = await http.post(
                "/v1/users/login", headers=basic("admin", "secret"), json={"new_password": "Tidings-2026!"}
            )
            http.headers["Authorization"] = "Bearer " + response.json()["users"][0]["token"]
            assert (await http.get(EXTERNAL_CA)).content == made
            bundle = AUTHORITY.bundle("localhost", "127.0.0.1")
            assert (await http.post(EXTERNAL, content=bundle)).status_code == 200
            assert (await http.get(EXTERNAL_CA)).content == AUTHORITY.pem
        assert (await webapp.get("/v1/health", AUTHORITY.pem)).status_code == 401
        with pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
            await webapp.get("/v1/health", made)


async def test_plain_http_on_the_https_port_closes_the_connection(database: Database, coreapp: FakeCoreapp) -> None:
    async with Running(database, coreapp) as webapp:
        async with httpx.AsyncClient(trust_env=False) as http:
            with pytest.raises(httpx.TransportError):
                await http.get(webapp.url.replace("https", "http"))
        assert (await webapp.get("/v1/health", await webapp.made())).status_code == 401


async def make(
    database: Database, *names: str, clock: ManualClock | None = None, own: FileContext | None = None
) -> tls.ServerTLS:
    made = tls.ServerTLS(
        database,
        "15550000000",
        safe=SecretSealer(b"s" * 32),
        names=names,
        clock=clock or ManualClock(NOW.timestamp()),
        own=own,
    )
    await made.load()
    return made


@contextlib.asynccontextmanager
async def verified(made: tls.ServerTLS) -> AsyncIterator[Callable[[str, bytes], Awaitable[bool]]]:
    """Listen with the certificates. Yields a function that returns whether an authority verifies the host's one."""
    server = await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", 0, ssl=made.context)

    async def is_verified(name: str, authority: bytes) -> bool:
        port = server.sockets[0].getsockname()[1]
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trusting(authority), server_hostname=name)
        except ssl.SSLCertVerificationError:
            return False
        writer.transport.abort()
        return True

    async with server:
        yield is_verified


async def test_callers_that_name_the_process_get_its_certificate_and_others_that_of_the_api(
    database: Database, tmp_path: Path
) -> None:
    files = AUTHORITY.files(tmp_path, "webapp", "webapp", "webapp.internal")
    made = await make(database, "webapp", own=net_tls.server("api_inside", files))
    generated = await made.authorities()
    async with verified(made) as is_verified:
        # `webapp` is in both certificates.
        assert await is_verified("webapp", generated)
        assert not await is_verified("webapp", AUTHORITY.pem)
        assert await is_verified("webapp.internal", AUTHORITY.pem)
        assert not await is_verified("webapp.internal", generated)
        assert not await is_verified("other.internal", AUTHORITY.pem)


async def test_names_are_compared_in_lower_case_and_a_wildcard_of_the_api_covers_hosts(
    database: Database, tmp_path: Path
) -> None:
    uploaded = SecretSealer(b"s" * 32).seal(
        "15550000000", certificates.EXTERNAL, OTHER.bundle("*.api.example", "API.Other")
    )
    async with database.transaction() as connection:
        await certificates.set_certificate(connection, "15550000000", certificates.EXTERNAL, uploaded)
    files = AUTHORITY.files(tmp_path, "webapp", "w.api.example", "Webapp.Internal", "api.other", "a.w.api.example")
    async with verified(await make(database, "webapp", own=net_tls.server("api_inside", files))) as is_verified:
        for name in ("w.api.example", "W.API.EXAMPLE", "api.other", "Api.Other"):
            assert await is_verified(name, OTHER.pem), name
        # A wildcard stands for one label.
        for name in ("webapp.internal", "WEBAPP.INTERNAL", "a.w.api.example"):
            assert await is_verified(name, AUTHORITY.pem), name


@pytest.mark.parametrize("content", [b"x", KEY, KEY + AUTHORITY.pem, KEY + b"x" + AUTHORITY.pem[:300]])
async def test_an_unusable_stored_certificate_does_not_stop_the_api(
    database: Database, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    sealed = SecretSealer(b"s" * 32).seal("15550000000", certificates.EXTERNAL, content)
    async with database.transaction() as connection:
        await certificates.set_certificate(connection, "15550000000", certificates.EXTERNAL, sealed)
    made = await make(database, "a.example")
    for _ in range(3):
        await made.load()
    assert (await made.authorities()).startswith(b"-----BEGIN CERTIFICATE-----")
    assert caplog.messages.count("tls.unusable") == 1
    good = SecretSealer(b"s" * 32).seal("15550000000", certificates.EXTERNAL, AUTHORITY.bundle("localhost"))
    async with database.transaction() as connection:
        await certificates.set_certificate(connection, "15550000000", certificates.EXTERNAL, good)
    await made.load()
    assert await made.authorities() == AUTHORITY.pem


async def test_webapps_with_different_names_share_one_certificate(database: Database) -> None:
    first, second = await make(database, "a.example"), await make(database, "b.example", "10.0.0.1")
    await first.load()
    assert await first.authorities() == await second.authorities()
    again = await make(database, "b.example")
    assert await again.authorities() == await first.authorities()


async def test_a_generated_certificate_is_replaced_before_it_expires(database: Database) -> None:
    clock = ManualClock(NOW.timestamp())
    before = await (await make(database, "a.example", clock=clock)).authorities()
    clock.advance(790 * 86_400)
    assert await (await make(database, "a.example", clock=clock)).authorities() == before
    clock.advance(10 * 86_400)
    assert await (await make(database, "a.example", clock=clock)).authorities() != before


def test_a_generated_certificate_contains_the_given_names() -> None:
    bundle = CertificateBundle.make(["a.example", "10.0.0.1", "::1"], datetime.datetime.now(datetime.UTC))
    assert bundle.names == ("a.example", "10.0.0.1", "::1")
    assert CertificateBundle.load(bundle.pem).pem == bundle.pem


def read(tmp_path: Path, **variables: str) -> settings.Settings:
    return settings.Settings.read({"TIDINGS_DATA_DIR": str(tmp_path), **variables})


def test_https_is_on_by_default_beyond_loopback(tmp_path: Path) -> None:
    everywhere = {"TIDINGS_API_ADDRESS": "0.0.0.0:9090"}
    assert not read(tmp_path).tls
    assert not read(tmp_path, TIDINGS_API_ADDRESS="[::1]:9090").tls
    assert read(tmp_path, TIDINGS_API_TLS="1").tls
    assert read(tmp_path, **everywhere).tls
    assert not read(tmp_path, **everywhere, TIDINGS_API_TLS="0").tls
    assert read(tmp_path, **everywhere, TIDINGS_EMBEDDED="1").tls


def test_certificate_names_come_from_the_settings_and_the_address(tmp_path: Path) -> None:
    names = read(
        tmp_path,
        WA_WEB_SERVERNAME="api.example",
        TIDINGS_API_TLS_NAMES="10.1.2.3, other.example",
        TIDINGS_API_ADDRESS="192.0.2.1:9090",
    ).tls_names
    assert names[:3] == ("api.example", "10.1.2.3", "other.example")
    assert {"localhost", "127.0.0.1", "::1", "192.0.2.1"} <= set(names)
    with pytest.raises(SettingsError, match="not a host name"):
        read(tmp_path, TIDINGS_API_TLS_NAMES="ünïcode.example")


@pytest.mark.parametrize("variable", ["WA_WEB_SERVERNAME", "TIDINGS_API_TLS_NAMES"])
@pytest.mark.parametrize("wrong", ["two words", "https://api.example", "api.example:9090", "256.1.1.1", "a..b", "-a"])
def test_a_certificate_name_that_is_no_host_is_refused(tmp_path: Path, variable: str, wrong: str) -> None:
    with pytest.raises(SettingsError) as caught:
        read(tmp_path, **{variable: f"api.example, {wrong}"})
    assert str(caught.value) == (
        f"{wrong!r} in {variable} is not a host name or address: write api.example.com or 10.0.0.5, with commas "
        "between several"
    )


def test_a_certificate_name_may_be_a_wildcard_and_end_with_a_dot(tmp_path: Path) -> None:
    names = read(tmp_path, TIDINGS_API_TLS_NAMES="*.example.com,api.example.,[fd00::5]").tls_names
    assert names[:3] == ("*.example.com", "api.example", "fd00::5")


@pytest.mark.parametrize(
    ("variable", "wrong", "words"),
    [
        ("TIDINGS_API_ADDRESS", "two words:9090", "is not host:port"),
        ("WACORE_HOSTNAME", "two words", "is not host or host:port"),
        ("WACORE_HOSTNAME", "two words:6252", "is not host:port"),
        ("TIDINGS_NUMBER_HOSTS", "two words=15550000001", "is no host name"),
        ("TIDINGS_HTTP_HOSTS", "256.1.1.1", "is neither a host name"),
        ("TIDINGS_HTTP_HOSTS", "two words", "is neither a host name"),
    ],
)
def test_a_setting_with_a_host_that_is_none_is_refused(tmp_path: Path, variable: str, wrong: str, words: str) -> None:
    with pytest.raises(SettingsError, match=words):
        read(tmp_path, **{variable: wrong})


async def test_a_webapp_without_tls_has_no_certificate(serve: Serve) -> None:
    assert (await serve()).parts.tls is None


def changed_certificate(text: bytes, before: bytes, after: bytes) -> bytes:
    """Return a certificate, PEM, with other bytes in it."""
    der = ssl.PEM_cert_to_DER_cert(text.decode())
    assert before in der
    return ssl.DER_cert_to_PEM_cert(der.replace(before, after)).encode()


# A public key on a curve: its type, and the curve with the start of the point.
EC_KEY, P256_POINT = bytes.fromhex("06072a8648ce3d0201"), bytes.fromhex("06082a8648ce3d030107034200")


@pytest.mark.parametrize(
    "content",
    [
        KEY + changed_certificate(CERTIFICATE, EC_KEY, EC_KEY[:-1] + b"\x0e") + AUTHORITY.pem,
        KEY + changed_certificate(CERTIFICATE, P256_POINT + b"\x04", P256_POINT + b"\x05") + AUTHORITY.pem,
        KEY + CERTIFICATE + changed_certificate(AUTHORITY.pem, EC_KEY, EC_KEY[:-1] + b"\x0e"),
    ],
    ids=["key of an unknown type", "point that is none", "issuer with a key of an unknown type"],
)
async def test_a_bundle_with_a_public_key_that_cannot_be_read_is_refused(api: Served, content: bytes) -> None:
    assert code(await api.http.post(EXTERNAL, content=content)) == (400, 1009)


V3, V2 = bytes.fromhex("a003020102"), bytes.fromhex("a003020101")


@pytest.mark.parametrize(
    ("path", "content"),
    [
        (WEBHOOKS, changed_certificate(AUTHORITY.pem, V3, V2)),
        (EXTERNAL, KEY + CERTIFICATE + changed_certificate(AUTHORITY.pem, V3, V2)),
    ],
    ids=["webhooks", "external"],
)
async def test_a_certificate_of_a_version_that_does_not_exist_is_refused(
    api: Served, path: str, content: bytes
) -> None:
    assert code(await api.http.post(path, content=content)) == (400, 1009)
