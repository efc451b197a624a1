"""Limits per address before a login: slots for connections, and tokens for the work done for them."""

from __future__ import annotations

import asyncio
import functools
import ipaddress

import pytest

from tests.manual_clock import ManualClock
from tidings.config.env import SettingsError, Variables
from tidings.http.listener_settings import TRUSTED_PROXIES, TrustedProxies
from tidings.net import unauthenticated
from tidings.net.unauthenticated import (
    ADDRESS,
    ALL,
    Bounds,
    Refusal,
    UnauthenticatedClients,
    UnauthenticatedConnection,
)

PROXY = ipaddress.ip_network("10.0.0.0/8")
OPEN = Bounds(connections=100, rate=0, burst=0)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


class Limiter:
    """Connections by name, as a server would hold them."""

    def __init__(self, table: UnauthenticatedClients) -> None:
        self.table = table
        self.closed: list[str] = []

    def take_slot(self, host: str, name: str = "") -> UnauthenticatedConnection:
        found = self.table.take_slot(host, lambda: self.closed.append(name))
        assert isinstance(found, UnauthenticatedConnection)
        return found

    def refusal(self, host: str) -> str:
        found = self.table.take_slot(host, lambda: None)
        assert isinstance(found, Refusal)
        assert found.retry_after > 0
        return found.reason


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("192.0.2.1", "192.0.2.2", False),
        ("192.0.2.1", "::ffff:192.0.2.1", True),
        ("2001:db8:1:2::1", "2001:db8:1:2:ffff::", True),
        ("2001:db8:1:2::1", "2001:DB8:1:2:0:0:0:1", True),
        ("2001:db8:1:2::1", "2001:db8:1:3::1", False),
        ("fe80::1%eth0", "fe80::2%eth1", True),
        ("", "192.0.2.1", False),
    ],
)
def test_limits_apply_per_ipv4_address_or_ipv6_64_prefix(one: str, other: str, same: bool) -> None:
    assert (unauthenticated.key_of(one) == unauthenticated.key_of(other)) is same


def test_each_address_has_its_own_slots(clock: ManualClock) -> None:
    limiter = Limiter(UnauthenticatedClients(clock, each=Bounds(2, 0, 0), together=OPEN))
    first, _ = limiter.take_slot("192.0.2.1"), limiter.take_slot("::ffff:192.0.2.1")
    assert limiter.refusal("192.0.2.1") == ADDRESS
    limiter.take_slot("192.0.2.2")
    limiter.table.release(first)
    limiter.table.release(first)
    limiter.take_slot("192.0.2.1")
    assert limiter.refusal("192.0.2.1") == ADDRESS
    assert len(limiter.table) == 3


def test_a_login_frees_its_slot_and_makes_the_address_known_for_an_hour(clock: ManualClock) -> None:
    limiter = Limiter(UnauthenticatedClients(clock, each=Bounds(1, 0, 0), together=Bounds(3, 0, 0)))
    limiter.table.mark_authenticated(limiter.take_slot("192.0.2.1"))
    assert len(limiter.table) == 0
    held = [limiter.take_slot("192.0.2.1") for _ in range(3)]
    assert limiter.refusal("192.0.2.1") == ALL
    for one in held:
        limiter.table.release(one)
    clock.advance(3599)
    assert limiter.table.is_known("192.0.2.1")
    clock.advance(1)
    limiter.take_slot("192.0.2.1")
    assert limiter.refusal("192.0.2.1") == ADDRESS


def test_unknown_addresses_do_not_exhaust_the_limits_of_known_ones(clock: ManualClock) -> None:
    limiter = Limiter(UnauthenticatedClients(clock, each=Bounds(9, 1, 2), together=Bounds(2, 1, 5)))
    limiter.table.mark_authenticated(limiter.take_slot("192.0.2.1"))
    for host in ("192.0.2.2", "192.0.2.3"):
        limiter.take_slot(host)
        while limiter.table.take(host) is None:
            pass
    assert limiter.refusal("192.0.2.4") == ALL
    limiter.take_slot("192.0.2.1")
    assert [limiter.table.take("192.0.2.1") for _ in range(5)] == [None] * 5
    assert limiter.table.take("192.0.2.1") == Refusal(ADDRESS, 1.0)


