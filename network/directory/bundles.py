"""Pre-key bundles: a device's long-term keys, and one-time keys that are handed out once."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

from prometheus_client import Counter

from network.directory.device_rate_limits import DeviceRateLimiter
from network.directory.other_nodes import NO_NODES, OtherNodes
from network.directory.refills import Refills
from tidings.aio.batcher import Batcher
from tidings.storage.database import Connection, Database
from tidings.storage.network import directory, prekeys
from tidings.storage.network.directory import RegisteredDevice
from tidings.storage.network.prekeys import KyberPreKeyRow, PreKeyRow
from tidings.wire import addresses, device

BUNDLES = Counter("tidings_network_bundles_total", "Bundles handed out", ["one_time"])

WITH_ONE_TIME = BUNDLES.labels("yes")
WITHOUT_ONE_TIME = BUNDLES.labels("used_up")
WITHHELD = BUNDLES.labels("withheld")

MAX_NUMBERS = 500  # Numbers in one fetch, and bundles in one batch.
# Attempts for one batch when another process takes one of its keys first.
TRIES = 20


class PreKeyBundles:
    """Bundles of registered devices.

    Fetches of all connections are processed in one batch at a time, so that no key is taken twice within this process.
    Between processes the count of deleted rows is checked. A fetcher that has received its limit of one-time keys of a
    number gets bundles without them: the long-term keys suffice, and the remaining keys are kept for others.
    """

    def __init__(self, database: Database, refills: Refills, rate_limits: DeviceRateLimiter) -> None:
        # Other nodes, to which the devices may be attached whose keys are handed out.
        self.other_nodes: OtherNodes = NO_NODES
        self._database = database
        self._refills = refills
        self._rate_limits = rate_limits
        self._batcher: Batcher[tuple[str, str], device.Bundle | None] = Batcher(
            "bundles", self._flush, max_size=MAX_NUMBERS, max_pending=50_000
        )

    async def fetch(self, fetcher: str, numbers: Sequence[str]) -> list[device.Bundle]:
        """Return a bundle for each registered number, in the order requested, each number once. Raises `BatcherFull`.

        Waits while the database is unreachable.
        """
        wanted = dict.fromkeys(number for number in numbers if addresses.is_number(number))
        # Together: keys of the numbers before the first that finds no room would be taken for nobody.
        futures = self._batcher.put_all([(fetcher, number) for number in wanted])
        bundles = [await future for future in futures]
        return [bundle for bundle in bundles if bundle is not None]

    async def _flush(self, wanted: Sequence[tuple[str, str]]) -> Sequence[device.Bundle | None]:
        withheld = {index for index, pair in enumerate(wanted) if not self._rate_limits.take_one_time(*pair)}

        async def work(connection: Connection) -> list[tuple[device.Bundle | None, bool]]:
            return await _take_bundles(connection, wanted, withheld)

        for left in reversed(range(TRIES)):
            try:
                # When the outcome of a commit is unknown, the next attempt takes other keys: some are lost, none is
                # handed out twice.
                taken = await self._database.persist(work, retry_seconds=math.inf)
                break
            except prekeys.AlreadyTaken:
                if not left:
                    raise
        keys = []
        for index, (bundle, kyber_one_time) in enumerate(taken):
            one_time = bundle is not None and bundle.prekey is not None
            if index not in withheld and not (one_time or kyber_one_time):
                self._rate_limits.refund_one_time(*wanted[index])
            if bundle is not None:
                if one_time:
                    WITH_ONE_TIME.inc()
                elif index in withheld:
                    WITHHELD.inc()
                else:
                    WITHOUT_ONE_TIME.inc()
                self._refills.taken(bundle.number, prekey=one_time, kyber_prekey=kyber_one_time)
                if one_time or kyber_one_time:
                    keys.append((bundle.number, one_time, kyber_one_time))
        if keys:
            self.other_nodes.keys_taken(keys)
        return [bundle for bundle, _ in taken]


async def _take_bundles(
    connection: Connection, wanted: Sequence[tuple[str, str]], withheld: Collection[int]
) -> list[tuple[device.Bundle | None, bool]]:
    """Return for each (fetcher, number) its bundle, and whether the Kyber key in it is a one-time key.

    withheld: indices of fetches that get no one-time keys.
    """
    # Locked, so that a device registering at this moment finds the fetcher that holds its old keys.
    devices = await directory.list_registrations(connection, {number for _, number in wanted}, lock=True)
    # Both numbers will hold a session once the first message arrives.
    met = [pair for fetcher, number in wanted if number in devices for pair in ((number, fetcher), (fetcher, number))]
    await prekeys.remember_fetchers(connection, met)
    taken: list[tuple[device.Bundle | None, bool]] = [(None, False)] * len(wanted)
    remaining = []
    for index, (_, number) in enumerate(wanted):
        if number in devices and index in withheld:
            taken[index] = _bundle(devices[number], None, None), False
        elif number in devices:
            remaining.append(index)
    while remaining:
        # Nearly always one round; only a number that is wanted twice in one batch needs a second.
        this_round: dict[str, int] = {}
        for index in remaining:
            this_round.setdefault(wanted[index][1], index)
        remaining = [index for index in remaining if this_round[wanted[index][1]] != index]
        one_time, kyber_one_time = await prekeys.take_one_each(connection, this_round)
        for number, index in this_round.items():
            kyber = kyber_one_time.get(number)
            taken[index] = _bundle(devices[number], one_time.get(number), kyber), kyber is not None
    return taken


def _bundle(owner: RegisteredDevice, prekey: PreKeyRow | None, kyber: KyberPreKeyRow | None) -> device.Bundle:
    bundle = device.Bundle(
        number=owner.number,
        registration_id=owner.registration_id,
        identity_key=owner.identity_key,
        signed_prekey_id=owner.signed_prekey_id,
        signed_prekey=owner.signed_prekey,
        signed_prekey_signature=owner.signed_prekey_signature,
    )
    if prekey is not None:
        bundle.prekey_id, bundle.prekey = prekey.key_id, prekey.public
    if kyber is not None:
        bundle.kyber_prekey_id, bundle.kyber_prekey = kyber.key_id, kyber.public
        bundle.kyber_prekey_signature = kyber.signature
    else:
        # Last resort: the same Kyber key for all fetchers, until the device rotates it. `None` for a device without
        # one.
        bundle.kyber_prekey_id, bundle.kyber_prekey = owner.kyber_prekey_id, owner.kyber_prekey
        bundle.kyber_prekey_signature = owner.kyber_prekey_signature
    return bundle
