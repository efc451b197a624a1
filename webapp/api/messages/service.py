"""Pass messages to the Coreapp that owns their recipient's shard."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import msgspec

from tidings.storage.business.idempotency import MESSAGES
from tidings.storage.business.templates import TemplateRow
from tidings.wire import addresses, core
from tidings.wire.codes import INVALID_RECIPIENT_TYPE, MESSAGE_TOO_LONG, NOT_FOUND, PARAMETER_INVALID, UNKNOWN_GROUP
from tidings.wire.ids import MessageIds
from webapp.api.messages import attachments, filling
from webapp.api.messages.attachments import Attachment
from webapp.api.messages.received import ReceivedMessages
from webapp.api.messages.schemas import Addressed, HsmMessage, RepliedTo, TemplateMessage, TextMessage
from webapp.auth.idempotency import FirstResponses
from webapp.auth.tokens import Caller
from webapp.coreapps.interfaces import NumberShardOwners
from webapp.http.errors import InvalidRequest

INDIVIDUAL, GROUP = "individual", "group"  # recipient types
# A wa_id has at most 15 digits. These separators are removed before the check.
_SEPARATORS = str.maketrans("", "", " -.()\u00a0")
# Bytes of a content as JSON. Encrypted, it must fit into one envelope of the network.
MAX_CONTENT = 96 * 1024

_encode = msgspec.json.Encoder().encode


class TemplateFinder(Protocol):
    """Source of the account's templates."""

    async def find(
        self, account: str, name: str, language: str, namespace: str | None
    ) -> tuple[Sequence[TemplateRow], Sequence[str]]: ...


class AttachmentChecker(Protocol):
    """Check of the account's files and media providers."""

    async def check(self, caller: Caller, attachments: Sequence[Attachment]) -> None: ...


class Rehearsal(Protocol):
    """Effects of test numbers, in test mode."""

    async def before(self, to: str) -> None:
        """Called before a message is passed to the Coreapp. Raises an `APIError` to refuse it."""
        ...

    def after(self, to: str) -> None:
        """Called when a message was accepted. Raises an error to withhold the response."""
        ...


@dataclasses.dataclass(frozen=True, slots=True)
class SentMessage:
    """Accepted message."""

    id: str
    # empty for a group, and when it differs from the requested number, which clients would take for a renaming
    wa_id: str
    peer: str = ""  # number or group of the recipient, whatever the requested number was


def _default_ttl(template: TemplateRow) -> int:
    return 0


@dataclasses.dataclass(frozen=True, slots=True)
class RequestOrigin:
    """Request that a message comes from."""

    request_id: str
    key: str = ""  # idempotency key; empty for none
    fingerprint: bytes = b""  # hash of the body; empty without an idempotency key
    traceparent: str = ""  # trace context of the request; empty for none
    # Fields of `core.AcceptMessage` that only the Cloud API sets.
    callback_data: str = ""
    checked_late: bool = False
    identity_hash: str = ""
    pair_limited: bool = False
    recipient_limit: int = 0
    # Returns the seconds that the message of a template lives if it has no `ttl`; 0 for the default.
    ttl_of: Callable[[TemplateRow], int] = _default_ttl


@dataclasses.dataclass(frozen=True, slots=True)
class _Checked:
    """Message that may be sent."""

    content: bytes  # JSON to encrypt
    template: TemplateRow | None = None  # template that it is sent from; `None` without one
    has_media: bool = False  # whether it contains files


