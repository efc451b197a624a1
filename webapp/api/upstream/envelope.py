"""Bodies that the Cloud API posts: any number of entries, changes, messages and statuses of any numbers."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from tidings.wire import core
from tidings.wire.cloud import system_notices, user_ids
from tidings.wire.decoding import UNREADABLE

MESSAGES = "messages"  # field with messages, statuses and errors
MAX_SHOWN = 1_000  # characters of an account's event that are logged


class _Metadata(msgspec.Struct, gc=False):
    phone_number_id: str = ""


class _Profile(msgspec.Struct, gc=False):
    name: str = ""


class _Contact(msgspec.Struct, gc=False):
    # A user whose number is hidden has only an id.
    wa_id: str | None = None
    user_id: Any = None
    profile: _Profile | None = None


class _Value(msgspec.Struct, gc=False):
    metadata: _Metadata = msgspec.field(default_factory=_Metadata)
    contacts: list[_Contact] = []
    messages: list[msgspec.Raw] = []
    statuses: list[msgspec.Raw] = []
    errors: list[msgspec.Raw] = []


class _Change(msgspec.Struct, gc=False):
    field: str
    value: msgspec.Raw


class _Entry(msgspec.Struct, gc=False):
    changes: list[msgspec.Raw] = []


class _Posted(msgspec.Struct, gc=False):
    entry: list[_Entry]


class _Addressed(msgspec.Struct, gc=False, rename={"sender": "from"}):
    """Number, or user without one, that decides which shard an event belongs to."""

    sender: str | None = None
    from_user_id: Any = None
    recipient_id: str | None = None
    recipient_user_id: Any = None
    system: Any = None
    biz_opaque_callback_data: Any = None


_decode = msgspec.json.Decoder(_Posted).decode
_decode_change = msgspec.json.Decoder(_Change).decode
_decode_value = msgspec.json.Decoder(_Value).decode
_decode_addressed = msgspec.json.Decoder(_Addressed).decode


class WrongEnvelope(Exception):
    """The body is not one of the Cloud API's webhooks. `str()` names the part that is wrong."""


@dataclasses.dataclass(frozen=True, slots=True)
class NumberEvent:
    """Event of a phone number."""

    phone_number_id: str
    event: core.UpstreamEvent
    # Our own id of the message that a status is about, as the post returned it; empty for none.
    about: str = ""
    # Business-scoped id of a message's sender, or of the recipient in a status without a number; empty for none.
    user_id: str = ""
    new_user_id: str = ""  # id that the sender has got instead of `user_id`, in a notice about that; empty for none


@dataclasses.dataclass(frozen=True, slots=True)
class AccountEvent:
    """Event of an account, which v1 does not have: for the log."""

    field: str
    value: str  # JSON, cut


@dataclasses.dataclass(frozen=True, slots=True)
class WrongChange:
    """Change that cannot be read."""

    error: str


def read(body: bytes) -> Iterator[NumberEvent | AccountEvent | WrongChange]:
    """Yield the events of a body in order. Raises `WrongEnvelope` before the first one."""
    try:
        entries = _decode(body).entry
    except UNREADABLE as error:
        raise WrongEnvelope(str(error)[:200]) from None
    return itertools.chain.from_iterable(_events(raw) for entry in entries for raw in entry.changes)


def _events(raw: msgspec.Raw) -> Iterator[NumberEvent | AccountEvent | WrongChange]:
    """Yield the events of a change."""
    try:
        change = _decode_change(raw)
        if change.field != MESSAGES:
            yield AccountEvent(change.field[:64], bytes(change.value).decode("utf-8", "replace")[:MAX_SHOWN])
            return
        value = _decode_value(change.value)
    except UNREADABLE as error:
        yield WrongChange(str(error)[:200])
        return
    number = value.metadata.phone_number_id
    contacts = _Contacts(value.contacts)
    for message in value.messages:
        addressed = _addressed(message)
        sender, named = addressed.sender or "", _user_id(addressed.from_user_id)
        user_id, name = contacts.describe(sender, named)
        user_id, new_user_id = system_notices.ids_of(addressed.system, user_id)
        event = core.UpstreamEvent(core.MESSAGE_EVENT, bytes(message), sender, name)
        yield NumberEvent(number, event, user_id=user_id, new_user_id=new_user_id)
    for status in value.statuses:
        addressed = _addressed(status)
        recipient, about = addressed.recipient_id or "", addressed.biz_opaque_callback_data
        event = core.UpstreamEvent(core.STATUS_EVENT, bytes(status), recipient)
        user_id = "" if recipient else _user_id(addressed.recipient_user_id)
        yield NumberEvent(number, event, about if isinstance(about, str) else "", user_id)
    for found in value.errors:
        yield NumberEvent(number, core.UpstreamEvent(core.ERROR_EVENT, bytes(found)))


class _Contacts:
    """Senders of the messages of a change."""

    def __init__(self, contacts: Sequence[_Contact]) -> None:
        self._by_number = {contact.wa_id: contact for contact in contacts if contact.wa_id}
        self._by_user = {user_id: contact for contact in contacts if (user_id := _user_id(contact.user_id))}
        self._only = contacts[0] if len(contacts) == 1 else None

    def describe(self, sender: str, user_id: str) -> tuple[str, str]:
        """Return the business-scoped id and the profile's name of a sender; empty where they are not known.

        sender: number; empty for none
        user_id: id in the message; empty for none
        """
        found = self._by_number.get(sender) or self._by_user.get(user_id)
        if found is None and not sender and not user_id:
            found = self._only
        if found is None:
            return user_id, ""
        return user_id or _user_id(found.user_id), found.profile.name if found.profile is not None else ""


def _user_id(given: Any) -> str:
    """Return a business-scoped id; empty for anything else."""
    return given if isinstance(given, str) and user_ids.is_user_id(given) else ""


def _addressed(raw: msgspec.Raw) -> _Addressed:
    """Return the numbers that an event names; empty where it names none."""
    try:
        return _decode_addressed(raw)
    except UNREADABLE:
        return _Addressed()


def shown(event: AccountEvent) -> Mapping[str, Any]:
    """Return the fields of a log line."""
    return {"field": event.field, "value": event.value}
