"""The link to the Coreapps follows the shard map: each request goes to the shard's owner."""

from __future__ import annotations

import asyncio
from typing import Literal

import pytest

from tests.webapp.coreapp_links import Link, ScriptedMap, accept, accept_once, of_shard, owner
from tests.webapp.fake_coreapp import FakeCoreapp
from tidings.storage.business import shards
from tidings.storage.database import Database
from tidings.wire import core
from webapp.api.contacts.schemas import Contacts
from webapp.api.contacts.service import ContactChecks
from webapp.auth.tokens import Caller
from webapp.coreapps import shard_requests
from webapp.coreapps.shard_map import DatabaseShardMap, FixedShardMap
from webapp.http.errors import CoreappRefused


async def test_waiting_for_an_owner_does_not_shorten_the_response_timeout(
    coreapp: FakeCoreapp, link: Link, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A shorter wait would leave the outcome unknown after each planned stop that takes some time."""
    monkeypatch.setattr(shard_requests, "LONG_WAIT", 0.0)
    links = await link(FixedShardMap("127.0.0.1", coreapp.port), owner_timeout=0.5, timeout=60.0, stall=60.0)
    coreapp.respond(core.AcceptMessage, lambda request: None)
    call = asyncio.create_task(accept_once(links))
    await coreapp.until(lambda: len(coreapp.requested(core.AcceptMessage)) == 1)
    await asyncio.wait([call], timeout=1.5)
    assert not call.done()
    [request], [connection] = coreapp.requested(core.AcceptMessage), coreapp.connections
    connection.send(core.Accepted(n=request.n, id="gBEG1", wa_id=request.to))
    async with asyncio.timeout(30):
        assert (await call).id == "gBEG1"


async def test_a_message_goes_to_the_owner_of_its_recipient_s_shard(link: Link) -> None:
    coreapps = [await FakeCoreapp().start() for _ in range(2)]
    links = await link(ScriptedMap(*(owner(coreapp, shard) for shard, coreapp in enumerate(coreapps))))
    for shard in range(2):
        await accept(links, of_shard(shard, 2))
    await links.call_primary(lambda n: core.CheckContacts(n=n, account="1", inputs=["1"]), core.Contacts)
    assert [len(coreapp.requested(core.AcceptMessage)) for coreapp in coreapps] == [1, 1]
    assert [len(coreapp.requested(core.CheckContacts)) for coreapp in coreapps] == [1, 0]
    for coreapp in coreapps:
        await coreapp.stop()


CALLER = Caller("admin", "15550000000", "ROLE_ADMIN", "1", "mark", 0)


async def test_contact_checks_go_to_shard_owners_and_keep_the_input_order(link: Link) -> None:
    coreapps = [await FakeCoreapp().start() for _ in range(2)]
    links = await link(ScriptedMap(*(owner(coreapp, shard) for shard, coreapp in enumerate(coreapps))))
    checks = ContactChecks(links)
    first, second = of_shard(0, 2), of_shard(1, 2)
    inputs = [f"+{second}", "no number", f" +{first}", second, first]
    for shard in range(2):
        await accept(links, of_shard(shard, 2))
    found = await checks.check(CALLER, Contacts(contacts=inputs, blocking="wait"), "request")
    assert [entry["input"] for entry in found] == inputs
    assert [entry.get("wa_id") for entry in found] == [second, None, first, second, first]
    requested = [(q.of, q.inputs) for coreapp in coreapps for q in coreapp.requested(core.CheckContacts)]
    parts = [("", ["no number", f" +{first}", first]), (second, [f"+{second}", second])]
    assert sorted(requested) == sorted(parts)
    assert [q.of for q in coreapps[1].requested(core.CheckContacts)] == [second]
    for coreapp in coreapps:
        await coreapp.stop()


@pytest.mark.parametrize(("blocking", "version"), [("no_wait", core.LINK_VERSION), ("wait", 1)])
async def test_no_wait_or_earlier_release_contact_checks_go_to_the_primary_coreapp(
    link: Link, blocking: Literal["wait", "no_wait"], version: int
) -> None:
    coreapps = [await FakeCoreapp().start() for _ in range(2)]
    coreapps[1].version = version
    links = await link(ScriptedMap(*(owner(coreapp, shard) for shard, coreapp in enumerate(coreapps))))
    # Both versions are known when each Coreapp has received a request.
    for shard in range(2):
        await accept(links, of_shard(shard, 2))
    inputs = [of_shard(1, 2), of_shard(0, 2)]
    await ContactChecks(links).check(CALLER, Contacts(contacts=inputs, blocking=blocking), "request")
    assert [(q.of, q.inputs) for q in coreapps[0].requested(core.CheckContacts)] == [("", inputs)]
    assert not coreapps[1].requested(core.CheckContacts)
    for coreapp in coreapps:
        await coreapp.stop()


async def test_requests_go_to_the_new_owner_of_a_moved_shard(link: Link) -> None:
    old, new = await FakeCoreapp().start(), await FakeCoreapp().start()
    shard_map = ScriptedMap(owner(old))
    links = await link(shard_map)
    await accept(links)
    shard_map.now = [owner(new, epoch=2)]
    await links.connections.run_once()
    await accept(links)
    assert [len(each.requested(core.AcceptMessage)) for each in (old, new)] == [1, 1]
    await old.stop()
    await new.stop()


async def test_a_response_of_the_previous_owner_is_accepted_after_the_shard_moved(link: Link) -> None:
    old, new = await FakeCoreapp().start(), await FakeCoreapp().start()
    shard_map = ScriptedMap(owner(old))
    links = await link(shard_map)
    held: list[core.AcceptMessage] = []
    old.respond(core.AcceptMessage, lambda q: held.append(q))
    call = asyncio.create_task(accept(links))
    await old.until(lambda: bool(held))
    shard_map.now = [owner(new, epoch=2)]
    await links.connections.run_once()
    for connection in old.connections:
        connection.send(core.Accepted(n=held[0].n, id="late", wa_id=held[0].to))
    assert (await call).id == "late"
    await old.stop()
    await new.stop()


async def test_a_refusal_by_a_former_owner_redirects_to_the_new_one(link: Link) -> None:
    old, new = await FakeCoreapp().start(), await FakeCoreapp().start()
    shard_map = ScriptedMap(owner(old))
    links = await link(shard_map)

    def moved(request: core.AcceptMessage) -> core.Frame:
        shard_map.now = [owner(new, epoch=2)]
        return core.Refused(n=request.n, code=1018, details="not the owner")

    old.respond(core.AcceptMessage, moved)
    assert (await accept(links)).wa_id == "15550110001"
    assert len(new.requested(core.AcceptMessage)) == 1
    await old.stop()
    await new.stop()


async def test_a_request_is_repeated_until_the_coreapp_owns_its_shard(coreapp: FakeCoreapp, link: Link) -> None:
    links = await link(FixedShardMap("127.0.0.1", coreapp.port))
    refused = 0

    def not_yet(request: core.AcceptMessage) -> core.Frame:
        nonlocal refused
        refused += 1
        if refused <= 2:
            return core.Refused(n=request.n, code=1018, details="not the owner", retry_after=1)
        return core.Accepted(n=request.n, id="x", wa_id=request.to)

    coreapp.respond(core.AcceptMessage, not_yet)
    assert (await accept(links)).id == "x"


async def test_a_coreapp_that_never_owns_its_shard_gives_a_refusal(coreapp: FakeCoreapp, link: Link) -> None:
    links = await link(FixedShardMap("127.0.0.1", coreapp.port), owner_timeout=0.4)
    coreapp.refuse(core.AcceptMessage, 1018, "not the owner", retry_after=1)
    with pytest.raises(CoreappRefused, match="1018 not the owner"):
        await accept(links)


async def test_an_unreadable_shard_map_keeps_the_last_known_owners(coreapp: FakeCoreapp, link: Link) -> None:
    shard_map = ScriptedMap(owner(coreapp))
    links = await link(shard_map)
    await accept(links)
    shard_map.now = ConnectionError("no database")
    await links.connections.run_once()
    await accept(links)


async def test_the_link_follows_the_shard_map_in_the_database(
    coreapp: FakeCoreapp, database: Database, link: Link
) -> None:
    links = await link(DatabaseShardMap(database), owner_timeout=10)
    async with database.transaction() as connection:
        await shards.create_shards(connection, 1)
        assert await shards.claim(connection, 0, owner="node", address=coreapp.address, heartbeat_timeout=30)
    await links.connections.run_once()
    assert (await accept(links)).wa_id == "15550110001"


async def test_call_all_does_not_wait_for_unreachable_coreapps(coreapp: FakeCoreapp, link: Link) -> None:
    gone = await FakeCoreapp().start()
    await gone.stop()
    links = await link(ScriptedMap(owner(coreapp), owner(gone, 1), owner(None, 2)))
    await accept(links, of_shard(0, 3))
    responses = await links.call_all(lambda n: core.GetHealth(n=n), core.Health, timeout=5)
    assert sorted(type(response).__name__ for response in responses) == [
        "CoreappUnreachable",
        "CoreappUnreachable",
        "Health",
    ]
