"""Chats of a phone: reading, answering with each type, taps, reactions, forwards, forms, groups, and blocking."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from starlette.responses import Response

from handset import composing, errors, message_parts, own_number, reading, user_input
from handset.composing import Content
from handset.message_parts import ChoicePart
from handset.user_input import InvalidInput
from handset.web import outgoing, recorder, strings, view
from handset.web.phones import OpenPhone
from handset.web.site import HandsetRequest, PageFailure, whole_number
from handset.web.view import ShownConversation, ShownQuote
from tidings.client.errors import ClientError, NetworkUnavailable
from tidings.e2ee import fingerprints
from tidings.storage.handset import sessions
from tidings.storage.handset.chats import ChatItemRow
from tidings.wire import addresses, media_objects
from tidings.wire.groups import MAX_SUBJECT, DescribedGroup

MAX_FIELDS = 40  # fields of a flow's form
EXTRA_FIELDS = 3  # further fields, named by the person

_FORWARDED = ("text", "location", "contacts", *media_objects.KINDS)


# Pages.


async def show_phone(page: HandsetRequest) -> Response:
    return page.render("phone.html", await _frame(page, page.phone(), ""))


async def show_list(page: HandsetRequest) -> Response:
    return page.render("list.html", await _frame(page, page.phone(), page.query("open")))


async def show_more(page: HandsetRequest) -> Response:
    """Show the forms for types of messages other than text and files."""
    phone, chat = page.phone(), _chat_of(page)
    values = {**await _frame(page, phone, chat), "answer": whole_number(page.query("answer"))}
    return page.render("more.html", values)


async def show_messages(page: HandsetRequest) -> Response:
    phone, chat = page.phone(), _chat_of(page)
    shown = await view.conversation(phone, chat)
    await _read(phone, chat, shown)
    values = {"phone": phone, "chat": chat, "shown": shown, "before": 0}
    return page.render("messages.html", values)


async def show(page: HandsetRequest, problem: str = "", status: int = 200) -> Response:
    phone, chat = page.phone(), _chat_of(page)
    before = whole_number(page.query("before"))
    shown = await view.conversation(phone, chat, before)
    if not before:
        await _read(phone, chat, shown)
    answered = await view.find(phone, whole_number(page.query("answer") or page.field("answer")), chat)
    values = {
        **await _frame(page, phone, chat),
        "shown": shown,
        "before": before,
        "answering": _quote(phone, *answered) if answered is not None else None,
        "note": await _effect(phone, chat, page.query("did")),
        "problem": problem,
        "typed": page.field("text"),
        "is_group": addresses.names_group(chat),
    }
    return page.render("chat.html", values, status)


async def _frame(page: HandsetRequest, phone: OpenPhone, chat: str) -> Mapping[str, Any]:
    """Return the values of the list of chats, which each chat's page also shows."""
    return {
        "phone": phone,
        "chats": await view.list_chats(phone),
        "chat": chat,
        "title": await view.title_of(phone, chat) if chat else "",
        "numbers": list(page.book.phones),
    }


async def _read(phone: OpenPhone, chat: str, shown: ShownConversation) -> None:
    """Mark the messages that the page shows as read. Without the store nothing is marked."""
    if shown.last:
        with contextlib.suppress(ClientError):
            await phone.read(chat, up_to=shown.last)


def _quote(phone: OpenPhone, row: ChatItemRow, raw: str) -> ShownQuote:
    author = strings.YOU if row.author == phone.number else f"+{row.author}"
    return ShownQuote(author, view.preview(row.kind, raw), row.position)


async def _effect(phone: OpenPhone, chat: str, did: str) -> str:
    """Return the effect of a tapped choice that sends nothing; empty for none.

    did: `position.index` of the message and the choice
    """
    position, _, index = did.partition(".")
    found = await view.find(phone, whole_number(position), chat) if did else None
    if found is None:
        return ""
    choices = message_parts.choices_of(message_parts.read(found[0].kind, found[1]))
    number = whole_number(index)
    return choices[number].effect if number < len(choices) else ""


# Sending.