def test_replace_closes_connections_of_unknown_addresses_before_known_ones(clock: ManualClock) -> None:
    limiter = Limiter(UnauthenticatedClients(clock, each=OPEN, together=OPEN))
    limiter.table.mark_authenticated(limiter.take_slot("192.0.2.1"))
    limiter.take_slot("192.0.2.1", "known")
    limiter.take_slot("192.0.2.2", "unknown")
    assert not limiter.table.replace()
    clock.advance(1)
    assert [limiter.table.replace() for _ in range(3)] == [True, True, False]
    assert limiter.closed == ["unknown", "known"]


def test_without_free_slots_the_oldest_idle_connection_is_closed(clock: ManualClock) -> None:
    limiter = Limiter(UnauthenticatedClients(clock, each=OPEN, together=Bounds(3, 0, 0)))
    limiter.take_slot("192.0.2.1", "busy").busy = True
    limiter.take_slot("192.0.2.2", "oldest")
    clock.advance(0.5)
    limiter.take_slot("192.0.2.3", "young")
    assert limiter.refusal("192.0.2.4") == ALL
    clock.advance(0.5)
    limiter.take_slot("192.0.2.4")
    assert limiter.closed == ["oldest"]
    assert limiter.refusal("192.0.2.5") == ALL
    assert len(limiter.table) == 3


def test_connections_of_a_trusted_proxy_count_only_towards_the_total(clock: ManualClock) -> None:
    limiter = Limiter(UnauthenticatedClients(clock, each=Bounds(1, 0, 0), together=Bounds(2, 0, 0), trusted=[PROXY]))
    limiter.take_slot("10.0.0.1")
    limiter.take_slot("10.0.0.1")
    assert limiter.refusal("10.0.0.1") == ALL


def test_tokens_are_taken_from_the_bucket_of_the_address_and_the_total(clock: ManualClock) -> None:
    table = UnauthenticatedClients(clock, each=Bounds(9, 1, 2), together=Bounds(9, 1, 3))
    assert [table.take("192.0.2.1"), table.take("192.0.2.1")] == [None, None]
    assert table.take("192.0.2.1") == Refusal(ADDRESS, 1.0)
    # A refusal consumed nothing.
    assert table.take("192.0.2.2") is None
    assert table.take("192.0.2.2") == Refusal(ALL, 1.0)
    clock.advance(1.0)
    assert table.take("192.0.2.1") is None
    assert table.take("192.0.2.2") == Refusal(ALL, 1.0)
    table.refund("192.0.2.1")
    assert table.take("192.0.2.2") is None


def test_reservations_wait_behind_earlier_ones(clock: ManualClock) -> None:
    table = UnauthenticatedClients(clock, each=Bounds(9, 1, 2), together=Bounds(9, 10, 20))
    assert [table.reserve("192.0.2.1") for _ in range(5)] == pytest.approx([0.0, 0.0, 1.0, 2.0, 3.0])
    assert table.reserve("192.0.2.2") == 0.0
    clock.advance(3.0)
    assert table.reserve("192.0.2.1") == pytest.approx(1.0)


def test_a_rate_of_zero_is_no_limit(clock: ManualClock) -> None:
    table = UnauthenticatedClients(clock, each=OPEN, together=OPEN)
    assert table.take("192.0.2.1", 1e9) is None
    assert table.reserve("192.0.2.1", 1e9) == 0.0


def test_a_cost_above_the_burst_passes_when_the_bucket_is_full(clock: ManualClock) -> None:
    table = UnauthenticatedClients(clock, each=Bounds(9, 1, 2), together=Bounds(9, 1, 2))
    assert table.take("192.0.2.1", 5.0) is None
    assert table.take("192.0.2.1") == Refusal(ADDRESS, 4.0)


