"""Media providers: the credentials that a link's server asks for, and the hosts that may have them."""

from __future__ import annotations

import msgspec

from tidings.egress import urls

WILDCARD = "*."  # then any name below the rest, at any depth


class Basic(msgspec.Struct):
    """HTTP Basic authentication."""

    username: str
    password: str


class ProviderConfig(msgspec.Struct):
    """The API's `config` of a media provider. hosts: `name`, `name:port` or `*.name`; none: bound to no host."""

    basic: Basic | None = None
    bearer: str | None = None
    hosts: tuple[str, ...] = ()

    @property
    def authorization(self) -> str:
        """The value of `Authorization`, empty where there are no credentials."""
        if self.basic is not None:
            return urls.basic(f"{self.basic.username}:{self.basic.password}")
        return f"Bearer {self.bearer}" if self.bearer else ""

    def is_for(self, link: str) -> bool:
        """Whether a link leads to one of the hosts. What is no URL leads nowhere."""
        try:
            host, port, secure = urls.parse(link).origin
        except ValueError:
            return False
        return any(_matches(entry, host, port, 443 if secure else 80) for entry in self.hosts)


def check_host(entry: str) -> None:
    """Raises `ValueError` for what can be no host of a provider."""
    name = entry.removeprefix(WILDCARD)
    try:
        place = urls.parse(f"https://{name}")
    except ValueError:
        place = None
    # Said as it is compared, so that nothing else can hide in it: a user, a path, another spelling.
    if place is None or place.named != name.lower() or "*" in name:
        raise ValueError("should be a host, host:port or *.host")


def _matches(entry: str, host: str, port: int, usual_port: int) -> bool:
    below = entry.startswith(WILDCARD)
    wanted, wanted_port, _ = urls.parse(f"https://{entry.removeprefix(WILDCARD)}").origin
    if port != (wanted_port if _names_port(entry) else usual_port):
        return False
    return host.endswith("." + wanted) if below else host == wanted


def _names_port(entry: str) -> bool:
    return entry.rpartition("]")[2].find(":") >= 0