async def send(page: HandsetRequest) -> Response:
    """Send the content of the form. If it is invalid or not sent, show the page with the error and the input."""
    phone, chat = page.phone(), _chat_of(page)
    try:
        answered = await view.find(phone, whole_number(page.field("answer")), chat)
        content = await outgoing.compose(page, phone, chat, answered[0] if answered is not None else None)
        await phone.send(chat, content)
    except (InvalidInput, ClientError) as error:
        status = 503 if isinstance(error, NetworkUnavailable | errors.NotStored) else 422
        return await show(page, strings.NOT_SENT.format(reason=error), status)
    return _back(page, chat)


async def act(page: HandsetRequest) -> Response:
    """Tap a choice, react, or delete: `do` has the action, the position of the message, and its argument."""
    phone, chat = page.phone(), _chat_of(page)
    action, position, argument = (*page.field("do").split(" ", 2), "", "", "")[:3]
    row, raw = await _message(page, position)
    if action == "pick":
        choices = message_parts.choices_of(message_parts.read(row.kind, raw))
        index = whole_number(argument)
        if index >= len(choices):
            raise PageFailure(422, strings.NO_SUCH_MESSAGE)
        picked = choices[index].answer
        if picked is None:
            return page.redirect(f"/{phone.number}/chats/{chat}?did={row.position}.{index}#m{row.position}")
        content = composing.answering(dict(picked), row.id, row.author)
    elif action == "react":
        content = user_input.reaction(row.id, argument or page.field("emoji"))
    elif action == "delete" and row.author == phone.number:
        content = composing.deleted(row.id)
    else:
        raise PageFailure(422, strings.NO_SUCH_MESSAGE)
    await phone.send(chat, content)
    return _back(page, chat)


async def read(page: HandsetRequest) -> Response:
    """Send the receipts `read` once, although the phone does not send them by itself."""
    phone, chat = page.phone(), _chat_of(page)
    await phone.read(chat, even_if_unwanted=True)
    return _back(page, chat)


async def show_form(page: HandsetRequest) -> Response:
    phone, chat = page.phone(), _chat_of(page)
    choice, row = await _form_of(page)
    fields = [(name, _field_text(value)) for name, value in list(choice.fields.items())[:MAX_FIELDS]]
    values = {"choice": choice, "row": row, "fields": fields, "extra": range(EXTRA_FIELDS), "index": page.path("index")}
    return page.render("form.html", {**await _frame(page, phone, chat), **values})


async def send_form(page: HandsetRequest) -> Response:
    phone, chat = page.phone(), _chat_of(page)
    choice, row = await _form_of(page)
    filled: dict[str, Any] = dict(_response_of(choice))
    for name in list(choice.fields)[:MAX_FIELDS]:
        filled[name] = page.field(f"field {name}")
    for n in range(EXTRA_FIELDS):
        if name := page.field(f"name {n}"):
            filled[name] = page.field(f"value {n}")
    content = user_input.form(json.dumps(filled, ensure_ascii=False))
    await phone.send(chat, composing.answering(content, row.id, row.author))
    return _back(page, chat)


async def show_forward(page: HandsetRequest) -> Response:
    phone, chat = page.phone(), _chat_of(page)
    row, raw = await _message(page, page.path("position"))
    return page.render(
        "forward.html", {**await _frame(page, phone, chat), "row": row, "quote": _quote(phone, row, raw)}
    )


async def forward(page: HandsetRequest) -> Response:
    phone = page.phone()
    row, raw = await _message(page, page.path("position"))
    target = page.field("to")
    if not (target and addresses.is_group(target)):
        target = own_number.digits_of(target)
    if not target:
        raise PageFailure(422, strings.NOT_A_NUMBER)
    content: Content
    if row.kind in _FORWARDED:
        content = {"type": row.kind, row.kind: message_parts.value_at(recorder.decoded(raw), row.kind)}
    else:
        content = composing.text(reading.describe(row.kind, raw)[: composing.MAX_TEXT])
    await phone.send(target, composing.forwarded(content))
    return _back(page, target)


# Chats and groups.


async def show_new(page: HandsetRequest) -> Response:
    return page.render("new.html", await _frame(page, page.phone(), ""))


