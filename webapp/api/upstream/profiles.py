"""Changes of the profiles of numbers that send through the real Cloud API: made there, by the Coreapp of the number."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import AsyncIterator, Mapping
from typing import Any

import msgspec

from tidings.media.errors import DiskFull, StoreUnavailable
from tidings.objects.store import FileStore
from tidings.storage.business import upstreams
from tidings.storage.database import Database
from tidings.wire import core
from webapp.api.media.service import away, delete_files, full
from webapp.coreapps.interfaces import PrimaryCoreapps
from webapp.http.pictures import UploadedPicture

NO_DELETION = "the Cloud API cannot remove a profile photo: set another one"


@dataclasses.dataclass(frozen=True, slots=True)
class UpstreamProfiles:
    """Requests to the owners of the first shards of numbers that send through the Cloud API."""

    database: Database
    coreapps: PrimaryCoreapps
    files: FileStore  # store through which photos are handed to the Coreapp

    async def concerns(self, account: str) -> bool:
        """Return whether the profile of a number is the one that it has in the Cloud API."""
        return await self.database.query(lambda connection: upstreams.exists(connection, account), retry_seconds=5.0)

    async def change(self, account: str, fields: Mapping[str, Any], picture: UploadedPicture | None = None) -> None:
        """Change fields of a profile, and its photo. Raises the errors of the Coreapp link, `FilesUnavailable` and
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
            await delete_files(self.files, [name])

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
        except StoreUnavailable as error:
            raise away(error) from error
        except DiskFull as error:
            raise full(error) from None
