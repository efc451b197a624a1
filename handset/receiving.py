"""What one batch of deliveries and outgoing messages comes to: no I/O, sessions in memory, rows out."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from prometheus_client import Counter

from handset import behaviours, content, ids
from handset.application import Notice
from handset.devices import Device
from handset.vault import Vault
from tidings import e2ee
from tidings.storage import handset as storage
from tidings.wire import device as wire

log = logging.getLogger(__name__)

RECEIVED = Counter("tidings_handset_messages_total", "Messages received", ["outcome"])
SESSIONS = Counter("tidings_handset_sessions_total", "Sessions set up", ["by"])

MAX_REFS = 100  # receipts in one envelope

PeerKey = tuple[str, str]  # number, peer


@dataclasses.dataclass(slots=True, eq=False)
class Arrival:
    """One delivery; acknowledged on `peer` as soon as what it says is on disk."""

    peer: Any
    device: Device
    frame: wire.Deliver
    attempt: int = 1


@dataclasses.dataclass(slots=True, eq=False)
class Outgoing:
    """One message of our own. Without a session and without a bundle it is not sent, and its result is `None`.

    anew: set a session up from the bundle even though there is one.
    """

    device: Device
    peer: str
    plaintext: bytes
    bundle: e2ee.PreKeyBundle | None = None
    anew: bool = False


@dataclasses.dataclass(slots=True)
class Positions:
    """The last positions given out."""

    inbox: int
    outbox: int


class Digest:
    """Collects the consequences of one batch. A digest whose rows do not get committed is thrown away whole, together
    with the sessions it was given.

    sessions: those that exist, of everybody in the batch; changed in place.
    prekeys:  those that the batch's first messages name, as far as they exist.
    """

    def __init__(
        self,
        fleet: str,
        vault: Vault,
        decide: Callable[[behaviours.Message], Sequence[behaviours.Action]],
        positions: Positions,
        receipt_ids: ids.Sequence,
        now: float,
    ) -> None:
        self._fleet = fleet
        self._vault = vault
        self._decide = decide
        self._positions = positions
        self._receipt_ids = receipt_ids
        self._now = now
        self.sessions: dict[PeerKey, e2ee.SessionRecord] = {}
        self.prekeys: Mapping[tuple[str, int], storage.PreKey] = {}
        self.changed: dict[PeerKey, e2ee.SessionRecord] = {}
        self.dropped: set[PeerKey] = set()
        self.used_prekeys: list[tuple[str, int]] = []
        self.messages: list[storage.Message] = []
        self.shown: list[behaviours.Message] = []
        self.notices: list[Notice] = []
        self.to_heal: list[tuple[Device, str]] = []
        self._envelopes: list[tuple[Device, storage.Envelope]] = []
        self._receipts: dict[tuple[str, str, str], tuple[Device, int, list[str]]] = {}

    def envelopes(self) -> list[tuple[Device, storage.Envelope]]:
        """What is to be sent, by position."""
        for (_, peer, kind), (device, position, refs) in self._receipts.items():
            self._post_receipt(device, position, peer, kind, 0, refs)
        self._receipts.clear()
        self._envelopes.sort(key=_position)
        return self._envelopes

    def receive(self, arrival: Arrival) -> None:
        """One delivery that is not in the inbox."""
        frame = arrival.frame
        kind = frame.kind
        if kind == wire.MESSAGE or kind == wire.PREKEY:
            self._decrypt(arrival)
        elif kind in (wire.DELIVERED, wire.READ, wire.EXPIRED):
            self.notices.append(Notice(arrival.device.number, frame.sender, kind, tuple(frame.refs)))
        elif kind == wire.IDENTITY:
            self._new_identity(arrival)
        else:
            log.warning("delivery.unknown_kind", extra={"number": arrival.device.number, "kind": kind, "id": frame.id})

    def send(self, outgoing: Outgoing) -> str | None:
        """The id under which it will go out. Raises `e2ee.E2EEError` when the bundle cannot be used."""
        key = (outgoing.device.number, outgoing.peer)
        record = self.sessions.get(key)
        if outgoing.bundle is not None and (record is None or outgoing.anew):
            record = self._initiate(outgoing.device, record, outgoing.bundle)
        if record is None:
            return None
        return self._encrypt(outgoing.device, outgoing.peer, record, outgoing.plaintext)

    def _initiate(
        self, device: Device, existing: e2ee.SessionRecord | None, bundle: e2ee.PreKeyBundle
    ) -> e2ee.SessionRecord:
        SESSIONS.labels("us").inc()
        try:
            return e2ee.SessionRecord.initiate(device.identity, device.registration_id, bundle, existing=existing)
        except e2ee.UntrustedIdentity:
            return e2ee.SessionRecord.initiate(device.identity, device.registration_id, bundle)

    def _encrypt(self, device: Device, peer: str, record: e2ee.SessionRecord, plaintext: bytes) -> str:
        kind, body = record.encrypt(plaintext)
        self._keep(device, peer, record)
        self._positions.outbox += 1
        message_id = ids.make(self._now)
        envelope = storage.Envelope(
            self._fleet,
            self._positions.outbox,
            device.number,
            peer,
            message_id,
            wire.PREKEY if kind == e2ee.PREKEY else wire.MESSAGE,
            0,
            body,
            (),
        )
        self._envelopes.append((device, envelope))
        return message_id

    def _keep(self, device: Device, peer: str, record: e2ee.SessionRecord) -> None:
        key = (device.number, peer)
        self.sessions[key] = self.changed[key] = record
        self.dropped.discard(key)

    def _decrypt(self, arrival: Arrival) -> None:
        device, frame = arrival.device, arrival.frame
        before = self.sessions.get((device.number, frame.sender))
        try:
            record, plaintext = self._open(device, frame, before)
        except e2ee.E2EEError as error:
            self._unreadable(arrival, error)
            return
        self._keep(device, frame.sender, record)
        try:
            inside = content.decode(plaintext)
        except content.NotUnderstood as error:
            self._unreadable(arrival, error)
            return
        kind = inside.type[:16]
        text = raw = ""
        if kind == content.TEXT_TYPE and inside.text is not None:
            text = inside.text.body
        elif kind != content.EMPTY_TYPE:
            raw = plaintext.decode(errors="replace")
        position = self._store(arrival, kind, text or raw)
        replied = False
        if kind == content.EMPTY_TYPE:
            RECEIVED.labels("empty").inc()
        else:
            number, attempt = device.number, arrival.attempt
            message = behaviours.Message(
                number, frame.sender, frame.id, position, attempt, frame.timestamp, kind, text, raw
            )
            self.shown.append(message)
            replied = self._act(device, record, message)
        if record is not before and not replied:
            # Until it reads an answer, the initiator repeats the key exchange in every message.
            self._encrypt(device, frame.sender, record, content.EMPTY)

    def _act(self, device: Device, record: e2ee.SessionRecord, message: behaviours.Message) -> bool:
        """Do what the application wants; true when that sends something on the session."""
        try:
            actions = self._decide(message)
        except Exception:
            # Left to rise, it would stop the message at each new delivery again.
            log.exception("application.failed", extra={"number": message.number, "id": message.id})
            return False
        replied = False
        for action in actions:
            if isinstance(action, behaviours.Receipt):
                self._receipt(device, message, action)
            else:
                self._encrypt(device, message.peer, record, content.encode_text(action.text))
                replied = True
        return replied

    def _open(
        self, device: Device, frame: wire.Deliver, record: e2ee.SessionRecord | None
    ) -> tuple[e2ee.SessionRecord, bytes]:
        if frame.kind == wire.MESSAGE:
            if record is None:
                raise e2ee.NoSession("no session with this peer")
            return record, record.decrypt(e2ee.MESSAGE, frame.body)
        first = e2ee.PreKeySignalMessage.parse(frame.body)
        if record is not None and record.remote_identity == first.identity_key and not record.needs_setup(first):
            return record, record.decrypt(e2ee.PREKEY, frame.body)
        if record is not None and record.remote_identity != first.identity_key:
            # Trust on first use, and whoever looks is told when a later one differs.
            self.notices.append(Notice(device.number, frame.sender, "identity"))
            record = None
        row = self.prekeys.get((device.number, first.signed_prekey_id))
        if row is None or row.kind != storage.SIGNED:
            raise e2ee.UnknownPreKey(f"signed pre-key {first.signed_prekey_id}")
        signed = self._vault.signed(row)
        one_time, kyber = self._one_time(device, first.prekey_id), self._kyber(device, first.kyber_prekey_id)
        fresh = e2ee.SessionRecord.respond(
            record,
            device.identity,
            first,
            signed,
            self._vault.one_time(one_time) if one_time else None,
            self._vault.kyber(kyber) if kyber else None,
        )
        plaintext = fresh.decrypt(e2ee.PREKEY, frame.body)
        SESSIONS.labels("peer").inc()
        self.used_prekeys += [
            (used.number, used.key_id) for used in (one_time, kyber) if used and used.kind != storage.KYBER_LAST
        ]
        return fresh, plaintext

    def _one_time(self, device: Device, key_id: int | None) -> storage.PreKey | None:
        row = self.prekeys.get((device.number, key_id)) if key_id is not None else None
        if row is None or row.kind != storage.ONE_TIME or (row.number, row.key_id) in self.used_prekeys:
            return None
        return row

    def _kyber(self, device: Device, key_id: int | None) -> storage.PreKey | None:
        row = self.prekeys.get((device.number, key_id)) if key_id is not None else None
        if row is None or row.kind not in (storage.KYBER_ONE_TIME, storage.KYBER_LAST):
            return None
        return None if (row.number, row.key_id) in self.used_prekeys else row

    def _store(self, arrival: Arrival, kind: str, text: str) -> int:
        """Put it into the inbox; returns its position."""
        self._positions.inbox += 1
        position, frame, number = self._positions.inbox, arrival.frame, arrival.device.number
        self.messages.append(
            storage.Message(self._fleet, position, number, frame.sender, frame.id, kind, frame.timestamp, text)
        )
        return position

    def _unreadable(self, arrival: Arrival, error: Exception) -> None:
        """It is acknowledged like any other, or it would be delivered for ever: kept by its id, counted, logged.

        Its sender never sees `delivered`. A session that no longer fits is mended by one of our own making.
        """
        device, frame = arrival.device, arrival.frame
        reason = type(error).__name__
        RECEIVED.labels("undecryptable").inc()
        fields = {"number": device.number, "from": frame.sender, "id": frame.id, "reason": reason, "error": str(error)}
        log.warning("message.undecryptable", extra=fields)
        self._store(arrival, storage.UNREADABLE, reason)
        self.notices.append(Notice(device.number, frame.sender, "undecryptable", (frame.id,), reason))
        if isinstance(error, e2ee.InvalidMessage | e2ee.NoSession | e2ee.CorruptState):
            self.to_heal.append((device, frame.sender))

    def _receipt(self, device: Device, message: behaviours.Message, receipt: behaviours.Receipt) -> None:
        """Receipts of one kind to one peer share an envelope, unless they are for later."""
        if receipt.after:
            due = int((self._now + receipt.after) * 1000)
            self._positions.outbox += 1
            self._post_receipt(device, self._positions.outbox, message.peer, receipt.kind, due, (message.id,))
            return
        key = (device.number, message.peer, receipt.kind)
        collected = self._receipts.get(key)
        if collected is not None and len(collected[2]) >= MAX_REFS:
            self._post_receipt(device, collected[1], message.peer, receipt.kind, 0, collected[2])
            collected = None
        if collected is None:
            self._positions.outbox += 1
            collected = self._receipts[key] = (device, self._positions.outbox, [])
        collected[2].append(message.id)

    def _post_receipt(self, device: Device, position: int, peer: str, kind: str, due: int, refs: Sequence[str]) -> None:
        receipt_id = self._receipt_ids.next()
        envelope = storage.Envelope(self._fleet, position, device.number, peer, receipt_id, kind, due, b"", tuple(refs))
        self._envelopes.append((device, envelope))

    def _new_identity(self, arrival: Arrival) -> None:
        key = (arrival.device.number, arrival.frame.sender)
        self.notices.append(Notice(*key, "identity"))
        self.sessions.pop(key, None)
        self.changed.pop(key, None)
        self.dropped.add(key)


def _position(entry: tuple[Device, storage.Envelope]) -> int:
    return entry[1].position
