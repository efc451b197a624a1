"""TLS between all parts, on real processes: readable traffic, admitted peers, and the cost of handshakes."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from cli import main
from harness import polling
from harness.client import Business
from harness.installation import Installation
from harness.mariadb import MariaDB
from harness.processes import usage
from harness.proxy import Proxy
from tests.authority import Authority
from tests.network.support import registration
from tests.security.attack import BESIDE_OTHERS, CPU_PERCENT, MEMORY_MIB, MIB, ONCE_S, SLOWER
from tests.security.figures import Figures, Form
from tests.system.webhook import Webhook, listening
from tidings.net import tls
from tidings.net.tls import TlsFiles
from tidings.wire import connection as wire
from tidings.wire import core

pytestmark = pytest.mark.whole_system

CANARY, LINK_KEY, REGISTRATION_KEY = (
    "a canary in a message",
    "the-link-key-of-these-tests",
    "the-registration-key-of-these",
)
READER = "15550110001"
PROCESSES = ("network", "robots", "coreapp", "webapp")
Address = tuple[str, int]


class Quiet:
    """Peer that keeps the responses, and signals when one has arrived or the connection is closed."""

    def __init__(self) -> None:
        self.responses: list[core.Response] = []
        self.gone = asyncio.Event()
        self.heard = asyncio.Event()

    def opened(self, connection: wire.Connection) -> None: ...

    def received(self, connection: wire.Connection, frame: core.Response) -> None:
        self.responses.append(frame)
        self.heard.set()

    def closed(self, connection: wire.Connection, reason: str) -> None:
        self.gone.set()
        self.heard.set()


class Secured:
    """Installation whose processes use TLS between them, with a recorder on the way."""

    def __init__(self, installation: Installation, directory: Path, taps: dict[str, Proxy]) -> None:
        self.installation = installation
        self.directory = directory
        self.taps = taps

    def files(self, name: str) -> TlsFiles:
        return TlsFiles(*(str(self.directory / part) for part in (f"{name}.pem", f"{name}.key", "ca.pem")))

    def address(self, variable: str) -> Address:
        host, _, port = self.installation.common[variable].rpartition(":")
        return host, int(port)

    async def business(self) -> Business:
        trust = ssl.create_default_context()
        # The certificate is made at the first start, and no client has it yet.
        trust.check_hostname, trust.verify_mode = False, ssl.CERT_NONE
        business = Business(self.installation.api_port, tls=trust)
        await business.log_in()
        return business


@pytest.fixture
async def secured(tmp_path: Path, form: Form, request: pytest.FixtureRequest) -> AsyncIterator[Secured]:
    """Installation with TLS between its parts; in the long form also to its database."""
    directory = tmp_path / "tls"
    assert main.main(["certificates", str(directory)]) == 0
    environment = {
        "TIDINGS_ROBOTS_KINDS": "11",
        "TIDINGS_ROBOTS_PER_KIND": "2",
        "TIDINGS_LINK_KEY": LINK_KEY,
        "TIDINGS_REGISTRATION_KEY": REGISTRATION_KEY,
        "TIDINGS_TLS_CA": str(directory / "ca.pem"),
        "TIDINGS_API_TLS": "1",
    }
    async with contextlib.AsyncExitStack() as stack:
        server = None
        if form.long:
            parts = {"cert": "database.pem", "key": "database.key", "ca": "ca.pem"}
            paths = [f"--ssl-{word}={directory / part}" for word, part in parts.items()]
            server = MariaDB(flush_log=0, options=tuple(paths))
            server.start()
            stack.callback(server.remove)
        installation = await stack.enter_async_context(Installation(tmp_path, None, environment))
        common = installation.common
        targets = {
            "link": common["TIDINGS_COREAPP_ADDRESS"],
            "http": common["TIDINGS_NETWORK_HTTP_ADDRESS"],
            "tcp": common["TIDINGS_NETWORK_TCP_ADDRESS"],
            **({"database": f"127.0.0.1:{server.port}"} if server else {}),
        }
        taps = {}
        for way, target in targets.items():
            taps[way] = proxy = Proxy("127.0.0.1", int(target.rpartition(":")[2]))
            await proxy.start()
            stack.push_async_callback(proxy.stop)
        for name in PROCESSES:
            changed = installation.processes[name].environment
            changed["TIDINGS_TLS_CERTIFICATE"] = str(directory / f"{name}.pem")
            changed["TIDINGS_TLS_KEY"] = str(directory / f"{name}.key")
            changed["TIDINGS_NETWORK_HTTP_URL"] = f"https://localhost:{taps['http'].address[1]}"
            if name != "network":
                changed["TIDINGS_NETWORK_TCP_ADDRESS"] = f"localhost:{taps['tcp'].address[1]}"
            if name == "webapp":
                changed["WACORE_HOSTNAME"] = f"localhost:{taps['link'].address[1]}"
            if server:
                changed |= {
                    "WA_DB_ENGINE": "MYSQL",
                    "WA_DB_HOSTNAME": "localhost",
                    "WA_DB_PORT": str(taps["database"].address[1]),
                    "WA_DB_SSL_CA": str(directory / "ca.pem"),
                }
        yield Secured(installation, directory, taps)


@pytest.fixture
async def webhook() -> AsyncIterator[tuple[Webhook, str]]:
    """Yield a webhook and its URL."""
    async with listening() as found:
        yield found


async def greets(address: Address, context: ssl.SSLContext | None) -> bool:
    """Return whether a client that knows the link key is admitted."""
    peer = Quiet()
    try:
        connection = await wire.connect(*address, core.Response, peer, tls=context)
    except (OSError, ssl.SSLError):
        return False
    connection.send(core.Hello(1, LINK_KEY))
    async with asyncio.timeout(15):
        await peer.heard.wait()
    connection.abort("done")
    return bool(peer.responses)


async def test_with_tls_taps_and_clients_without_a_certificate_read_nothing(
    secured: Secured, tmp_path: Path, figures: Figures, form: Form, webhook: tuple[Webhook, str]
) -> None:
    seen = {way: tap.record() for way, tap in secured.taps.items()}
    await secured.installation.start()
    sink, url = webhook
    business = await secured.business()
    await business.set_webhook(url)
    await business.check_contacts([READER])
    body = {"to": READER, "type": "text", "text": {"body": CANARY}}
    sent = (await business.check_call("POST", "/v1/messages", body))["messages"][0]["id"]
    await sink.until(lambda body: any(s["id"] == sent and s["status"] == "read" for s in body.get("statuses", [])))

    secrets = (CANARY, LINK_KEY, REGISTRATION_KEY, READER, "Bearer", "login", "INSERT")
    found = [f"{secret} on {way}" for way, bytes_ in seen.items() for secret in secrets if secret.encode() in bytes_]
    assert all(len(bytes_) > 2000 for bytes_ in seen.values()), {way: len(bytes_) for way, bytes_ in seen.items()}
    figures.record("listening between machines", "secrets seen", len(found), 0)

    await refuse_untrusted_clients(secured, tmp_path, figures)
    await begin_handshakes(secured, figures, form)
    await finish_handshakes(secured, figures, form)


async def refuse_untrusted_clients(secured: Secured, tmp_path: Path, figures: Figures) -> None:
    own = secured.files("webapp")
    link = secured.address("TIDINGS_COREAPP_ADDRESS")
    assert await greets(link, tls.client("link", own))
    theirs = Authority("Another authority").files(tmp_path, "theirs", "webapp")
    untrusted = {
        "plaintext": None,
        "no certificate": tls.client("link", TlsFiles(authorities=own.authorities)),
        "another authority": tls.client("link", TlsFiles(theirs.chain, theirs.key, own.authorities)),
    }
    let_in = [name for name, context in untrusted.items() if await greets(link, context)]
    figures.record("untrusted clients with the link key", "let in", len(let_in), 0)
    # A client that trusts another authority does not send the key.
    assert not await greets(link, tls.client("link", TlsFiles(own.chain, own.key, theirs.authorities)))

    port = secured.address("TIDINGS_NETWORK_HTTP_ADDRESS")[1]
    bearer = {"Authorization": f"Bearer {REGISTRATION_KEY}"}
    body = {"registrations": [registration("15550190001")]}

    async def register(context: ssl.SSLContext) -> int:
        async with httpx.AsyncClient(verify=context, trust_env=False, timeout=20) as http:
            url = f"https://localhost:{port}/v1/registrations/bulk"
            return (await http.post(url, json=body, headers=bearer)).status_code

    trust = TlsFiles(authorities=own.authorities)
    assert await register(tls.client("network", trust)) == 401
    assert await register(tls.client("network", own)) == 201
    async with httpx.AsyncClient(trust_env=False, timeout=20) as http:
        with pytest.raises(httpx.TransportError):
            await http.post(f"http://localhost:{port}/v1/registrations/bulk", json=body, headers=bearer)


async def begin_handshakes(secured: Secured, figures: Figures, form: Form) -> None:
    """Start handshakes and never finish them."""
    installation = secured.installation
    link, http = secured.address("TIDINGS_COREAPP_ADDRESS"), secured.address("TIDINGS_NETWORK_HTTP_ADDRESS")
    own = tls.client("link", secured.files("webapp"))
    began = asyncio.get_running_loop().time()
    assert await greets(link, own)
    usual = asyncio.get_running_loop().time() - began
    for name, address in (("coreapp", link), ("network", http)):
        pid = installation.processes[name].pid
        assert pid is not None
        before, loop = usage(pid), asyncio.get_running_loop()
        started = loop.time()
        silent = []
        for number in range(form.count(short=400, long=2000)):
            host = f"127.{1 + os.getpid() % 250}.{1 + number // 200}.{1 + number % 200}"
            try:
                silent.append(await asyncio.open_connection(*address, local_addr=(host, 0)))
            except ConnectionResetError:
                # The maximum number of connections waits already.
                continue
            if number % 2:
                # As far as a handshake gets without any cost to the other side.
                silent[-1][1].write(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc")
        if name == "coreapp":
            # As a Webapp does, which retries every second.
            began = loop.time()
            await polling.until(functools.partial(greets, link, own))
            took, most = loop.time() - began, 3.0 + SLOWER * usual
            figures.record("handshakes that never come", "until a Webapp is let in", took, most, "s")
        await asyncio.sleep(form.pick(short=1.0, long=20.0))
        after, seconds = usage(pid), loop.time() - started
        for _, writer in silent:
            writer.transport.abort()
        grown = (after.peak_rss - before.peak_rss) / MIB
        figures.record("handshakes that never come", f"memory of {name}", grown, MEMORY_MIB, "MiB")
        cpu = (after.cpu - before.cpu - ONCE_S) / seconds * 100
        figures.record("handshakes that never come", f"CPU of {name}", cpu, CPU_PERCENT, "%")


async def finish_handshakes(secured: Secured, figures: Figures, form: Form) -> None:
    """Finish handshakes continuously from 20 addresses. Handshakes are counted before they cost the other side
    anything."""
    trust = ssl.create_default_context()
    trust.check_hostname, trust.verify_mode = False, ssl.CERT_NONE

    async def call(address: Address, host: str) -> None:
        while True:
            with contextlib.suppress(OSError, TimeoutError):
                async with asyncio.timeout(2.0):
                    _, writer = await asyncio.open_connection(*address, ssl=trust, local_addr=(host, 0))
                    writer.transport.abort()

    for listener, name, variable in (
        ("the API", "webapp", "TIDINGS_API_ADDRESS"),
        ("HTTP", "network", "TIDINGS_NETWORK_HTTP_ADDRESS"),
        ("TCP", "network", "TIDINGS_NETWORK_TCP_ADDRESS"),
    ):
        pid = secured.installation.processes[name].pid
        assert pid is not None
        before, loop = usage(pid), asyncio.get_running_loop()
        started = loop.time()
        hosts = [f"127.{1 + os.getpid() % 250}.99.{1 + number}" for number in range(20)]
        callers = [asyncio.create_task(call(secured.address(variable), host)) for host in hosts]
        await asyncio.sleep(form.pick(short=1.0, long=20.0))
        for caller in callers:
            caller.cancel()
        await asyncio.gather(*callers, return_exceptions=True)
        cpu = (usage(pid).cpu - before.cpu - ONCE_S) / (loop.time() - started) * 100
        limit = form.pick(short=BESIDE_OTHERS * CPU_PERCENT, long=CPU_PERCENT)
        figures.record("handshakes again and again", f"CPU of {name} at {listener}", cpu, limit, "%")


def test_a_non_loopback_address_without_tls_stops_the_start_with_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TIDINGS_DATA_DIR", str(tmp_path))
    monkeypatch.setenv("TIDINGS_COREAPP_ADDRESS", "0.0.0.0:0")
    assert main.main(["coreapp"]) == 2
    (said,) = capsys.readouterr().err.splitlines()
    assert "TIDINGS_COREAPP_ADDRESS: 0.0.0.0 is not on this machine and TLS is not configured" in said
    assert said.endswith("or allow plaintext with TIDINGS_ALLOW_PLAINTEXT=link")
