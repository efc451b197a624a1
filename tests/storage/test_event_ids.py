"""Event ids that are stored with their callbacks: callbacks, replays and choices are found by them."""

from __future__ import annotations

from tests.conftest import DatabaseFactory
from tidings.storage.business import callback_replays, callbacks, queue_views
from tidings.storage.business.callback_replays import Replay
from tidings.storage.business.callbacks import Callback
from tidings.storage.business.queue_views import RowFilter

OWN = callbacks.status_event("gBEG1", "15550110001", 1)


async def test_a_callback_and_its_replay_are_found_by_the_stored_event_id(
    database_factory: DatabaseFactory,
) -> None:
    database = await database_factory("business")
    rows = [
        Callback(1, 0, "1", "gBEG1", "status_change", b"{}", 0, event=OWN),
        Callback(2, 0, "1", "gBEG2", "inbound_message", b"{}", 0),
    ]
    async with database.transaction() as connection:
        await callbacks.enqueue(connection, rows, [row.body for row in rows])
        assert [row.event_id for row in await callbacks.list_pending(connection, 0, after=0, limit=9)] == [OWN, "evt_2"]
        for choice, expected in (
            (RowFilter(events=(OWN,)), [OWN]),
            (RowFilter(seqs=(2,)), ["evt_2"]),
            (RowFilter(seqs=(2,), events=(OWN,)), [OWN, "evt_2"]),
        ):
            found = await queue_views.list_callbacks(connection, choice)
            assert [row.event_id for row in found] == expected
        await callback_replays.add(connection, [Replay(1, 100, 0, "ann@desk"), Replay(2, 100, 0, "ann@desk")])
        replays = await callback_replays.list_after(connection, (0, 0))
    assert [replay.event_id for replay in replays] == [OWN, "evt_2"]