async def start(page: HandsetRequest) -> Response:
    """Open the chat with a number, join a group by its code, or create one."""
    phone, groups = page.phone(), page.phone().fleet.groups
    if code := page.field("code"):
        return _back(page, (await groups.join(phone.number, code)).id)
    if subject := page.field("subject")[:MAX_SUBJECT]:
        return _back(page, (await groups.create(phone.number, subject)).id)
    number = own_number.digits_of(page.field("to"))
    if not number:
        raise PageFailure(422, strings.NOT_A_NUMBER)
    return _back(page, number)


async def show_info(page: HandsetRequest) -> Response:
    phone, chat = page.phone(), _chat_of(page)
    values: dict[str, Any] = {
        **await _frame(page, phone, chat),
        "is_group": addresses.names_group(chat),
        "is_blocked": chat in phone.preferences.blocked,
        "encrypted": strings.ENCRYPTED_TLS if page.site.is_secure else strings.ENCRYPTED,
        "safety": "",
        "group": None,
        "code": "",
        "problem": "",
    }
    if addresses.names_group(chat):
        values |= await _group_of(phone, chat)
    else:
        values["safety"] = await _safety_number(phone, chat)
    return page.render("info.html", values)


async def change(page: HandsetRequest) -> Response:
    """Block or unblock the peer, or leave the group."""
    phone, chat = page.phone(), _chat_of(page)
    action = page.field("do")
    if action == "leave" and addresses.names_group(chat):
        await phone.fleet.groups.leave(phone.number, chat)
        return page.redirect(f"/{phone.number}")
    if action in ("block", "unblock") and addresses.is_number(chat):
        await page.book.block(phone.number, chat, is_blocked=action == "block")
    return page.redirect(f"/{phone.number}/chats/{chat}/info")


async def _group_of(phone: OpenPhone, group: str) -> Mapping[str, Any]:
    try:
        described: DescribedGroup = await phone.fleet.groups.get(phone.number, group)
    except ClientError as error:
        return {"problem": strings.GROUP_AWAY.format(reason=error)}
    try:
        return {"group": described, "code": await phone.fleet.groups.get_code(phone.number, group)}
    except ClientError:
        # Only admins see the code.
        return {"group": described}


async def _safety_number(phone: OpenPhone, peer: str) -> str:
    """Return the safety number with a peer in groups of five digits; empty before the first message."""
    device, sealer = phone.own.device, phone.own.context.sealer
    async with phone.database.reading() as connection:
        rows: Sequence[sessions.SessionRow] = await sessions.list_sessions(connection, [(phone.number, peer)])
    if not rows:
        return ""
    theirs = sealer.session(device, rows[0]).remote_identity
    digits = await asyncio.to_thread(
        fingerprints.safety_number, device.identity.public, f"+{phone.number}", theirs, f"+{peer}"
    )
    return " ".join(digits[start : start + 5] for start in range(0, len(digits), 5))


# Parts of requests.


def _chat_of(page: HandsetRequest) -> str:
    """Return the chat that the path names. Raises `PageFailure`."""
    chat = page.path("chat")
    if not (addresses.is_number(chat) or addresses.is_group(chat)):
        raise PageFailure(404, strings.NOT_FOUND)
    return chat


def _back(page: HandsetRequest, chat: str) -> Response:
    return page.redirect(f"/{page.path('number')}/chats/{chat}#end")


async def _message(page: HandsetRequest, position: str) -> tuple[ChatItemRow, str]:
    """Return a message of the chat that the path names, with its content. Raises `PageFailure`."""
    found = await view.find(page.phone(), whole_number(position), _chat_of(page))
    if found is None:
        raise PageFailure(404, strings.NO_SUCH_MESSAGE)
    return found


async def _form_of(page: HandsetRequest) -> tuple[ChoicePart, ChatItemRow]:
    """Return the choice that opens a form, with its message. Raises `PageFailure`."""
    row, raw = await _message(page, page.path("position"))
    choices = message_parts.choices_of(message_parts.read(row.kind, raw))
    index = whole_number(page.path("index"))
    if index >= len(choices) or choices[index].look != message_parts.FORM:
        raise PageFailure(404, strings.NO_SUCH_MESSAGE)
    return choices[index], row


def _response_of(choice: ChoicePart) -> Mapping[str, Any]:
    """Return the response of an empty form: its token."""
    found = recorder.decoded(message_parts.text_at(choice.answer, "interactive", "nfm_reply", "response_json"))
    return found if isinstance(found, dict) else {}


def _field_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
