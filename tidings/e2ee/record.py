"""All sessions with one device of a peer: the current one, and older ones on which messages may still arrive."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

from tidings.e2ee import curve, errors, messages, prekeys, ratchet, session_setup, state, work, xeddsa

MAX_ARCHIVED: Final = 10  # sessions; the oldest are dropped
MAX_LENGTH: Final = 256 * 1024  # bytes of a receiving half; the oldest stored keys are dropped
_LENGTHS: Final = struct.Struct(">HI")

_Halves = tuple[bytes, bytes]  # archived session: sending half, receiving half
_Session = tuple[state.SendingHalf, state.ReceivingHalf]


class SessionRecord:
    """Sessions with one device of a peer. Not thread-safe: one writer per record.

    It is stored as two blobs, of 147 and at most `MAX_LENGTH` bytes, whatever the peer sends. `sending_half()` is all
    that `encrypt` changes; `decrypt` changes both. A state must be stored before its ciphertext leaves the process, and
    never be restored from a backup. Otherwise a key would be used twice.
    """

    __slots__ = ("_archived", "_identity", "_receiving", "_rest", "_sending")

    def __init__(
        self,
        own: xeddsa.IdentityKeyPair,
        sending: state.SendingHalf,
        receiving: state.ReceivingHalf | None,
        *,
        archived: list[_Halves],
        rest: bytes = b"",
    ) -> None:
        self._identity = own
        self._sending = sending
        self._receiving = receiving  # None until `rest` has been decoded
        self._archived = archived  # newest first
        self._rest = rest

    @classmethod
    def initiate(
        cls,
        own: xeddsa.IdentityKeyPair,
        registration_id: int,
        bundle: prekeys.PreKeyBundle,
        *,
        require_pq: bool = False,
        pq_ratchet: bool = True,
        existing: SessionRecord | None = None,
    ) -> SessionRecord:
        """Make a record from a peer's bundle, of version 4 when the bundle has a Kyber pre-key, otherwise 3.

        Raises InvalidKey, InvalidSignature; PostQuantumRequired for a bundle without Kyber when `require_pq`, or when
        `existing` ever had it; UntrustedIdentity when `existing` has another identity.

        registration_id: our own
        pq_ratchet:      False leaves field 5 out of a version 4 session, for peers whose release does not know it
        existing:        record whose sessions go into the new record's archive
        """
        demanded = require_pq or (existing is not None and existing.has_used_pq)
        prekeys.check_downgrade(demanded, bundle)
        bundle.verify()
        if existing is not None and existing.remote_identity != bundle.identity_key:
            raise errors.UntrustedIdentity(bundle.identity_key)
        initiation = session_setup.initiate(own, bundle)
        pending = state.PendingSetUp(
            registration_id,
            bundle.prekey_id,
            bundle.signed_prekey_id,
            bundle.kyber_prekey_id,
            initiation.kyber_ciphertext,
        )
        session = ratchet.start_as_initiator(
            bundle.version,
            own.public,
            bundle.identity_key,
            bundle.registration_id,
            initiation,
            bundle.signed_prekey,
            pending,
            pq=pq_ratchet,
        )
        return cls._begin(own, session, existing)

    @classmethod
    def respond(
        cls,
        existing: SessionRecord | None,
        own: xeddsa.IdentityKeyPair,
        message: messages.PreKeySignalMessage,
        signed_prekey: prekeys.SignedPreKey,
        prekey: prekeys.PreKey | None = None,
        kyber_prekey: prekeys.KyberPreKey | None = None,
        *,
        require_pq: bool = False,
        allow_downgrade: bool = False,
    ) -> SessionRecord:
        """Return the record in which `decrypt` can read this first message.

        When `existing` knows the message's base key, the result is `existing` itself. Otherwise it is a new record with
        the sessions of `existing` in its archive; `existing` is not changed. Nothing has authenticated yet: store the
        record and delete the one-time pre-key only after `decrypt` has returned.

        Raises:

        - UnknownPreKey when a pre-key that the message names is not the given one
        - UntrustedIdentity when `existing` has another identity (to trust it, call again with None)
        - PostQuantumRequired for a version 3 message when `require_pq`, or when `existing` ever used version 4 without
          `allow_downgrade`
        - InvalidMessage
        """
        if existing is not None:
            if existing.remote_identity != message.identity_key:
                raise errors.UntrustedIdentity(message.identity_key)
            if not existing.needs_setup(message):
                return existing
            require_pq = require_pq or (existing.has_used_pq and not allow_downgrade)
        if require_pq and message.version < messages.VERSION_4:
            raise errors.PostQuantumRequired("the peer set up a session without Kyber")
        if signed_prekey.key_id != message.signed_prekey_id:
            raise errors.UnknownPreKey(f"signed pre-key {message.signed_prekey_id}")
        one_time = signed = None
        if message.prekey_id is not None:
            if prekey is None or prekey.key_id != message.prekey_id:
                raise errors.UnknownPreKey(f"one-time pre-key {message.prekey_id}")
            one_time = curve.KeyPair.from_stored(prekey.public, prekey.private)
        kyber_seed = None
        if message.version == messages.VERSION_4:
            if kyber_prekey is None or kyber_prekey.key_id != message.kyber_prekey_id:
                raise errors.UnknownPreKey(f"Kyber pre-key {message.kyber_prekey_id}")
            kyber_seed = kyber_prekey.private
        signed = curve.KeyPair.from_stored(signed_prekey.public, signed_prekey.private)
        keys = session_setup.respond(own, message, signed, one_time, kyber_seed)
        return cls._begin(own, ratchet.start_as_responder(own.public, message, signed, keys), existing)

    @classmethod
    def load(cls, own: xeddsa.IdentityKeyPair, sending: bytes, rest: bytes) -> SessionRecord:
        """Load a record from its two blobs.

        Raises CorruptState on a damaged or unknown blob, on halves that do not belong together, and on a record of
        another identity. Data needed only for receiving is decoded on demand, so the first `decrypt` may raise
        CorruptState too.
        """
        half = state.SendingHalf.decode(sending)
        state.check_halves(half, rest, own.public)
        return cls(own, half, None, archived=[], rest=rest)

    @property
    def remote_identity(self) -> bytes:
        """Return the peer's identity key, 33 typed bytes."""
        return self._sending.remote_identity

    @property
    def remote_registration_id(self) -> int:
        return self._sending.remote_registration_id

    @property
    def base_key(self) -> bytes:
        """Return the key with which the current session was set up, and which identifies it: 33 typed bytes."""
        return self._receiving.base_key if self._receiving is not None else state.base_key_of(self._rest)

    @property
    def unacknowledged(self) -> bool:
        """Return whether messages are sent as PreKeySignalMessages, because none has been received on this session.

        Official libraries stop sending on such a session after 30 days. The caller has the clock for that.
        """
        return self._sending.unacknowledged

    @property
    def unanswered(self) -> int:
        """Return the number of messages encrypted since the peer has answered one: those of the sending chain."""
        return self._sending.counter

    @property
    def version(self) -> int:
        """Return 3 (X3DH) or 4 (PQXDH)."""
        return self._sending.version

    @property
    def has_used_pq(self) -> bool:
        """Return whether any session in this record, including archived ones, is of version 4."""
        self._decode()
        return self.version == messages.VERSION_4 or any(
            state.SendingHalf.decode(sending).version == messages.VERSION_4 for sending, _ in self._archived
        )

    def supersede(self, existing: SessionRecord) -> None:
        """Archive the sessions of `existing` in this record, which `initiate` has just made.

        For a session that was set up while `existing` was still in use. The result is that of `initiate(existing=…)`
        now. Raises UntrustedIdentity when `existing` has another identity.
        """
        if existing.remote_identity != self.remote_identity:
            raise errors.UntrustedIdentity(self.remote_identity)
        last = existing._decode()
        self._decode()
        self._archived = [(existing._sending.encode(), last.encode()), *existing._archived]
        self._keep_in_bounds()

    def encrypt(self, plaintext: bytes) -> tuple[int, bytes]:
        """Return (kind, body): MESSAGE (2), or PREKEY (3) while `unacknowledged`. Changes only the sending half.

        Raises NoSession when the session's counters are exhausted (after 2^32 messages).
        """
        sending = self._sending
        body = ratchet.encrypt(sending, self._identity.public, plaintext)
        if not sending.unacknowledged:
            return messages.MESSAGE, body
        receiving = self._decode()
        pending = receiving.pending
        if pending is None:
            raise errors.CorruptState("the two halves are of different moments")
        return messages.PREKEY, messages.encode_prekey_signal_message(
            version=sending.version,
            registration_id=pending.registration_id,
            prekey_id=pending.prekey_id,
            signed_prekey_id=pending.signed_prekey_id,
            kyber_prekey_id=pending.kyber_prekey_id,
            kyber_ciphertext=pending.kyber_ciphertext,
            base_key=receiving.base_key,
            identity_key=self._identity.public,
            message=body,
        )

    def needs_setup(self, message: messages.PreKeySignalMessage) -> bool:
        """Return whether the base key is unknown. Only then pre-keys must be loaded."""
        return all(base_key != message.base_key for base_key in self._base_keys())

    def decrypt(self, kind: int, body: bytes, spend: work.Spend = work.unlimited) -> bytes:
        """Return the plaintext of a message of kind MESSAGE or PREKEY. Changes nothing when it raises.

        The current session is tried first, then the archived ones, newest first; the one that decrypts becomes current.
        None is tried after the one that knows the message's ratchet key. A message that does not authenticate costs at
        most 2 x 25,001 steps of chains, even if it was made for that: as many as an honest message after a long
        silence. `spend` is called before more work than nearly every message needs.

        Raises InvalidMessage (including TooFarAhead and OverBudget); DuplicateMessage; NoSession for a first message
        that `respond` has not handled; UntrustedIdentity for a first message of another identity; CorruptState.
        """
        receiving = self._decode()
        if kind == messages.MESSAGE:
            message = messages.SignalMessage.parse(body)
            try:
                plaintext, has_grown = ratchet.decrypt(self._sending, receiving, message, spend=spend)
            except errors.InvalidMessage as failure:
                if ratchet.knows(receiving, message):
                    raise
                return self._try_archived(message, failure, spend)
            self._keep_in_bounds(has_grown)
            return plaintext
        if kind != messages.PREKEY:
            raise errors.InvalidMessage(f"a message of kind {kind}")
        first = messages.PreKeySignalMessage.parse(body)
        if first.identity_key != self.remote_identity:
            raise errors.UntrustedIdentity(first.identity_key)
        for position, base_key in enumerate(self._base_keys(), -1):
            if base_key == first.base_key:
                if position >= 0:
                    return self._decrypt_archived(
                        position, self._archived_at(position), first.message, ratchet.FULL, spend
                    )
                plaintext, has_grown = ratchet.decrypt(self._sending, receiving, first.message, spend=spend)
                self._keep_in_bounds(has_grown)
                return plaintext
        raise errors.NoSession("a first message without a response")

    @property
    def length(self) -> int:
        """Return the length of `receiving_half()`, in bytes."""
        if self._receiving is None:
            return len(self._rest)
        archived = sum([_LENGTHS.size + len(sending) + len(receiving) for sending, receiving in self._archived])
        return self._receiving.size + 1 + archived

    def sending_half(self) -> bytes:
        """Return the 147 bytes that `encrypt` changes."""
        return self._sending.encode()

    def receiving_half(self) -> bytes:
        """Return everything else, starting with its version byte."""
        if self._receiving is None:
            return self._rest
        parts = [self._receiving.encode(), bytes([len(self._archived)])]
        for sending, receiving in self._archived:
            parts += (_LENGTHS.pack(len(sending), len(receiving)), sending, receiving)
        return b"".join(parts)

    @classmethod
    def _begin(cls, own: xeddsa.IdentityKeyPair, session: _Session, existing: SessionRecord | None) -> SessionRecord:
        """Make a record of a new session, with the sessions of `existing` in its archive."""
        archived: list[_Halves] = []
        if existing is not None:
            last = existing._decode()
            archived = [(existing._sending.encode(), last.encode()), *existing._archived]
        record = cls(own, *session, archived=archived)
        record._keep_in_bounds()
        return record

    def _decode(self) -> state.ReceivingHalf:
        if self._receiving is not None:
            return self._receiving
        blob = self._rest
        receiving, position = state.ReceivingHalf.decode(blob)
        archived: list[_Halves] = []
        try:
            count = blob[position]
            position += 1
            for _ in range(count):
                sending_length, receiving_length = _LENGTHS.unpack_from(blob, position)
                middle = position + _LENGTHS.size + sending_length
                archived.append((blob[middle - sending_length : middle], blob[middle : middle + receiving_length]))
                position = middle + receiving_length
        except (struct.error, IndexError) as error:
            raise errors.CorruptState("the archive is truncated") from error
        if position != len(blob):
            raise errors.CorruptState("the length of the archive is wrong")
        self._receiving, self._archived, self._rest = receiving, archived, b""
        return receiving

    def _base_keys(self) -> Iterator[bytes]:
        """Yield the base key of the current session, then those of the archive in its order."""
        yield self._decode().base_key
        for _, receiving in self._archived:
            yield state.base_key_of(receiving)

    def _archived_at(self, position: int) -> _Session:
        sending, receiving = self._archived[position]
        return state.SendingHalf.decode(sending), state.ReceivingHalf.decode(receiving)[0]

    def _try_archived(
        self, message: messages.SignalMessage, failure: errors.InvalidMessage, spend: work.Spend
    ) -> bytes:
        """Decrypt with an archived session.

        Raises `failure` when none can, or the error of the session that knows the ratchet key.
        """
        for position, (_, blob) in enumerate(self._archived):
            if not state.may_have_chain(blob, message.ratchet_key) and not spend(work.ARCHIVED_STEPS):
                failure = errors.OverBudget("a message that would start a chain")
                continue
            session = self._archived_at(position)
            try:
                return self._decrypt_archived(position, session, message, ratchet.SHORT, spend)
            except errors.InvalidMessage:
                if ratchet.knows(session[1], message):
                    raise
        raise failure

    def _decrypt_archived(
        self,
        position: int,
        session: _Session,
        message: messages.SignalMessage,
        reach: ratchet.ChainLimits,
        spend: work.Spend,
    ) -> bytes:
        """Decrypt with an archived session, which becomes current on success only."""
        sending, receiving = session
        plaintext, _ = ratchet.decrypt(sending, receiving, message, reach, spend)
        others = self._archived[:position] + self._archived[position + 1 :]
        self._archived = [(self._sending.encode(), self._decode().encode()), *others]
        self._sending, self._receiving = sending, receiving
        self._keep_in_bounds()
        return plaintext

    def _keep_in_bounds(self, has_grown: bool = True) -> None:
        """Drop archived sessions beyond `MAX_ARCHIVED`, and stored keys until `MAX_LENGTH` is kept.

        Keys of the oldest session are dropped first, those of the current one last. Without stored keys a record has
        less than 30 kB, so dropping keys is always enough.
        """
        # Also applies to records that were stored under higher limits.
        if not has_grown and len(self._archived) <= MAX_ARCHIVED:
            return
        del self._archived[MAX_ARCHIVED:]
        surplus = self.length - MAX_LENGTH
        for position in reversed(range(len(self._archived))):
            if surplus <= 0:
                return
            sending, receiving = self._archived[position]
            shorter = state.shortened(receiving, surplus)
            self._archived[position] = (sending, shorter)
            surplus -= len(receiving) - len(shorter)
        if surplus > 0:
            self._decode().shorten(surplus)
