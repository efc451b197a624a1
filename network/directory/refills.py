"""Notices to connected devices that run low on one-time pre-keys."""

from __future__ import annotations

import dataclasses
from typing import Protocol

from tidings.storage.network.prekeys import PreKeyCounts

# A device with fewer pre-keys is notified once until it uploads more, and again when they are used up.
LOW = 20


class Listener(Protocol):
    """Connection of a device."""

    def prekeys_low(self, number: str, left: PreKeyCounts) -> None: ...


@dataclasses.dataclass(slots=True)
class _Device:
    listener: Listener
    left: PreKeyCounts
    notified: bool = False


class Refills:
    """Remaining pre-keys of connected devices, counted in memory from the number at their login."""

    def __init__(self) -> None:
        self._devices: dict[str, _Device] = {}

    def attached(self, number: str, left: PreKeyCounts, listener: Listener) -> None:
        """Start counting for a device that logged in."""
        device = self._devices[number] = _Device(listener, left)
        if left.prekeys < LOW:
            device.notified = True
            listener.prekeys_low(number, left)

    def detached(self, number: str, listener: Listener) -> None:
        """Stop counting for a device, unless it is on another connection now."""
        device = self._devices.get(number)
        if device is not None and device.listener is listener:
            del self._devices[number]

    def taken(self, number: str, *, prekey: bool, kyber_prekey: bool) -> None:
        """Count one-time keys handed out with a bundle of this number."""
        device = self._devices.get(number)
        if device is None or not (prekey or kyber_prekey):
            return
        device.left = left = PreKeyCounts(device.left.prekeys - prekey, device.left.kyber_prekeys - kyber_prekey)
        low = (prekey and left.prekeys < LOW) or (kyber_prekey and left.kyber_prekeys < LOW)
        used_up = (prekey and left.prekeys <= 0) or (kyber_prekey and left.kyber_prekeys <= 0)
        if (low and not device.notified) or used_up:
            device.notified = True
            device.listener.prekeys_low(number, left)

    def uploaded(self, number: str, left: PreKeyCounts) -> None:
        """Set the remaining pre-keys of a device after an upload."""
        device = self._devices.get(number)
        if device is not None:
            device.left = left
            device.notified = False
