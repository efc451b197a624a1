"""Frames of the device API, between a device and the network.

Each frame is one map with its kind in `t`. `docs/device-api.md` describes the frames for other languages; this module
is what our own code encodes and decodes. A connection may carry several devices (a fleet), each with its own `login`.
The initiator numbers sends and deliveries (`n`, from 1, per connection); they are answered by number.
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
RETRY = "retry"  # refs: ids of messages that the device could not decrypt, and asks to be resent
GROUP = "group"  # body: a sender key message, for each other participant of a group
# body: a SignalMessage for a device that is logged in now; dropped otherwise, never stored, not to be acknowledged
TRANSIENT = "transient"
EXPIRED = "expired"  # refs: ids of messages that reached their time to live undelivered; made by the network
# The sender has registered with other keys; body: its new identity key; made by the network.
IDENTITY = "identity"
GROUP_CHANGED = "group_changed"  # body: JSON of a change of a group (`groups.GroupNotice`); made by the network
ANNOUNCEMENT = "announcement"  # body: UTF-8 text of the operator, for people; made by the network

NOTICES = (EXPIRED, IDENTITY, GROUP_CHANGED, ANNOUNCEMENT)
# Kinds that belong to the group that they name. All other kinds go with the session, whatever group the sender names.
_OF_GROUPS = frozenset((GROUP, GROUP_CHANGED, DELIVERED, READ))

# Reasons of `Refused`.
NO_SUCH_NUMBER = "no_such_number"
BLOCKED = "blocked"
TOO_LARGE = "too_large"
INVALID = "invalid"
OVERLOADED = "overloaded"  # retry after a while
MAILBOX_FULL = "mailbox_full"  # too much of this sender is stored for this recipient: retry after `retry_after`
RATE_LIMITED = "rate_limited"  # the device exceeds a rate limit: retry after `retry_after`
STALE_GROUP = "stale_group"  # `epoch` is not the group's: fetch the group's participants and send again
NO_SUCH_GROUP = "no_such_group"
NOT_PARTICIPANT = "not_participant"

# Reasons of `Failed` (response to login, check and fetch) and of `Closing`.
UNAUTHORIZED = "unauthorized"
BUSY = "busy"  # a check by this number is in flight already
BAD_FRAME = "bad_frame"
SLOW_READER = "slow_reader"
REPLACED = "replaced"  # the same device, or partition, logged in on another connection, or in a higher `layout`
STALE_EPOCH = "stale_epoch"  # the device, or partition, is logged in under a higher `epoch`, or in a higher `layout`
SHUTDOWN = "shutdown"
IDLE = "idle"
NO_LOGIN = "no_login"  # no device has logged in within 10 seconds


# Number of a frame of the device, or of a delivery.
Number = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
MAX_ACKED = 100_000  # deliveries acknowledged by one frame
Numbers = Annotated[list[Number], msgspec.Meta(max_length=MAX_ACKED)]
MAX_LAYOUT = 2**53  # highest layout of a `Partition`
GROUP_HASH_SLOT = 0  # hash slot of all envelopes that are from a group or about one


def message_of(envelope_id: str, kind: str, refs: Sequence[str]) -> str:
    """Return the id of the message in an envelope: the envelope's own id, or that of the message which it repeats."""
    return refs[0] if refs and kind in (PREKEY, MESSAGE) else envelope_id


@dataclasses.dataclass(frozen=True, slots=True)
class Partition:
    """Part of a device that a program logs in: the envelopes whose hash slot, modulo `partitions`, is `partition`."""

    partition: int = 0
    partitions: int = 1  # number of partitions in this layout, one of `addresses.COUNTS`
    # Increases whenever the device is divided differently. Partitions of different layouts are never logged in at once.
    layout: int = 0

    @property
    def is_valid(self) -> bool:
        """Return whether the values are in range."""
        return (
            self.partitions in addresses.COUNTS
            and 0 <= self.partition < self.partitions
            and 0 <= self.layout <= MAX_LAYOUT
        )

    def is_same_part(self, other: Partition) -> bool:
        """Return whether both have the same envelopes."""
        return self.partition == other.partition and self.partitions == other.partitions


WHOLE = Partition()


def hash_slot_of(sender: str, kind: str, group: str) -> int:
    """Return the hash slot of an envelope at its recipient: that of its sender's number, or that of groups."""
    return GROUP_HASH_SLOT if group and kind in _OF_GROUPS else addresses.hash_slot_of(sender)


class Frame(msgspec.Struct, tag_field="t", omit_defaults=True, gc=False):
    """Base class of all frames."""


# From the device.


class Login(Frame, tag="login"):
    """Attach a device to this connection. The response is `Ok` or `Failed`; then its mailbox is delivered."""

    n: Number
    number: str
    token: str
    # Of programs that replace each other as one device, or partition: a login with a lower epoch is rejected. 0 for
    # none.
    epoch: int = 0
    # The `Partition` that logs in, by default the whole device.
    partition: int = 0
    partitions: int = 1
    layout: int = 0


