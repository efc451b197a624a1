"""What network processes say to each other: packets of frames, on links."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from tidings.storage.network.mailbox import Envelope
from tidings.wire import device


class Frame(msgspec.Struct, tag_field="t", omit_defaults=True, gc=False):
    """Base of all frames."""


class Hello(Frame, tag="hello"):
    """The node that says this has just come."""


class Forward(Frame, tag="forward"):
    """An envelope for a device that is attached there.

    n:    a number of the process that sends this, which every answer names; the envelope's own is its sender's.
    look: the mailbox has to be read before this is delivered: older envelopes of the stream may be in it.
    """

    n: int
    send: device.Send
    look: bool = False


class Accepted(Frame, tag="accepted"):
    """These are stored or acknowledged."""

    n: list[int]


class Refused(Frame, tag="refused"):
    """This one was not taken, as in the device API."""

    n: int
    reason: str
    detail: str = ""
    retry_after: int = 0


class Superseded(Frame, tag="superseded"):
    """The same envelope came again, by whatever way, and is answered there."""

    n: int


class Moved(Frame, tag="moved"):
    """Its recipient is not attached here: nothing was done with it."""

    n: int


class Look(Frame, tag="look"):
    """Something was stored for a device that is attached there. rows: what, as far as it is in here."""

    number: str
    rows: list[Envelope] = []


class LookAtAll(Frame, tag="look_at_all"):
    """Something may have been stored for any device that is attached there."""


class Expel(Frame, tag="expel"):
    """A device has attached elsewhere since. token: of the claim that it had."""

    number: str
    partition: int
    token: int


class Changed(Frame, tag="changed"):
    """Blocks or registrations of these numbers are others than before. Answered by `Noted`.

    expelled:   those of them whose tokens are void, so that their devices have to leave.
    keys:       those of them that were registered, with their identity keys.
    everything: any number may have changed.
    """

    n: int
    numbers: list[str] = []
    expelled: list[str] = []
    keys: dict[str, bytes] = {}
    everything: bool = False


class Noted(Frame, tag="noted"):
    """It was done. count: devices, of a broadcast."""

    n: int
    count: int = 0


class KeysTaken(Frame, tag="keys_taken"):
    """One-time pre-keys were handed out: for each (number, an ordinary one, a Kyber one)."""

    taken: list[tuple[str, bool, bool]]


class KeysLeft(Frame, tag="keys_left"):
    """A device has uploaded keys, and so many are there now."""

    number: str
    prekeys: int
    kyber_prekeys: int


class Broadcast(Frame, tag="broadcast"):
    """An announcement to every device that is attached there. Answered by `Noted`."""

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
    | Look
    | LookAtAll
    | Expel
    | Changed
    | Noted
    | KeysTaken
    | KeysLeft
    | Broadcast
)


encode = msgspec.msgpack.Encoder().encode
decode = msgspec.msgpack.Decoder(list[FromNode]).decode


class Call(Frame, tag="call"):
    """The first words of a link. source: the incarnation that calls. token: of the one that is called."""

    source: str
    token: str


class Packet(Frame, tag="packet"):
    """What one process had for another at one moment. frames: as `encode` has them."""

    frames: bytes


class Taken(Frame, tag="taken"):
    """The packet has been read, and its frames are being seen to: another one may come."""


FromCaller = Call | Packet
FromCalled = Taken


class LinkAddress(msgspec.Struct, frozen=True):
    """Where a process is called by others, and what opens the link."""

    host: str
    port: int
    token: str


_address_decoder = msgspec.json.Decoder(LinkAddress)
decode_address = _address_decoder.decode


class Load(msgspec.Struct, omit_defaults=True):
    """How much a process has to do, as it says itself at each heartbeat.

    name:        of the node, by its operator.
    load:        of one processor, 1 is all of it.
    lag:         seconds by which its event loop was late in the last second, at most.
    connections: that are open; devices: that are attached; rate: envelopes a second, from senders and to devices.
    """

    name: str
    load: float = 0.0
    lag: float = 0.0
    connections: int = 0
    devices: int = 0
    rate: float = 0.0
    draining: bool = False


class Claim(NamedTuple):
    """That a device is attached to a process. token: of this attachment, of that process."""

    layout: int
    partitions: int
    epoch: int
    token: int
    node: str


Claims = Mapping[int, Claim]

# A claim and its field as they stand in Redis.
_CLAIM = re.compile(rb"([0-9]+) ([0-9]+) ([0-9]+) ([0-9]+) ([A-Za-z0-9._-]+)")
_PARTITION = re.compile(rb"[0-9]{1,9}")


def encode_claim(claim: Claim) -> str:
    """As it stands in Redis."""
    return " ".join(map(str, claim))


def decode_claim(field: bytes, value: bytes) -> tuple[int, Claim] | None:
    """Read the claim of one partition as it stands in Redis. Returns `None` for an unreadable one, which the script
    that claims overwrites by the same rule."""
    found = _CLAIM.fullmatch(value) if len(value) <= 200 else None
    if found is None or not _PARTITION.fullmatch(field):
        return None
    layout, partitions, epoch, token = map(int, found.groups()[:4])
    partition = int(field)
    return (partition, Claim(layout, partitions, epoch, token, found[5].decode())) if partition < partitions else None


def decode_claims(fields: Mapping[bytes, bytes]) -> dict[int, Claim]:
    """Return the readable claims of one number by partition."""
    return dict(filter(None, (decode_claim(field, value) for field, value in fields.items())))


def split(frames: Sequence[FromNode], limit: int) -> list[list[FromNode]]:
    """In parts whose bodies have about so many bytes, in order."""
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
    """Bytes, about."""
    if isinstance(frame, Forward):
        return 256 + len(frame.send.body) + 24 * len(frame.send.refs)
    if isinstance(frame, Look):
        return 256 + sum(256 + len(row.body) for row in frame.rows)
    return 256
