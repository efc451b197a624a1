"""Devices that have authenticated recently, and the addresses that they came from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set

from tidings.net.unauthenticated import Network, is_within, key_of

# Numbers remembered until they are recorded, about 400 bytes each; further ones are not remembered.
MAX_SEEN = 100_000
# Origins remembered of each number; further ones are not remembered.
MAX_ORIGINS = 8


class SeenDevices:
    """Numbers whose devices have authenticated since they were last recorded, with their origins.

    An origin is an IPv4 address or a /64 of IPv6. A trusted proxy is no device's origin.
    """

    def __init__(self, trusted: tuple[Network, ...] = ()) -> None:
        self._trusted = trusted
        self._seen: dict[str, set[str]] = {}
        # Those that were taken and are not recorded yet.
        self._taken: dict[str, set[str]] = {}

    def add(self, number: str, host: str) -> None:
        """Record that a device has authenticated from this address; an empty one is unknown."""
        origins = self._seen.get(number)
        if origins is None:
            if len(self._seen) + len(self._taken) >= MAX_SEEN:
                return
            origins = self._seen[number] = set()
        if len(origins) < MAX_ORIGINS:
            origins |= self.origins((host,))

    def origins(self, hosts: Sequence[str]) -> Set[str]:
        """Return the origins that these addresses stand for."""
        return {key_of(host) for host in hosts if host and not is_within(host, self._trusted)}

    def take(self) -> Mapping[str, Set[str]]:
        """Return the numbers with their origins, and remove them once `recorded` is called.

        `drop` also removes numbers from the returned mapping.
        """
        for number, origins in self._seen.items():
            self._taken.setdefault(number, set()).update(origins)
        self._seen = {}
        return self._taken

    def recorded(self) -> None:
        """Remove the numbers that were taken."""
        self._taken = {}

    def drop(self, numbers: Iterable[str]) -> None:
        """Remove numbers, which other devices may have from now on."""
        for number in numbers:
            self._seen.pop(number, None)
            self._taken.pop(number, None)
