"""Rate limits of one device: directory requests, others' one-time pre-keys, groups, and storage for files."""

from __future__ import annotations

import itertools

import pytest

from harness import metrics
from network.blobs.store import BlobQuota
from network.directory import device_rate_limits
from network.directory.device_rate_limits import DeviceRateLimiter
from network.errors import Full, QuotaExceeded
from network.settings import BlobSettings, DeviceRateLimits
from tests.manual_clock import ManualClock
from tests.network.group_support import call, make
from tests.network.support import ALICE, BOB, CAROL, Client, Network
from tests.network.test_requests import fetch
from tidings.wire import device


async def key_ids(client: Client, requester: str, count: int, target: str = BOB) -> list[int | None]:
    return [(await client.request(fetch(target, requester=requester))).bundles[0].prekey_id for _ in range(count)]


async def test_a_device_gets_a_limited_number_of_one_time_keys_of_a_number_per_day(
    network: Network,
) -> None:
    clock = ManualClock()
    withheld = metrics.value("tidings_network_bundles_total", one_time="withheld")
    await network.start(clock=clock, rate_limits=DeviceRateLimits(one_time=2))
    await network.register(ALICE, CAROL)
    await network.register(BOB, prekeys=5, kyber_prekeys=1)
    alice, carol = await network.connect(ALICE), await network.connect(CAROL)
    assert await key_ids(alice, ALICE, 4) == [1, 2, None, None]
    (bundle,) = (await alice.request(fetch(BOB))).bundles
    assert bundle.kyber_prekey_id == 900, "the last resort"
    assert await key_ids(carol, CAROL, 1) == [3]
    assert await key_ids(alice, ALICE, 1, target=CAROL) == [1], "each target by itself"
    clock.advance(12 * 3600.0)
    assert await key_ids(alice, ALICE, 2) == [4, None]
    assert metrics.value("tidings_network_bundles_total", one_time="withheld") == withheld + 4
    # No one-time pre-key is left, and a fetch that gets none consumes nothing of the requester's limit.
    assert await key_ids(carol, CAROL, 3) == [5, None, None]


async def test_concurrent_fetches_get_no_more_one_time_keys_than_sequential_ones(network: Network) -> None:
    await network.start(rate_limits=DeviceRateLimits(one_time=3))
    await network.register(ALICE, BOB, prekeys=50)
    alice = await network.connect(ALICE)
    for n in range(100, 140):
        alice.link.send(device.Fetch(n, ALICE, [BOB]))
    responses = [await alice.next(device.Bundles) for _ in range(40)]
    assert sum(response.bundles[0].prekey_id is not None for response in responses) == 3


async def test_fetches_and_checks_beyond_the_burst_are_refused_until_later(network: Network) -> None:
    clock = ManualClock()
    rate_limits = DeviceRateLimits(
        fetch_rate=1, fetch_burst=3, check_rate=1, check_burst=4, businesses=frozenset({CAROL})
    )
    await network.start(clock=clock, rate_limits=rate_limits)
    await network.register(ALICE, BOB, CAROL)
    alice, carol = await network.connect(ALICE), await network.connect(CAROL)
    assert len((await alice.request(fetch(BOB, "15559990001", "15559990002"))).bundles) == 1
    assert isinstance(await alice.request(lambda n: device.Check(n, ALICE, [BOB] * 4)), device.Checked)
    failed = await alice.request(lambda n: device.Check(n, ALICE, [BOB, CAROL]))
    assert (failed.reason, failed.retry_after) == (device.RATE_LIMITED, 2)
    failed = await alice.request(fetch(BOB))
    assert (failed.reason, failed.retry_after) == (device.RATE_LIMITED, 1)
    clock.advance(1)
    assert len((await alice.request(fetch(BOB))).bundles) == 1
    # The limit of a business is ten times as high.
    for _ in range(29):
        assert isinstance(await carol.request(fetch(BOB, requester=CAROL)), device.Bundles)
    assert {type(await carol.request(fetch(BOB, requester=CAROL))) for _ in range(2)} >= {device.Failed}


async def test_group_changes_beyond_the_burst_are_refused_and_reads_are_free(network: Network) -> None:
    clock = ManualClock()
    await network.start(clock=clock, rate_limits=DeviceRateLimits(group_rate=1, group_burst=2))
    await network.register(ALICE)
    group = await make(network, ALICE)
    assert (await call(network, "PUT", ALICE, f"/{group}", {"subject": "Tea"}))[0] == 200
    status, response = await call(network, "PUT", ALICE, f"/{group}", {"subject": "Soup"})
    assert (status, response["error"]["reason"]) == (429, "too_often")
    for _ in range(5):
        assert (await call(network, "GET", ALICE, f"/{group}"))[0] == 200
    clock.advance(1)
    assert (await call(network, "PUT", ALICE, f"/{group}", {"subject": "Soup"}))[0] == 200


