"""Messages: a list with filters in the URL, and one message with its steps and callbacks."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence

from tidings.storage.business import callback_views, message_views, queue_views
from tidings.storage.business.callback_views import CallbackEntry, CallbackFilter
from tidings.storage.business.message_views import EXAMINED, PAGE, MessageFilter, MessageTimeline, MessageView
from tidings.storage.business.messages import Status
from tidings.storage.database import Connection
from tidings.wire import core, ids
from tidings.wire.codes import NOT_FOUND
from webapp.console import history
from webapp.console.access.forms import FormFields
from webapp.console.operations.operator_link import OperatorLink
from webapp.console.page_request import PageRequest, Result, redirect
from webapp.console.parts import ConsoleTables
from webapp.console.render import pages, texts
from webapp.console.render.pages import PageContent
from webapp.http.errors import APIError, InvalidRequest

SENT, RECEIVED = "sent", "received"  # directions
STATUSES = {
    SENT: ("accepted", "sent", "delivered", "read", "failed"),
    RECEIVED: ("received", "marked_read"),
}
_KINDS = (
    *("text", "image", "audio", "voice", "video", "document", "sticker", "location", "contacts", "interactive"),
    *("template", "hsm", "button", "order", "reaction", "system", "unknown"),
)
# The first message of a phone may be without content: `null`.
KINDS = {SENT: _KINDS, RECEIVED: (*_KINDS, "null")}
FILTERS = ("direction", "recipient", "type", "status", "since", "until")
# Seconds after now that ids of messages may have, because clocks differ.
_AHEAD = 3600
# Milliseconds before and after each step of a message in which most callbacks about it were made.
_AROUND = 300_000
# Pages of callbacks that are searched around each step of a message, and in all callbacks.
_SEARCHED_PAGES = 2


async def show_list(page: PageRequest) -> Result:
    """Show one page of the messages that the filters select."""
    wanted = page.query
    if (message_id := wanted.text("id")) and await _find(page, message_id):
        return redirect(f"/console/messages/{message_id}")
    choice, problem = _selection(wanted)
    async with page.part(ConsoleTables).database.reading() as connection:
        found = await message_views.list_messages(
            connection, page.caller.account, choice, before=texts.as_key(wanted.text("before"))
        )
    direction = _direction(wanted)
    kept = {name: wanted.text(name) for name in FILTERS}
    values = {
        "rows": [(row, row.status.name.lower()) for row in found.rows],
        "older": found.older,
        "filters": kept,
        "kept": {name: value for name, value in kept.items() if value},
        "direction": direction,
        "statuses": STATUSES[direction],
        "kinds": KINDS[direction],
        "problem": problem,
        "wanted_id": message_id,
        "is_partial": bool(found.older) and len(found.rows) < PAGE,
        "is_first": not wanted.text("before"),
        "examined": EXAMINED,
    }
    return PageContent("messages.html", values, 400 if problem else 200)


async def show_one(page: PageRequest) -> Result:
    """Show one message. Its content is left out."""
    return await _page_of(page, await _require(page), content=None, problem="")


async def show_content(page: PageRequest) -> Result:
    """Show one message with its content, which its Coreapp records in the audit."""
    timeline = await _require(page)
    message, by = timeline.message, f"{page.caller.username} (console)"
    try:
        shown = await page.part(OperatorLink).operate(
            message.shard, lambda n: core.ShowMessage(n, message.id, by, message.shard), core.Shown
        )
    except APIError as error:
        return await _page_of(page, timeline, content=None, problem=error.problems[0].details)
    return await _page_of(page, timeline, content=_indented(shown.content), problem="")


async def _page_of(page: PageRequest, timeline: MessageTimeline, *, content: str | None, problem: str) -> Result:
    message = timeline.message
    async with page.part(ConsoleTables).database.reading() as connection:
        jobs = await queue_views.list_jobs_of(connection, [message.id]) if timeline.is_waiting is not None else []
        callbacks, older = await _find_callbacks(connection, page.caller.account, message)
    values = {
        "message": message,
        "status": message.status.name.lower(),
        "steps": history.steps(timeline, jobs, callbacks),
        "callbacks": callbacks,
        "older": older,
        "participants": [(one, Status(one.status).name.lower()) for one in timeline.participants],
        "content": content,
        "problem": problem,
        "is_kept": message.status in (Status.ACCEPTED, Status.SENT),
        "can_show": page.part(OperatorLink).is_usable,
    }
    return PageContent("message.html", values, 409 if problem else 200)


async def _find_callbacks(
    connection: Connection, account: str, message: MessageView
) -> tuple[Sequence[CallbackEntry], int | None]:
    """Return callbacks about a message, newest first, and the `seq` below which more may be; `None` if these are all.

    They have the shard of the message. Those around its steps are searched first, since busy numbers make more
    callbacks after them than a page can search.
    """
    stored = message.stored_at
    spans: list[tuple[int, int]] = []
    for at in sorted({stored, *_later_steps(message)}):
        begin = spans.pop()[0] if spans and at - _AROUND <= spans[-1][1] else max(0, at - _AROUND)
        spans.append((begin, at + _AROUND))
    # Those of a sent message are younger. The time of a received one is that of the phone.
    since = 0 if history.is_received(message) else max(0, stored - _AHEAD * 1000)
    found: dict[int, CallbackEntry] = {}
    before: int | None = None
    for begin, end in (*spans, (since, 0)):
        choice = CallbackFilter(id=message.id, since=begin, until=end)
        before = None
        for _ in range(_SEARCHED_PAGES):
            page = await callback_views.list_callbacks(connection, account, choice, shard=message.shard, before=before)
            found |= {row.seq: row for row in page.rows}
            before = page.older
            if before is None:
                break
    return [found[seq] for seq in sorted(found, reverse=True)], before


def _later_steps(message: MessageView) -> Sequence[int]:
    """Return the known times of the steps of a message after it was stored."""
    times = (message.sent_at, message.delivered_at, message.read_at, message.failed_at)
    return [at for at in times if at is not None]


async def _find(page: PageRequest, message_id: str) -> MessageTimeline | None:
    if len(message_id) > 64 or not message_id.isascii():
        return None
    async with page.part(ConsoleTables).database.reading() as connection:
        return await message_views.read_timeline(connection, page.caller.account, message_id)


async def _require(page: PageRequest) -> MessageTimeline:
    found = await _find(page, page.params["id"])
    if found is None:
        raise InvalidRequest.because(NOT_FOUND, pages.text("errors", "no_message", id=page.params["id"][:64]))
    return found


def _direction(wanted: FormFields) -> str:
    return RECEIVED if wanted.text("direction") == RECEIVED else SENT


def _selection(wanted: FormFields) -> tuple[MessageFilter, str]:
    """Return the selection of the filters, and the name of a field whose value is wrong; empty for none."""
    direction = _direction(wanted)
    bound = ids.bound if direction == SENT else ids.bound_of_received
    since, until = (_time(wanted, name) for name in ("since", "until"))
    status = wanted.text("status")
    problem = next((name for name, value in (("since", since), ("until", until)) if value is None), "")
    ahead = time.time() + _AHEAD
    end = bound(ahead) if direction == SENT else ids.END_OF_RECEIVED
    choice = MessageFilter(
        recipient=texts.as_key(wanted.text("recipient").removeprefix("+"))[:40],
        kind=texts.as_key(wanted.text("type"))[:16],
        status=Status[status.upper()] if status in STATUSES[direction] else None,
        since_id=bound((since or 0) / 1000),
        until_id=bound(min(until / 1000, ahead)) if until else end,
    )
    return choice, problem


def _time(wanted: FormFields, name: str) -> int | None:
    """Return Unix milliseconds, 0 for an empty field, and `None` for a wrong one."""
    value = wanted.text(name)
    return texts.parse_utc(value) if value else 0


def _indented(content: bytes) -> str:
    try:
        return json.dumps(json.loads(content), indent=2, ensure_ascii=False)
    except (ValueError, RecursionError):
        return content.decode("utf-8", "replace")
