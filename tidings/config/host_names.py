"""Check of host names and IP addresses in settings."""

from __future__ import annotations

import ipaddress
import re

MAX_NAME = 253  # characters of a host name
_LABEL = r"(?!-)[A-Za-z0-9_-]{1,63}(?<!-)"
_NAME = re.compile(rf"(?P<wildcard>\*\.)?{_LABEL}(\.{_LABEL})*")
# Programs take it for an IPv4 address, so a wrong address is no name.
_DIGITS_AND_DOTS = re.compile(r"[0-9]+(\.[0-9]+)+")


def is_name(text: str, *, wildcard: bool = False) -> bool:
    """Return whether this is an ASCII host name (RFC 1123; underscores are permitted) without a final dot.

    wildcard: permit `*.example.com` as well
    """
    if len(text) > MAX_NAME or _DIGITS_AND_DOTS.fullmatch(text):
        return False
    found = _NAME.fullmatch(text)
    return found is not None and (wildcard or not found["wildcard"])


def is_address(text: str) -> bool:
    """Return whether this is an IPv4 or IPv6 address without brackets."""
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def is_host(text: str, *, wildcard: bool = False) -> bool:
    """Return whether this is a host name, as in `is_name`, or an IP address."""
    return is_address(text) or is_name(text, wildcard=wildcard)
