"""Refuses and records look-ups of public names, and connections to public addresses, in this Python process.

The interpreter calls an audit hook for each of them in every thread, and a hook cannot be removed. What uvloop looks up
itself calls no hook. A process whose environment has `environment()` imports this module at its start.
"""

from __future__ import annotations

import ipaddress
import os
import socket
import sys
from pathlib import Path
from typing import Any

VARIABLE = "LOCAL_ONLY_RECORD"  # path of the file with a line for each attempt

# Names of this machine and of containers.
_LOCAL = (".localhost", ".local", ".internal")
# Names for documents and tests (RFC 2606): refused, as nothing may be asked about them, but no fault of a test.
_RESERVED = (".invalid", ".test", ".example", ".example.com", ".example.net", ".example.org")
_LOOKUPS = frozenset({"socket.getaddrinfo", "socket.gethostbyname", "socket.gethostbyaddr"})
_CALLS = frozenset({"socket.connect", "socket.sendto", "socket.sendmsg"})

_record = ""


class ExternalAccessRefused(socket.gaierror):
    """The look-up or the connection would leave this machine. It was not made, as without a network."""


def install(record: str) -> None:
    """Refuse and record attempts from now on, in a file that is created if it does not exist."""
    global _record
    first, _record = not _record, record
    Path(record).touch()
    if first:
        sys.addaudithook(_check)


def environment() -> dict[str, str]:
    """Return the variables with which a Python process does the same; none if this process does not."""
    if not _record:
        return {}
    paths = [str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {VARIABLE: _record, "PYTHONPATH": os.pathsep.join(paths)}


def take() -> list[str]:
    """Return the attempts since the last call, also those of other processes."""
    path = Path(_record)
    if not path.stat().st_size:
        return []
    found = path.read_text().splitlines()
    path.write_text("")
    return found


def is_public_name(host: str) -> bool:
    """Return whether a name may be one of the Internet; not an address, and not a name without a dot."""
    name = host.rstrip(".").lower()
    is_local = "." not in name or name.endswith(_LOCAL) or name == socket.gethostname().lower()
    return not is_local and not _is_address(name)


def is_public_address(host: str) -> bool:
    """Return whether a text is an address of the Internet."""
    return _is_address(host) and ipaddress.ip_address(host.partition("%")[0]).is_global


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return False
    return True


def _check(event: str, arguments: tuple[Any, ...]) -> None:
    """Audit hook. Raises `ExternalAccessRefused`."""
    if event in _LOOKUPS:
        host = arguments[0]
    elif event in _CALLS and isinstance(arguments[1], tuple) and arguments[1]:
        host = arguments[1][0]
    else:
        return
    text = host.decode("ascii", "replace") if isinstance(host, bytes | bytearray) else str(host or "")
    if is_public_name(text) or (event in _CALLS and is_public_address(text)):
        if not f".{text.rstrip('.').lower()}".endswith(_RESERVED):
            _note(f"{event} {text} in {' '.join(sys.argv)[:200]}")
        raise ExternalAccessRefused(socket.EAI_NONAME, f"{text}: nothing may leave this machine")


def _note(attempt: str) -> None:
    descriptor = os.open(_record, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(descriptor, f"{attempt}\n".encode("utf-8", "replace"))
    finally:
        os.close(descriptor)


if os.environ.get(VARIABLE):
    install(os.environ[VARIABLE])
