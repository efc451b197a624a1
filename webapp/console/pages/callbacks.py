"""Callbacks: a list with filters in the URL, one callback with its body and attempts, and replays and purges."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping

from tidings.storage.business import callbacks, console_views
from tidings.storage.business.console_views import CallbackChoice, ListPage
from tidings.storage.business.queue_views import CALLBACK_STATUSES, DEAD, FAILING, CallbackView
from tidings.wire import core
from webapp.console.access.forms import FormFields
from webapp.console.figures.processes import NumberShards
from webapp.console.operations.bulk_changes import MAX_SELECTED, PURGE, REPLAY, BulkChange, BulkChanges
from webapp.console.operations.operator_link import NO_KEY, OperatorLink
from webapp.console.page_request import PageRequest, Result, redirect
from webapp.console.parts import ConsoleTables
from webapp.console.render import pages, texts
from webapp.console.render.pages import PageContent
from webapp.http.errors import APIError, UnknownPath

log = logging.getLogger(__name__)

PATH = "/console/callbacks"
PAGE, AUDITED = 50, 100  # callbacks of one page, and entries of the audit
DONE = "done"
KINDS = ("inbound_message", "status_change", "contact_change", *sorted(callbacks.CLOUD_KINDS))
FILTERS = ("status", "kind", "message", "since", "until")
_HIGHEST = (1 << 63) - 1


async def show_list(page: PageRequest) -> Result:
    """Show one page of the callbacks that the filters select."""
    choice = await _choice(page, page.query)
    before = page.query.text("before")
    found = await _read(page, choice, int(before) if before.isascii() and before.isdigit() else _HIGHEST)
    kept = _kept(page.query)
    values = {
        "rows": found.rows,
        "older": found.older,
        "filters": {name: page.query.text(name) for name in FILTERS},
        "kept": kept,
        "statuses": (*CALLBACK_STATUSES, DONE) if page.part(ConsoleTables).history.keeps_done else CALLBACK_STATUSES,
        "kinds": KINDS,
        "is_first": not before,
        "is_filtered": choice.is_filtered,
        "scanned": console_views.SCANNED,
        "can_change": page.part(OperatorLink).is_usable,
        "no_key": NO_KEY,
        "changes": page.part(BulkChanges).list(page.caller.account)[:5],
        "problem": "",
    }
    return PageContent("callbacks.html", values)


async def show_one(page: PageRequest) -> Result:
    """Show one callback without its body."""
    return await _page_of(page, await _require(page), body=None, problem="")


async def show_body(page: PageRequest) -> Result:
    """Show one callback with its body, which is logged."""
    callback = await _require(page)
    by = _by(page)
    log.info("console.content_shown", extra={"event_id": callback.event_id, "by": page.caller.username})
    try:
        shown = await page.part(OperatorLink).call(
            callback.shard, lambda n: core.ShowCallback(n, callback.seq, by, callback.shard), core.Shown
        )
    except APIError as error:
        return await _page_of(page, callback, body=None, problem=error.problems[0].details)
    return await _page_of(page, callback, body=shown.content.decode("utf-8", "replace"), problem="")


async def replay_selected(page: PageRequest) -> Result:
    """Post the ticked callbacks again."""
    seqs = [int(value) for value in page.form.all("seq") if value.isascii() and value.isdigit()][:PAGE]
    account = page.caller.account
    selected: dict[int, list[int]] = {}
    async with page.part(ConsoleTables).database.reading() as connection:
        for seq in seqs:
            found = await console_views.find_callback(connection, account, seq)
            if found is not None:
                selected.setdefault(found.shard, []).append(seq)
    if not selected:
        return redirect(PATH)
    choice = pages.text("callbacks", "selected", count=sum(map(len, selected.values())))
    return _started(page.part(BulkChanges).start(REPLAY, selected, account=account, by=_by(page), choice=choice))


async def confirm(page: PageRequest) -> Result:
    """Show how many callbacks a replay or purge of all that match would change."""
    return await _confirmation(page, page.query, "")


async def change_all(page: PageRequest) -> Result:
    """Start to replay or purge all callbacks that match, after the count was confirmed."""
    action = _action(page.form)
    choice = await _choice(page, page.form, action)
    changes = page.part(BulkChanges)
    selected = await changes.select(choice)
    count = sum(map(len, selected.values()))
    if not count:
        return redirect(PATH, _kept(page.form))
    if action == PURGE and page.form.text("typed") != str(count):
        return await _confirmation(page, page.form, pages.text("callbacks", "count_differs", count=count))
    started = changes.start(
        action,
        selected,
        account=page.caller.account,
        by=_by(page),
        choice=describe(choice),
        statuses=[choice.status] if choice.status else [],
    )
    return _started(started)


async def show_audit(page: PageRequest) -> Result:
    """Show the latest replays and purges, of whichever command or console."""
    shards = await page.part(NumberShards).of(page.caller.account)
    async with page.part(ConsoleTables).database.reading() as connection:
        entries = await console_views.list_audit(connection, shards, limit=AUDITED)
    return PageContent("callbacks_audit.html", {"entries": entries})


async def show_change(page: PageRequest) -> Result:
    """Show the progress of a replay or purge."""
    found = page.part(BulkChanges).find(page.caller.account, page.params["id"])
    if found is None:
        raise UnknownPath(page.request.scope["path"])
    return PageContent("callback_change.html", {"change": found})


async def stop_change(page: PageRequest) -> Result:
    """Stop a replay or purge after the page of callbacks in progress."""
    found = page.part(BulkChanges).find(page.caller.account, page.params["id"])
    if found is None:
        raise UnknownPath(page.request.scope["path"])
    found.is_stopped = True
    return _started(found)


def describe(choice: CallbackChoice) -> str:
    """Return a selection in words, for the audit."""
    parts = [("status", choice.status), ("kind", choice.kind), ("message", choice.message)]
    parts += [("since", texts.utc(choice.since) if choice.since else "")]
    parts += [("until", texts.utc(choice.until) if choice.until else "")]
    return ", ".join(f"{name} {value}" for name, value in parts if value) or "all"


async def _page_of(page: PageRequest, callback: CallbackView, *, body: str | None, problem: str) -> Result:
    attempts = await page.part(ConsoleTables).history.attempts(page.caller.account, callback)
    subject = callback.subject.removeprefix(callbacks.CLOUD_SUBJECT)
    values = {
        "callback": callback,
        "message_id": "" if subject.startswith("contacts:") else subject,
        "attempts": attempts,
        "body": _indented(body) if body is not None else None,
        "raw_body": body,
        "problem": problem,
        "can_change": page.part(OperatorLink).is_usable,
        "is_replayable": callback.status in (FAILING, DEAD),
        "is_cloud": callback.kind in callbacks.CLOUD_KINDS,
    }
    return PageContent("callback.html", values, 409 if problem else 200)


async def _confirmation(page: PageRequest, wanted: FormFields, problem: str) -> Result:
    action = _action(wanted)
    choice = await _choice(page, wanted, action)
    selected = await page.part(BulkChanges).select(choice)
    count = sum(map(len, selected.values()))
    values = {
        "action": action,
        "count_of": count,
        "most": MAX_SELECTED,
        "choice": describe(choice),
        "kept": {**_kept(wanted), **({"status": choice.status} if choice.status else {})},
        "problem": problem,
    }
    return PageContent("callbacks_confirm.html", values, 400 if problem else 200)


async def _read(page: PageRequest, choice: CallbackChoice, before: int) -> ListPage[CallbackView, int]:
    tables = page.part(ConsoleTables)
    if choice.status == DONE:
        return await tables.history.list_done(choice, before=before, limit=PAGE)
    async with tables.database.reading() as connection:
        return await console_views.list_callbacks(connection, choice, before=min(before, _HIGHEST), limit=PAGE)


async def _require(page: PageRequest) -> CallbackView:
    given = page.params["seq"]
    if given.isascii() and given.isdigit() and len(given) < 20:
        async with page.part(ConsoleTables).database.reading() as connection:
            found = await console_views.find_callback(connection, page.caller.account, int(given))
        if found is not None:
            return found
    raise UnknownPath(page.request.scope["path"])


async def _choice(page: PageRequest, wanted: FormFields, action: str = "") -> CallbackChoice:
    """Return the selection of the filters. A purge without a status selects the dead ones, as `tidings queue` does."""
    account, status, kind = page.caller.account, wanted.text("status"), wanted.text("kind")
    known = (*CALLBACK_STATUSES, DONE)
    if not status and action == PURGE:
        status = DEAD
    if action == REPLAY and status not in (FAILING, DEAD):
        status = DEAD
    return CallbackChoice(
        account,
        await page.part(NumberShards).of(account),
        status=status if status in known else "",
        kind=kind if kind in KINDS else "",
        message=wanted.text("message")[:64],
        since=texts.parse_utc(wanted.text("since")) or 0,
        until=texts.parse_utc(wanted.text("until")) or 0,
    )


def _action(wanted: FormFields) -> str:
    return PURGE if wanted.text("action") == PURGE else REPLAY


def _kept(wanted: FormFields) -> Mapping[str, str]:
    return {name: wanted.text(name) for name in FILTERS if wanted.text(name)}


def _by(page: PageRequest) -> str:
    return f"{page.caller.username} (console)"


def _started(change: BulkChange) -> Result:
    return redirect(f"{PATH}/changes/{change.id}")


def _indented(body: str) -> str:
    try:
        return json.dumps(json.loads(body), indent=2, ensure_ascii=False)
    except ValueError:
        return body
