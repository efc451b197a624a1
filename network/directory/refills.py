"""Notices to connected devices whose one-time pre-keys on the network run low."""

from __future__ import annotations

import dataclasses
from typing import Protocol

from tidings.storage.network.prekeys import Counts

# A device that has fewer left than this is notified, once until it uploads more, and again when they are used up.
LOW = 20


class Listener(Protocol):
    """The connection that a device is on."""

    def prekeys_low(self, number: str, left: Counts) -> None: ...


@dataclasses.dataclass(slots=True)
class _Device:
    listener: Listener
    left: Counts
    notified: bool = False


class Refills:
    """Pre-keys that connected devices have left, counted in memory from what was there at their login."""

    def __init__(self) -> None:
        self._devices: dict[str, _Device] = {}

    def attached(self, number: str, left: Counts, listener: Listener) -> None:
        """A device logged in with so many left."""
        device = self._devices[number] = _Device(listener, left)
        if left.prekeys < LOW:
            device.notified = True
            listener.prekeys_low(number, left)

    def detached(self, number: str, listener: Listener) -> None:
        """It is no longer on the connection that it attached with."""
        device = self._devices.get(number)
        if device is not None and device.listener is listener:
            del self._devices[number]

    def taken(self, number: str, *, prekey: bool, kyber_prekey: bool) -> None:
        """A bundle of this number was handed out, with these one-time keys."""
        device = self._devices.get(number)
        if device is None or not (prekey or kyber_prekey):
            return
        device.left = left = Counts(device.left.prekeys - prekey, device.left.kyber_prekeys - kyber_prekey)
        low = (prekey and left.prekeys < LOW) or (kyber_prekey and left.kyber_prekeys < LOW)
        used_up = (prekey and left.prekeys <= 0) or (kyber_prekey and left.kyber_prekeys <= 0)
        if (low and not device.notified) or used_up:
            device.notified = True
            device.listener.prekeys_low(number, left)

    def uploaded(self, number: str, left: Counts) -> None:
        """A device has left more; it has so many now."""
        device = self._devices.get(number)
        if device is not None:
            device.left = left
            device.notified = False
