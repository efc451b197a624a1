"""Names by which clients may address an HTTP listener."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator

import pytest

from tests.http.support import Server, connected, read_response, serve
from tidings.config import env
from tidings.config.env import SettingsError
from tidings.http import hosts, listener_settings
from tidings.http.hosts import Hosts

CONFIGURED = "api.example.com, *.example.org, 192.0.2.7, [2001:DB8::1]"


class Listener(env.Variables):
    """Settings class with the names."""

    hosts: listener_settings.HttpHosts = listener_settings.HTTP_HOSTS


@pytest.fixture
async def named() -> AsyncIterator[Server]:
    """Server with configured names."""
    async with serve(hosts=Hosts(hosts.parse(CONFIGURED))) as server:
        yield server


@pytest.mark.parametrize(
    "host",
    [
        *("api.example.com", "API.Example.COM", "api.example.com.", "api.example.com:9090", "a.example.org"),
        *("a.b.example.org:1", "192.0.2.7", "192.0.2.7:80", "[2001:db8::1]", "[2001:db8:0:0::1]:443"),
        # Allowed for clients on this machine.
        *("localhost", "127.0.0.1:9090", "[::1]:9090"),
    ],
)
async def test_a_configured_host_is_served(named: Server, host: str) -> None:
    async with connected(named) as (reader, writer):
        writer.write(
            b"GET / HTTP/1.1\r\nHost: %b\r\n\r\nGET /other HTTP/1.1\r\nHost: %b\r\n\r\n" % ((host.encode(),) * 2)
        )
        assert await read_response(reader) == (200, b"")
        assert await read_response(reader) == (200, b"")


@pytest.mark.parametrize(
    "lines",
    [
        *(b"Host: evil.example\r\n", b"Host: example.org\r\n", b"Host: api.example.com.evil.example\r\n", b""),
        *(b"Host: \r\n", b"Host: api.example.com@evil.example\r\n", b"Host: evil.example, api.example.com\r\n"),
        *(b"Host: api.example.com:80:80\r\n", b"Host: api.example.com/\r\n", b"Host: \xff\r\n", b"Host: 192.0.2.8\r\n"),
        b"Host: api.example.com\r\nHost: evil.example\r\n",
        b"Host: api.example.com\r\nHost: api.example.com\r\n",
        b"Host: [2001:db8::2]\r\n",
    ],
)
async def test_another_host_is_refused_before_the_application(named: Server, lines: bytes) -> None:
    async with connected(named) as (reader, writer):
        writer.write(b"GET /other HTTP/1.1\r\n" + lines + b"\r\n")
        status, body = await read_response(reader)
        assert status == 421
        assert b"Host" in body
        assert await reader.read() == b""
    assert named.served == 0


async def test_the_host_of_an_absolute_target_is_checked_as_well(named: Server) -> None:
    for target, expected in ((b"http://evil.example/x", 421), (b"http://api.example.com/x", 200)):
        async with connected(named) as (reader, writer):
            writer.write(b"GET %b HTTP/1.1\r\nHost: api.example.com\r\n\r\n" % target)
            assert (await read_response(reader))[0] == expected


async def test_a_wrong_host_in_a_pipelined_request_is_refused_after_the_first_is_served(named: Server) -> None:
    async with connected(named) as (reader, writer):
        writer.write(b"GET /a HTTP/1.1\r\nHost: api.example.com\r\n\r\nGET /b HTTP/1.1\r\nHost: evil.example\r\n\r\n")
        assert (await read_response(reader))[0] == 200
        assert (await read_response(reader))[0] == 421
    assert named.served == 1


@pytest.mark.parametrize(
    "path", ["/", "/health", "/health/live", "/health/ready", "/health/load", "/metrics", "/v1/metrics"]
)
async def test_health_and_metrics_are_served_for_every_host(named: Server, path: str) -> None:
    async with connected(named) as (reader, writer):
        writer.write(b"GET %b HTTP/1.1\r\nHost: 10.1.2.3:9090\r\n\r\n" % path.encode())
        assert (await read_response(reader))[0] == 200


async def test_without_configured_names_every_host_is_served(server: Server) -> None:
    async with connected(server) as (reader, writer):
        writer.write(b"GET /other HTTP/1.1\r\nHost: evil.example\r\n\r\n")
        assert (await read_response(reader))[0] == 200


def test_loopback_names_are_accepted_only_from_this_machine() -> None:
    names = Hosts(["api.example.com"])
    assert names.host_error([(b"host", b"localhost")], b"/x", is_local=True) == ""
    assert "TIDINGS_HTTP_HOSTS" in names.host_error([(b"host", b"localhost")], b"/x", is_local=False)


@pytest.mark.parametrize(
    "origin", [b"https://api.example.com", b"http://API.example.com:8080", b"https://x.example.org"]
)
def test_an_origin_of_a_configured_name_is_accepted(origin: bytes) -> None:
    assert Hosts(hosts.parse(CONFIGURED)).origin_error([(b"origin", origin)], is_local=False) == ""


@pytest.mark.parametrize(
    "origin", [b"https://evil.example", b"null", b"", b"api.example.com", b"file://api.example.com", b"http://[::1"]
)
def test_another_origin_is_an_error(origin: bytes) -> None:
    assert "Origin" in Hosts(hosts.parse(CONFIGURED)).origin_error([(b"origin", origin)], is_local=False)


@pytest.mark.parametrize(
    "value", ["api.example.com:443", "https://api.example.com", "*", "a b", "-a.example.com", "*.*.a"]
)
def test_an_invalid_host_name_stops_the_start(value: str) -> None:
    with pytest.raises(SettingsError, match="TIDINGS_HTTP_HOSTS"):
        Listener.read({"TIDINGS_HTTP_HOSTS": f"api.example.com,{value}"})


@pytest.mark.parametrize("names", ["tidings.example", "*.tidings.example"])
def test_a_long_host_is_refused_with_little_cpu(names: str) -> None:
    configured = Hosts(hosts.parse(names))
    long = b"a." * 30_000 + b"tidings.example"
    started = time.thread_time()
    assert configured.host_error([(b"host", long)], b"/", is_local=False)
    assert configured.origin_error([(b"origin", b"https://" + long)], is_local=False)
    # It took 0.4 s of CPU each.
    assert time.thread_time() - started < 0.1
