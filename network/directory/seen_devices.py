"""Devices that have authenticated recently, and the addresses that they came from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set

from tidings.net.unauthenticated import Network, is_within, key_of

# Numbers remembered until they are taken, about 400 bytes each; further ones are not remembered.
MAX_SEEN = 100_000
# Origins remembered of each number; further ones are not remembered.
MAX_ORIGINS = 8


class SeenDevices:
    """Numbers whose devices have authenticated since they were last taken, with their origins.

    An origin is an IPv4 address or a /64 of IPv6. A trusted proxy is no device's origin.
    """

    def __init__(self, trusted: tuple[Network, ...] = ()) -> None:
        self._trusted = trusted
        self._seen: dict[str, set[str]] = {}

    def add(self, number: str, host: str) -> None:
        """Record that a device has authenticated from this address; an empty one is unknown."""
        origins = self._seen.get(number)
        if origins is None:
            if len(self._seen) >= MAX_SEEN:
                return
            origins = self._seen[number] = set()
        if len(origins) < MAX_ORIGINS:
            origins |= self.origins((host,))

    def origins(self, hosts: Sequence[str]) -> Set[str]:
        """Return the origins that these addresses stand for."""
        return {key_of(host) for host in hosts if host and not is_within(host, self._trusted)}

    def take(self) -> Mapping[str, Set[str]]:
        """Return the numbers with their origins, and forget them."""
        seen, self._seen = self._seen, {}
        return seen
