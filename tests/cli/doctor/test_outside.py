"""Checks of things outside this machine: the webhook, the network, certificates, Redis."""

from __future__ import annotations

import datetime
import email.utils
import time
from pathlib import Path

import pytest

from cli.doctor import certificates, http_probe
from cli.doctor.certificates import ApiCertificateCheck, CertificateFilesCheck
from cli.doctor.configuration import examine
from cli.doctor.findings import Finding, Level
from cli.doctor.network import NetworkHttpCheck, NetworkKeyCheck, NetworkTcpCheck
from cli.doctor.plan import CheckPlan, DoctorOptions
from cli.doctor.redis import RedisServerCheck
from cli.doctor.webhook import EVENT, WebhookCheck
from harness.mariadb import free_port
from harness.webhook_body import Verifier
from tests.authority import Authority
from tests.cli.doctor.servers import serving
from tidings.egress import addresses
from tidings.egress.settings import ONLY_PUBLIC, OutgoingSettings
from tidings.net import tls
from tidings.net.tls import TlsFiles
from tidings.storage import schema
from tidings.storage.business import application_settings
from tidings.storage.business import certificates as certificates_table
from tidings.storage.database import Database

LOCAL = OutgoingSettings(addresses.LOOPBACK)
SECRET = "whsec_" + "QUJD" * 8


def levels(found: object) -> list[Level]:
    return [finding.level for finding in found]  # type: ignore[attr-defined]


async def one(check: object) -> Finding:
    (finding,) = await check.run()  # type: ignore[attr-defined]
    return finding  # type: ignore[no-any-return]


async def test_the_webhook_check_sends_options_and_posts_only_on_request() -> None:
    async with serving(b"HTTP/1.1 405 Method Not Allowed\r\n\r\n") as server:
        url = f"http://ann:pw@127.0.0.1:{server.port}/hook?token=t"
        probed = await one(WebhookCheck(url, LOCAL))
        assert (probed.level, "answers OPTIONS with HTTP 405 in 0." in probed.text) == (Level.FINE, True)
        assert "token" not in probed.text
        assert "pw" not in probed.text
        request = server.requests[0]
        assert request.startswith(b"OPTIONS /hook?token=t HTTP/1.1\r\nHost: 127.0.0.1:")
        assert request.endswith(b"Content-Length: 0\r\n\r\n")
        posted = await one(WebhookCheck(url, LOCAL, keys=[b"ABC" * 8], post=True))
        assert (posted.level, "200" in posted.remedy) == (Level.WARNING, True)
        head, _, body = server.requests[1].partition(b"\r\n\r\n")
        headers = dict(line.split(b": ", 1) for line in head.lower().split(b"\r\n")[1:])
        signature = next(line for line in head.split(b"\r\n") if line.startswith(b"webhook-signature"))
        headers[b"webhook-signature"] = signature.partition(b": ")[2]
        assert headers[b"webhook-id"].decode() == EVENT
        assert body == b"{}"
        assert Verifier(SECRET).is_valid(headers, body)


@pytest.mark.parametrize(("seconds", "level"), [(0.2, Level.FINE), (3.5, Level.WARNING)])
def test_a_webhook_response_slower_than_3_seconds_is_a_warning(seconds: float, level: Level) -> None:
    response = http_probe.ProbeResponse(200, {}, 0.1, seconds, 1000.0)
    (finding,) = WebhookCheck("http://x", LOCAL).evaluate("http://x", response)
    assert finding.level is level


async def test_missing_unreachable_forbidden_and_non_http_webhooks_are_distinguished() -> None:
    assert (await one(WebhookCheck("", LOCAL))).text == "no URL is set"
    gone = await one(WebhookCheck(f"http://127.0.0.1:{free_port()}/", LOCAL))
    assert (gone.level, "Connect call failed" in gone.text) == (Level.ERROR, True)
    forbidden = await one(WebhookCheck("http://127.0.0.1/", ONLY_PUBLIC))
    assert (forbidden.level, "TIDINGS_OUTGOING_ALLOW" in forbidden.remedy) == (Level.ERROR, True)
    async with serving(b"SSH-2.0-OpenSSH\r\n\r\n") as other:
        assert "does not speak HTTP" in (await one(WebhookCheck(f"http://127.0.0.1:{other.port}/", LOCAL))).text
    async with serving(b"") as silent:
        assert "without an answer" in (await one(WebhookCheck(f"http://127.0.0.1:{silent.port}/", LOCAL))).text
    assert (await one(WebhookCheck("ftp://x", LOCAL))).level is Level.ERROR


