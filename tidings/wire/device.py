"""The frames of the device API: what a device and the network say to each other on a live connection.

Each frame is one map with its kind in `t`. `docs/device-api.md` describes them for other languages; this module is
what our own code encodes and decodes. A connection may carry several devices (a fleet): each has its own `login`.
Sends and deliveries are numbered by whoever starts them (`n`, from 1, for each connection), and answered by number.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Annotated

import msgspec

from tidings.wire import addresses

VERSION = 1

# Kinds of envelope.
PREKEY = "prekey"  # body: a PreKeySignalMessage
MESSAGE = "message"  # body: a SignalMessage
DELIVERED = "delivered"  # refs: ids of messages that the device has stored
READ = "read"  # refs: ids of messages that a person has seen
RETRY = "retry"  # refs: ids of messages that the device could not decrypt, and asks for again
GROUP = "group"  # body: a sender key message, for each other participant of a group
EXPIRED = "expired"  # refs: ids that reached their time to live undelivered; made by the network itself
IDENTITY = (
    "identity"  # the sender has registered with other keys; body: its new identity key; made by the network itself
)
GROUP_CHANGED = "group_changed"  # body: JSON that says what became of a group; made by the network itself
ANNOUNCEMENT = "announcement"  # body: UTF-8 text of the operator, for people; made by the network itself

NOTICES = (EXPIRED, IDENTITY, GROUP_CHANGED, ANNOUNCEMENT)
# Those that are a group's when they name one. Whatever a sender puts into the others, they meet the session with it.
_OF_GROUPS = frozenset((GROUP, GROUP_CHANGED, DELIVERED, READ))

# Reasons of `Refused`.
NO_SUCH_NUMBER = "no_such_number"
BLOCKED = "blocked"
TOO_LARGE = "too_large"
INVALID = "invalid"
OVERLOADED = "overloaded"  # send it again after a while
MAILBOX_FULL = "mailbox_full"  # too much of this sender's waits for this recipient: send it again after `retry_after`
RATE_LIMITED = "rate_limited"  # more than a device may ask or send: again after `retry_after`
STALE_GROUP = "stale_group"  # `epoch` is not the group's: look who is in it and send again
NO_SUCH_GROUP = "no_such_group"
NOT_PARTICIPANT = "not_participant"

# Reasons of `Failed` (answers to login, check and fetch) and of `Closing`.
UNAUTHORIZED = "unauthorized"
BUSY = "busy"  # a check of this account is in flight already
BAD_FRAME = "bad_frame"
SLOW_READER = "slow_reader"
REPLACED = "replaced"  # the same device, or partition, logged in on another connection, or in a higher `layout`
STALE_EPOCH = "stale_epoch"  # the device, or partition, is logged in under a higher `epoch`, or in a higher `layout`
SHUTDOWN = "shutdown"
IDLE = "idle"
NO_LOGIN = "no_login"  # nobody has logged in within ten seconds


# What a device numbers a frame with, or names a delivery by.
Number = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
# Deliveries that one frame acknowledges.
MAX_ACKED = 100_000
Numbers = Annotated[list[Number], msgspec.Meta(max_length=MAX_ACKED)]
# Of a `Partition`.
MAX_LAYOUT = 2**53
# Of all that is from a group or about one.
GROUP_SLOT = 0


def message_of(envelope_id: str, kind: str, refs: Sequence[str]) -> str:
    """The id of the message in an envelope: the envelope's own, or that of the one which it repeats."""
    return refs[0] if refs and kind in (PREKEY, MESSAGE) else envelope_id


@dataclasses.dataclass(frozen=True, slots=True)
class Partition:
    """Part of a device that a program logs in: the envelopes whose slot, modulo `partitions`, is `partition`.

    partitions: how many parts there are in this layout, one of `addresses.COUNTS`.
    layout:     rises whenever a device is divided in another way; parts of different layouts are never logged in
                at the same time.
    """

    partition: int = 0
    partitions: int = 1
    layout: int = 0

    @property
    def is_valid(self) -> bool:
        """Can there be such a part?"""
        return (
            self.partitions in addresses.COUNTS
            and 0 <= self.partition < self.partitions
            and 0 <= self.layout <= MAX_LAYOUT
        )

    def is_same_part(self, other: Partition) -> bool:
        """Do the same envelopes belong to both?"""
        return self.partition == other.partition and self.partitions == other.partitions


WHOLE = Partition()


def slot_of(sender: str, kind: str, group: str) -> int:
    """The slot of an envelope on its way to its recipient: that of its sender's number, or of groups."""
    return GROUP_SLOT if group and kind in _OF_GROUPS else addresses.slot_of(sender)


class Frame(msgspec.Struct, tag_field="t", omit_defaults=True, gc=False):
    """Base of all frames."""


# From the device.


class Login(Frame, tag="login"):
    """Attach a device to this connection. Answered by `Ok` or `Failed`; then its mailbox is delivered.

    epoch: of programs that take turns in being one device, or partition: the higher one keeps the lower one out. 0 for
           none.
    partition, partitions, layout: the `Partition` that logs in, by default the whole device.
    """

    n: Number
    number: str
    token: str
    epoch: int = 0
    partition: int = 0
    partitions: int = 1
    layout: int = 0


