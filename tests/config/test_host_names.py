"""Host names and addresses in settings."""

from __future__ import annotations

import pytest

from tidings.config import env, host_names

WRONG = (
    "two words",
    "",
    "a..b",
    "-a",
    "a-",
    "a/b",
    "https://a",
    "a:1",
    "a@b",
    "x" * 64,
    "256.1.1.1",
    "10.0.0",
    "ü",
    ".",
)


@pytest.mark.parametrize("text", ["a", "api.example.com", "core_1", "xn--nicode-2ya.example", "A-1.b", "12", "a.b.c-d"])
def test_a_host_name_is_a_host(text: str) -> None:
    assert host_names.is_name(text)
    assert host_names.is_host(text)
    assert not host_names.is_address(text)


@pytest.mark.parametrize("text", ["127.0.0.1", "::1", "fd00::5", "fe80::1%eth0"])
def test_an_address_is_a_host_and_no_name(text: str) -> None:
    assert host_names.is_host(text)
    assert host_names.is_address(text)
    assert not host_names.is_name(text)


@pytest.mark.parametrize("text", [*WRONG, f"{'a.' * 126}ab", "*.example.com"])
def test_anything_else_is_no_host(text: str) -> None:
    assert not host_names.is_host(text)


def test_a_wildcard_is_a_name_only_where_it_is_permitted() -> None:
    assert host_names.is_host("*.example.com", wildcard=True)
    for wrong in ("*", "*.", "a.*.example", "**.example.com"):
        assert not host_names.is_host(wrong, wildcard=True)


@pytest.mark.parametrize(
    ("text", "host"),
    [
        ("db", "db"),
        ("core_1.internal.", "core_1.internal."),
        ("10.0.0.5", "10.0.0.5"),
        ("fd00::5", "fd00::5"),
        ("[fe80::1%eth0]", "fe80::1%eth0"),
    ],
)
def test_a_host_is_read_without_brackets(text: str, host: str) -> None:
    assert env.parse_host(text) == host


@pytest.mark.parametrize("text", [*WRONG, "[fd00::5", "fd00::5]", "[]", "a..", "10.0.0.5.", "[fd00::5]:80"])
def test_a_host_that_is_neither_a_name_nor_an_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a host name or an IP address"):
        env.parse_host(text)


@pytest.mark.parametrize("host", [host for host in WRONG if host != "a:1"])
def test_an_address_with_a_port_needs_a_host(host: str) -> None:
    with pytest.raises(ValueError, match="is not host:port"):
        env.parse_address(f"{host}:80")