async def test_uploads_of_keys_beyond_the_burst_are_refused_and_counts_are_free(network: Network) -> None:
    clock = ManualClock()
    await network.start(clock=clock, rate_limits=DeviceRateLimits(businesses=frozenset({CAROL})))
    await network.register(ALICE, CAROL)

    async def upload(number: str) -> tuple[int, str]:
        status, response = await network.request("PUT", f"/v1/keys/{number}", {}, token=network.tokens[number])
        return status, response.get("error", {}).get("reason", "")

    assert [await upload(ALICE) for _ in range(101)] == [(200, "")] * 100 + [(429, "too_often")]
    assert [await upload(CAROL) for _ in range(101)] == [(200, "")] * 101
    assert (await network.request("GET", f"/v1/keys/{ALICE}", token=network.tokens[ALICE]))[0] == 200
    clock.advance(1)
    assert [await upload(ALICE) for _ in range(2)] == [(200, ""), (429, "too_often")]


async def test_changes_of_blocks_beyond_the_burst_are_refused(
    network: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = ManualClock()
    monkeypatch.setattr(device_rate_limits, "BLOCK_BURST", 3)
    await network.start(clock=clock)
    await network.register(ALICE, BOB)

    async def change(method: str, number: str = ALICE) -> tuple[int, str]:
        status, response = await network.request(method, f"/v1/blocks/{number}/{CAROL}", token=network.tokens[number])
        return status, response.get("error", {}).get("reason", "")

    refused = (429, "too_often")
    assert [await change(method) for method in ("PUT", "DELETE", "PUT", "DELETE")] == [(200, "")] * 3 + [refused]
    assert await change("PUT", BOB) == (200, "")
    clock.advance(1)
    assert [await change("DELETE"), await change("PUT")] == [(200, ""), refused]


async def test_blob_quota_and_upload_rate_are_per_number(network: Network) -> None:
    blobs = BlobSettings(directory=network.blobs.directory, quota=10_000, device_quota=300)
    await network.start(blobs=blobs, rate_limits=DeviceRateLimits(blob_rate=0.001, blob_burst=4))
    await network.register(ALICE, BOB)

    async def upload(number: str, size: int) -> tuple[int, str]:
        token = network.tokens[number]
        status, response = await network.request("POST", f"/v1/blobs/{number}", token=token, data=bytes(size))
        return status, response.get("error", {}).get("reason", "")

    assert await upload(ALICE, 200) == (201, "")
    assert await upload(ALICE, 101) == (507, "quota")
    assert await upload(ALICE, 100) == (201, "")
    await network.stop()
    await network.start(blobs=blobs, rate_limits=DeviceRateLimits(blob_rate=0.001, blob_burst=1))
    assert await upload(ALICE, 1) == (507, "quota"), "a restart forgets nothing"
    assert await upload(ALICE, 1) == (429, "too_often")
    assert await upload(BOB, 300) == (201, "")


def test_a_reservation_cannot_exceed_the_free_share_of_the_quota() -> None:
    quota = BlobQuota(1000, 900)
    quota.count(600, since=0)
    with pytest.raises(QuotaExceeded), quota.reservation("a", 450, 10):
        pass
    with quota.reservation("b", 150, 100), pytest.raises(QuotaExceeded), quota.reservation("a", 301, 1):
        pass
    with quota.reservation("business", 600, 100, weight=10):
        pass
    with pytest.raises(Full), quota.reservation("b", 0, 401):
        pass


def test_uncoordinated_nodes_respect_an_owners_quota_and_rarely_recount() -> None:
    nodes, stored, counts, uploads = [BlobQuota(10**9, 100_000) for _ in range(16)], 0, 0, 0
    for node in itertools.cycle(nodes):
        share = node.usage_of("a", 10)
        if share.counted is None:
            share.counted = stored
            counts += 1
        try:
            with node.reservation("a", share.size, 10):
                stored += 10
                uploads += 1
                node.add("a", 10)
        except QuotaExceeded:
            break
    assert 90_000 < stored <= 100_000
    assert counts < uploads / 4


def test_a_count_includes_concurrent_uploads_and_a_removal_forces_a_new_count() -> None:
    quota = BlobQuota(10_000, 9_000)
    share = quota.usage_of("a")
    quota.add("a", 100)
    share.counted = 300
    assert quota.usage_of("a").size == 400
    quota.add("a", 500)
    assert quota.usage_of("a").counted is None, "what is left may be another node's"
    quota.usage_of("a").counted = 900
    quota.count(50, since=quota.added)
    assert quota.usage_of("a").counted is None


def test_fetching_an_absent_one_time_key_consumes_nothing() -> None:
    rate_limits = DeviceRateLimiter(DeviceRateLimits(one_time=1), ManualClock())
    for _ in range(5):
        assert rate_limits.take_one_time("a", "b")
        rate_limits.refund_one_time("a", "b")
    assert rate_limits.take_one_time("a", "b")
    assert not rate_limits.take_one_time("a", "b")
