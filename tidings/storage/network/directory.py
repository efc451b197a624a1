"""Directory of the network: registered devices with their public keys, and blocks between numbers."""

from __future__ import annotations

import dataclasses
import hmac
from collections.abc import Iterable, Sequence
from typing import Annotated

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.storage import types
from tidings.storage.database import any_of, insert_or_ignore, insert_or_update, save_rows
from tidings.storage.network.tables import metadata

# Maximum number of values in one `IN (…)`.
CHUNK = 1000


# This program does not use this table; programs before network revision 0011 do. See `challenges`.
codes = metadata.table(
    "registration_codes",
    sa.Column("number", types.key(15), primary_key=True),
    sa.Column("code_hash", types.fixed_bytes(32), nullable=False),
    sa.Column("issued_at", types.milliseconds(), nullable=False),
    sa.Column("expires_at", types.milliseconds(), nullable=False),
    sa.Column("attempts_left", sa.Integer, nullable=False),
    sa.Column("window_started_at", types.milliseconds(), nullable=False),
    sa.Column("issued_in_window", sa.Integer, nullable=False),
)

blocks = metadata.table(
    "blocks",
    sa.Column("number", types.key(15), primary_key=True),
    sa.Column("other", types.key(15), primary_key=True),
)

# For numbers whose devices are several programs, one after another: the highest epoch in which one of them registered
# the number or uploaded keys.
epochs = metadata.table(
    "registration_epochs",
    sa.Column("number", types.key(15), primary_key=True),
    sa.Column("epoch", sa.BigInteger, nullable=False),
)

# Identity keys and tokens that numbers had when they unregistered. The next registration of a number is compared with
# its key. The token is proof enough for repeating the call; programs before network revision 0013 do not record it.
former_identities = metadata.table(
    "former_identities",
    sa.Column("number", types.key(15), primary_key=True),
    sa.Column("identity_key", types.fixed_bytes(33), nullable=False),
    sa.Column("token_hash", types.fixed_bytes(32), nullable=True),
)


@dataclasses.dataclass(frozen=True, slots=True)
class RegisteredDevice:
    """Device with its lasting keys: identity, signed pre-key and last-resort Kyber pre-key."""

    number: Annotated[str, types.key(15)]
    registration_id: Annotated[int, sa.BigInteger]
    identity_key: Annotated[bytes, types.fixed_bytes(33)]
    signed_prekey_id: Annotated[int, sa.BigInteger]
    signed_prekey: Annotated[bytes, types.fixed_bytes(33)]
    signed_prekey_signature: Annotated[bytes, types.fixed_bytes(64)]
    # The Kyber fields are None for a device without post-quantum keys.
    kyber_prekey_id: Annotated[int | None, sa.BigInteger]
    kyber_prekey: Annotated[bytes | None, types.fixed_bytes(1569)]
    kyber_prekey_signature: Annotated[bytes | None, types.fixed_bytes(64)]
    # SHA-256 of the token that the device logs in with.
    token_hash: Annotated[bytes, types.fixed_bytes(32)]
    registered_at: types.UnixMilliseconds


registrations = metadata.table_of(RegisteredDevice, "registrations", key=("number",))


def _chunks(numbers: Iterable[str]) -> Iterable[list[str]]:
    everything = list(numbers)
    return (everything[start : start + CHUNK] for start in range(0, len(everything), CHUNK))


async def register(connection: AsyncConnection, devices: Sequence[RegisteredDevice]) -> None:
    """Add devices. An existing one is replaced, including its token."""
    await save_rows(connection, registrations, devices)


async def raise_login_epoch(connection: AsyncConnection, number: str, login_epoch: int) -> bool:
    """Record that the keys of a number change under `login_epoch`, in the transaction that changes them.

    Returns false if they were changed under a higher one, and must not be changed. Does nothing for login epoch 0.
    """
    if not login_epoch:
        return True
    known = sa.select(epochs.c.epoch).where(epochs.c.number == number).with_for_update()
    highest = (await connection.execute(known)).scalar() or 0
    if highest < login_epoch:
        statement = insert_or_update(connection, epochs)
        await connection.execute(statement, [{"number": number, "epoch": login_epoch}])
    return highest <= login_epoch


async def rotate_signed_prekey(
    connection: AsyncConnection, number: str, key_id: int, public: bytes, signature: bytes
) -> None:
    """Replace a device's signed pre-key."""
    await connection.execute(
        registrations.update()
        .where(registrations.c.number == number)
        .values(signed_prekey_id=key_id, signed_prekey=public, signed_prekey_signature=signature)
    )


async def rotate_kyber_prekey(
    connection: AsyncConnection, number: str, key_id: int, public: bytes, signature: bytes
) -> None:
    """Replace a device's last-resort Kyber pre-key."""
    await connection.execute(
        registrations.update()
        .where(registrations.c.number == number)
        .values(kyber_prekey_id=key_id, kyber_prekey=public, kyber_prekey_signature=signature)
    )


