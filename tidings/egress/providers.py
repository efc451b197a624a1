"""Media providers: credentials for the servers of media links, and the hosts that may receive them."""

from __future__ import annotations

import msgspec

from tidings.egress import urls

WILDCARD = "*."  # matches any name below the rest, at any depth


class Basic(msgspec.Struct):
    """HTTP Basic authentication."""

    username: str
    password: str


class ProviderCredentials(msgspec.Struct):
    """The API's `config` of a media provider."""

    basic: Basic | None = None
    bearer: str | None = None
    # `name`, `name:port` or `*.name`; empty when the provider is bound to no host.
    hosts: tuple[str, ...] = ()

    @property
    def authorization(self) -> str:
        """Value of `Authorization`; empty without credentials."""
        if self.basic is not None:
            return urls.basic(f"{self.basic.username}:{self.basic.password}")
        return f"Bearer {self.bearer}" if self.bearer else ""

    def is_for(self, link: str) -> bool:
        """Return whether a link leads to one of the hosts; false for an invalid URL."""
        try:
            host, port, secure = urls.parse(link).origin
        except ValueError:
            return False
        return any(_matches(entry, host, port, 443 if secure else 80) for entry in self.hosts)


def check_host(entry: str) -> None:
    """Raise `ValueError` for text that cannot be a provider's host."""
    name = entry.removeprefix(WILDCARD)
    try:
        target = urls.parse(f"https://{name}")
    except ValueError:
        target = None
    # Must equal its parsed form, so that nothing else can hide in it: a user, a path, another spelling.
    if target is None or target.named != name.lower() or "*" in name:
        raise ValueError("should be a host, host:port or *.host")


def _matches(entry: str, host: str, port: int, usual_port: int) -> bool:
    below = entry.startswith(WILDCARD)
    wanted, wanted_port, _ = urls.parse(f"https://{entry.removeprefix(WILDCARD)}").origin
    if port != (wanted_port if _names_port(entry) else usual_port):
        return False
    return host.endswith("." + wanted) if below else host == wanted


def _names_port(entry: str) -> bool:
    return entry.rpartition("]")[2].find(":") >= 0
