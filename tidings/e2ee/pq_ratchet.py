"""Post-quantum ratchet of version 4 in its symmetric form: field 5 and the salt of the message keys.

The newest official releases require a post-quantum ratchet. The symmetric form satisfies them with a symmetric chain in
each direction, keyed by the third 32 bytes of PQXDH's output, that never starts a new epoch: no KEM key is ever sent.
**It provides compatibility and no post-quantum healing**: an attacker who once learns the state of these chains can
follow them for the rest of the session. It does not weaken the hybrid secrecy of the session's first secret (PQXDH).

    start:    HKDF(salt zero, key, "Signal PQ Ratchet V1 Chain  Start", 96) = unused 32, initiator's 32, responder's 32
    message:  HKDF(salt zero, chain key, index, 4 bytes big-endian ‖ "Signal PQ Ratchet V1 Chain Next", 64)
              = next chain key 32, salt of this message's keys 32; indices start at 1 and run through the session
    field 5:  01 (version), 01 (epoch), varint(index), 00 (no KEM material)

Bytes that a peer appends after the index are KEM material for an epoch that we never enter, and are ignored. Releases
that still negotiate send index 0 with salt zero on their first sending chain, until they have read a field 5 from us.
Their salts then start at index 1.

The order of the two chains, the first index and the meaning of index 0 are not publicly documented. They were observed
in exchanges with official releases, in both directions: 0.103.0 requires the ratchet, 0.79.0 negotiates it and 0.68.1
does not know it (a session with it must be initiated without).
"""

from typing import Final

from tidings.e2ee import errors, kdf, protobuf

NEGOTIATING: Final = 0  # no index: the salt is zero
FIRST_INDEX: Final = 1
_START: Final = b"Signal PQ Ratchet V1 Chain  Start"  # with two spaces
_NEXT: Final = b"Signal PQ Ratchet V1 Chain Next"
_VERSION: Final = 1
_EPOCH: Final = 1


def start(pq_key: bytes) -> tuple[bytes, bytes]:
    """Return (the initiator's sending chain key, the responder's), 32 bytes each."""
    output = kdf.hkdf(kdf.ZERO_SALT, pq_key, _START, 96)
    return output[32:64], output[64:]


def step(chain_key: bytes, index: int) -> tuple[bytes, bytes]:
    """Return (next chain key, salt of the message keys at `index`), each 32 bytes."""
    output = kdf.hkdf(kdf.ZERO_SALT, chain_key, index.to_bytes(4, "big") + _NEXT, 64)
    return output[:32], output[32:]


def encode(index: int) -> bytes:
    """Return field 5 of the message that uses the salt at `index`."""
    return b"\x01\x01" + protobuf.varint(index) + b"\x00"


def parse(field: bytes) -> int:
    """Return the index in a field 5, or NEGOTIATING. Raises InvalidMessage on another version or epoch."""
    version, position = protobuf.read_varint(field, 0)
    epoch, position = protobuf.read_varint(field, position)
    index, position = protobuf.read_varint(field, position)
    if version != _VERSION or epoch != _EPOCH:
        raise errors.InvalidMessage(f"post-quantum ratchet of version {version}, epoch {epoch}")
    if index > protobuf.MAX_UINT32:
        raise errors.InvalidMessage("a post-quantum index out of range")
    return index
