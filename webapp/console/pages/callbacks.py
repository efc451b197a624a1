"""Callbacks: a list with filters in the URL, one callback with its body and attempts, and replays and purges."""

from __future__ import annotations

import json
from collections.abc import Mapping

from tidings.storage.business import callback_changes, callback_views, callbacks, console_views, message_views
from tidings.storage.business.callback_changes import CallbackChange
from tidings.storage.business.callback_views import (
    EXAMINED,
    GIVEN_UP,
    PAGE,
    PENDING,
    SEARCHED,
    STATES,
    CallbackFilter,
    CallbackRecord,
)
from tidings.wire import core
from tidings.wire.codes import NOT_FOUND
from webapp.console.access.forms import FormFields
from webapp.console.figures.processes import NumberShards
from webapp.console.operations.bulk_changes import (
    MAX_SELECTED,
    PURGE,
    REPLAY,
    BulkChanges,
    SelectedCallbacks,
)
from webapp.console.operations.operator_link import OperatorLink
from webapp.console.page_request import PageRequest, Result, redirect
from webapp.console.parts import ConsoleTables
from webapp.console.render import pages, texts
from webapp.console.render.pages import PageContent
from webapp.http.errors import APIError, CoreappUnreachable, InvalidRequest

PATH = "/console/callbacks"
AUDITED = 100  # entries of the audit
CHANGES = 5  # latest replays and purges below the list
KINDS = ("inbound_message", "status_change", "contact_change", *sorted(callbacks.CLOUD_KINDS))
FILTERS = ("status", "kind", "recipient", "id", "since", "until")
_HIGHEST = (1 << 63) - 1


async def show_list(page: PageRequest) -> Result:
    """Show one page of the callbacks that the filters select."""
    account = page.caller.account
    before = _number(page.query.text("before"))
    async with page.part(ConsoleTables).database.reading() as connection:
        found = await callback_views.list_callbacks(
            connection,
            account,
            _selection(page.query),
            block=page.part(NumberShards).block_of(account) or 0,
            before=before,
        )
        changes = await callback_changes.list_latest(connection, account, limit=CHANGES)
    values = {
        "rows": found.rows,
        "older": found.older,
        "filters": {name: page.query.text(name) for name in FILTERS},
        "kept": _kept(page.query),
        "statuses": STATES,
        "kinds": KINDS,
        "is_first": before is None,
        "is_partial": found.older is not None and len(found.rows) < PAGE,
        "examined": EXAMINED,
        "searched": SEARCHED,
        "can_purge": page.part(OperatorLink).is_usable,
        "changes": changes,
    }
    return PageContent("callbacks.html", values)


async def show_one(page: PageRequest) -> Result:
    """Show one callback without its body."""
    return await _page_of(page, await _require(page), None, problem="")


async def show_body(page: PageRequest) -> Result:
    """Show one callback with its body and the responses to its attempts, which its Coreapp records in the audit."""
    record = await _require(page)
    entry, account, by = record.entry, page.caller.account, f"{page.caller.username} (console)"
    shards = await page.part(NumberShards).of(account)
    try:
        if not shards:
            raise CoreappUnreachable("no Coreapp owns a shard of this number")
        # Any owner of the number opens it. The shard of an earlier layout may be gone.
        owner = entry.shard if entry.shard in shards else min(shards)
        shown = await page.part(OperatorLink).call(
            owner,
            lambda n: core.ReadCallback(n, account, entry.seq, by),
            core.CallbackText,
            version=core.RECORDS_READERS,
        )
    except APIError as error:
        status = 503 if isinstance(error, CoreappUnreachable) else 409
        return await _page_of(page, record, None, problem=error.problems[0].details, status=status)
    return await _page_of(page, record, shown, problem="")


async def replay_selected(page: PageRequest) -> Result:
    """Post the ticked callbacks again."""
    seqs = [seq for value in page.form.all("seq")[:PAGE] if (seq := _number(value)) is not None]
    account = page.caller.account
    shards = await page.part(NumberShards).of(account)
    selected: dict[tuple[int, str], list[int]] = {}
    async with page.part(ConsoleTables).database.reading() as connection:
        for seq in seqs:
            found = await callback_views.read_callback(connection, account, seq)
            if found is not None and found.entry.state != PENDING and shards:
                shard = found.entry.shard if found.entry.shard in shards else min(shards)
                selected.setdefault((shard, found.entry.state), []).append(seq)
    if not selected:
        return redirect(PATH)
    chosen = SelectedCallbacks(selected)
    return await _start(page, REPLAY, chosen, pages.text("callbacks", "selected", count=chosen.total))


async def confirm(page: PageRequest) -> Result:
    """Show how many callbacks a replay or purge of all that match would change."""
    return await _confirmation(page, page.query, "")


async def change_all(page: PageRequest) -> Result:
    """Start to replay or purge all callbacks that match, after the count was confirmed."""
    action, choice = _action(page.form), _selection(page.form, _action(page.form))
    # Those that were made after the count was shown stay as they are.
    below = _number(page.form.text("below"))
    selected = await page.part(BulkChanges).select(page.caller.account, choice, action, below=below)
    if not selected.total:
        return redirect(PATH, _kept(page.form))
    if action == PURGE and (below is None or page.form.text("typed") != str(selected.total)):
        return await _confirmation(page, page.form, pages.text("callbacks", "count_differs", count=selected.total))
    return await _start(page, action, selected, describe(choice))