class Logout(Frame, tag="logout"):
    """Detach a device from this connection. Answered by `Ok`."""

    n: Number
    number: str


class Check(Frame, tag="check"):
    """Which of these numbers are registered? At most 10,000. One at a time for each number asking: else `busy`."""

    n: Number
    number: str
    numbers: list[str]


class Fetch(Frame, tag="fetch"):
    """A pre-key bundle for each of these numbers, at most 500; one-time pre-keys are handed out exactly once."""

    n: Number
    number: str
    numbers: list[str]


class Send(Frame, tag="send", rename={"sender": "from"}):
    """One envelope. Answered by `Accepted` (durable, or acknowledged by its recipient) or `Refused`.

    id:  chosen by the sender, at most 64 characters; the same (sender, id) sent again is accepted and dropped.
    ttl: seconds until it expires undelivered; 0 means the network's own limit.
    refs: of `DELIVERED`, `READ` and `RETRY` the messages meant; of a `PREKEY` or `MESSAGE` that was asked for again,
          the one message that it repeats.
    trace: what both ends log with it, at most 64 printable ASCII characters; the network only carries it.
    group: of a receipt, the group that its messages were sent to.
    epoch: of the kind `group`, whose `to` is a group: the epoch of the group that the sender knows.
    """

    n: Number
    sender: str
    to: str
    id: str
    kind: str
    body: bytes = b""
    refs: list[str] = []
    ttl: int = 0
    trace: str = ""
    group: str = ""
    epoch: int = 0


class Ack(Frame, tag="ack"):
    """These deliveries are on the device's disk; the network forgets them. At most 100,000 in a frame."""

    n: Numbers


class Ping(Frame, tag="ping"):
    """Answered by `Pong`. A connection that is silent for 60 s is closed."""


# From the network.


class Ok(Frame, tag="ok"):
    """The request with this number was done."""

    n: int


class Failed(Frame, tag="failed"):
    """The request with this number was not done. retry_after: seconds; 0 where it is not known."""

    n: int
    reason: str
    detail: str = ""
    retry_after: int = 0


class Checked(Frame, tag="checked"):
    """Answer to `Check`: the numbers of it that are registered."""

    n: int
    registered: list[str]


class Bundle(msgspec.Struct, omit_defaults=True, gc=False):
    """One device's public keys, as in Signal's specifications; typed bytes (0x05 or 0x08 first)."""

    number: str
    registration_id: int
    identity_key: bytes
    signed_prekey_id: int
    signed_prekey: bytes
    signed_prekey_signature: bytes
    prekey_id: int | None = None
    prekey: bytes | None = None
    kyber_prekey_id: int | None = None
    kyber_prekey: bytes | None = None
    kyber_prekey_signature: bytes | None = None


class Bundles(Frame, tag="bundles"):
    """Answer to `Fetch`: numbers that are not registered are left out."""

    n: int
    bundles: list[Bundle]


class Accepted(Frame, tag="accepted"):
    """These sends are safe: durable in the mailbox, or acknowledged by the recipient's device."""

    n: list[int]


class Refused(Frame, tag="refused"):
    """This send was not taken.

    retry_after: seconds, with `MAILBOX_FULL` and `RATE_LIMITED`. Until the oldest one that was refused so has come
    again, what the sender sends to this recipient behind it is refused too.
    """

    n: int
    reason: str
    detail: str = ""
    retry_after: int = 0


class Deliver(Frame, tag="deliver", rename={"sender": "from"}):
    """One envelope for a device on this connection; it comes again at each login until it is acknowledged.

    timestamp: Unix milliseconds at which the network took it.
    group:     the group that it was sent to, or that it is about.
    """

    n: int
    to: str
    sender: str
    id: str
    kind: str
    timestamp: int
    body: bytes = b""
    refs: list[str] = []
    trace: str = ""
    group: str = ""

    @property
    def message_id(self) -> str:
        """Of the message in this envelope: the envelope's own, or that of the one which it repeats."""
        return message_of(self.id, self.kind, self.refs)

    @property
    def is_repetition(self) -> bool:
        """Does it repeat a message that was asked for again?"""
        return self.message_id != self.id


class PreKeysLow(Frame, tag="prekeys_low"):
    """The device has only so many one-time pre-keys left on the network; it should upload more."""

    number: str
    remaining: int
    kyber_remaining: int


class Closing(Frame, tag="closing"):
    """The last frame of a connection that the network closes; `number` is set when only that device is detached."""

    reason: str
    number: str = ""
    detail: str = ""


class Pong(Frame, tag="pong"):
    """Answer to `Ping`."""


FromDevice = Login | Logout | Check | Fetch | Send | Ack | Ping
FromNetwork = Ok | Failed | Checked | Bundles | Accepted | Refused | Deliver | PreKeysLow | Closing | Pong
