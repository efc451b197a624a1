"""Actions of a test as one of the robots: sending, reading what the handset shows, and enrolling test numbers."""

from __future__ import annotations

import asyncio
import dataclasses
import io
from collections.abc import Collection, Mapping
from typing import Any

import msgspec

from handset import composing, errors, own_number, reading
from handset.attachments import transfer
from handset.devices.context import FleetContext
from handset.devices.device import Device
from handset.fleet import Fleet
from handset.receiving.inbox import shown_after_restart
from handset.robots.registrar import RobotRegistrar
from handset.typing_peers import TypingPeers
from tidings.client import attachments
from tidings.client.errors import ClientError, NetworkUnavailable
from tidings.client.http import NetworkApi
from tidings.media import kinds
from tidings.media.errors import UnusableType
from tidings.media.reading import local
from tidings.storage.handset import inbox
from tidings.testing import numbers
from tidings.wire import recipients
from tidings.wire.recipients import RecipientDone, RecipientFailure, RecipientResponse, ShownMessage

MAX_ENROLLED = 1000  # test numbers that one process registers; further ones are refused
ENROL_SECONDS = 10.0  # seconds for the network to register a test number

_AWAY = (NetworkUnavailable, errors.NotStored)


@dataclasses.dataclass(eq=False, repr=False)
class TestRecipients:
    """The recipients of one process, as a test controls them."""

    __test__ = False  # this is no class of tests

    context: FleetContext
    fleet: Fleet
    registrar: RobotRegistrar
    _: dataclasses.KW_ONLY
    api: NetworkApi
    typing: TypingPeers  # peers that the recipients show as typing
    offline: Collection[str]  # numbers of robots that never log in

    def __post_init__(self) -> None:
        self._enrolled = sum(map(numbers.is_test_number, self.fleet.devices))
        self._enrolling = asyncio.Lock()

    async def respond(self, call: recipients.RecipientCall) -> RecipientResponse:
        """Carry out a call."""
        try:
            match call:
                case recipients.SendAsRecipient():
                    return RecipientDone(await self._send(call))
                case recipients.ListShown():
                    shown = await self._list_shown(call)
                    return RecipientDone(shown=shown, typing=self.typing.list_of(call.number))
                case recipients.EnrolRecipient():
                    await self._find(call.number)
                case recipients.DropShown():
                    await self._drop_shown()
        except _Unusable as error:
            return RecipientFailure(error.reason, str(error))
        except _AWAY as error:
            return RecipientFailure(recipients.AWAY, str(error))
        except ClientError as error:
            return RecipientFailure(recipients.REFUSED, str(error))
        return RecipientDone()

    async def _send(self, call: recipients.SendAsRecipient) -> str:
        device = await self._find(call.number)
        content: Mapping[str, Any] = call.content
        if call.file:
            content = await self._with_file(device, call)
        return await self.fleet.send_content(call.number, call.to, content, call.name)

    async def _with_file(self, device: Device, call: recipients.SendAsRecipient) -> Mapping[str, Any]:
        """Upload the file of a media message, and return the content that points to it."""
        kind = str(call.content["type"])
        described: Mapping[str, Any] = call.content[kind]
        filename, caption = (str(described.get(name) or "") for name in ("filename", "caption"))
        mime_type = call.mime_type or transfer.detect(call.file[: kinds.HEAD], filename)[0]
        try:
            media_type = kinds.parse(mime_type)
            media_type.check(call.file[: kinds.HEAD])
        except UnusableType as error:
            raise _Unusable(recipients.REFUSED, str(error)) from error
        of = kinds.AUDIO if kind == transfer.VOICE else kind
        mime_type = media_type.text
        if not kinds.may_be_sent_as(mime_type, of):
            raise _Unusable(recipients.REFUSED, f"a file of the type {mime_type} cannot be sent as {kind}")
        opened = local(lambda: io.BytesIO(call.file))
        pointer, _ = await attachments.upload(self.api, device, opened, len(call.file), mime_type=mime_type)
        made = composing.medium(kind, msgspec.to_builtins(pointer), caption, filename)
        return {**call.content, **made}

    async def _list_shown(self, call: recipients.ListShown) -> list[ShownMessage]:
        await self._find(call.number)
        context, limit = self.context, max(1, min(call.limit, recipients.MAX_SHOWN))
        async with context.database.reading() as connection:
            rows = await inbox.list_of_number(connection, context.name, call.number, after=call.after, limit=limit)
        return [self._shown(row) for row in rows if row.kind not in inbox.HIDDEN]

    def _shown(self, row: inbox.InboxRow) -> ShownMessage:
        message = shown_after_restart(row, self.context.sealer)
        found = reading.read(message.type, message.raw) if message.raw else reading.MessageText([message.text])
        return ShownMessage(
            position=message.position,
            id=message.id,
            sender=message.peer,
            at=message.time,
            type=message.type,
            lines=found.lines,
            choices=[choice.label for choice in found.choices],
            content=_decoded(message.raw),
            group=message.group,
        )

    async def _drop_shown(self) -> None:
        """Delete the rows of shown messages, and end typing indicators.

        Redeliveries are still detected by their ids in memory.
        """
        context = self.context
        async with context.database.transaction() as connection:
            last, _, _ = await inbox.find(connection, context.name)
            await inbox.delete_before(connection, context.name, context.now() + 1, last)
        self.typing.clear()

    async def _find(self, number: str) -> Device:
        """Return the device of a recipient. A test number is registered first."""
        device = self.fleet.devices.get(number)
        if device is not None:
            return device
        if number in self.offline:
            raise _Unusable(recipients.OFFLINE, f"{number} is a robot that never logs in")
        if not numbers.is_test_number(number):
            raise _Unusable(recipients.UNKNOWN, f"{number} is no recipient of this installation")
        async with self._enrolling:
            return self.fleet.devices.get(number) or await self._enrol(number)

    async def _enrol(self, number: str) -> Device:
        if self._enrolled >= MAX_ENROLLED:
            raise _Unusable(recipients.REFUSED, f"{MAX_ENROLLED} test numbers are registered, which is the limit")
        # An earlier registration that failed has left its device: another identity must not get that row.
        device = await own_number.load(self.context, number)
        try:
            async with asyncio.timeout(ENROL_SECONDS):
                await self.registrar.register([device], asyncio.Event())
        except TimeoutError as error:
            raise NetworkUnavailable("the network did not register the number in time") from error
        self.fleet.add(device)
        self._enrolled += 1
        return device


class _Unusable(Exception):
    """The call cannot be carried out for this recipient."""

    def __init__(self, reason: str, details: str) -> None:
        super().__init__(details)
        self.reason = reason


def _decoded(raw: str) -> dict[str, Any] | None:
    """Return a content as its sender wrote it; `None` for a plain text."""
    return msgspec.json.decode(raw, type=dict[str, Any]) if raw else None