async def test_the_webhook_check_verifies_the_certificate_and_reports_expiry_and_clock(tmp_path: Path) -> None:
    authority = Authority()
    late = email.utils.formatdate(time.time() - 100)
    response = f"HTTP/1.1 200 OK\r\nDate: {late}\r\n\r\n".encode()
    async with serving(response, tls=authority.server_context(tmp_path, "127.0.0.1")) as server:
        url = f"https://127.0.0.1:{server.port}/"
        refused = await one(WebhookCheck(url, LOCAL))
        assert (refused.level, "the certificate is refused" in refused.text) == (Level.ERROR, True)
        assert "POST /v1/certificates/webhooks/ca" in refused.remedy
        believed = await WebhookCheck(url, LOCAL, authorities=authority.pem).run()
    assert [(finding.check, finding.level) for finding in believed] == [
        ("webhook", Level.FINE),
        ("clock of the webhook", Level.ERROR),
        ("certificate of the webhook", Level.WARNING),
    ]
    assert "TLSv1.3" in believed[0].text


async def test_a_webhooks_certificate_that_the_coreapps_list_revokes_is_an_error(tmp_path: Path) -> None:
    authority = Authority()
    context = authority.server_context(tmp_path, "127.0.0.1")
    certificate = (tmp_path / "server.pem").read_bytes().partition(b"-----BEGIN CERTIFICATE-----")
    lists = tmp_path / "lists.pem"
    variables = {
        "TIDINGS_DATA_DIR": str(tmp_path),
        "TIDINGS_BUSINESS_NUMBER": "15550000000",
        "TIDINGS_OUTGOING_ALLOW_WEBHOOKS": "127.0.0.0/8",
        "TIDINGS_LINK_KEY": "l" * 32,
        "TIDINGS_REGISTRATION_KEY": "r" * 32,
        "TIDINGS_MASTER_KEY": "11" * 32,
        "TIDINGS_SETTINGS_KEY": "22" * 32,
        "TIDINGS_WEBHOOK_SECRET": SECRET,
        "TIDINGS_WEBHOOK_CRL": str(lists),
    }
    database = Database(examine("coreapp", variables).settings.database, "business")
    await schema.upgrade(database)
    async with serving(b"HTTP/1.1 200 OK\r\n\r\n", tls=context) as server:
        async with database.transaction() as connection:
            webhooks = {"url": f"https://127.0.0.1:{server.port}/"}
            await application_settings.change_settings(connection, "15550000000", {"webhooks": webhooks})
            await certificates_table.set_certificate(
                connection, "15550000000", certificates_table.WEBHOOK_CA, authority.pem
            )
        await database.close()

        async def finding() -> Finding:
            plan = CheckPlan(variables, DoctorOptions(["coreapp"], quick=True))
            checks = [check for group in plan.groups() for check in group.rest]
            found = await next(check for check in checks if check.name == "webhook").run()
            await plan.close()
            return found[0]

        lists.write_bytes(authority.revocations())
        assert (await finding()).level is Level.FINE
        lists.write_bytes(authority.revocations(b"".join(certificate[1:])))
        revoked = await finding()
        assert (revoked.level, "revoked" in revoked.text) == (Level.ERROR, True)
        lists.unlink()
        absent = await finding()
        assert (absent.level, str(lists) in absent.remedy) == (Level.ERROR, True)
    # The lists matter for certificates only.
    async with serving() as plain:
        fine = WebhookCheck(f"http://127.0.0.1:{plain.port}/", LOCAL, revocations=lists)
        assert (await one(fine)).level is Level.FINE


async def test_the_network_check_distinguishes_healthy_unhealthy_and_other_servers(tmp_path: Path) -> None:
    async with serving() as well:
        assert (await one(NetworkHttpCheck(f"http://127.0.0.1:{well.port}", None))).level is Level.FINE
        assert well.requests[0].startswith(b"GET /health ")
        assert (await one(NetworkTcpCheck("127.0.0.1", well.port, None))).level is Level.FINE
    async with serving(b"HTTP/1.1 503 Service Unavailable\r\n\r\n") as ill:
        assert "its database is unavailable" in (await one(NetworkHttpCheck(f"http://127.0.0.1:{ill.port}", None))).text
    async with serving(b"HTTP/1.1 404 Not Found\r\n\r\n") as other:
        assert "HTTP 404 to GET /health" in (await one(NetworkHttpCheck(f"http://127.0.0.1:{other.port}", None))).text
    gone = free_port()
    assert (await one(NetworkHttpCheck(f"http://127.0.0.1:{gone}", None))).level is Level.ERROR
    assert (await one(NetworkTcpCheck("127.0.0.1", gone, None))).level is Level.ERROR
    authority, other_authority = Authority(), Authority("another")
    context = tls.client("network", other_authority.files(tmp_path, "caller", "caller"))
    async with serving(tls=authority.server_context(tmp_path, "127.0.0.1")) as untrusted:
        refused = await one(NetworkHttpCheck(f"https://127.0.0.1:{untrusted.port}", context))
        assert (refused.level, "TIDINGS_NETWORK_CA" in refused.remedy) == (Level.ERROR, True)
        assert (await one(NetworkTcpCheck("127.0.0.1", untrusted.port, context))).level is Level.ERROR


