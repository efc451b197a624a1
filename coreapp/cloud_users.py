"""Users as webhooks of the Cloud API show them: with an id, and without the number of those who have a user name."""

from __future__ import annotations

import dataclasses
import logging
import secrets
from collections.abc import Sequence

from tidings.aio.lru import LRU
from tidings.e2ee.installation_secrets import SecretSealer, UnreadableSecret
from tidings.storage.business import certificates
from tidings.storage.business.callbacks import Callback
from tidings.storage.business.certificates import CLOUD_USER_KEY
from tidings.storage.business.cloud_users import CloudUser
from tidings.storage.database import Connection, Database
from tidings.testing import numbers
from tidings.wire.cloud import user_ids
from tidings.wire.cloud.identity import NumberIdentity

log = logging.getLogger(__name__)

CACHED = 100_000  # users


@dataclasses.dataclass(frozen=True, slots=True)
class ShownUser:
    """User as webhooks show them."""

    number: str  # empty for a user whose number is not visible
    user_id: str = ""  # empty while users have no ids
    username: str = ""  # empty for none

    @property
    def name(self) -> str:
        """Return the name of a user without a profile."""
        return self.username or self.number


class CloudUserIds:
    """Ids of the users of one portfolio."""

    def __init__(self, key: bytes, identity: NumberIdentity) -> None:
        self._key = key
        self._identity = identity
        self._shown: LRU[str, ShownUser] = LRU(CACHED)
        # Numbers whose ids are on disk.
        self._stored: LRU[str, bool] = LRU(CACHED)

    def show(self, number: str) -> ShownUser:
        """Return a user."""
        found = self._shown.get(number)
        if found is None:
            user_id = user_ids.derive(self._key, self._identity.business_id, number)
            found = ShownUser(numbers.visible(number, with_ids=True), user_id, numbers.username_of(number))
            self._shown.put(number, found)
        return found

    def to_store(self, *known: str) -> Sequence[CloudUser]:
        """Return the rows of those users whose ids are not known to be on disk."""
        account = self._identity.waba_owner
        return [CloudUser(account, self.show(one).user_id, one) for one in known if one not in self._stored]

    def note_stored(self, callbacks: Sequence[Callback]) -> None:
        """Called with callbacks that are on disk, and their users with them."""
        for callback in callbacks:
            for user in callback.users:
                self._stored.put(user.peer, True)


async def find(database: Database, identity: NumberIdentity, safe: SecretSealer) -> CloudUserIds | None:
    """Return the user ids of a number's portfolio. All numbers of the portfolio share them.

    Their key is made once, and stays when other secrets are rotated.

    If the key cannot be opened, log an error and return `None`.
    """
    account = identity.waba_owner

    async def work(connection: Connection) -> bytes:
        fresh = safe.seal(account, CLOUD_USER_KEY, secrets.token_bytes(32))
        await certificates.add_certificate_if_missing(connection, account, CLOUD_USER_KEY, fresh)
        return await certificates.find_certificate(connection, account, CLOUD_USER_KEY) or fresh

    async with database.reading() as reading:
        sealed = await certificates.find_certificate(reading, account, CLOUD_USER_KEY)
    if sealed is None:
        sealed = await database.persist(work)
    try:
        return CloudUserIds(safe.open(account, CLOUD_USER_KEY, sealed), identity)
    except UnreadableSecret as error:
        log.error("cloud.user_key_unreadable", extra={"account": account, "error": str(error)})
        return None
