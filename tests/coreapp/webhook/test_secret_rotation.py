"""Secrets that sign callbacks, in the database."""

from __future__ import annotations

import asyncio
import contextlib

from coreapp import webhook_secrets
from coreapp.webhook_secrets import RotationPending, WebhookSecrets
from tests.conftest import DatabaseFactory
from tidings.e2ee.installation_secrets import SecretSealer
from tidings.storage.database import Connection

FIRST, SECOND, THIRD = ("whsec_" + letters * 8 for letters in ("QUJD", "REVG", "R0hJ"))


async def test_one_of_two_concurrent_first_rotations_raises_rotationpending(database_factory: DatabaseFactory) -> None:
    database = await database_factory("business")
    kept = WebhookSecrets("15550000000", FIRST, SecretSealer(bytes(32)))
    both_have_read = asyncio.Barrier(2)

    async def rotate(fresh: str) -> bool:
        async def work(connection: Connection) -> None:
            found = await kept.find(connection, for_update=True)
            with contextlib.suppress(TimeoutError):
                # When the other transaction has to wait for ours, it never arrives here.
                async with asyncio.timeout(0.5):
                    await both_have_read.wait()
            await kept.keep(connection, webhook_secrets.rotated(found, fresh, now=1, retires_at=1000))

        try:
            await database.persist(work)
        except RotationPending:
            return False
        return True

    done = await asyncio.gather(rotate(SECOND), rotate(THIRD))
    assert sorted(done) == [False, True]
    async with database.reading() as connection:
        secrets = [entry.secret for entry in await kept.find(connection)]
    assert secrets == [SECOND if done[0] else THIRD, FIRST]
