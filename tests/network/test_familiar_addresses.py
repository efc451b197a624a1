"""Familiar addresses of a locked number: guesses from elsewhere do not refuse the PIN of an owner at one of them.

The limits are literals from docs/device-api.md.
"""

from __future__ import annotations

import ipaddress
import logging
from collections.abc import AsyncIterator, Iterator, Set

import pytest
import sqlalchemy as sa

from harness import polling
from network.devices import locks as device_locks
from network.devices.familiar_addresses import FamiliarAddresses
from network.devices.locks import LockActivity, Locks
from network.directory.seen_devices import SeenDevices
from network.errors import RateLimited, Unauthorized
from tests import statements
from tests.manual_clock import ManualClock
from tests.network.registration_scene import DAY, PIN, WRONG_PIN, Scene
from tests.network.support import ALICE, BOB, REGISTRATION_KEY, Network, reason
from tidings.net.unauthenticated import key_of
from tidings.storage.database import Connection, Database
from tidings.storage.network import lock_addresses, locks

pytestmark = pytest.mark.usefixtures("cheap_hashes")

HOME, ELSEWHERE = "192.0.2.1", "198.51.100.1"
TABLE = "registration_lock_addresses"


@pytest.fixture(params=[("tcp", "mariadb"), ("tcp", "sqlite")], ids=["mariadb", "sqlite"])
def pair(request: pytest.FixtureRequest) -> tuple[str, str]:
    transport, database = request.param
    return transport, database


@pytest.fixture
def scene(network: Network, caplog: pytest.LogCaptureFixture) -> Scene:
    return Scene(network, caplog)


class LockNode:
    """Locks of one node. A test decides which devices have logged in, and which are attached."""

    def __init__(self, database: Database, clock: ManualClock) -> None:
        addresses = FamiliarAddresses(database, "key")
        self.locks = Locks(database, clock, addresses)
        self.seen = SeenDevices()
        self.attached: dict[str, Set[str]] = {}
        self.activity = LockActivity(database, clock, addresses, self.seen, self.attached.get)

    async def log_in(self, host: str, number: str = ALICE) -> None:
        """Log the device in, and record it."""
        self.seen.add(number, host)
        await self.activity.run_once()

    async def guess(self, host: str, pin: str = WRONG_PIN) -> str:
        """Try a PIN from an address; return "right", "wrong", "refused" or "unlocked"."""
        try:
            return "right" if await self.locks.open(ALICE, pin, key_of(host)) else "unlocked"
        except Unauthorized:
            return "wrong"
        except RateLimited:
            return "refused"

    async def exhaust(self, host: str) -> int:
        """Try wrong PINs until they are refused; return how many were checked."""
        checked = 0
        while await self.guess(host) == "wrong":
            checked += 1
        return checked


