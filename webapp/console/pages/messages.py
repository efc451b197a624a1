"""Messages: a list with filters in the URL, and one message with its steps and callbacks."""

from __future__ import annotations

import json
import logging
import time

from tidings.storage.business import console_views
from tidings.storage.business.console_views import MessageChoice, MessageEntry
from tidings.storage.business.messages import Status
from tidings.wire import core, ids
from webapp.console.access.forms import FormFields
from webapp.console.figures.processes import NumberShards
from webapp.console.operations.operator_link import OperatorLink
from webapp.console.page_request import PageRequest, Result, redirect
from webapp.console.parts import ConsoleTables
from webapp.console.render import texts
from webapp.console.render.pages import PageContent
from webapp.http.errors import APIError, UnknownPath

log = logging.getLogger(__name__)

PAGE = 50  # messages of one page
SENT, RECEIVED = "sent", "received"  # directions
STATUSES = {
    SENT: ("accepted", "sent", "delivered", "read", "failed"),
    RECEIVED: ("received", "marked_read"),
}
KINDS = (
    *("text", "image", "audio", "voice", "video", "document", "sticker", "location", "contacts", "interactive"),
    *("template", "hsm", "button", "order", "reaction", "system", "unknown"),
)
# Participants of a group that one page lists.
_PARTICIPANTS = 200
# Seconds after now that ids of messages may have, because clocks differ.
_AHEAD = 3600


async def show_list(page: PageRequest) -> Result:
    """Show one page of the messages that the filters select."""
    wanted = page.query
    if (message_id := wanted.text("id")) and await _find(page, message_id):
        return redirect(f"/console/messages/{message_id}")
    choice, problem = _choice(page.caller.account, wanted)
    tables = page.part(ConsoleTables)
    async with tables.database.reading() as connection:
        found = await console_views.list_messages(connection, choice, limit=PAGE)
    direction = _direction(wanted)
    kept = {name: wanted.text(name) for name in ("direction", "recipient", "type", "status", "since", "until")}
    values = {
        "rows": [(row, _status(row)) for row in found.rows],
        "older": found.older,
        "filters": kept,
        "kept": {name: value for name, value in kept.items() if value},
        "direction": direction,
        "statuses": STATUSES[direction],
        "kinds": KINDS,
        "problem": problem,
        "wanted_id": message_id,
        "is_filtered": choice.is_filtered,
        "is_first": not wanted.text("before"),
        "scanned": console_views.SCANNED,
    }
    return PageContent("messages.html", values, 400 if problem else 200)


async def show_one(page: PageRequest) -> Result:
    """Show one message. Its content is left out."""
    return await _page_of(page, await _require(page), content=None, problem="")


async def show_content(page: PageRequest) -> Result:
    """Show one message with its content, which is logged."""
    message = await _require(page)
    by = f"{page.caller.username} (console)"
    log.info("console.content_shown", extra={"id": message.id, "by": page.caller.username})
    try:
        shown = await page.part(OperatorLink).call(
            message.shard, lambda n: core.ShowMessage(n, message.id, by, message.shard), core.Shown
        )
    except APIError as error:
        return await _page_of(page, message, content=None, problem=error.problems[0].details)
    return await _page_of(page, message, content=_indented(shown.content), problem="")


async def _page_of(page: PageRequest, message: MessageEntry, *, content: str | None, problem: str) -> Result:
    tables, account = page.part(ConsoleTables), page.caller.account
    shards = await page.part(NumberShards).of(account)
    async with tables.database.reading() as connection:
        receipts = await console_views.list_receipts(connection, message.id, limit=_PARTICIPANTS)
    values = {
        "message": message,
        "status": _status(message),
        "steps": await tables.history.timeline(account, message, shards),
        "callbacks": await tables.history.callbacks_of(account, message.id, shards),
        "participants": [(receipt.member, Status(receipt.status).name.lower()) for receipt in receipts],
        "content": content,
        "problem": problem,
        "can_show": page.part(OperatorLink).is_usable,
    }
    return PageContent("message.html", values, 409 if problem else 200)


async def _find(page: PageRequest, message_id: str) -> MessageEntry | None:
    if len(message_id) > 64 or not message_id.isascii():
        return None
    async with page.part(ConsoleTables).database.reading() as connection:
        return await console_views.find_message(connection, page.caller.account, message_id)


async def _require(page: PageRequest) -> MessageEntry:
    found = await _find(page, page.params["id"])
    if found is None:
        raise UnknownPath(page.request.scope["path"])
    return found


def _direction(wanted: FormFields) -> str:
    return RECEIVED if wanted.text("direction") == RECEIVED else SENT


def _status(message: MessageEntry) -> str:
    return Status(message.status).name.lower()


def _choice(account: str, wanted: FormFields) -> tuple[MessageChoice, str]:
    """Return the selection of the filters, and the name of a field whose value is wrong; empty for none."""
    direction = _direction(wanted)
    bound = ids.bound if direction == SENT else ids.bound_of_received
    since, until = (_time(wanted, name) for name in ("since", "until"))
    status = wanted.text("status")
    problem = next((name for name, value in (("since", since), ("until", until)) if value is None), "")
    if status and status not in STATUSES[direction]:
        status = ""
    ends = min(until / 1000, time.time() + _AHEAD) if until else time.time() + _AHEAD
    below, before = bound(ends), wanted.text("before")
    if before and before < below:
        below = before
    choice = MessageChoice(
        account,
        above=bound((since or 0) / 1000),
        below=below,
        peer=wanted.text("recipient").removeprefix("+")[:40],
        kind=wanted.text("type")[:16],
        status=int(Status[status.upper()]) if status else None,
    )
    return choice, problem


def _time(wanted: FormFields, name: str) -> int | None:
    """Return Unix milliseconds, 0 for an empty field, and `None` for a wrong one."""
    value = wanted.text(name)
    return texts.parse_utc(value) if value else 0


def _indented(content: bytes) -> str:
    try:
        return json.dumps(json.loads(content), indent=2, ensure_ascii=False)
    except ValueError:
        return content.decode("utf-8", "replace")