def test_remembered_addresses_are_limited_and_the_total_limit_still_holds(clock: ManualClock) -> None:
    table = UnauthenticatedClients(clock, each=Bounds(9, 1, 1), together=Bounds(9, 1, 50), remembered=10)
    refused = [table.take(f"192.0.2.{n}") for n in range(100)]
    assert refused.count(None) == 50
    assert {one.reason for one in refused if one is not None} == {ALL}
    assert len(table._of_each) == 10


async def test_a_connection_without_a_login_is_closed_when_its_time_is_over(clock: ManualClock) -> None:
    table = UnauthenticatedClients(clock, each=OPEN, together=OPEN)
    late, known, busy = [table.admit(f"192.0.2.{n}") for n in range(3)]
    assert late is not None
    assert known is not None
    assert busy is not None
    closed: asyncio.Queue[str] = asyncio.Queue()
    busy.busy = True
    for name, slot in (("known", known), ("busy", busy), ("late", late)):
        slot.expire(0.01, functools.partial(closed.put_nowait, name))
    known.mark_authenticated()
    async with asyncio.timeout(30):
        assert await closed.get() == "late"
    assert len(table) == 1
    busy.busy = False
    async with asyncio.timeout(30):
        assert await closed.get() == "busy"
    assert len(table) == 0
    assert closed.empty()


def test_a_login_refunds_what_its_connection_has_consumed(clock: ManualClock) -> None:
    table = UnauthenticatedClients(clock, each=Bounds(9, 1, 3), together=Bounds(9, 1, 30))
    logins: list[str] = []
    for _ in range(5):
        slot = table.admit("192.0.2.1", 2.0)
        assert slot is not None
        slot.on_login = functools.partial(logins.append, "login")
        assert slot.reserve() == 0.0
        slot.mark_authenticated()
    assert len(logins) == 5
    assert table.admit("192.0.2.2", 2.0) is not None
    assert table.admit("192.0.2.2", 2.0) is None, "the bucket has one token left"


@pytest.mark.parametrize(
    ("peer", "header", "whose"),
    [
        ("192.0.2.1", b"198.51.100.1", "192.0.2.1"),
        ("10.0.0.1", None, "10.0.0.1"),
        ("10.0.0.1", b"198.51.100.1", "198.51.100.1"),
        ("10.0.0.1", b"203.0.113.9, 198.51.100.1, 10.0.0.2", "198.51.100.1"),
        ("10.0.0.1", b"198.51.100.1, nonsense", "10.0.0.1"),
        ("10.0.0.1", b"[2001:db8::1]", "2001:db8::1"),
        ("10.0.0.1", b"[2001:db8::1]:443", "2001:db8::1"),
        ("10.0.0.1", b"198.51.100.1:50000", "198.51.100.1"),
        ("10.0.0.1", b"10.0.0.3", "10.0.0.3"),
        ("10.0.0.1", b"", "10.0.0.1"),
        ("10.0.0.1", b"," * 60_000 + b"198.51.100.1", "198.51.100.1"),
    ],
)
def test_a_trusted_proxy_forwards_for_the_last_address_that_is_not_a_proxy(
    clock: ManualClock, peer: str, header: bytes | None, whose: str
) -> None:
    table = UnauthenticatedClients(clock, each=OPEN, together=OPEN, trusted=[PROXY])
    assert table.client_of(peer, header) == whose


class Settings(Variables):
    proxies: TrustedProxies = TRUSTED_PROXIES


def test_trusted_proxies_are_networks_or_addresses() -> None:
    assert Settings.read({}).proxies == ()
    found = Settings.read({"TIDINGS_TRUSTED_PROXIES": "10.0.0.0/8, 192.0.2.1,::1"}).proxies
    assert [str(network) for network in found] == ["10.0.0.0/8", "192.0.2.1/32", "::1/128"]
    with pytest.raises(SettingsError, match="'proxy' in TIDINGS_TRUSTED_PROXIES is neither a network"):
        Settings.read({"TIDINGS_TRUSTED_PROXIES": "proxy"})
