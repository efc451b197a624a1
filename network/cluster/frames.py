"""Frames that network nodes exchange over links, in batches."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from tidings.storage.network.mailbox import Envelope
from tidings.wire import device


class Frame(msgspec.Struct, tag_field="t", omit_defaults=True, gc=False):
    """Base class of all frames."""


class Hello(Frame, tag="hello"):
    """The sending node has just joined."""


class Forward(Frame, tag="forward"):
    """Envelope for a device attached to the receiving node."""

    n: int  # Number of the sending node, which the response names. The envelope's own number is its sender's.
    send: device.Send
    # Read the mailbox before the delivery: it may hold older envelopes of the stream.
    read_first: bool = msgspec.field(name="look", default=False)


class Accepted(Frame, tag="accepted"):
    """Response: these envelopes are stored or acknowledged."""

    n: list[int]


class Refused(Frame, tag="refused"):
    """Response: the envelope was refused, as in the device API."""

    n: int
    reason: str
    detail: str = ""
    retry_after: int = 0  # Seconds.


class Superseded(Frame, tag="superseded"):
    """Response: the same envelope was received again by another path and gets its response there."""

    n: int


class Moved(Frame, tag="moved"):
    """Response: the recipient is not attached to the responding node, which did nothing with the envelope."""

    n: int


class Stored(Frame, tag="look"):
    """An envelope was stored for a device attached to the receiving node."""

    number: str
    rows: list[Envelope] = []  # The stored envelopes; empty to have the mailbox read.


class ReadAll(Frame, tag="look_at_all"):
    """Envelopes may have been stored for any device attached to the receiving node."""


class Expel(Frame, tag="expel"):
    """The device has attached to another node since."""

    number: str
    partition: int
    token: int  # Token of the claim that the device had on the receiving node.


class Changed(Frame, tag="changed"):
    """Blocks or registrations of these numbers have changed. The response is `Acknowledged`."""

    n: int
    numbers: list[str] = []
    expelled: list[str] = []  # Numbers whose tokens are void, so that their devices are disconnected.
    keys: dict[str, bytes] = {}  # Identity keys of the numbers that were registered.
    everything: bool = False  # Whether any number may have changed, so that all caches are cleared.


class Acknowledged(Frame, tag="noted"):
    """Response: this node has processed the announcement with this number."""

    n: int
    count: int = 0  # Devices reached by a broadcast; 0 otherwise.


class KeysTaken(Frame, tag="keys_taken"):
    """One-time pre-keys were handed out."""

    taken: list[tuple[str, bool, bool]]  # (number, an ordinary key was taken, a Kyber key was taken)


class KeysLeft(Frame, tag="keys_left"):
    """A device has uploaded pre-keys."""

    number: str
    prekeys: int  # One-time pre-keys at the network now.
    kyber_prekeys: int  # One-time Kyber pre-keys at the network now.


class Broadcast(Frame, tag="broadcast"):
    """Announcement to every device attached to the receiving node. The response is `Acknowledged`."""

    n: int
    id: str
    body: bytes


FromNode = (
    Hello
    | Forward
    | Accepted
    | Refused
    | Superseded
    | Moved
    | Stored
    | ReadAll
    | Expel
    | Changed
    | Acknowledged
    | KeysTaken
    | KeysLeft
    | Broadcast
)


encode = msgspec.msgpack.Encoder().encode
decode = msgspec.msgpack.Decoder(list[FromNode]).decode


def decode_readable(packet: bytes) -> list[FromNode]:
    """Return the frames that this version knows."""
    found: list[FromNode] = []
    with contextlib.suppress(msgspec.MsgspecError):
        for raw in msgspec.msgpack.decode(packet, type=list[msgspec.Raw]):
            with contextlib.suppress(msgspec.MsgspecError):
                found.append(msgspec.msgpack.decode(raw, type=FromNode))
    return found


class Call(Frame, tag="call"):
    """First frame of a link."""

    source: str  # Incarnation of the calling node.
    token: str  # Token of the called node.


class FrameBatch(Frame, tag="packet"):
    """Batch of the frames that one node had for another at one moment."""

    frames: bytes  # Encoded by `encode`.


class Taken(Frame, tag="taken"):
    """Response: the batch was read and its frames are being processed; the next batch may be sent."""


LinkRequest = Call | FrameBatch
LinkResponse = Taken


class LinkAddress(msgspec.Struct, frozen=True):
    """Address at which other nodes reach a process, and the token that opens a link to it."""

    host: str
    port: int
    token: str


_address_decoder = msgspec.json.Decoder(LinkAddress)
decode_address = _address_decoder.decode


class Load(msgspec.Struct, omit_defaults=True):
    """Load of a process, as it reports at each heartbeat."""

    name: str  # Node's name, as set by its operator.
    load: float = 0.0  # Share of one processor core; 1 is all of it.
    lag: float = 0.0  # Longest delay of the event loop in the last second, seconds.
    connections: int = 0  # Open connections.
    devices: int = 0  # Attached devices.
    rate: float = 0.0  # Envelopes per second, from senders and to devices.
    draining: bool = False  # Whether the process is disconnecting its devices in order to stop.


class Claim(NamedTuple):
    """Record that a partition of a device is attached to a node."""

    layout: int
    partitions: int
    login_epoch: int
    token: int  # Number of this attachment, unique within the process.
    node: str  # Incarnation of the node.


Claims = Mapping[int, Claim]

# Formats in Redis: of a claim, and of the partition that is its field.
_CLAIM = re.compile(rb"([0-9]+) ([0-9]+) ([0-9]+) ([0-9]+) ([A-Za-z0-9._-]+)")
_PARTITION = re.compile(rb"[0-9]{1,9}")


def encode_claim(claim: Claim) -> str:
    """Return the claim in its Redis format."""
    return " ".join(map(str, claim))


def decode_claim(field: bytes, value: bytes) -> tuple[int, Claim] | None:
    """Return the (partition, claim) of a field in Redis; `None` when it is unreadable.

    The script that claims overwrites unreadable claims by the same rule.
    """
    found = _CLAIM.fullmatch(value) if len(value) <= 200 else None
    if found is None or not _PARTITION.fullmatch(field):
        return None
    layout, partitions, login_epoch, token = map(int, found.groups()[:4])
    partition = int(field)
    return (
        (partition, Claim(layout, partitions, login_epoch, token, found[5].decode()))
        if partition < partitions
        else None
    )


def decode_claims(fields: Mapping[bytes, bytes]) -> dict[int, Claim]:
    """Return the readable claims of one number by partition."""
    return dict(filter(None, (decode_claim(field, value) for field, value in fields.items())))


def split(frames: Sequence[FromNode], limit: int) -> list[list[FromNode]]:
    """Split frames into parts of about `limit` bytes, in order."""
    parts: list[list[FromNode]] = [[]]
    size = 0
    for frame in frames:
        weight = size_of(frame)
        if size and size + weight > limit:
            parts.append([])
            size = 0
        parts[-1].append(frame)
        size += weight
    return parts


def size_of(frame: FromNode) -> int:
    """Return the approximate size of a frame in bytes."""
    if isinstance(frame, Forward):
        return 256 + len(frame.send.body) + 72 * len(frame.send.refs)
    if isinstance(frame, Stored):
        return 256 + sum(256 + len(row.body) + 72 * len(row.refs) for row in frame.rows)
    return 256
