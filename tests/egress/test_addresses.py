"""Addresses that may be called, in every spelling."""

from __future__ import annotations

import ipaddress
import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidings.egress import addresses
from tidings.egress.addresses import Address, Network, literal, refusal

PUBLIC = ["8.8.8.8", "1.1.1.1", "93.184.216.34", "172.32.0.1", "100.63.255.255", "100.128.0.0", "223.255.255.255"]
PUBLIC_6 = ["2606:4700:4700::1111", "2a00:1450:4001::1", "2400::1", "64:ff9b::808:808"]
REFUSED = {
    "0.0.0.0": "unspecified",
    "0.1.2.3": "unspecified",
    "10.0.0.1": "private",
    "10.255.255.255": "private",
    "100.64.0.1": "carrier",
    "100.127.255.255": "carrier",
    "127.0.0.1": "loopback",
    "127.255.255.254": "loopback",
    "169.254.1.1": "link-local",
    "172.16.0.1": "private",
    "172.31.255.255": "private",
    "192.0.0.8": "reserved",
    "192.0.2.1": "documentation",
    "192.168.1.1": "private",
    "198.18.0.1": "benchmarking",
    "198.51.100.7": "documentation",
    "203.0.113.9": "documentation",
    "224.0.0.1": "multicast",
    "240.0.0.1": "reserved",
    "255.255.255.255": "reserved",
    "::": "unspecified",
    "::1": "loopback",
    "::7f00:1": "reserved",
    "::ffff:127.0.0.1": "loopback",
    "::ffff:10.0.0.1": "private",
    "::ffff:0:127.0.0.1": "reserved",
    "64:ff9b::7f00:1": "loopback",
    "64:ff9b::a00:1": "private",
    "64:ff9b:1::1": "reserved",
    "100::1": "reserved",
    "2001::1": "reserved",
    "2001:db8::1": "documentation",
    "2002:808:808::1": "6to4",
    "2002:7f00:1::1": "6to4",
    "2606:4700::5efe:10.0.0.1": "private",
    "2606:4700::200:5efe:127.0.0.1": "loopback",
    "3fff::1": "documentation",
    "4000::1": "reserved",
    "5f00::1": "reserved",
    "fc00::1": "unique-local",
    "fdff::1": "unique-local",
    "fe80::1": "link-local",
    "fe80::1%eth0": "link-local",
    "fec0::1": "site-local",
    "ff02::1": "multicast",
}


def ip(text: str) -> Address:
    return ipaddress.ip_address(text)


@pytest.mark.parametrize("text", PUBLIC + PUBLIC_6)
def test_public_addresses_are_allowed(text: str) -> None:
    assert refusal(ip(text), ()) == ""


@pytest.mark.parametrize(("text", "kind"), REFUSED.items())
def test_other_addresses_are_refused_with_the_reason(text: str, kind: str) -> None:
    assert kind in refusal(ip(text), ())


@pytest.mark.parametrize("text", [text for text, kind in REFUSED.items() if "%" not in text])
def test_addresses_in_the_allow_list_are_allowed(text: str) -> None:
    everything: list[Network] = [ipaddress.ip_network("0.0.0.0/0"), ipaddress.ip_network("::/0")]
    assert refusal(ip(text), everything) == ""


@pytest.mark.parametrize(
    "text",
    [
        *sorted(map(str, addresses.METADATA)),
        "::ffff:169.254.169.254",
        "64:ff9b::a9fe:a9fe",
        "2002:a9fe:a9fe::1",
        "2001:0:a9fe:a9fe::1",
        "2001:0:808:808:0:0:5601:5601",
        "2606:4700::5efe:169.254.169.254",
        "fe80::a9fe:a9fe%2",
    ],
)
def test_metadata_addresses_are_refused_even_if_listed(text: str) -> None:
    everything: list[Network] = [ipaddress.ip_network("0.0.0.0/0"), ipaddress.ip_network("::/0")]
    assert refusal(ip(text), everything) == "a metadata address"


def test_the_allow_list_applies_to_embedded_addresses() -> None:
    ten: list[Network] = [ipaddress.ip_network("10.0.0.0/8")]
    assert refusal(ip("::ffff:10.0.0.1"), ten) == ""
    assert refusal(ip("64:ff9b::a00:1"), ten) == ""
    assert refusal(ip("64:ff9b::7f00:1"), ten) == "a loopback address"
    six: list[Network] = [ipaddress.ip_network("2002::/16")]
    assert refusal(ip("2002:a00:1::1"), six) == "a private address"


@given(st.ip_addresses())
def test_every_address_the_standard_library_calls_private_is_refused(address: Address) -> None:
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    if not refusal(address, ()):
        inner = mapped or address
        kinds = ("private", "loopback", "link_local", "multicast", "unspecified")
        assert not [kind for kind in kinds if getattr(inner, f"is_{kind}")]


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "127.1", "127.0.1", "2130706433", "0x7f000001", "0x7F.1", "0177.0.0.1", "017700000001", "0x7f.0.0x1"],
)
def test_unusual_spellings_of_an_address_are_parsed_like_inet_aton(host: str) -> None:
    assert literal(host) == ip("127.0.0.1")


@given(st.integers(0, 2**32 - 1), st.sampled_from(["{}", "0x{:x}", "0{:o}"]), st.integers(1, 4))
def test_every_inet_aton_spelling_is_parsed_to_the_same_address(number: int, form: str, parts: int) -> None:
    octets = number.to_bytes(4, "big")
    numbers = [*octets[: parts - 1], int.from_bytes(octets[parts - 1 :], "big")]
    host = ".".join(form.format(part) for part in numbers)
    found = literal(host)
    assert found is not None
    assert found.packed == socket.inet_aton(host) == octets


@pytest.mark.parametrize("host", ["example.com", "localhost", "1.example", "a1", "127.0.0.1.nip.io", "", "1.2.3.4 x"])
def test_host_names_are_not_parsed_as_addresses(host: str) -> None:
    assert literal(host) is None
