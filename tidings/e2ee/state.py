"""State of one session, in the two halves in which it is stored.

The sending half has everything that sending changes; the receiving half has every private key. Each has a version byte.
    sending half, 147 bytes, big-endian:
        version 1, flags 1 (unacknowledged, pq), session version 1, remote registration id 4, remote identity 32,
        ratchet key 32, chain key 32, counter 4, previous counter 4, pq chain key 32, pq index 4
    receiving half:
        version 1, own identity 32, ratchet key 32, its private key 32, root key 32, base key 32,
        pending 1 (0 or 1), then: registration id 4, flags 1 (one-time id, Kyber), one-time id 4, signed id 4,
            Kyber id 4, Kyber ciphertext 1569 when flagged,
        chains 1, then of each: ratchet key 32, chain,
        pq 1 (0 or 1), then: chain (laid out in `chains`)

Public keys are stored without their type byte. Both halves have the ratchet key: halves of different moments do not
load.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

from tidings.e2ee import chains, curve, errors, kem

STATE_VERSION: Final = 1
_T: Final = curve.TYPE_PREFIX
_KEY_LENGTH: Final = 32  # bytes of a public key without its type

_SENDING: Final = struct.Struct(">BBBI32s32s32sII32sI")
SENDING_LENGTH: Final = _SENDING.size
_UNACKNOWLEDGED = 1
_PQ = 2

_RECEIVING: Final = struct.Struct(">B32s32s32s32s32sB")
_PENDING: Final = struct.Struct(">IBIII")
_PENDING_PREKEY = 1
_PENDING_KYBER = 2


@dataclass(slots=True, repr=False)
class SendingHalf:
    """State that sending reads and changes."""

    version: int  # 3 or 4
    unacknowledged: bool  # no message has been received on this session: PreKeySignalMessages are sent
    remote_registration_id: int
    remote_identity: bytes  # 33 typed bytes
    ratchet_key: bytes  # 33 typed bytes (Double Ratchet section 3.2: DHs)
    chain_key: bytes  # 32 bytes (CKs)
    counter: int  # number of the next message (Ns)
    previous_counter: int  # last counter used in the previous sending chain (PN)
    pq_chain_key: bytes | None  # 32 bytes; None in sessions without the post-quantum ratchet
    pq_index: int  # index of the next message

    def encode(self) -> bytes:
        pq_chain_key = self.pq_chain_key
        return _SENDING.pack(
            STATE_VERSION,
            (_UNACKNOWLEDGED if self.unacknowledged else 0) | (0 if pq_chain_key is None else _PQ),
            self.version,
            self.remote_registration_id,
            self.remote_identity[1:],
            self.ratchet_key[1:],
            self.chain_key,
            self.counter,
            self.previous_counter,
            pq_chain_key or b"",
            self.pq_index,
        )

    @classmethod
    def decode(cls, blob: bytes) -> SendingHalf:
        """Decode a sending half. Raises CorruptState."""
        if len(blob) != SENDING_LENGTH or blob[0] != STATE_VERSION:
            raise errors.CorruptState("not a sending half of a known version")
        (
            _,
            flags,
            version,
            registration_id,
            identity,
            ratchet_key,
            chain_key,
            counter,
            previous_counter,
            pq_chain_key,
            pq_index,
        ) = _SENDING.unpack(blob)
        if version not in (3, 4) or flags & ~(_UNACKNOWLEDGED | _PQ):
            raise errors.CorruptState("not a sending half of a known version")
        return cls(
            version,
            bool(flags & _UNACKNOWLEDGED),
            registration_id,
            _T + identity,
            _T + ratchet_key,
            chain_key,
            counter,
            previous_counter,
            pq_chain_key if flags & _PQ else None,
            pq_index,
        )


@dataclass(frozen=True, slots=True, repr=False)
class PendingSetUp:
    """Fields of each PreKeySignalMessage, kept until the first message of the peer is received."""

    registration_id: int  # our own
    prekey_id: int | None
    signed_prekey_id: int
    kyber_prekey_id: int | None
    kyber_ciphertext: bytes | None  # 1,569 typed bytes


@dataclass(slots=True, repr=False)
class ReceivingHalf:
    """State that receiving reads and changes, with all private keys."""

    local_identity: bytes  # 33 typed bytes
    ratchet: curve.KeyPair  # pair of the sending half's ratchet key (DHs)
    root_key: bytes  # 32 bytes (RK)
    base_key: bytes  # 33 typed bytes; identifies the session
    pending: PendingSetUp | None
    receiving_chains: list[
        tuple[bytes, chains.ReceivingChain]
    ]  # (their ratchet key, 33 typed bytes, chain), oldest first
    pq_chain: chains.ReceivingChain | None

    def encode(self) -> bytes:
        parts = [
            _RECEIVING.pack(
                STATE_VERSION,
                self.local_identity[1:],
                self.ratchet.public[1:],
                self.ratchet.private,
                self.root_key,
                self.base_key[1:],
                self.pending is not None,
            )
        ]
        pending = self.pending
        if pending is not None:
            flags = (0 if pending.prekey_id is None else _PENDING_PREKEY) | (
                0 if pending.kyber_ciphertext is None else _PENDING_KYBER
            )
            parts.append(
                _PENDING.pack(
                    pending.registration_id,
                    flags,
                    pending.prekey_id or 0,
                    pending.signed_prekey_id,
                    pending.kyber_prekey_id or 0,
                )
            )
            parts.append(pending.kyber_ciphertext or b"")
        parts.append(bytes([len(self.receiving_chains)]))
        for ratchet_key, chain in self.receiving_chains:
            parts += (ratchet_key[1:], chain.encode())
        if self.pq_chain is None:
            parts.append(b"\x00")
        else:
            parts += (b"\x01", self.pq_chain.encode())
        return b"".join(parts)

    @property
    def size(self) -> int:
        """Return the length of `encode()`, in bytes."""
        length = _RECEIVING.size + 2
        pending = self.pending
        if pending is not None:
            length += _PENDING.size + len(pending.kyber_ciphertext or b"")
        for _, chain in self.receiving_chains:
            length += _KEY_LENGTH + chain.size
        return length if self.pq_chain is None else length + self.pq_chain.size

    def shorten(self, surplus: int) -> None:
        """Drop stored keys until `surplus` bytes are saved, or all: the oldest chain first, the pq chain last."""
        left = -(-surplus // chains.STORED_LENGTH)
        for _, chain in self.receiving_chains:
            left -= chain.drop_oldest(left)
        if self.pq_chain is not None:
            self.pq_chain.drop_oldest(left)

    @classmethod
    def decode(cls, blob: bytes, position: int = 0) -> tuple[ReceivingHalf, int]:
        """Return the half at `position`, and the position after it. Raises CorruptState."""
        try:
            return cls._decode(blob, position)
        except (struct.error, IndexError) as error:
            raise errors.CorruptState("a receiving half is truncated") from error

    @classmethod
    def _decode(cls, blob: bytes, position: int) -> tuple[ReceivingHalf, int]:
        version, identity, public, private, root_key, base_key, has_pending = _RECEIVING.unpack_from(blob, position)
        position += _RECEIVING.size
        if version != STATE_VERSION:
            raise errors.CorruptState(f"a receiving half of version {version}")
        pending = None
        if has_pending:
            registration_id, flags, prekey_id, signed_id, kyber_id = _PENDING.unpack_from(blob, position)
            position += _PENDING.size
            ciphertext = None
            if flags & _PENDING_KYBER:
                ciphertext = blob[position : position + kem.CIPHERTEXT_LENGTH]
                position += kem.CIPHERTEXT_LENGTH
            pending = PendingSetUp(
                registration_id,
                prekey_id if flags & _PENDING_PREKEY else None,
                signed_id,
                kyber_id if flags & _PENDING_KYBER else None,
                ciphertext,
            )
        count = blob[position]
        position += 1
        receiving: list[tuple[bytes, chains.ReceivingChain]] = []
        for _ in range(count):
            ratchet_key = _T + blob[position : position + _KEY_LENGTH]
            chain, position = chains.ReceivingChain.decode(blob, position + _KEY_LENGTH)
            receiving.append((ratchet_key, chain))
        has_pq = blob[position]
        position += 1
        pq_chain = None
        if has_pq:
            pq_chain, position = chains.ReceivingChain.decode(blob, position)
        pair = curve.KeyPair.from_stored(_T + public, private)
        return cls(_T + identity, pair, root_key, _T + base_key, pending, receiving, pq_chain), position


def check_halves(sending: SendingHalf, blob: bytes, local_identity: bytes) -> None:
    """Raise CorruptState unless the receiving half in `blob` has this identity and the moment of `sending`."""
    if len(blob) < _RECEIVING.size or blob[0] != STATE_VERSION:
        raise errors.CorruptState("not a receiving half of a known version")
    if blob[1:33] != local_identity[1:]:
        raise errors.CorruptState("the session belongs to another identity")
    if blob[33:65] != sending.ratchet_key[1:] or blob[_RECEIVING.size - 1] < sending.unacknowledged:
        raise errors.CorruptState("the two halves are of different moments")


def base_key_of(blob: bytes) -> bytes:
    """Return the base key in an encoded receiving half, 33 typed bytes, without decoding the rest."""
    return _T + blob[129:161]


def shortened(blob: bytes, surplus: int) -> bytes:
    """Return an encoded receiving half after `shorten`. Raises CorruptState."""
    half, _ = ReceivingHalf.decode(blob)
    half.shorten(surplus)
    return half.encode()


def may_have_chain(receiving: bytes, ratchet_key: bytes) -> bool:
    """Return whether an encoded receiving half may have this ratchet key, 33 typed bytes. False is certain."""
    return ratchet_key[1:] in receiving
