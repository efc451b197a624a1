"""Messages and callbacks of a history, as rows."""

from __future__ import annotations

from tidings.storage.business import callback_history, callbacks, message_views
from tidings.storage.business.callback_history import Attempt, EndedAttempt
from tidings.storage.business.callback_views import CallbackRecord
from tidings.storage.business.callbacks import Callback
from tidings.storage.business.message_views import MessageTimeline
from tidings.storage.business.messages import MessageRow, Status
from tidings.storage.database import Connection
from tidings.wire import ids

ME, OTHER = "15550000000", "15550000001"
ANN, BEN = "15550110001", "15550110002"
NOW = 1_700_000_000_000


def an_id(milliseconds: int, name: str = "") -> str:
    """Return the id of a message made at this time."""
    return ids.bound(milliseconds / 1000) + name.rjust(15, "0")


def message(
    message_id: str, peer: str = ANN, kind: str = "text", status: Status = Status.ACCEPTED, account: str = ME
) -> MessageRow:
    made = ids.made_at(message_id)
    assert made is not None
    return MessageRow(message_id, account, 0, peer, kind, status, int(made * 1000) + 5, "r")


def seq_at(milliseconds: int, place: int = 0) -> int:
    return (milliseconds * 1000 + place) << 5


def callback(
    seq: int, subject: str = "m", *, peer: str = ANN, kind: str = "status_change", event: str = ""
) -> Callback:
    return Callback(seq, 0, ME, subject, kind, b"body", seq // 32_000, event=event, recipient=peer)


def tried(one: Callback, number: int = 1, *, status: int | None = 200, at: int = NOW, response: bytes = b"") -> Attempt:
    error = "" if status is not None else "TimeoutError: "
    return callback_history.attempt(one, number, at, 12.7, status, error=error, response=response)


def ended(one: Callback, number: int = 1, *, status: int = 200, at: int = NOW, response: bytes = b"") -> EndedAttempt:
    return EndedAttempt(one, number, at, 12, status, response)


async def enqueue(connection: Connection, *found: Callback) -> None:
    await callbacks.enqueue(connection, found, [one.body for one in found])


def as_it_is(account: str, name: int, texts: bytes) -> bytes:
    """Return texts unsealed."""
    return texts


async def end(connection: Connection, *found: Callback) -> None:
    """Add callbacks to the history."""
    await callback_history.add(connection, [ended(one) for one in found], as_it_is)


def texts_of(record: CallbackRecord) -> tuple[bytes, bytes]:
    """Return the body of an ended callback, and the response."""
    assert record.ended is not None
    texts = callback_history.decode_texts(record.ended.part.sealed)[record.ended.entry.index_in_part]
    return texts.body, texts.response


def status_callbacks(count: int) -> list[Callback]:
    """Return the statuses of messages to different recipients, three for each, with bodies as they are posted."""
    found = []
    for place in range(count):
        number, step = place // 3, place % 3 + 2
        name, peer = an_id(NOW + number, f"{number * 7919**3 % 10**15}"), f"1555{number * 7919 % 10**7:07}"
        one = callback(seq_at(NOW, 256 * place), name, peer=peer, event=callbacks.status_event(name, peer, step))
        text = f'{{"id":"{name}","recipient_id":"{peer}","status":"{Status(step).name}","timestamp":"1700000000"}}'
        one.body, one.request_id = f'{{"statuses":[{text}]}}'.encode(), an_id(NOW + number, "request")
        found.append(one)
    return found


async def timeline(connection: Connection, message_id: str) -> MessageTimeline:
    found = await message_views.read_timeline(connection, ME, message_id)
    assert found is not None
    return found
