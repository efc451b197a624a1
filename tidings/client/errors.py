"""Errors of the device API's client, named by what is wrong.

ClientError
├── NetworkUnavailable        unreachable, overloaded, or an invalid response: wait, then retry
│   ├── NetworkUnreached      the request was not sent, so nothing was done: retry likewise
│   ├── NetworkTimeout        no response in time: whether the request was carried out is not known
│   └── NetworkFull           no room for another file: retry much later
├── FileLost                  ask the sender to send the file again
├── FileChanged               nothing of it is on the network: check the file, then send it again
└── NetworkRefusal            the same request would be refused again: see reason and detail
    ├── Unauthorized          register the number (again), or correct the registration key
    │   └── NumberOfBusiness  name a person's number
    ├── WrongCode             request another code
    ├── LockedNumber          name the PIN of the number's registration lock, with the same code
    ├── WrongPin              name the right PIN, with the same code
    ├── TooSoon               use the code that was sent before, or wait
    ├── StaleEpoch            another program is this device now: stop, and leave the device to it
    ├── NoSuchGroup           choose a group that the device is in, or correct the code
    └── NotAdmin              ask an admin of the group
"""

from __future__ import annotations

from tidings.wire import groups


class ClientError(Exception):
    """Base class of all errors of the client; `str()` is one line for people."""


class NetworkUnavailable(ClientError):
    """The network cannot be reached, is overloaded, or its response is invalid."""


class NetworkUnreached(NetworkUnavailable):
    """There was no connection to the network: the request was not sent."""


class NetworkTimeout(NetworkUnavailable):
    """The network did not respond in time."""


class NetworkFull(NetworkUnavailable):
    """The network has no room for another file."""


class FileLost(ClientError):
    """The network does not have the file (any longer), or it is not the one that the message names."""


class FileChanged(ClientError):
    """A file did not have the expected size or hash when it was read for the upload."""


class NetworkRefusal(ClientError):
    """The network refused a request."""

    def __init__(self, reason: str, detail: str = "", *, status: int = 0) -> None:
        super().__init__(detail or reason or f"HTTP {status}")
        self.reason = reason  # the network's reason; empty when it gave none
        self.detail = detail
        self.status = status  # status of the HTTP response; 0 on a connection of the device API


class Unauthorized(NetworkRefusal):
    """The network does not accept this token, or this registration key (any longer)."""


class NumberOfBusiness(Unauthorized):
    """The number is a business's, which a person's handset cannot register."""


class WrongCode(NetworkRefusal):
    """The registration code is wrong, used, or expired."""


class LockedNumber(NetworkRefusal):
    """The number has a registration lock, and no PIN was named. The code was right and can still be used."""


class WrongPin(NetworkRefusal):
    """The PIN of the registration lock is wrong. The code was right and can still be used."""


class TooSoon(NetworkRefusal):
    """The network does not send another code yet."""


class StaleEpoch(NetworkRefusal):
    """The device is logged in under a higher epoch."""


class NoSuchGroup(NetworkRefusal):
    """The group or invitation does not exist, or the device is not in that group."""


class NotAdmin(NetworkRefusal):
    """Only admins of the group may do this."""


_BY_REASON: dict[str, type[NetworkRefusal]] = {
    "key_required": NumberOfBusiness,
    "wrong_code": WrongCode,
    "locked": LockedNumber,
    "wrong_pin": WrongPin,
    "rate_limited": TooSoon,
    "stale_epoch": StaleEpoch,
    groups.NO_SUCH_GROUP: NoSuchGroup,
    groups.NO_SUCH_INVITE: NoSuchGroup,
    groups.NOT_PARTICIPANT: NoSuchGroup,
    groups.NOT_ADMIN: NotAdmin,
}
_BY_STATUS: dict[int, type[NetworkRefusal]] = {401: Unauthorized, 403: Unauthorized}


def from_response(status: int, reason: str, detail: str) -> ClientError:
    """Return the error for an unsuccessful HTTP response of the network."""
    if status == 507:
        return NetworkFull(detail or "the network has no room")
    # 429 without a reason of the network comes from a proxy: the request may be retried.
    if status >= 500 or status in (408, 425) or (status == 429 and reason not in _BY_REASON):
        return NetworkUnavailable(f"the network is busy: {detail or f'HTTP {status}'}")
    kind = _BY_REASON.get(reason) or _BY_STATUS.get(status, NetworkRefusal)
    return kind(reason, detail, status=status)
