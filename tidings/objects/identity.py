"""Comparison of a file store with the one that the database records.

The first start on a new database writes a marker into the store and records it, under a lock in the database: of
several processes that start at once, one records it and the others compare. From then on a store without that marker,
such as an unmounted directory, is refused.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Awaitable, Callable, Sequence

from tidings.config.env import SettingsError
from tidings.objects.store import MarkedStore, Marker
from tidings.storage import file_stores, outages
from tidings.storage.business import media
from tidings.storage.database import Connection, Database
from tidings.storage.file_stores import DATABASE, FileStoreRow
from tidings.storage.network import blobs

MEDIA, BLOBS = "media", "blobs"

# Returns names of files in the newest rows; none for a database without files.
Sample = Callable[[Connection], Awaitable[Sequence[str]]]


# Time limit of a comparison in the database, seconds.
_RETRY_SECONDS = 3.0


class WrongStore(SettingsError):
    """The file store is not the one that the database records; the text names the remedy."""


class StoreIdentity:
    """One file store of one database."""

    def __init__(self, database: Database, store: MarkedStore, name: str, *, variable: str, sample: Sample) -> None:
        """name: `MEDIA` or `BLOBS`.
        variable: setting with the location of the store, for error texts.
        sample: returns names of some files that the database has.
        """
        self.name = name
        self._database = database
        self._store = store
        self._sample = sample
        self.is_local = store.is_local
        self._where = f"{variable} {store.location}"

    async def claim(self) -> None:
        """Compare the store with the database's record, or record it when there is none.

        A store is not recorded if it has none of the files that an older database names: it may not be mounted. Raises
        `WrongStore`, also when the store cannot be used, and database errors.
        """
        try:
            self._store.prepare()
            # The first call may be slow, for example to get a role's credentials, so it precedes the transaction.
            await self._store.read_marker()
            self._store.expected = await self._database.persist(self._claim)
        except OSError as error:
            if outages.is_outage(error):
                raise
            raise WrongStore(f"{self._where}: {error.strerror or error}") from error

    async def _claim(self, connection: Connection) -> Marker:
        database = await self._lock(connection)
        recorded = await file_stores.find(connection, self.name)
        found = await self._store.read_marker()
        if recorded is not None:
            return self._compare(Marker(self.name, database, recorded.marker), found)
        if found is None:
            names = await self._sample(connection)
            if names and not await self._store.has_any(names):
                raise self._wrong("has none of the files that the database names")
            found = Marker(self.name, database, secrets.token_hex(16))
            await self._store.write_marker(found)
        # A marker without a record: an earlier start ended between the two writes.
        self._compare(Marker(self.name, database, found.id), found)
        await file_stores.add(connection, FileStoreRow(self.name, found.id, _now()))
        return found

    async def refresh(self) -> str:
        """Compare the store with the database's present record. Returns the problem, empty for none.

        The record is read each time, so that a store that an operator has adopted is used without a restart. Nothing is
        compared before the first start has recorded a store. Raises `OSError` when the store cannot be used, and
        database errors.
        """
        self._store.expected = (
            await self._database.query(self._recorded, retry_seconds=_RETRY_SECONDS) or self._store.expected
        )
        try:
            if self._store.expected is not None:
                self._compare(self._store.expected, await self._store.read_marker())
        except WrongStore as error:
            return str(error)
        return ""

    async def is_recorded(self) -> bool:
        """Return whether a start has recorded a store. Raises database errors."""
        return await self._database.query(self._recorded, retry_seconds=_RETRY_SECONDS) is not None

    async def adopt(self, *, force: bool) -> None:
        """Record this store in the database, in place of any other.

        Raises `WrongStore`, `OSError`, and database errors.

        force: also take a store with the marker of another database, which then loses it.
        """

        async def work(connection: Connection) -> None:
            database = await self._lock(connection)
            found = await self._store.read_marker()
            if found is not None and (found.database, found.store) != (database, self.name) and not force:
                raise WrongStore(
                    f"{self._where} belongs to another database, or to other files; `--force` adopts it anyway"
                )
            marker = Marker(self.name, database, secrets.token_hex(16))
            await self._store.write_marker(marker)
            record = FileStoreRow(self.name, marker.id, _now())
            await file_stores.add(connection, record)
            await file_stores.replace(connection, record)

        await self._database.persist(work)

    async def _lock(self, connection: Connection) -> str:
        """Lock the database's own id, until the transaction ends, and return it."""
        await file_stores.add(connection, FileStoreRow(DATABASE, secrets.token_hex(16), _now()))
        row = await file_stores.find(connection, DATABASE, lock=True)
        assert row is not None
        return row.marker

    async def _recorded(self, connection: Connection) -> Marker | None:
        database = await file_stores.find(connection, DATABASE)
        recorded = await file_stores.find(connection, self.name)
        if database is None or recorded is None:
            return None
        return Marker(self.name, database.marker, recorded.marker)

    def _compare(self, expected: Marker, found: Marker | None) -> Marker:
        if found == expected:
            return found
        if found is None:
            raise self._wrong("has no marker file: it is not mounted, or not the one that this installation uses")
        if found.store and found.store != expected.store:
            raise self._wrong(f"holds the {found.store} of an installation, not its {expected.store}")
        if found.database != expected.database:
            raise self._wrong("has the marker of another database")
        raise self._wrong("is not the one that this installation uses: the database records another")

    def _wrong(self, why: str) -> WrongStore:
        return WrongStore(
            f"{self._where} {why}; mount or configure the recorded one, or run `tidings files adopt {self.name}` to "
            "replace it by this one"
        )


def of_media(database: Database, store: MarkedStore) -> StoreIdentity:
    """Return the identity of the files that Webapps and Coreapps share; `database` is the business's."""
    variable = "TIDINGS_MEDIA_DIR" if store.is_local else "TIDINGS_MEDIA_S3_BUCKET"
    return StoreIdentity(database, store, MEDIA, variable=variable, sample=media.list_some_files)


def of_blobs(database: Database, store: MarkedStore) -> StoreIdentity:
    """Return the identity of the files that the nodes of the network share; `database` is the network's."""
    variable = "TIDINGS_NETWORK_BLOB_DIR" if store.is_local else "TIDINGS_NETWORK_BLOB_S3_BUCKET"
    return StoreIdentity(database, store, BLOBS, variable=variable, sample=blobs.list_some_files)


def _now() -> int:
    return int(time.time() * 1000)
