"""Changes of the profiles of numbers that send through the real Cloud API: made there, by the Coreapp of the number."""

from __future__ import annotations

import dataclasses
import functools
import logging
from collections.abc import AsyncIterator, Mapping
from typing import Any

import msgspec

from tidings.media.errors import DiskFull, StoreAway
from tidings.objects.store import FileStore
from tidings.storage.business import upstreams
from tidings.storage.database import Database
from tidings.wire import core
from webapp.coreapps.interfaces import PrimaryCoreapps
from webapp.http.errors import FilesAway, Overloaded
from webapp.http.pictures import UploadedPicture

log = logging.getLogger(__name__)

_FULL_RETRY = 60  # seconds after which a client should retry when the disk is full
NO_DELETION = "the Cloud API cannot remove a profile photo: set another one"


@dataclasses.dataclass(frozen=True, slots=True)
class UpstreamProfiles:
    """Requests to the owners of the first shards of numbers that send through the Cloud API."""

    database: Database
    coreapps: PrimaryCoreapps
    files: FileStore  # store through which photos are handed to the Coreapp

    async def concerns(self, account: str) -> bool:
        """Return whether the profile of a number is the one that it has in the Cloud API."""
        found = await self.database.query(lambda connection: upstreams.find(connection, account), patience=5.0)
        return found is not None

    async def change(self, account: str, fields: Mapping[str, Any], picture: UploadedPicture | None = None) -> None:
        """Change fields of a profile, and its photo. Raises the errors of the Coreapp link, `FilesAway` and
        `Overloaded`.

        fields: values under their names in v1; absent ones stay
        picture: new photo; `None` to keep the present one
        """
        change = core.ChangeProfile(0, account, msgspec.json.encode(fields))
        if picture is None:
            await self._request(change)
            return
        name = await self._store(picture)
        try:
            await self._request(msgspec.structs.replace(change, photo=name, photo_type=picture.type))
        finally:
            await self._delete(name)

    async def _request(self, change: core.ChangeProfile) -> None:
        make = functools.partial(msgspec.structs.replace, change)
        owner = self.coreapps.of(change.account)
        await owner.call_primary(lambda n: make(n=n), core.Done, version=core.CHANGES_PROFILES)

    async def _store(self, picture: UploadedPicture) -> str:
        """Store a photo, which is too long for a frame. Returns its name."""

        async def content() -> AsyncIterator[bytes]:
            yield picture.content

        try:
            return (await self.files.write(content(), limit=len(picture.content))).name
        except StoreAway as error:
            log.error("media.store_away", extra={"error": repr(error)})
            raise FilesAway() from error
        except DiskFull as error:
            raise Overloaded(str(error), retry_after=_FULL_RETRY) from None

    async def _delete(self, name: str) -> None:
        try:
            await self.files.delete([name])
        except OSError as error:
            # It is an orphan, which is collected later.
            log.warning("profile.photo_left", extra={"error": repr(error)})
