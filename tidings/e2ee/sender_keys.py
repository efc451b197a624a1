"""Chains of one sender in one group (Sender Keys), as held by the sender and by each member.

    stored, big-endian:
        version 1, distribution id 16, states 1, then of each, newest first:
            chain id 4, signing key 32, own 1 (0 or 1), then: its private key 32; chain (laid out in `chains`)

The signing key is stored without its type byte.
"""

from __future__ import annotations

import secrets
import struct
import uuid
from dataclasses import dataclass
from typing import Final

from tidings.e2ee import cbc, chains, curve, errors, group_messages, kdf, protobuf, work, xeddsa

MAX_STATES: Final = 5  # chains; the oldest is dropped
RECORD_VERSION: Final = 1

_INFO: Final = b"WhisperGroup"
_HEAD: Final = struct.Struct(">B16sB")
_STATE: Final = struct.Struct(">I32sB")


@dataclass(slots=True, repr=False)
class _State:
    """Chain with the key that signs its messages."""

    chain_id: int
    signing_key: bytes  # 33 typed bytes
    signing_private: bytes | None  # 32 bytes; None when another participant owns the chain
    chain: chains.ReceivingChain  # the sender uses it too, and stores no skipped keys


class SenderKeyRecord:
    """Chains of one (distribution id, sender). Not thread-safe: one writer per record.

    The sender makes its record with `create`. A member makes `SenderKeyRecord(distribution_id)`, and adds chains with
    `process`. The caller must store it by sender too: only the signature of a group message identifies the sender.

    When a member leaves, the sender replaces its record by a new `create` with the same distribution id, and
    distributes that to the remaining members. Messages of the old chains stay readable for those who have them.

    As with sessions, a sender's record must be stored before its ciphertext leaves the process, and never be restored
    from a backup. Otherwise a key would be used twice.
    """

    __slots__ = ("_distribution_id", "_states")

    def __init__(self, distribution_id: bytes) -> None:
        """Make a record without a chain. Raises InvalidKey unless the id has 16 bytes."""
        if len(distribution_id) != group_messages.DISTRIBUTION_ID_LENGTH:
            raise errors.InvalidKey("a distribution id has 16 bytes")
        self._distribution_id = bytes(distribution_id)
        self._states: list[_State] = []  # newest first

    @classmethod
    def create(cls, distribution_id: bytes | None = None) -> SenderKeyRecord:
        """Make a sender's record, with a new chain, a new signing key, and a new distribution id unless one is given.

        Raises InvalidKey unless the id has 16 bytes.
        """
        record = cls(uuid.uuid4().bytes if distribution_id is None else distribution_id)
        pair = curve.KeyPair.generate()
        chain = chains.ReceivingChain(secrets.token_bytes(group_messages.CHAIN_KEY_LENGTH), 0, {})
        record._states = [_State(secrets.randbits(31), pair.public, pair.private, chain)]
        return record

    @classmethod
    def from_bytes(cls, blob: bytes) -> SenderKeyRecord:
        """Load a record. Raises CorruptState on a damaged blob and on an unknown version."""
        try:
            return cls._decode(blob)
        except (struct.error, errors.InvalidKey) as error:
            raise errors.CorruptState("a sender key record is damaged") from error

    @property
    def distribution_id(self) -> bytes:
        """Return the distribution id, 16 bytes."""
        return self._distribution_id

    @property
    def is_portable(self) -> bool:
        """Return whether the distribution id is a UUID of version 4.

        Some libraries reject others, which were once made here.
        """
        return uuid.UUID(bytes=self._distribution_id).version == 4

    def distribution(self) -> bytes:
        """Return the distribution message, with which a member can read from the next message on, and none before.

        It is secret, and goes to each member inside a pairwise session. Raises NoSession unless the chain is our own.
        """
        state, _ = self._own()
        chain = state.chain
        return group_messages.DistributionMessage(
            self._distribution_id, state.chain_id, chain.next_index, chain.chain_key, state.signing_key
        ).encode()

    def process(self, distribution_message: bytes) -> None:
        """Add the chain of a distribution message, which arrived from this record's sender inside their session.

        A known chain keeps its position, so that no message can be read twice. Only a chain that is more than the
        forward jump behind, on which no message could be read, is advanced. Raises InvalidMessage, with nothing
        changed.
        """
        message = group_messages.DistributionMessage.parse(distribution_message)
        if message.distribution_id != self._distribution_id:
            raise errors.InvalidMessage("a distribution message of another group")
        state = self._find(message.chain_id)
        if state is None or state.signing_key != message.signing_key:
            chain = chains.ReceivingChain(message.chain_key, message.iteration, {})
            state = _State(message.chain_id, message.signing_key, None, chain)
        elif message.iteration - state.chain.next_index > chains.MAX_FORWARD_JUMP:
            state.chain.chain_key, state.chain.next_index = message.chain_key, message.iteration
        others = [other for other in self._states if other.chain_id != message.chain_id]
        self._states = [state, *others][:MAX_STATES]

    def encrypt(self, plaintext: bytes) -> bytes:
        """Return a group message, the same for every member.

        Raises NoSession when the newest chain is not our own, or its 2^32 iterations are exhausted: `create` a new one.
        """
        state, private = self._own()
        chain = state.chain
        iteration = chain.next_index
        next_chain_key, seed = chains.step(chain.chain_key, iteration)
        key, iv = _message_keys(seed)
        ciphertext = cbc.encrypt(key, iv, plaintext)
        body = group_messages.encode_group_message(self._distribution_id, state.chain_id, iteration, ciphertext)
        body += xeddsa.sign(private, body)

        chain.chain_key = next_chain_key
        chain.next_index = iteration + 1
        return body

    def decrypt(self, body: bytes, spend: work.Spend = work.unlimited) -> bytes:
        """Return the plaintext of a group message. Changes nothing when it raises.

        Raises InvalidMessage (including TooFarAhead: request the distribution message again; and OverBudget, when
        `spend` refuses the steps); DuplicateMessage; NoSession for a chain without a distribution message.
        """
        message = group_messages.GroupMessage.parse(body)
        if message.distribution_id != self._distribution_id:
            raise errors.InvalidMessage("a message of another group")
        state = self._find(message.chain_id)
        if state is None:
            raise errors.NoSession(f"no chain {message.chain_id}")
        message.authenticate(state.signing_key)
        lookup = state.chain.look_up(message.iteration, chains.step, spend=spend)
        key, iv = _message_keys(lookup.key)
        plaintext = cbc.decrypt(key, iv, message.ciphertext)
        state.chain.take(lookup)
        return plaintext

    def to_bytes(self) -> bytes:
        """Encode the record.

        At most 5 chains of 82 bytes (114 when own), plus 36 bytes per stored key, up to 2,000 keys per chain.
        """
        parts = [_HEAD.pack(RECORD_VERSION, self._distribution_id, len(self._states))]
        for state in self._states:
            private = state.signing_private
            parts += (
                _STATE.pack(state.chain_id, state.signing_key[1:], private is not None),
                private or b"",
                state.chain.encode(),
            )
        return b"".join(parts)

    @classmethod
    def _decode(cls, blob: bytes) -> SenderKeyRecord:
        version, distribution_id, count = _HEAD.unpack_from(blob)
        if version != RECORD_VERSION or count > MAX_STATES:
            raise errors.CorruptState("not a sender key record of a known version")
        record = cls(distribution_id)
        position = _HEAD.size
        for _ in range(count):
            chain_id, public, own = _STATE.unpack_from(blob, position)
            signing_key = curve.TYPE_PREFIX + public
            xeddsa.check_public(signing_key)
            position += _STATE.size
            private = None
            if own:
                private = blob[position : position + curve.PRIVATE_LENGTH]
                position += curve.PRIVATE_LENGTH
            chain, position = chains.ReceivingChain.decode(blob, position)
            record._states.append(_State(chain_id, signing_key, private, chain))
        if position != len(blob):
            raise errors.CorruptState("the length of a sender key record is wrong")
        return record

    def _find(self, chain_id: int) -> _State | None:
        return next((state for state in self._states if state.chain_id == chain_id), None)

    def _own(self) -> tuple[_State, bytes]:
        """Return the newest chain and its private signing key. Raises NoSession."""
        if not self._states:
            raise errors.NoSession("the record has no chain")
        state = self._states[0]
        if state.signing_private is None:
            raise errors.NoSession("the chain belongs to another sender")
        if state.chain.next_index > protobuf.MAX_UINT32:
            raise errors.NoSession("the chain's iterations are exhausted")
        return state, state.signing_private


def _message_keys(seed: bytes) -> tuple[bytes, bytes]:
    """Return (AES key 32, IV 16), which are derived in the reverse order."""
    output = kdf.hkdf(kdf.ZERO_SALT, seed, _INFO, 48)
    return output[16:], output[:16]