class LockNodes:
    """Two nodes with one database."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.clock = ManualClock()
        self.nodes = LockNode(database, self.clock), LockNode(database, self.clock)

    def year(self) -> Iterator[int]:
        """Move the clock through a year, and yield the days at which it stands: every one, later every fifth."""
        today = 0
        for day in [*range(60), *range(60, 366, 5)]:
            self.clock.advance((day - today) * DAY)
            today = day
            yield day

    async def addresses(self, number: str = ALICE) -> int:
        """Return the number of stored addresses."""
        found = await self.database.query(lambda c: lock_addresses.list_by_number(c, [number]))
        return len(found.get(number, ()))


@pytest.fixture
async def pair_of_nodes(network: Network) -> AsyncIterator[LockNodes]:
    database = Database(network.database, "network")
    nodes = LockNodes(database)
    await nodes.nodes[0].locks.set(ALICE, PIN)
    yield nodes
    await database.close()


@pytest.mark.parametrize("pair", [("tcp", "sqlite")])
async def test_an_owner_at_a_familiar_address_registers_at_once_on_each_of_100_days_of_guessing(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device_locks, "INTERVAL", 0.02)
    await scene.start()
    assert (await scene.register("127.0.0.1", code=await scene.code("127.0.0.1"), pin=PIN))[0] == 201
    scene.clock.advance(DAY)
    wrong = 0
    for day in range(100):
        await log_in(scene)
        for host in (f"127.1.{day}.1", f"127.1.{day}.2"):
            code = await scene.code(host)
            # The attacker takes each token as it returns.
            while (response := await scene.register(host, code=code, pin=WRONG_PIN))[0] != 429:
                assert reason(response) == (401, "wrong_pin")
                wrong += 1
        own = await scene.code("127.0.0.1")
        assert (await scene.register("127.0.0.1", code=own, pin=PIN))[0] == 201, day
        scene.clock.advance(DAY)
    assert wrong == 45 + 1


async def log_in(scene: Scene) -> None:
    """Log the device in over TCP from 127.0.0.1, and wait until this is recorded."""
    client = await scene.network.connect(ALICE)
    now = int(scene.clock.now() * 1000)

    async def is_recorded() -> bool:
        async with scene.network.reading() as connection:
            found = await lock_addresses.list_by_number(connection, [ALICE])
            return bool(found) and found[ALICE][0].seen_at >= now

    await polling.until(is_recorded, pause=0.01)
    await client.close()


async def test_an_attacker_at_familiar_and_other_addresses_can_check_fewer_than_100_pins_a_year(
    pair_of_nodes: LockNodes,
) -> None:
    nodes, checked = pair_of_nodes.nodes, {HOME: 0, ELSEWHERE: 0}
    for day in pair_of_nodes.year():
        await nodes[day % 2].log_in(HOME)
        for host in checked:
            checked[host] += await nodes[(day + 1) % 2].exhaust(host)
    assert checked == {HOME: 49, ELSEWHERE: 49}
    assert sum(checked.values()) < 100


async def test_an_attacker_at_a_familiar_address_refuses_no_owner_elsewhere_for_a_year(
    pair_of_nodes: LockNodes,
) -> None:
    one, other = pair_of_nodes.nodes
    checked = 0
    for day in pair_of_nodes.year():
        await one.log_in(HOME)
        checked += await one.exhaust(HOME)
        assert await other.guess(HOME, PIN) == "refused"
        assert await other.guess(f"203.0.113.{day % 200}", PIN) == "right"
    assert checked < 100


@pytest.mark.parametrize("host", [HOME, ELSEWHERE])
async def test_an_owner_waits_at_most_a_day_until_45_pins_were_wrong(pair_of_nodes: LockNodes, host: str) -> None:
    node, _ = pair_of_nodes.nodes
    await node.log_in(HOME)
    assert await node.exhaust(host) == 5
    for _ in range(39):
        assert await node.guess(host, PIN) == "refused"
        pair_of_nodes.clock.advance(DAY)
        assert await node.guess(host, PIN) == "right"
        assert await node.exhaust(host) == 1
        node.attached[ALICE] = {HOME}
        await node.activity.run_once()
    pair_of_nodes.clock.advance(DAY)
    assert await node.exhaust(host) == 1
    pair_of_nodes.clock.advance(DAY)
    await node.activity.run_once()
    assert await node.guess(host, PIN) == "refused"


async def test_an_address_is_familiar_to_all_nodes_for_30_days(pair_of_nodes: LockNodes) -> None:
    one, other = pair_of_nodes.nodes
    await one.log_in(HOME)
    await one.exhaust(ELSEWHERE)
    assert await other.guess(ELSEWHERE, PIN) == "refused"
    assert await other.guess(HOME, PIN) == "right"
    for _ in range(5):
        pair_of_nodes.clock.advance(6 * DAY - 1)
        # The device is used elsewhere.
        await other.log_in("203.0.113.1")
    await one.exhaust(ELSEWHERE)
    assert await other.guess(HOME, PIN) == "right"
    pair_of_nodes.clock.advance(5)
    assert await other.guess(HOME, PIN) == "refused"


async def test_an_attached_device_keeps_its_address_familiar(pair_of_nodes: LockNodes) -> None:
    node, other = pair_of_nodes.nodes
    node.attached[ALICE] = {HOME}
    for _ in range(60):
        pair_of_nodes.clock.advance(DAY)
        await node.activity.run_once()
    await other.exhaust(ELSEWHERE)
    assert await other.guess(HOME, PIN) == "right"


async def test_an_ipv6_address_stands_for_its_64_network(pair_of_nodes: LockNodes) -> None:
    one, other = pair_of_nodes.nodes
    await one.log_in("2001:db8:1:2::3")
    await one.exhaust("2001:db8:1:3::3")
    assert await other.guess("2001:db8:1:2:ffff::1", PIN) == "right"
    assert await other.guess("2001:db8:1:3:ffff::1", PIN) == "refused"
    assert await other.guess("2001:db8:2:2::3", PIN) == "refused"


async def test_a_number_has_its_8_latest_addresses(pair_of_nodes: LockNodes) -> None:
    one, other = pair_of_nodes.nodes
    for last in range(1, 10):
        await (one if last % 2 else other).log_in(f"192.0.2.{last}")
        pair_of_nodes.clock.advance(60)
    assert await pair_of_nodes.addresses() == 8
    await one.exhaust(ELSEWHERE)
    assert [await one.guess(f"192.0.2.{last}", PIN) for last in range(1, 10)] == ["refused"] + ["right"] * 8


async def test_reconnecting_devices_write_an_address_once_a_day_and_only_with_a_lock(
    pair_of_nodes: LockNodes,
) -> None:
    one, other = pair_of_nodes.nodes
    numbers = [ALICE, BOB, *(f"1555777{n:04}" for n in range(2000))]
    with statements.recorded(TABLE) as first:
        for number in numbers:
            one.seen.add(number, HOME)
        await one.activity.run_once()
    assert count_inserts(first) == 1
    assert [await pair_of_nodes.addresses(number) for number in (ALICE, BOB)] == [1, 0]
    pair_of_nodes.clock.advance(DAY - 1)
    with statements.recorded(TABLE) as again:
        for number in numbers:
            other.seen.add(number, HOME)
        await other.activity.run_once()
    assert count_inserts(again) == 0
    pair_of_nodes.clock.advance(1)
    with statements.recorded(TABLE) as later:
        await one.log_in(HOME)
    assert count_inserts(later) == 1


def count_inserts(found: list[str]) -> int:
    return sum(statement.startswith("INSERT") for statement in found)


async def test_only_keyed_hashes_of_addresses_are_stored(pair_of_nodes: LockNodes) -> None:
    await pair_of_nodes.nodes[0].log_in(HOME)
    stored = FamiliarAddresses(pair_of_nodes.database, "another key")
    now = int(pair_of_nodes.clock.now() * 1000)
    assert not await pair_of_nodes.database.query(lambda c: stored.includes(c, ALICE, HOME, now))
    rows = await pair_of_nodes.database.query(lambda c: lock_addresses.list_by_number(c, [ALICE]))
    assert [len(row.address_hash) for row in rows[ALICE]] == [32]
    assert HOME.encode() not in rows[ALICE][0].address_hash


async def test_a_device_that_sets_a_pin_fills_the_daily_buckets_but_not_the_yearly_ones(
    pair_of_nodes: LockNodes,
) -> None:
    one, other = pair_of_nodes.nodes
    await one.log_in(HOME)
    for host in (HOME, ELSEWHERE):
        assert await one.exhaust(host) == 5
        assert await one.guess(host, PIN) == "refused"
    new = "864209"
    await other.locks.set(ALICE, new)
    for host in (HOME, ELSEWHERE):
        assert await one.guess(host, new) == "right"
    checked = 5
    for _ in range(20):
        checked += await one.exhaust(ELSEWHERE)
        # One PIN a minute may be set.
        pair_of_nodes.clock.advance(60)
        await other.locks.set(ALICE, new)
    assert checked == 45


async def test_an_address_of_a_removed_or_expired_lock_is_not_familiar_later(scene: Scene) -> None:
    database = Database(scene.network.database, "network")
    nodes = LockNodes(database)
    scene.clock = nodes.clock
    try:
        await scene.start()
        node = nodes.nodes[0]
        assert (await scene.register("127.0.0.1", key=REGISTRATION_KEY, pin=PIN))[0] == 201
        await node.log_in(HOME)
        await node.locks.remove(ALICE)
        assert await nodes.addresses() == 0
        await node.locks.set(ALICE, PIN)
        await node.log_in(HOME)
        nodes.clock.advance(7 * DAY)
        # Perhaps another owner, who sets a PIN too.
        assert (await scene.register("127.0.0.1", code=await scene.code("127.0.0.1"), pin=PIN))[0] == 201
        assert await nodes.addresses() == 0
    finally:
        await database.close()


@pytest.mark.parametrize("is_replaced", [True, False])
@pytest.mark.parametrize("nodes", [1, 2])
async def test_a_former_owners_unrecorded_address_is_not_familiar_for_a_new_lock(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, is_replaced: bool
) -> None:
    monkeypatch.setattr(device_locks, "INTERVAL", 1000.0)
    await scene.start()
    assert (await scene.register("127.0.0.1", key=REGISTRATION_KEY, pin=PIN))[0] == 201
    await scene.network.connect(ALICE)
    if is_replaced:
        assert (await scene.register("127.0.0.1", key=REGISTRATION_KEY, pin=PIN))[0] == 201
    # The last pass.
    await scene.network.stop()
    async with scene.network.reading() as connection:
        found = await lock_addresses.list_by_number(connection, [ALICE])
    assert len(found.get(ALICE, ())) == (0 if is_replaced else 1)


async def test_a_device_that_is_replaced_during_a_pass_leaves_no_address(pair_of_nodes: LockNodes) -> None:
    addresses, now = FamiliarAddresses(pair_of_nodes.database, "key"), int(pair_of_nodes.clock.now() * 1000)
    calls = []

    def origins_of(number: str) -> Set[str]:
        calls.append(number)
        return {HOME} if len(calls) == 1 else set()

    assert await addresses.record([ALICE], origins_of, now) == 0
    assert calls == [ALICE, ALICE]
    assert await pair_of_nodes.addresses() == 0
    assert await addresses.record([ALICE], lambda number: {HOME}, now) == 1
    assert await pair_of_nodes.addresses() == 1


async def test_addresses_of_a_failed_pass_are_dropped_with_the_registration(pair_of_nodes: LockNodes) -> None:
    one, _ = pair_of_nodes.nodes
    one.seen.add(ALICE, HOME)
    one.seen.add(BOB, HOME)
    assert set(one.seen.take()) == {ALICE, BOB}
    one.seen.add(ALICE, ELSEWHERE)
    one.seen.drop([ALICE])
    assert one.seen.take() == {BOB: {HOME}}
    await one.activity.run_once()
    assert await pair_of_nodes.addresses() == 0
    assert one.seen.take() == {}


async def test_without_locks_no_number_is_looked_up(pair_of_nodes: LockNodes) -> None:
    one, _ = pair_of_nodes.nodes
    await one.locks.remove(ALICE)
    with statements.recorded("registration_locks") as noted:
        for last in range(2000):
            one.seen.add(f"1555777{last:04}", HOME)
        await one.activity.run_once()
    assert not [statement for statement in noted if " IN (" in statement]


async def test_addresses_unseen_for_30_days_are_deleted(pair_of_nodes: LockNodes) -> None:
    node, _ = pair_of_nodes.nodes
    await node.log_in(HOME)
    # The previous release deletes a lock and leaves its addresses.
    async with pair_of_nodes.database.transaction() as connection:
        await connection.execute(locks.locks.delete())
    pair_of_nodes.clock.advance(30 * DAY)
    await node.activity.run_once()
    assert await pair_of_nodes.addresses() == 1
    pair_of_nodes.clock.advance(3600)
    await node.activity.run_once()
    assert await pair_of_nodes.addresses() == 0


async def test_a_lock_of_the_previous_release_works_and_all_its_addresses_are_others(
    pair_of_nodes: LockNodes,
) -> None:
    node, _ = pair_of_nodes.nodes
    hashed, now = await node.locks.hash(PIN), int(pair_of_nodes.clock.now() * 1000)

    async def replace(connection: Connection) -> None:
        await connection.execute(sa.text("DELETE FROM registration_locks"))
        # Only columns that the previous release knows.
        statement = sa.text(
            "INSERT INTO registration_locks (number, pin_hash, active_at, daily_full_at, yearly_full_at)"
            " VALUES (:number, :hash, :now, 0, 0)"
        )
        await connection.execute(statement, {"number": ALICE, "hash": hashed, "now": now})

    await pair_of_nodes.database.commit(replace)
    assert await node.guess(HOME, PIN) == "right"
    assert await node.exhaust(HOME) == 5
    assert await node.guess(ELSEWHERE, PIN) == "refused"

    # It writes these two columns.
    async def consume(connection: Connection) -> None:
        statement = sa.text("UPDATE registration_locks SET daily_full_at = :full, yearly_full_at = :full")
        await connection.execute(statement, {"full": now})

    await pair_of_nodes.database.commit(consume)
    assert await node.guess(ELSEWHERE, PIN) == "right"


async def test_an_address_before_an_unknown_one_is_not_believed(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    await scene.start(trusted_proxies=(ipaddress.ip_network("127.0.0.0/8"),))
    # The client sends the first header. The proxy appends one because it hides the client's address.
    headers = [("X-Forwarded-For", "198.51.100.7"), ("X-Forwarded-For", "unknown")]
    with caplog.at_level(logging.INFO):
        async with scene.network.http.post("/v1/codes", json={"number": ALICE}, headers=headers) as response:
            assert response.status == 202
    (record,) = [record for record in caplog.records if record.message == "code.issued"]
    assert record.__dict__["address"] == "127.0.0.1"


async def test_behind_proxies_the_clients_address_is_familiar(scene: Scene) -> None:
    trusted = (ipaddress.ip_network("127.0.0.0/8"),)
    await scene.start(trusted_proxies=trusted)
    assert (await scene.register("127.0.0.1", key=REGISTRATION_KEY, pin=PIN))[0] == 201
    token = scene.network.tokens[ALICE]
    # The device is at home, also over TCP, where the proxy's address is all that the network sees.
    headers = {"X-Forwarded-For": "2001:db8:1:2::3", "Authorization": f"Bearer {token}"}
    async with scene.network.http.get(f"/v1/keys/{ALICE}", headers=headers) as response:
        assert response.status == 200
    await scene.network.connect(ALICE)
    await scene.network.stop()
    await scene.start(trusted_proxies=trusted)
    code = await scene.code("127.0.0.1", forwarded="198.51.100.7")
    for _ in range(5):
        refused = await scene.register("127.0.0.1", code=code, pin=WRONG_PIN, forwarded="198.51.100.7")
        assert reason(refused) == (401, "wrong_pin")
    # A proxy's own address is not familiar.
    code = await scene.code("127.0.0.1")
    assert reason(await scene.register("127.0.0.1", code=code, pin=PIN)) == (429, "rate_limited")
    home = "203.0.113.1, 2001:db8:1:2:ffff::9"
    code = await scene.code("127.0.0.2", forwarded=home)
    assert (await scene.register("127.0.0.2", code=code, pin=PIN, forwarded=home))[0] == 201