async def unregister(connection: AsyncConnection, number: str, token_hash: bytes) -> bool:
    """Delete a device and its own blocks; keep its identity key and token. Returns false when it does not exist.

    token_hash: of the device; one that was registered since with another token stays.
    """
    device = registrations.c.number == number
    found = await connection.execute(
        sa.select(registrations.c.identity_key, registrations.c.token_hash).where(device).with_for_update()
    )
    row = found.one_or_none()
    if row is None or not hmac.compare_digest(row.token_hash, token_hash):
        return False
    former = {"number": number, "identity_key": row.identity_key, "token_hash": token_hash}
    await connection.execute(insert_or_update(connection, former_identities), [former])
    await connection.execute(blocks.delete().where(blocks.c.number == number))
    await connection.execute(epochs.delete().where(epochs.c.number == number))
    await connection.execute(registrations.delete().where(device))
    return True


async def find_former_token(connection: AsyncConnection, number: str) -> bytes | None:
    """Return the hash of the token with which a number unregistered; `None` when it has registered again since."""
    query = sa.select(former_identities.c.token_hash).where(former_identities.c.number == number)
    return (await connection.execute(query)).scalar()


_REGISTERED = sa.select(registrations.c.number).where(registrations.c.number.in_(any_of("numbers")))
_BLOCKS = sa.select(blocks).where(blocks.c.number.in_(any_of("numbers")))


async def list_registered(connection: AsyncConnection, numbers: Iterable[str]) -> set[str]:
    """Return those of the given numbers that are registered."""
    found: set[str] = set()
    for chunk in _chunks(numbers):
        rows = await connection.execute(_REGISTERED, {"numbers": list(chunk)})
        found.update(rows.scalars())
    return found


_REGISTRATIONS = sa.select(registrations).where(registrations.c.number.in_(any_of("numbers")))
_REGISTRATIONS_LOCKED = _REGISTRATIONS.with_for_update()


async def list_registrations(
    connection: AsyncConnection, numbers: Iterable[str], *, lock: bool = False
) -> dict[str, RegisteredDevice]:
    """Return the devices of the registered numbers. With `lock` they do not change until the transaction ends."""
    found: dict[str, RegisteredDevice] = {}
    for chunk in _chunks(numbers):
        rows = await connection.execute(_REGISTRATIONS_LOCKED if lock else _REGISTRATIONS, {"numbers": list(chunk)})
        found.update((row[0], RegisteredDevice(*row)) for row in rows)
    return found


_FORMER = sa.select(former_identities.c.number, former_identities.c.identity_key).where(
    former_identities.c.number.in_(any_of("numbers"))
)


async def take_former_identities(connection: AsyncConnection, numbers: Iterable[str]) -> dict[str, bytes]:
    """Read and delete the former identity keys of those of the given numbers that have unregistered."""
    found: dict[str, bytes] = {}
    for chunk in _chunks(numbers):
        found.update((number, key) for number, key in await connection.execute(_FORMER, {"numbers": list(chunk)}))
    for chunk in _chunks(found):
        await connection.execute(former_identities.delete().where(former_identities.c.number.in_(chunk)))
    return found


_CREDENTIALS = sa.select(registrations.c.number, registrations.c.token_hash, registrations.c.identity_key).where(
    registrations.c.number.in_(any_of("numbers"))
)


async def list_credentials(connection: AsyncConnection, numbers: Iterable[str]) -> dict[str, tuple[bytes, bytes]]:
    """Return (token hash, identity key) of those of the given numbers that are registered."""
    found: dict[str, tuple[bytes, bytes]] = {}
    for chunk in _chunks(numbers):
        rows = await connection.execute(_CREDENTIALS, {"numbers": list(chunk)})
        found.update((number, (token_hash, identity_key)) for number, token_hash, identity_key in rows)
    return found


async def block(connection: AsyncConnection, number: str, other: str) -> None:
    """Make `number` refuse all messages from `other`."""
    await connection.execute(insert_or_ignore(connection, blocks), [{"number": number, "other": other}])


async def unblock(connection: AsyncConnection, number: str, other: str) -> None:
    """Make `number` accept messages from `other` again."""
    await connection.execute(blocks.delete().where((blocks.c.number == number) & (blocks.c.other == other)))


async def count_blocks(connection: AsyncConnection, number: str) -> int:
    """Count the numbers that a number has blocked."""
    query = sa.select(sa.func.count()).select_from(blocks).where(blocks.c.number == number)
    return int((await connection.execute(query)).scalar_one())


_RECIPIENTS = (
    sa.select(registrations.c.number, blocks.c.other)
    .select_from(registrations.outerjoin(blocks, blocks.c.number == registrations.c.number))
    .where(registrations.c.number.in_(any_of("numbers")))
)


async def list_recipients(connection: AsyncConnection, numbers: Iterable[str]) -> dict[str, set[str]]:
    """Return those of the given numbers that are registered, with the numbers that each of them has blocked."""
    found: dict[str, set[str]] = {}
    for chunk in _chunks(numbers):
        for number, other in await connection.execute(_RECIPIENTS, {"numbers": list(chunk)}):
            blocked = found.setdefault(number, set())
            if other is not None:
                blocked.add(other)
    return found


async def list_blocks(connection: AsyncConnection, numbers: Iterable[str]) -> dict[str, set[str]]:
    """Return the numbers that each of the given numbers has blocked. Numbers without blocks are left out."""
    found: dict[str, set[str]] = {}
    for chunk in _chunks(numbers):
        for number, other in await connection.execute(_BLOCKS, {"numbers": list(chunk)}):
            found.setdefault(number, set()).add(other)
    return found