class Logout(Frame, tag="logout"):
    """Detach a device from this connection. The response is `Ok`."""

    n: Number
    number: str


class Check(Frame, tag="check"):
    """Request which of at most 10,000 numbers are registered. One at a time per requesting number, otherwise `BUSY`."""

    n: Number
    number: str  # of the requesting device
    numbers: list[str]


class Fetch(Frame, tag="fetch"):
    """Request a pre-key bundle for each of at most 500 numbers. One-time pre-keys are handed out exactly once."""

    n: Number
    number: str  # of the requesting device
    numbers: list[str]


class Send(Frame, tag="send", rename={"sender": "from"}):
    """One envelope. The response is `Accepted` (durable, or acknowledged by its recipient) or `Refused`."""

    n: Number
    sender: str
    to: str
    id: str  # chosen by the sender, at most 64 characters; a repeated (sender, id) is accepted and dropped
    kind: str
    body: bytes = b""
    # Of `DELIVERED`, `READ` and `RETRY`: the messages meant. Of a `PREKEY` or `MESSAGE` that is resent on request: the
    # one message that it repeats.
    refs: list[str] = []
    ttl: int = 0  # seconds until it expires undelivered; 0 for the network's own limit
    trace: str = ""  # at most 64 printable ASCII characters, which both ends log and the network only carries
    group: str = ""  # of a receipt: the group that its messages were sent to
    epoch: int = 0  # of kind `GROUP`, whose `to` is a group: the epoch of the group that the sender knows


class Ack(Frame, tag="ack"):
    """Acknowledgement of at most 100,000 deliveries, which are on the device's disk. The network deletes them."""

    n: Numbers


class Ping(Frame, tag="ping"):
    """Heartbeat of the device. The response is `Pong`. A connection that is silent for 60 s is closed."""


# From the network.


class Ok(Frame, tag="ok"):
    """Success of the request with this number."""

    n: int


class Failed(Frame, tag="failed"):
    """Failure of the request with this number."""

    n: int
    reason: str
    detail: str = ""
    retry_after: int = 0  # seconds; 0 when not known


class Checked(Frame, tag="checked"):
    """Response to `Check`: the numbers that are registered."""

    n: int
    registered: list[str]


class Bundle(msgspec.Struct, omit_defaults=True, gc=False):
    """One device's public keys, as in Signal's specifications. Keys are typed bytes (0x05 or 0x08 first)."""

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
    """Response to `Fetch`. Unregistered numbers are left out."""

    n: int
    bundles: list[Bundle]


class Accepted(Frame, tag="accepted"):
    """Acceptance of sends: each is durable in the mailbox, or acknowledged by the recipient's device."""

    n: list[int]


class Refused(Frame, tag="refused"):
    """Refusal of one send.

    After `MAILBOX_FULL` or `RATE_LIMITED` further sends of the sender to this recipient are refused too, until the
    oldest refused one is sent again.
    """

    n: int
    reason: str
    detail: str = ""
    retry_after: int = 0  # seconds, with `MAILBOX_FULL` and `RATE_LIMITED`


class Deliver(Frame, tag="deliver", rename={"sender": "from"}):
    """One envelope for a device on this connection. It is redelivered at each login until it is acknowledged."""

    n: int
    to: str
    sender: str
    id: str
    kind: str
    timestamp: int  # Unix milliseconds at which the network accepted the envelope
    body: bytes = b""
    refs: list[str] = []
    trace: str = ""
    group: str = ""  # the group that it was sent to, or that it is about; empty for none

    @property
    def message_id(self) -> str:
        """Id of the message in this envelope: the envelope's own id, or that of the message which it repeats."""
        return message_of(self.id, self.kind, self.refs)

    @property
    def is_repetition(self) -> bool:
        """Return whether it repeats a message that the device asked to be resent."""
        return self.message_id != self.id


class PreKeysLow(Frame, tag="prekeys_low"):
    """Warning that few one-time pre-keys of the device are left on the network. The device should upload more."""

    number: str
    remaining: int  # one-time pre-keys
    kyber_remaining: int  # one-time Kyber pre-keys


class Closing(Frame, tag="closing"):
    """Last frame of a connection that the network closes, or end of one device's login."""

    reason: str
    number: str = ""  # the device that is detached; empty when the connection is closed
    detail: str = ""


class Pong(Frame, tag="pong"):
    """Response to `Ping`."""


FromDevice = Login | Logout | Check | Fetch | Send | Ack | Ping
FromNetwork = Ok | Failed | Checked | Bundles | Accepted | Refused | Deliver | PreKeysLow | Closing | Pong