@dataclasses.dataclass(eq=False, repr=False)
class Messages:
    """Sends messages and marks received ones as read."""

    coreapps: NumberShardOwners
    _: dataclasses.KW_ONLY
    templates: TemplateFinder
    media: AttachmentChecker
    first_responses: FirstResponses
    received: ReceivedMessages
    rehearsal: Rehearsal | None = None  # `None` outside test mode

    def __post_init__(self) -> None:
        self._ids = MessageIds()

    async def send(self, caller: Caller, message: Addressed, origin: RequestOrigin) -> SentMessage:
        """Send a message. It is committed when this returns.

        Raises `InvalidRequest`, and the errors of the Coreapp link.
        """
        to_group = is_to_group(message.recipient_type)
        to = group(message.to) if to_group else digits(message.to)
        try:
            checked = await self._check(caller, message)
        except InvalidRequest:
            # The message may have been accepted while its template or file existed. The Coreapp responds to all other
            # repetitions, so a message that passes these checks costs no statement here.
            first = await self._find_first(caller, origin)
            if first is None:
                raise
            return SentMessage(first, "" if to_group else to, to)
        if self.rehearsal is not None and not to_group:
            await self.rehearsal.before(to)
        message_id, template = self._ids.new(), checked.template
        ttl = message.ttl or (origin.ttl_of(template) if template is not None else 0)

        def make(n: int) -> core.AcceptMessage:
            return core.AcceptMessage(
                n=n,
                account=caller.account,
                to=to,
                kind=message.kind,
                content=checked.content,
                request_id=origin.request_id,
                recipient_type=GROUP if to_group else INDIVIDUAL,
                has_media=checked.has_media,
                idempotency_key=origin.key,
                fingerprint=origin.fingerprint,
                category=template.category if template is not None else "",
                id=message_id,
                traceparent=origin.traceparent,
                username=caller.username if origin.key else "",
                ttl=ttl,
                callback_data=origin.callback_data,
                checked_late=origin.checked_late,
                identity_hash=origin.identity_hash,
                pair_limited=origin.pair_limited,
                recipient_limit=origin.recipient_limit,
            )

        def make_again(n: int) -> core.AcceptMessage:
            request = make(n)
            request.repeated = True
            return request

        owners = self.coreapps.of(caller.account)
        if to_group:
            # Groups belong to the first shard, whatever their participants.
            accepted = await owners.call_primary(make, core.Accepted, again=make_again)
            return SentMessage(accepted.id, "", to)
        accepted = await owners.call(to, make, core.Accepted, again=make_again)
        if self.rehearsal is not None:
            self.rehearsal.after(to)
        return SentMessage(accepted.id, accepted.wa_id if accepted.wa_id == to else "", accepted.wa_id)

    async def mark_read(self, caller: Caller, message_id: str, request_id: str, *, typing: bool = False) -> None:
        """Mark a message as read. Its sender will be notified.

        typing: also show the sender that the business is typing

        Raises the errors of the Coreapp link, and 1006 for a message that was not received.
        """
        sender, owners = "", self.coreapps.of(caller.account)
        if owners.has_shards:
            sender = await self.received.sender(caller.account, message_id)

        def make(n: int) -> core.MarkRead:
            return core.MarkRead(
                n=n, account=caller.account, id=message_id, request_id=request_id, sender=sender, typing=typing
            )

        if sender:
            await owners.call_repeatable(sender, make, core.Done)
        else:
            await owners.call_primary_repeatable(make, core.Done)

    async def _check(self, caller: Caller, message: Addressed) -> _Checked:
        """Return the content to encrypt. Raises `InvalidRequest` for a message that cannot be sent."""
        if isinstance(message, TextMessage):
            return _Checked(text_content(message))
        template, more = await self._fill(caller, message)
        content = other_content(message, more)
        attached = attachments.find(message)
        if attached:
            await self.media.check(caller, attached)
        return _Checked(content, template, has_media=bool(attached))

    async def _find_first(self, caller: Caller, origin: RequestOrigin) -> str | None:
        """Return the id of the message that an earlier request with the same key sent; `None` without one."""
        if not origin.key:
            return None
        return await self.first_responses.find(caller, MESSAGES, origin.key, origin.fingerprint)

    async def _fill(self, caller: Caller, message: Addressed) -> tuple[TemplateRow | None, Mapping[str, Any]]:
        """Return the template, None without one, and the fields to add to the content of the message."""
        if isinstance(message, TemplateMessage):
            template = message.template
            stored = await self._find(caller, template.name, template.language.code, template.namespace)
            return stored, {"filled": filling.fill(stored, template)}
        if isinstance(message, HsmMessage):
            hsm = message.hsm
            stored = await self._find(caller, hsm.element_name, hsm.language.code, hsm.namespace)
            return stored, {"filled": filling.fill_hsm(stored, hsm)}
        return None, {}

    async def _find(self, caller: Caller, name: str, language: str, namespace: str | None) -> TemplateRow:
        found, languages = await self.templates.find(caller.account, name, language, namespace)
        return filling.choose(name, language, namespace, found, languages)


def is_to_group(recipient_type: str | None) -> bool:
    """Return whether `to` is a group. Raises `InvalidRequest` for an unknown recipient type."""
    if recipient_type in (None, "", INDIVIDUAL):
        return False
    if recipient_type != GROUP:
        raise InvalidRequest.because(INVALID_RECIPIENT_TYPE, "recipient_type: should be individual or group")
    return True


def group(to: str) -> str:
    """Return the id of a group. Raises `InvalidRequest` when it cannot be one."""
    if not addresses.is_group(to):
        raise InvalidRequest.because(NOT_FOUND, UNKNOWN_GROUP)
    return to


def text_content(message: TextMessage) -> bytes:
    """Return the content to encrypt. Written by hand because text is by far the most frequent type."""
    text = message.text
    content: dict[str, Any] = {"body": text.body}
    previewed = text.preview_url if message.preview_url is None else message.preview_url
    if previewed is not None:
        content["preview_url"] = previewed
    if message.context is not None:
        return _encode({"type": "text", "text": content, **_context(message.context)})
    return _encode({"type": "text", "text": content})


def other_content(message: Addressed, more: Mapping[str, Any]) -> bytes:
    """Return the content to encrypt: the checked message, with `more` added to its content. Raises `InvalidRequest`."""
    kind = message.kind
    content = message.model_dump(include={kind}, exclude_none=True)[kind]
    encoded = _encode({"type": kind, kind: {**content, **more} if more else content, **_context(message.context)})
    if len(encoded) > MAX_CONTENT:
        details = f"{kind}: has {len(encoded)} bytes as JSON, the limit is {MAX_CONTENT}"
        raise InvalidRequest.because(MESSAGE_TOO_LONG, details)
    return encoded


def _context(replied_to: RepliedTo | None) -> Mapping[str, Any]:
    return {"context": {"id": replied_to.message_id}} if replied_to is not None else {}


def digits(to: str) -> str:
    """Return a phone number in the network's form. Raises `InvalidRequest`."""
    found = to.translate(_SEPARATORS).removeprefix("+")
    if not addresses.is_wa_id(found):
        raise InvalidRequest.because(PARAMETER_INVALID, "to: should be a phone number, digits with or without +")
    return found
