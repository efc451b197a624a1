"""Decide whether an internet address may be called.

The ranges are those of the IANA special-purpose registries. For addresses that contain another one (IPv4-mapped,
NAT64, 6to4, Teredo, ISATAP), both are checked.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterator, Sequence

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

LOOPBACK: tuple[Network, ...] = (ipaddress.ip_network("127.0.0.0/8"), ipaddress.ip_network("::1/128"))

NEVER = "a metadata address"
# Metadata services from which machines of cloud providers get their credentials. No list allows them.
METADATA = frozenset(
    ipaddress.ip_address(text)
    for text in (
        "169.254.169.254",  # AWS, Azure, Google, DigitalOcean, OpenStack, Oracle, Hetzner
        "169.254.170.2",  # AWS, containers
        "169.254.170.23",  # AWS, Kubernetes
        "169.254.0.23",  # Tencent
        "169.254.10.10",  # Tencent
        "169.254.42.42",  # Scaleway
        "100.100.100.200",  # Alibaba
        "168.63.129.16",  # Azure
        "192.0.0.192",  # Oracle
        "fd00:ec2::254",  # AWS
        "fd00:ec2::23",  # AWS, Kubernetes
        "fd00:c1::a9fe:a9fe",  # Oracle
        "fd20:ce::254",  # Google
        "fd00:42::42",  # Scaleway
        "fe80::a9fe:a9fe",  # OpenStack
    )
)

_SPECIAL_4: tuple[tuple[ipaddress.IPv4Network, str], ...] = tuple(
    (ipaddress.IPv4Network(text), kind)
    for text, kind in (
        ("0.0.0.0/8", "an unspecified"),
        ("10.0.0.0/8", "a private"),
        ("100.64.0.0/10", "a carrier's private"),
        ("127.0.0.0/8", "a loopback"),
        ("169.254.0.0/16", "a link-local"),
        ("172.16.0.0/12", "a private"),
        ("192.0.0.0/24", "a reserved"),
        ("192.0.2.0/24", "a documentation"),
        ("192.88.99.0/24", "a reserved"),
        ("192.168.0.0/16", "a private"),
        ("198.18.0.0/15", "a benchmarking"),
        ("198.51.100.0/24", "a documentation"),
        ("203.0.113.0/24", "a documentation"),
        ("224.0.0.0/4", "a multicast"),
        ("240.0.0.0/4", "a reserved"),
    )
)
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
_6TO4 = ipaddress.IPv6Network("2002::/16")
_TEREDO = ipaddress.IPv6Network("2001::/32")
# The first match decides the kind; an empty kind is public. Addresses without a match are reserved.
_SPECIAL_6: tuple[tuple[ipaddress.IPv6Network, str], ...] = tuple(
    (ipaddress.IPv6Network(text), kind)
    for text, kind in (
        ("::/128", "an unspecified"),
        ("::1/128", "a loopback"),
        ("64:ff9b::/96", ""),
        ("fe80::/10", "a link-local"),
        ("fec0::/10", "a site-local"),
        ("fc00::/7", "a unique-local"),
        ("ff00::/8", "a multicast"),
        ("2001::/23", "a reserved"),
        ("2001:db8::/32", "a documentation"),
        ("2002::/16", "a 6to4"),
        ("3fff::/20", "a documentation"),
        ("2000::/3", ""),
    )
)


def literal(host: str) -> Address | None:
    """Return the address that `host` spells; `None` for a name.

    Also accepts the spellings that resolvers accept for IPv4: fewer than four parts, octal, hexadecimal, one number.
    """
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        pass
    if not host.isascii() or not host[:1].isdigit() or any(character.isspace() for character in host):
        return None
    try:
        return ipaddress.IPv4Address(socket.inet_aton(host))
    except OSError:
        return None


def refusal(address: Address, allowed: Sequence[Network]) -> str:
    """Return why `address` must not be called, such as "a private address"; empty when it may be called."""
    forms = list(_forms(address))
    if any(form in METADATA for form in forms):
        return NEVER
    for form in forms:
        kind = _special(form)
        if kind and not any(form in network for network in allowed):
            return f"{kind} address"
    return ""


def _forms(address: Address) -> Iterator[Address]:
    """Yield the address that is called in the end, and those that it contains."""
    if isinstance(address, ipaddress.IPv4Address):
        yield address
        return
    # Drop the zone.
    plain = ipaddress.IPv6Address(int(address))
    low = int(plain) & 0xFFFFFFFF
    if plain.ipv4_mapped is not None:
        # The kernel connects to the IPv4 address.
        yield plain.ipv4_mapped
        return
    yield plain
    if plain in _NAT64 or (int(plain) >> 32) & 0xFFFFFFFF in (0x00005EFE, 0x02005EFE):
        yield ipaddress.IPv4Address(low)
    elif plain in _6TO4:
        yield ipaddress.IPv4Address((int(plain) >> 80) & 0xFFFFFFFF)
    elif plain in _TEREDO:
        yield ipaddress.IPv4Address((int(plain) >> 64) & 0xFFFFFFFF)
        yield ipaddress.IPv4Address(low ^ 0xFFFFFFFF)


def _special(address: Address) -> str:
    if isinstance(address, ipaddress.IPv4Address):
        return next((kind for network, kind in _SPECIAL_4 if address in network), "")
    return next((kind for network, kind in _SPECIAL_6 if address in network), "a reserved")
