"""Bodies that the Cloud API posts: any number of entries, changes, messages and statuses of any numbers."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from tidings.wire import core

MESSAGES = "messages"  # field with messages, statuses and errors
MAX_SHOWN = 1_000  # characters of an account's event that are logged


class _Metadata(msgspec.Struct, gc=False):
    phone_number_id: str = ""


class _Profile(msgspec.Struct, gc=False):
    name: str = ""


class _Contact(msgspec.Struct, gc=False):
    wa_id: str = ""
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
    """Number that decides which shard an event belongs to."""

    sender: str = ""
    recipient_id: str = ""
    biz_opaque_callback_data: Any = None


_decode = msgspec.json.Decoder(_Posted).decode
_decode_change = msgspec.json.Decoder(_Change).decode
_decode_value = msgspec.json.Decoder(_Value).decode
_decode_addressed = msgspec.json.Decoder(_Addressed).decode
_MALFORMED = (msgspec.DecodeError, UnicodeDecodeError)


class WrongEnvelope(Exception):
    """The body is not one of the Cloud API's webhooks. `str()` names the part that is wrong."""


@dataclasses.dataclass(frozen=True, slots=True)
class NumberEvent:
    """Event of a phone number."""

    phone_number_id: str
    event: core.UpstreamEvent
    # Our own id of the message that a status is about, as the post returned it; empty for none.
    about: str = ""


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
    except _MALFORMED as error:
        raise WrongEnvelope(str(error)[:200]) from None
    return (event for entry in entries for raw in entry.changes for event in _events(raw))


def _events(raw: msgspec.Raw) -> Iterator[NumberEvent | AccountEvent | WrongChange]:
    """Yield the events of a change."""
    try:
        change = _decode_change(raw)
        if change.field != MESSAGES:
            yield AccountEvent(change.field[:64], bytes(change.value).decode("utf-8", "replace")[:MAX_SHOWN])
            return
        value = _decode_value(change.value)
    except _MALFORMED as error:
        yield WrongChange(str(error)[:200])
        return
    number = value.metadata.phone_number_id
    names = {contact.wa_id: contact.profile.name for contact in value.contacts if contact.profile is not None}
    for message in value.messages:
        sender = _addressed(message).sender
        event = core.UpstreamEvent(core.MESSAGE_EVENT, bytes(message), sender, names.get(sender, ""))
        yield NumberEvent(number, event)
    for status in value.statuses:
        addressed = _addressed(status)
        event = core.UpstreamEvent(core.STATUS_EVENT, bytes(status), addressed.recipient_id)
        about = addressed.biz_opaque_callback_data
        yield NumberEvent(number, event, about if isinstance(about, str) else "")
    for found in value.errors:
        yield NumberEvent(number, core.UpstreamEvent(core.ERROR_EVENT, bytes(found)))


def _addressed(raw: msgspec.Raw) -> _Addressed:
    """Return the numbers that an event names; empty where it names none."""
    try:
        return _decode_addressed(raw)
    except _MALFORMED:
        return _Addressed()


def shown(event: AccountEvent) -> Mapping[str, Any]:
    """Return the fields of a log line."""
    return {"field": event.field, "value": event.value}
