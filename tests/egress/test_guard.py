"""Connections go to the addresses that were checked, and nowhere else; on real sockets."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import socket
from collections.abc import AsyncIterator, Sequence

import pytest

from tests.live_objects import live_objects
from tidings.config import env
from tidings.config.env import SettingsError
from tidings.egress import addresses, settings, urls
from tidings.egress import guard as guarding
from tidings.egress.guard import EgressGuard, Forbidden
from tidings.egress.names import Resolved
from tidings.egress.responses import ContentParser
from tidings.egress.settings import ONLY_PUBLIC, OutgoingSettings

LOOPBACK = OutgoingSettings(addresses.LOOPBACK)


async def test_a_refusal_names_the_variable_that_would_allow_it() -> None:
    specific = settings.read({"TIDINGS_OUTGOING_ALLOW_WEBHOOKS": "127.0.0.0/8"}, "webhooks")
    general = settings.read({"TIDINGS_OUTGOING_ALLOW": "127.0.0.0/8"}, "webhooks")
    for found, name in ((specific, "TIDINGS_OUTGOING_ALLOW_WEBHOOKS"), (general, "TIDINGS_OUTGOING_ALLOW")):
        with pytest.raises(Forbidden, match=f"^10.0.0.1 is a private address, which {name} does not list$"):
            await EgressGuard(found).resolve("10.0.0.1", 80)


class Listener:
    """Listener that counts connections and keeps the first bytes of each."""

    def __init__(self) -> None:
        self.connections = 0
        self.heard: list[bytes] = []
        self.response = b""
        self.port = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        if self.response:
            with contextlib.suppress(asyncio.IncompleteReadError):
                self.heard.append(await reader.readuntil(b"\r\n\r\n"))
            writer.write(self.response)
        await reader.read()
        writer.close()


@pytest.fixture
async def listener() -> AsyncIterator[Listener]:
    found = Listener()
    server = await asyncio.start_server(found.serve, "127.0.0.1", 0)
    found.port = server.sockets[0].getsockname()[1]
    yield found
    server.close()


class Names:
    """Resolver whose result changes: the first is for the first lookup, the last for all later ones."""

    def __init__(self, *results: Sequence[str]) -> None:
        self.results = list(results)
        self.lookups = 0

    async def __call__(self, host: str, port: int) -> Sequence[Resolved]:
        result = self.results[min(self.lookups, len(self.results) - 1)]
        self.lookups += 1
        return [(socket.AF_INET6 if ":" in text else socket.AF_INET, text) for text in result]


async def test_the_guard_connects_to_the_address_it_checked(listener: Listener) -> None:
    """DNS rebinding: the first result is allowed, a second one would not be."""
    allowed = OutgoingSettings((ipaddress.ip_network("127.0.0.1/32"),))
    names = Names(["127.0.0.1"], ["127.0.0.2"])
    sock = await EgressGuard(allowed, names).connect("rebinding.example", listener.port)
    assert sock.getpeername() == ("127.0.0.1", listener.port)
    assert names.lookups == 1
    sock.close()
    with pytest.raises(Forbidden, match=r"rebinding.example \(127.0.0.2\) is a loopback address"):
        await EgressGuard(allowed, names).connect("rebinding.example", listener.port)


async def test_a_name_that_resolves_to_a_private_address_at_connect_time_is_refused(listener: Listener) -> None:
    guard = EgressGuard(ONLY_PUBLIC, Names(["93.184.216.34"], ["127.0.0.1"]))
    await guard.check(f"http://rebinding.example:{listener.port}/")
    with pytest.raises(Forbidden):
        await guard.connect("rebinding.example", listener.port)
    assert not listener.connections


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1",
        "127.1",
        "2130706433",
        "0x7f000001",
        "0177.0.0.1",
        "0.0.0.0",
        "localhost",
        "[::1]",
        "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]",
        "[0:0:0:0:0:ffff:127.0.0.1]",
        "[::1%25lo]",
        "１２７.0.0.1",
        "127。0。0。1",
        "LOCALHOST",
        "user:secret@127.0.0.1",
        "example.com@127.0.0.1",
        "example.com\\@127.0.0.1",
        "169.254.169.254",
        "[fd00:ec2::254]",
        "100.100.100.200",
        "0xa9fea9fe",
        "10.0.0.1",
        "192.168.0.1",
    ],
)
async def test_every_spelling_of_a_forbidden_address_is_refused(listener: Listener, host: str) -> None:
    url = f"http://{host}:{listener.port}/"
    guard = EgressGuard(ONLY_PUBLIC)
    with pytest.raises(Forbidden) as caught:
        await guard.check(url)
    assert "secret" not in str(caught.value)
    with pytest.raises(Forbidden):
        await guard.connect(*urls.parse(url).origin[:2])
    assert not listener.connections


async def test_the_allowed_addresses_of_a_name_are_tried_in_order(listener: Listener) -> None:
    allowed = OutgoingSettings((ipaddress.ip_network("127.0.0.0/30"),))
    # The first address is forbidden. At the second no process listens.
    guard = EgressGuard(allowed, Names(["10.0.0.1", "127.0.0.2", "127.0.0.1"]))
    assert await guard.resolve("many.example", 80) == [(socket.AF_INET, "127.0.0.2"), (socket.AF_INET, "127.0.0.1")]
    sock = await guard.connect("many.example", listener.port)
    assert sock.getpeername()[0] == "127.0.0.1"
    sock.close()


async def test_an_unreachable_host_raises_oserror_and_not_forbidden() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        free = unused.getsockname()[1]
        for found in (["127.0.0.1"], ["127.0.0.1", "127.0.0.2"]):
            with pytest.raises(OSError) as caught:
                await EgressGuard(LOOPBACK, Names(found)).connect("many.example", free)
            assert not isinstance(caught.value, Forbidden)


async def test_an_unresolvable_name_passes_the_check_and_fails_at_connect() -> None:
    async def lookup(host: str, port: int) -> Sequence[Resolved]:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    for guard in (EgressGuard(ONLY_PUBLIC, lookup), EgressGuard(ONLY_PUBLIC, Names([]))):
        await guard.check("https://later.example/")
        with pytest.raises(socket.gaierror):
            await guard.connect("later.example", 443)


async def test_a_hanging_resolver_does_not_block_a_check() -> None:
    async def lookup(host: str, port: int) -> Sequence[Resolved]:
        await asyncio.Event().wait()
        raise AssertionError

    await EgressGuard(ONLY_PUBLIC, lookup, check_seconds=0.01).check("https://slow.example/")


@pytest.mark.parametrize("url", ["", "nonsense", "ftp://example.com/", "http://", "http://h:99999/", "http://[::1/"])
async def test_an_invalid_url_raises_valueerror(url: str) -> None:
    with pytest.raises(ValueError):
        await EgressGuard(ONLY_PUBLIC).check(url)


async def test_the_proxy_receives_the_checked_address_instead_of_the_name(
    listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    listener.response = b"HTTP/1.1 200 Connection established\r\n\r\n"
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:1")
    proxied = settings.read({"TIDINGS_OUTGOING_PROXY": f"http://user:p%40ss@127.0.0.1:{listener.port}"}, "webhooks")
    assert not [secret for secret in ("p%40ss", "p@ss", "cEBzcw") if secret in repr(proxied)]
    sock = await EgressGuard(proxied, Names(["93.184.216.34"])).connect("example.com", 443)
    assert listener.heard[0].split(b"\r\n") == [
        b"CONNECT 93.184.216.34:443 HTTP/1.1",
        b"Host: 93.184.216.34:443",
        b"Proxy-Authorization: Basic dXNlcjpwQHNz",
        b"",
        b"",
    ]
    sock.close()
    with pytest.raises(Forbidden):
        await EgressGuard(proxied, Names(["10.0.0.1"])).connect("example.com", 443)
    assert listener.connections == 1


async def test_a_refusal_by_the_proxy_raises_connectionerror(listener: Listener) -> None:
    listener.response = b"HTTP/1.1 403 Forbidden\r\n\r\n"
    proxied = OutgoingSettings(proxy=urls.parse(f"http://127.0.0.1:{listener.port}"))
    with pytest.raises(ConnectionError, match="403"):
        await EgressGuard(proxied, Names(["93.184.216.34"])).connect("example.com", 443)


async def test_the_proxy_is_called_at_another_of_its_addresses_if_the_first_refuses(listener: Listener) -> None:
    listener.response = b"HTTP/1.1 200 Connection established\r\n\r\n"
    guard = EgressGuard(OutgoingSettings(proxy=urls.parse(f"http://proxy.example:{listener.port}")))
    # Such as IPv6 without a listener before IPv4.
    guard._names = Names(["127.0.0.2", "127.0.0.1"])  # type: ignore[assignment]
    sock = await guard.connect("1.1.1.1", 443)
    assert sock.getpeername() == ("127.0.0.1", listener.port)
    sock.close()


@pytest.mark.usefixtures("no_collector")
async def test_the_parser_of_a_proxys_response_is_freed_without_interpreter_gc(listener: Listener) -> None:
    listener.response = b"HTTP/1.1 200 Connection established\r\n\r\n"
    guard = EgressGuard(OutgoingSettings(proxy=urls.parse(f"http://127.0.0.1:{listener.port}")))
    for _ in range(3):
        (await guard.connect("1.1.1.1", 443)).close()
    assert live_objects(ContentParser) == []


async def test_proxy_variables_of_the_environment_are_ignored(
    listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    sock = await EgressGuard(LOOPBACK).connect("127.0.0.1", listener.port)
    assert sock.getpeername()[1] == listener.port
    sock.close()


def test_only_public_addresses_are_allowed_by_default() -> None:
    for variables in ({}, {"TIDINGS_EMBEDDED": "1"}, {"TIDINGS_OUTGOING_ALLOW": "none"}):
        found = Process.read(variables)
        assert (found.outgoing_webhooks, found.outgoing_media) == (ONLY_PUBLIC, ONLY_PUBLIC)
    chosen = settings.read({"TIDINGS_OUTGOING_ALLOW": "10.0.0.0/8, fd00::/8,192.168.1.7"}, "media")
    assert [str(network) for network in chosen.allowed] == ["10.0.0.0/8", "fd00::/8", "192.168.1.7/32"]


def test_webhooks_and_media_links_have_separate_allow_lists() -> None:
    found = Process.read({"TIDINGS_OUTGOING_ALLOW_WEBHOOKS": "127.0.0.0/8,::1"})
    assert (found.outgoing_webhooks, found.outgoing_media) == (LOOPBACK, ONLY_PUBLIC)
    both = {"TIDINGS_OUTGOING_ALLOW": "127.0.0.0/8,::1"}
    assert Process.read({**both, "TIDINGS_OUTGOING_ALLOW_MEDIA": "none"}).outgoing_media == ONLY_PUBLIC
    assert Process.read(both).outgoing_media == LOOPBACK


class Process(env.Variables):
    outgoing_webhooks: settings.OutgoingWebhooks = env.COMPUTED
    outgoing_media: settings.OutgoingMedia = env.COMPUTED


@pytest.mark.parametrize(
    "variables",
    [
        {"TIDINGS_OUTGOING_ALLOW": "10.0.0.1/8"},
        {"TIDINGS_OUTGOING_ALLOW": "internal.example"},
        {"TIDINGS_OUTGOING_ALLOW": "169.254.169.254"},
        {"TIDINGS_OUTGOING_ALLOW_MEDIA": "169.254.169.254"},
        {"TIDINGS_OUTGOING_PROXY": "proxy:3128"},
        {"TIDINGS_OUTGOING_PROXY": "https://proxy:3128"},
        {"TIDINGS_OUTGOING_PROXY": "socks5://proxy:3128"},
    ],
)
def test_invalid_settings_raise_settingserror(variables: dict[str, str]) -> None:
    with pytest.raises(SettingsError):
        Process.read(variables)


@pytest.mark.parametrize(("network", "warned"), [("0.0.0.0/0", True), ("::/0", True), ("10.0.0.0/8", False)])
def test_allowing_every_address_logs_a_warning(network: str, warned: bool, caplog: pytest.LogCaptureFixture) -> None:
    EgressGuard(OutgoingSettings((ipaddress.ip_network(network),)))
    assert ("egress.everything_allowed" in caplog.messages) is warned


async def test_the_third_of_several_addresses_is_reached_soon(
    listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    dial = guarding._dial

    async def dropped(address: Resolved, port: int) -> socket.socket:
        if address[1] != "127.0.0.1":
            await asyncio.Event().wait()
        return await dial(address, port)

    monkeypatch.setattr(guarding, "_dial", dropped)
    monkeypatch.setattr(guarding, "OTHERS_SECONDS", 0.02)
    async with asyncio.timeout(60):
        sock = await EgressGuard(LOOPBACK, Names(["127.0.0.2", "127.0.0.3", "127.0.0.1"])).connect(
            "host.example", listener.port
        )
    with sock:
        assert sock.getpeername()[0] == "127.0.0.1"


def test_all_addresses_but_the_last_have_five_seconds_together() -> None:
    assert guarding.OTHERS_SECONDS == 5.0