async def show_audit(page: PageRequest) -> Result:
    """Show the latest replays, purges and other actions, of whichever command or console."""
    account = page.caller.account
    shards = await page.part(NumberShards).of(account)
    async with page.part(ConsoleTables).database.reading() as connection:
        found = await console_views.list_audit(connection, account, shards, limit=AUDITED)
    return PageContent("callbacks_audit.html", {"entries": found.rows, "floor": found.floor})


async def show_change(page: PageRequest) -> Result:
    """Show the progress of a replay or purge."""
    return PageContent("callback_change.html", {"change": await _require_change(page)})


async def stop_change(page: PageRequest) -> Result:
    """Stop a replay or purge after the page of callbacks in progress, whichever Webapp carries it out."""
    found = await _require_change(page)
    await page.part(BulkChanges).stop(found.account, found.id)
    return _redirect_to_change(found)


def describe(choice: CallbackFilter) -> str:
    """Return a selection in words, for the audit."""
    parts = [("status", choice.state), ("kind", choice.kind), ("recipient", choice.recipient), ("id", choice.id)]
    parts += [("since", texts.utc(choice.since) if choice.since else "")]
    parts += [("until", texts.utc(choice.until) if choice.until else "")]
    return ", ".join(f"{name} {value}" for name, value in parts if value) or "all"


async def _page_of(
    page: PageRequest, record: CallbackRecord, shown: core.CallbackText | None, *, problem: str, status: int = 200
) -> Result:
    entry = record.entry
    async with page.part(ConsoleTables).database.reading() as connection:
        message = await message_views.read_timeline(connection, page.caller.account, entry.message_id)
    responses = {one.at: one.content for one in shown.responses} if shown is not None else {}
    attempts = [
        (
            attempt,
            callback_views.headers_of(entry, attempt),
            responses[attempt.at].decode("utf-8", "replace") if attempt.at in responses else None,
        )
        for attempt in record.attempts
    ]
    values = {
        "callback": entry,
        "message_id": "" if entry.message_id.startswith("contacts:") else entry.message_id,
        "is_known": message is not None,
        "attempts": attempts,
        "body": _indented(shown.body.decode("utf-8", "replace")) if shown is not None else None,
        "problem": problem,
        "is_replayable": entry.state != PENDING,
    }
    return PageContent("callback.html", values, status)


async def _confirmation(page: PageRequest, wanted: FormFields, problem: str) -> Result:
    action, choice = _action(wanted), _selection(wanted, _action(wanted))
    selected = await page.part(BulkChanges).select(page.caller.account, choice, action)
    values = {
        "action": action,
        "count_of": selected.total,
        "by_state": selected.by_state,
        "below": selected.highest + 1,
        "most": MAX_SELECTED,
        "choice": describe(choice),
        "kept": {**_kept(wanted), **({"status": choice.state} if choice.state else {})},
        "problem": problem,
    }
    return PageContent("callbacks_confirm.html", values, 400 if problem else 200)


async def _require(page: PageRequest) -> CallbackRecord:
    seq = _number(page.params["seq"])
    if seq is not None:
        async with page.part(ConsoleTables).database.reading() as connection:
            found = await callback_views.read_callback(connection, page.caller.account, seq)
        if found is not None:
            return found
    raise InvalidRequest.because(NOT_FOUND, pages.text("errors", "no_callback", seq=page.params["seq"][:64]))


async def _require_change(page: PageRequest) -> CallbackChange:
    async with page.part(ConsoleTables).database.reading() as connection:
        found = await callback_changes.find(connection, page.caller.account, page.params["id"])
    if found is None:
        raise InvalidRequest.because(NOT_FOUND, pages.text("errors", "no_change"))
    return found


def _selection(wanted: FormFields, action: str = "") -> CallbackFilter:
    """Return the selection of the filters. A purge without a status selects those given up, as `tidings queue` does."""
    status, kind = wanted.text("status"), wanted.text("kind")
    if not status and action == PURGE:
        status = GIVEN_UP
    return CallbackFilter(
        recipient=texts.as_key(wanted.text("recipient").removeprefix("+"))[:40],
        id=texts.as_key(wanted.text("id"))[:80],
        kind=kind if kind in KINDS else "",
        state=status if status in STATES else "",
        since=texts.parse_utc(wanted.text("since")) or 0,
        until=texts.parse_utc(wanted.text("until")) or 0,
    )


def _action(wanted: FormFields) -> str:
    return PURGE if wanted.text("action") == PURGE else REPLAY


def _kept(wanted: FormFields) -> Mapping[str, str]:
    return {name: wanted.text(name) for name in FILTERS if wanted.text(name)}


def _number(text: str) -> int | None:
    """Return a number of 63 bits; None for another text."""
    if not (text.isascii() and text.isdigit() and len(text) < 20):
        return None
    found = int(text)
    return found if found <= _HIGHEST else None


async def _start(page: PageRequest, action: str, selected: SelectedCallbacks, choice: str) -> Result:
    caller = page.caller
    started = await page.part(BulkChanges).start(
        action, selected, account=caller.account, user=caller.username, choice=choice
    )
    return _redirect_to_change(started)


def _redirect_to_change(change: CallbackChange) -> Result:
    return redirect(f"{PATH}/changes/{change.id}")


def _indented(body: str) -> str:
    try:
        return json.dumps(json.loads(body), indent=2, ensure_ascii=False)
    except (ValueError, RecursionError):
        return body
