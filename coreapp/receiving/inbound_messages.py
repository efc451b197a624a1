"""Messages of recipients, to the business alone or to a group: decrypted, reported to the webhook, or revoked."""

from __future__ import annotations

import dataclasses
import logging

import msgspec

from coreapp.context import ShardContext
from coreapp.groups.key_requests import SenderKeyPending
from coreapp.media.downloads import Downloads
from coreapp.peers.identities import Identities, described
from coreapp.receiving.decryption import Decryption
from coreapp.receiving.effects import BatchEffects
from coreapp.receiving.inspection import count, request_id, subjects
from coreapp.recovery.wiring import Recovery
from coreapp.statuses.tracker import StatusTracker
from coreapp.webhook import bodies, events, inbound
from tidings import e2ee
from tidings.wire import device, ids
from tidings.wire.content import NULL
from tidings.wire.device import Deliver

log = logging.getLogger(__name__)

UNREADABLE = "unreadable"  # kind of a message that could not be decrypted


@dataclasses.dataclass(eq=False, repr=False, slots=True)
class InboundMessages:
    """Handles the messages to one account."""

    context: ShardContext
    decryption: Decryption
    identities: Identities
    _: dataclasses.KW_ONLY
    downloads: Downloads
    recovery: Recovery
    tracker: StatusTracker

    def receive(self, delivery: Deliver, effects: BatchEffects) -> None:
        """Handle a message. A duplicate, or one that cannot be decrypted, is only acknowledged."""
        if not subjects(delivery):
            log.warning("event.unusable_id", extra={"from": delivery.sender})
            count(delivery, "unusable")
            return
        is_known = delivery.message_id in self.tracker
        if is_known and not self._is_awaited(delivery):
            if self.tracker.peer(delivery.message_id) != delivery.sender:
                log.warning("event.id_taken", extra={"id": delivery.message_id, "from": delivery.sender})
            count(delivery, "duplicate")
            return
        try:
            if delivery.kind == device.GROUP:
                plaintext = effects.arrivals.decrypt(delivery, self.decryption.spend_of(delivery.sender))
            else:
                plaintext = self.decryption.decrypt(delivery, effects)
        except SenderKeyPending:
            effects.held.append(delivery)
            return
        except e2ee.DuplicateMessage:
            count(delivery, "duplicate")
            return
        except e2ee.E2EEError as error:
            count(delivery, "undecryptable")
            self._lose(delivery, error, effects, is_known=is_known)
            return
        if is_known:
            waited_for = self.recovery.recovering.arrived(delivery.message_id)
            if waited_for is not None:
                # The time of the original message, not of its repetition.
                delivery = msgspec.structs.replace(delivery, timestamp=waited_for.timestamp)
        self._take(delivery, plaintext, effects, is_known=is_known)

    def _is_awaited(self, delivery: Deliver) -> bool:
        """Return whether it repeats a message of the same sender that could not be decrypted."""
        known = self.tracker.held(delivery.message_id)
        return delivery.is_repetition and known.peer == delivery.sender and known.kind == UNREADABLE

    def _take(self, delivery: Deliver, plaintext: bytes, effects: BatchEffects, *, is_known: bool) -> None:
        trace = request_id(delivery)
        group_id = delivery.group if delivery.kind == device.GROUP else ""
        message = effects.arrivals.understood(inbound.read(plaintext), delivery.sender, group_id)
        note = effects.recovered if is_known else effects.received
        note(delivery, message.kind, trace)
        if message.kind == NULL:
            count(delivery, "null")
            return
        if self._is_blocked(delivery):
            count(delivery, "blocked")
            return
        count(delivery, "received")
        if isinstance(message.content, inbound.Deleted):
            self._withdraw(delivery, message.content.id, effects)
            return
        if isinstance(message.content, inbound.InboundSystem) and not events.posts_number_changes(self.context):
            return
        if group_id:
            effects.arrivals.received(delivery)
        else:
            effects.left_unread(delivery)
        identity = self._identity_of(delivery, effects)
        if self.downloads.wants(message):
            # The callback is created when the file is available.
            effects.downloads.append(
                self.downloads.make(
                    delivery.message_id,
                    delivery.sender,
                    delivery.timestamp,
                    plaintext,
                    request_id=trace,
                    group=group_id,
                    identity=identity,
                )
            )
            return
        effects.callbacks += events.inbound(
            self.context,
            delivery.message_id,
            delivery.sender,
            delivery.timestamp // 1000,
            message,
            identity=identity,
            group_id=group_id,
            request_id=trace,
        )

    def _is_blocked(self, delivery: Deliver) -> bool:
        """Return whether the business has blocked the sender. Messages of groups are reported all the same."""
        return delivery.sender in self.context.config.blocked and delivery.kind != device.GROUP

    def _identity_of(self, delivery: Deliver, effects: BatchEffects) -> bodies.DescribedIdentity | None:
        """Return the sender's identity if the business wants it; None otherwise."""
        if not effects.security or delivery.kind == device.GROUP:
            return None
        identity = self.identities.find(delivery.sender)
        return described(identity) if identity is not None else None

    def _lose(self, delivery: Deliver, error: e2ee.E2EEError, effects: BatchEffects, *, is_known: bool) -> None:
        """Handle a message that could not be decrypted.

        It is requested again where that can help. The error is reported once: if the message does not arrive in time,
        or at once if it is not requested. For a group message only the key is requested. Many messages of one sender
        are only counted.
        """
        message_id, sender, trace = delivery.message_id, delivery.sender, request_id(delivery)
        is_requested = delivery.kind != device.GROUP and self.recovery.session_repair.requests_again(sender, error)
        waited_for = None
        if not is_known and not self._is_blocked(delivery):
            if is_requested:
                waited_for = self.recovery.recovering.wait_for(message_id, sender, delivery.timestamp, trace)
            if waited_for is None and not self.recovery.recovering.admit_report(sender):
                counted = self.recovery.recovering.count(sender, delivery.timestamp)
                if counted is not None:
                    effects.counted(counted)
                return
            effects.received(delivery, UNREADABLE)
            if waited_for is None:
                effects.callbacks += self.recovery.recovering.error(message_id, sender, trace)
        log.warning("message.undecryptable", extra={"id": message_id, "from": sender, "error": repr(error)})
        if is_requested:
            effects.request_again(sender, message_id, waited_for)

    def _withdraw(self, delivery: Deliver, message_id: str, effects: BatchEffects) -> None:
        """Revoke a message of the sender.

        The author of a message that is not in memory, for instance after a restart, is checked by the journal, because
        nothing may wait here.
        """
        author = self.tracker.peer(message_id)
        if ids.made_at(message_id) is not None or author not in (None, delivery.sender):
            log.warning("event.not_theirs", extra={"id": message_id, "from": delivery.sender})
            return
        effects.arrivals.withdrawn(delivery.sender, message_id)
        effects.withdrawn.setdefault(delivery.sender, []).append(message_id)
        waiting = self.downloads.withdraw(message_id, delivery.sender, effects.downloads)
        if waiting is not None:
            effects.ended_downloads.append(message_id)
            effects.callbacks += waiting
        elif (revocation := self.downloads.revoke(message_id, delivery.sender)) is not None:
            effects.revocations.append(revocation)
            effects.callbacks += revocation.callbacks
        if not self.context.config.posts_v1:
            return
        body = bodies.deleted(message_id, delivery.sender, delivery.timestamp // 1000)
        effects.post(
            message_id,
            "inbound_message",
            body,
            request_id(delivery),
            sender=delivery.sender,
            author=delivery.sender if author is None else "",
        )