@pytest.mark.parametrize(
    ("response", "level"),
    [
        (b'HTTP/1.1 201 Created\r\nContent-Length: 20\r\n\r\n{"registrations":[]}', Level.FINE),
        (b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n", Level.FINE),
        (
            b'HTTP/1.1 401 Unauthorized\r\nContent-Length: 48\r\n\r\n{"error":{"reason":"unauthorized","detail":"x"}}',
            Level.ERROR,
        ),
        (b"", Level.WARNING),
    ],
)
async def test_the_registration_key_check_registers_no_device(response: bytes, level: Level) -> None:
    async with serving(response) as server:
        finding = await one(NetworkKeyCheck(f"http://127.0.0.1:{server.port}", "the key", None))
        assert finding.level is level
        assert b"Bearer the key" in server.requests[0]
        assert server.requests[0].endswith(b'{"registrations":[]}')


async def test_expiring_expired_and_unusable_certificates_are_reported(tmp_path: Path) -> None:
    authority = Authority()
    (tmp_path / "broken.pem").write_text("nothing")
    files = {
        "soon": authority.files(tmp_path, "soon", "a", days=20),
        "broken": TlsFiles(str(tmp_path / "broken.pem"), str(tmp_path / "soon.key")),
        "missing": TlsFiles(authorities=str(tmp_path / "none.pem")),
    }
    found = {finding.text.split(":")[0]: finding for finding in await CertificateFilesCheck(files).run()}
    assert found["broken"].level is Level.ERROR
    assert found["missing"].level is Level.ERROR
    soon = next(finding for text, finding in found.items() if text.startswith("expires in"))
    assert soon.level is Level.WARNING
    assert soon.check == "certificate for soon"
    now = datetime.datetime.now(datetime.UTC).timestamp()
    ended = certificates.evaluate_expiry("x", now - 60, now)
    assert (ended.level, ended.text.startswith("expired at")) == (Level.ERROR, True)
    assert levels(await CertificateFilesCheck({}).run()) == [Level.FINE]


async def test_the_certificate_of_a_running_api_is_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    context = Authority().server_context(tmp_path, "api")
    async with serving(tls=context) as server:
        shown = await one(ApiCertificateCheck("127.0.0.1", server.port))
    assert (shown.level, "expires in 29" in shown.text or "expires in 30" in shown.text) == (Level.WARNING, True)
    assert (await one(ApiCertificateCheck("127.0.0.1", free_port()))).level is Level.FINE
    monkeypatch.setattr(certificates, "SECONDS", 0.2)
    async with serving() as plain:
        assert (await one(ApiCertificateCheck("127.0.0.1", plain.port))).level is Level.ERROR


async def test_an_unreachable_or_evicting_redis_is_reported() -> None:
    away = await one(RedisServerCheck(f"redis://:pw@127.0.0.1:{free_port()}"))
    assert (away.level, away.text.startswith("127.0.0.1:"), "pw" in away.text) == (Level.ERROR, True, False)
    assert (await one(RedisServerCheck("http://x"))).level is Level.ERROR
    away = await one(RedisServerCheck(f"valkey+sentinel://:pw@127.0.0.1:{free_port()}/presence"))
    assert (away.level, away.text.startswith("127.0.0.1:"), "pw" in away.text) == (Level.ERROR, True, False)
    full = {"maxmemory": 1000, "used_memory": 900, "maxmemory_policy": "allkeys-lru"}
    assert levels(RedisServerCheck("redis://x").evaluate(full)) == [Level.WARNING, Level.WARNING]
    assert (
        RedisServerCheck("redis://x").evaluate({"maxmemory": 0, "used_memory": 900, "maxmemory_policy": "allkeys-lru"})
        == []
    )
