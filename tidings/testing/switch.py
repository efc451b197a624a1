"""Setting that turns the test mode on."""

from __future__ import annotations

from typing import Any

from tidings.config import env

TESTING: Any = env.variable("TIDINGS_TESTING", False)


def require_loopback(name: str, host: str) -> None:
    """Raise `env.mistake` unless a listener is on loopback.

    name: variable with the address of the listener
    host: host of the listener
    """
    if not env.is_loopback(host):
        raise env.mistake(
            f"TIDINGS_TESTING=1 needs {name} on loopback (got {host}): it lets every client with a token act as the "
            "recipients"
        )
