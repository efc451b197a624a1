"""Jobs of groups: a message that was encrypted once for all participants, and a read receipt for messages of a group.

The body of an encrypted group message: epoch (8 bytes), length (4, big-endian), the sealed content, the ciphertext. The
content is kept with the ciphertext, because a change of participants requires another ciphertext.
"""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Sequence

import msgspec

from tidings.storage.business.jobs import Job
from tidings.wire import device

MESSAGE = device.GROUP
READ = "group_read"
KINDS = frozenset({MESSAGE, READ})

_HEAD = struct.Struct(">QI")


class _Read(msgspec.Struct, gc=False):
    group: str
    refs: list[str]


@dataclasses.dataclass(frozen=True, slots=True)
class Encrypted:
    """Body of an encrypted group message."""

    epoch: int  # epoch of the group that it was encrypted for
    content: bytes = dataclasses.field(repr=False)  # sealed, as in a `NEW` job
    ciphertext: bytes = dataclasses.field(repr=False)


def pack(encrypted: Encrypted) -> bytes:
    """Return the body of a job."""
    return _HEAD.pack(encrypted.epoch, len(encrypted.content)) + encrypted.content + encrypted.ciphertext


def unpack(body: bytes) -> Encrypted:
    """Return the encrypted message in a job's body."""
    epoch, length = _HEAD.unpack_from(body)
    end = _HEAD.size + length
    return Encrypted(epoch, body[_HEAD.size : end], body[end:])


def pack_read(group_id: str, refs: Sequence[str]) -> bytes:
    """Return the body of a read receipt.

    refs: ids of the messages of one author
    """
    return msgspec.json.encode(_Read(group_id, list(refs)))


def envelope_of(job: Job, account: str, *, ttl: int) -> device.Send:
    """Return the envelope for a job of one of these kinds.

    ttl: seconds; 0 for the network's own limit
    """
    if job.kind == READ:
        read = msgspec.json.decode(job.body, type=_Read)
        return device.Send(
            0, account, job.peer, job.id, device.READ, refs=read.refs, trace=job.request_id, group=read.group
        )
    encrypted = unpack(job.body)
    body, epoch = encrypted.ciphertext, encrypted.epoch
    return device.Send(0, account, job.peer, job.id, device.GROUP, body, trace=job.request_id, epoch=epoch, ttl=ttl)
