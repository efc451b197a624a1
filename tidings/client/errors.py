"""What goes wrong for a device of the network, named by what is wrong.

ClientError
├── NetworkAway           it cannot be reached, is too busy, or answers nonsense: wait, then try again
│   ├── NetworkUnreached  the same; and nothing was asked, so nothing was done
│   ├── NetworkSilent     no answer in time: whether it was done is not known
│   └── NetworkFull       it has no room for another file: try again much later
├── FileLost              ask the sender to send the file again
├── FileChanged           nothing of it is on the network: look at the file, then send it again
└── NetworkRefusal        the network said no; the same again would be refused again: look at reason and detail
    ├── Unauthorized      register the number (again), or correct the registration key
    ├── WrongCode         ask for the code again
    ├── LockedNumber      name the PIN of the number's registration lock, with the same code
    ├── WrongPin          name the right PIN, with the same code
    ├── TooSoon           use the code that was sent before, or wait
    ├── StaleEpoch        another program is this device now: leave it to that one
    ├── NoSuchGroup       choose a group that one is in, or correct the code
    └── NotAdmin          ask an admin of the group
"""

from __future__ import annotations

from tidings.wire import groups


class ClientError(Exception):
    """The base of all; `str()` is one line for people."""


class NetworkAway(ClientError):
    """The network cannot be reached, is too busy, or does not answer as a network does."""


class NetworkUnreached(NetworkAway):
    """There was no connection to the network: it has not heard of the question."""


class NetworkSilent(NetworkAway):
    """The network did not answer in time."""


class NetworkFull(NetworkAway):
    """The network has no room for another file."""


class FileLost(ClientError):
    """The network does not have the file (any more), or it is not the one that the message says."""


class FileChanged(ClientError):
    """A file was not, or did not stay, what it was to be while it was read for the network."""


class NetworkRefusal(ClientError):
    """The network refused. reason: in its words, empty when it gave none; status: of HTTP, 0 on a connection."""

    def __init__(self, reason: str, detail: str = "", *, status: int = 0) -> None:
        super().__init__(detail or reason or f"HTTP {status}")
        self.reason = reason
        self.detail = detail
        self.status = status


class Unauthorized(NetworkRefusal):
    """The network does not know this token, or this registration key, (any more)."""


class WrongCode(NetworkRefusal):
    """The registration code is wrong, used, or has run out."""


class LockedNumber(NetworkRefusal):
    """The number has a registration lock, and no PIN was named. The code was right and can still be used."""


class WrongPin(NetworkRefusal):
    """The PIN of the registration lock is wrong. The code was right and can still be used."""


class TooSoon(NetworkRefusal):
    """The network sends no new code yet."""


class StaleEpoch(NetworkRefusal):
    """The device is logged in under a higher epoch."""


class NoSuchGroup(NetworkRefusal):
    """There is no such group or invitation, or one is not in that group."""


class NotAdmin(NetworkRefusal):
    """Only admins of the group may do this."""


_BY_REASON: dict[str, type[NetworkRefusal]] = {
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


def of_answer(status: int, reason: str, detail: str) -> ClientError:
    """The error for an answer over HTTP that is no success."""
    if status == 507:
        return NetworkFull(detail or "the network has no room")
    # 429 without the network's own reason is a proxy's: whatever was asked is as right later.
    if status >= 500 or status in (408, 425) or (status == 429 and reason not in _BY_REASON):
        return NetworkAway(f"the network is busy: {detail or f'HTTP {status}'}")
    kind = _BY_REASON.get(reason) or _BY_STATUS.get(status, NetworkRefusal)
    return kind(reason, detail, status=status)
