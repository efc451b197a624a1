"""Keys that registered devices upload after registration: more one-time pre-keys, and newer long-term ones."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from network.context import NetworkContext
from network.devices import signatures
from network.directory import logins
from network.errors import BadRequest, NotFound, StaleEpoch, Unauthorized
from tidings.storage.database import Connection
from tidings.storage.network import directory, prekeys
from tidings.storage.network.directory import RegisteredDevice
from tidings.storage.network.prekeys import PreKeyCounts
from tidings.wire import registration

# Maximum number of one-time pre-keys of each kind kept for one device.
MAX_KEPT = 500


def prekey_rows(number: str, keys: Sequence[registration.OneTimeKey]) -> list[prekeys.PreKeyRow]:
    """Return the database rows of one-time pre-keys."""
    return [prekeys.PreKeyRow(number, key.key_id, key.public) for key in keys]


def kyber_rows(number: str, keys: Sequence[registration.SignedKyberKey]) -> list[prekeys.KyberPreKeyRow]:
    """Return the database rows of one-time Kyber pre-keys."""
    return [prekeys.KyberPreKeyRow(number, key.key_id, key.public, key.signature) for key in keys]


@dataclasses.dataclass(frozen=True, slots=True)
class RemainingKeys:
    """Ids of the one-time pre-keys of a device that are left."""

    prekeys: Sequence[int]
    kyber_prekeys: Sequence[int]


async def upload(context: NetworkContext, number: str, token: str, keys: registration.KeyUpload) -> RemainingKeys:
    """Add one-time keys and replace long-term ones; return the one-time keys left. Repeating an upload changes
    nothing.

    Raises `BadRequest`, `NotFound`, `StaleEpoch`, and `Unauthorized` when the number was registered again since the
    token was verified.
    """
    router, database, nodes = context.router, context.database, context.directory.other_nodes
    if router.is_stale(number, keys.epoch) or await nodes.is_stale(number, keys.epoch):
        raise StaleEpoch(f"+{number} is logged in under a higher epoch")
    device = await database.query(lambda c: _find(c, number, token), retry_seconds=20)
    signatures.require_last_resort(keys, has_one=device.kyber_prekey is not None)
    await signatures.check([("", device.identity_key, keys)])

    async def work(connection: Connection) -> RemainingKeys:
        if not await directory.raise_login_epoch(connection, number, keys.epoch):
            raise StaleEpoch(f"+{number} was registered, or uploaded keys, under a higher epoch")
        if (await _find(connection, number, token, lock=True)).identity_key != device.identity_key:
            raise _registered_again(number)
        if keys.signed_prekey is not None:
            key = keys.signed_prekey
            await directory.rotate_signed_prekey(connection, number, key.key_id, key.public, key.signature)
        if keys.kyber_prekey is not None:
            last_resort = keys.kyber_prekey
            await directory.rotate_kyber_prekey(
                connection, number, last_resort.key_id, last_resort.public, last_resort.signature
            )
        ordinary, kyber = prekey_rows(number, keys.prekeys), kyber_rows(number, keys.kyber_prekeys)
        left = RemainingKeys(*await prekeys.upload(connection, number, ordinary, kyber))
        if max(len(left.prekeys), len(left.kyber_prekeys)) > MAX_KEPT:
            raise BadRequest(f"at most {MAX_KEPT} one-time pre-keys of each kind are kept", reason="too_many")
        return left

    left = await database.persist(work, retry_seconds=20)
    counts = PreKeyCounts(len(left.prekeys), len(left.kyber_prekeys))
    context.directory.refills.uploaded(number, counts)
    nodes.keys_left(number, counts)
    return left


async def _find(connection: Connection, number: str, token: str, *, lock: bool = False) -> RegisteredDevice:
    """Return the device of a number with this token. With `lock` it does not change until the transaction ends."""
    device = (await directory.list_registrations(connection, [number], lock=lock)).get(number)
    if device is None:
        raise NotFound(f"+{number} is not registered")
    if not logins.matches(token, device.token_hash):
        raise _registered_again(number)
    return device


def _registered_again(number: str) -> Unauthorized:
    return Unauthorized(f"+{number} was registered again, so this token is void")


async def list_remaining(context: NetworkContext, number: str) -> RemainingKeys:
    """Return the ids of a device's one-time pre-keys that are left.

    Retries for 20 s while the database is unreachable.
    """
    return RemainingKeys(*await context.database.query(lambda c: prekeys.list_ids(c, number), retry_seconds=20))
