"""Read and write the profile of the business that recipients see."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Mapping
from typing import Any

from tidings.storage.business import profiles
from tidings.storage.business.profiles import Photo, StoredProfile
from tidings.storage.database import Connection, Database
from tidings.wire.codes import ACCESS_DENIED, NOT_FOUND
from webapp.api.profile import schemas
from webapp.api.upstream.profiles import NO_DELETION, UpstreamProfiles
from webapp.auth.tokens import Caller
from webapp.http.errors import InvalidRequest
from webapp.http.pictures import UploadedPicture

log = logging.getLogger(__name__)


class ProfileService:
    """Profile of the caller's account.

    That of a number that sends through the Cloud API is changed there, and mirrored here for reads. Changes then raise
    the errors of the Coreapp link as well.
    """

    def __init__(self, database: Database, upstream: UpstreamProfiles) -> None:
        self._database = database
        self._upstream = upstream

    async def about(self, caller: Caller) -> str:
        async with self._database.reading() as connection:
            return await profiles.find_about(connection, caller.account)

    async def set_about(self, caller: Caller, text: str) -> None:
        if await self._upstream.concerns(caller.account):
            await self._upstream.change(caller.account, {"about": text})
        else:
            await self._database.persist(
                lambda connection: profiles.set_about(connection, caller.account, text), retry_seconds=5.0
            )
        log.info("profile.about_changed", extra={"username": caller.username})

    async def photo(self, caller: Caller) -> Photo:
        """Return the profile photo. Raises `InvalidRequest` when none is set."""
        found = await self.find_photo(caller.account)
        if found is None:
            raise _no_photo()
        return found

    async def find_photo(self, account: str) -> Photo | None:
        """Return the profile photo of a number; `None` without one."""
        async with self._database.reading() as connection:
            return await profiles.find_photo(connection, account)

    async def has_photo(self, caller: Caller) -> bool:
        async with self._database.reading() as connection:
            return await profiles.has_photo(connection, caller.account)

    async def require_photo(self, caller: Caller) -> None:
        """Raise `InvalidRequest` when no profile photo is set."""
        if not await self.has_photo(caller):
            raise _no_photo()

    async def set_photo(self, caller: Caller, picture: UploadedPicture) -> None:
        photo = Photo(picture.type, picture.content)
        if await self._upstream.concerns(caller.account):
            await self._upstream.change(caller.account, {}, picture)
        else:
            await self._database.persist(
                lambda connection: profiles.set_photo(connection, caller.account, photo), retry_seconds=5.0
            )
        log.info("profile.photo_changed", extra={"username": caller.username, "bytes": len(photo.content)})

    async def delete_photo(self, caller: Caller) -> None:
        """Delete the profile photo. Raises `InvalidRequest` when none is set, and for a number that sends through the
        Cloud API.
        """
        await self.require_photo(caller)
        if await self._upstream.concerns(caller.account):
            raise InvalidRequest.because(ACCESS_DENIED, NO_DELETION)
        await self._database.persist(
            lambda connection: profiles.set_photo(connection, caller.account, None), retry_seconds=5.0
        )
        log.info("profile.photo_deleted", extra={"username": caller.username})

    async def business(self, caller: Caller) -> StoredProfile:
        async with self._database.reading() as connection:
            return await profiles.find_business(connection, caller.account)

    async def merge(self, caller: Caller, changes: Mapping[str, Any]) -> None:
        """Change some fields of the business profile, and the about text.

        changes: values by the names of the fields of `StoredProfile`, and `about`
        """
        if await self._upstream.concerns(caller.account):
            if changes:
                await self._upstream.change(caller.account, changes)
        else:
            await self._merge(caller.account, changes)
        log.info("profile.business_changed", extra={"username": caller.username})

    async def _merge(self, account: str, changes: Mapping[str, Any]) -> None:
        fields = {name: value for name, value in changes.items() if name != "about"}
        if "websites" in fields:
            fields["websites"] = tuple(fields["websites"])

        async def work(connection: Connection) -> None:
            if fields:
                # Concurrent calls may change other fields.
                stored = await profiles.lock_business(connection, account)
                await profiles.set_business(connection, account, dataclasses.replace(stored, **fields))
            if "about" in changes:
                await profiles.set_about(connection, account, changes["about"])

        await self._database.persist(work, retry_seconds=5.0)

    async def set_business(self, caller: Caller, given: schemas.BusinessProfile) -> None:
        profile = StoredProfile(
            given.address or "",
            given.description or "",
            given.email or "",
            given.vertical or "",
            tuple(given.websites or ()),
        )
        if await self._upstream.concerns(caller.account):
            await self._upstream.change(caller.account, dataclasses.asdict(profile))
        else:
            await self._database.persist(
                lambda connection: profiles.set_business(connection, caller.account, profile), retry_seconds=5.0
            )
        log.info("profile.business_changed", extra={"username": caller.username})


def _no_photo() -> InvalidRequest:
    return InvalidRequest.because(NOT_FOUND, "there is no profile photo")
