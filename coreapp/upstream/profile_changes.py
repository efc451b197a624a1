"""Changes of the number's profile and PIN in the Cloud API that a client of v1 has requested."""

from __future__ import annotations

import dataclasses
import hmac
import logging
import urllib.parse
from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
from prometheus_client import Counter

from coreapp.context import ShardContext
from coreapp.errors import RequestRefused
from coreapp.graph_api.client import GraphClient
from coreapp.upstream.change_calls import (
    NOT_OPENED,
    ChangeCalls,
    ChangeEffect,
    ChangeUnfinished,
    CloudSuccess,
    Work,
)
from coreapp.upstream.profiles import MAX_PHOTO, ProfileMirror, fetch_profile, keep, keep_photo
from tidings.media.errors import FileGone
from tidings.storage.business.profiles import Photo
from tidings.storage.database import Connection
from tidings.wire import codes, core
from tidings.wire.cloud import verticals

log = logging.getLogger(__name__)

CHANGES = Counter("tidings_cloud_profile_changes_total", "Changes of profile and PIN in the Cloud API", ["result"])

AT_ONCE = 8  # changes of a number that run or wait; further ones are refused

_WORDS = {
    ChangeEffect.UNKNOWN: "whether the Cloud API has changed it is unknown; repeat the request",
    ChangeEffect.MADE: "the Cloud API has changed it; the profile will show it",
}
_NAMES = frozenset({"about", "address", "description", "email", "vertical", "websites"})


class _Token(msgspec.Struct):
    app_id: Annotated[str, msgspec.Meta(pattern=r"^[0-9]{1,20}\Z")]


class _DebugToken(msgspec.Struct):
    data: _Token


class _Session(msgspec.Struct):
    id: Annotated[str, msgspec.Meta(pattern=r"^upload:[!-~]{1,1000}\Z")]


class _Handle(msgspec.Struct):
    h: str


@dataclasses.dataclass(eq=False, repr=False)
class ProfileChanges:
    """Changes the profile of a number in the Cloud API and then the mirrored one, and sets its PIN there."""

    context: ShardContext
    client: GraphClient
    mirror: ProfileMirror

    def __post_init__(self) -> None:
        self._running = 0
        # App of each access token, which a resumable upload belongs to.
        self._app = ("", "")

    async def carry_out(self, change: core.ChangeProfile | core.SetPin) -> None:
        """Make a change. The profile is committed here as well when this returns. Raises `RequestRefused`."""
        access = self.context.config.upstream
        if access is None or not access.token:
            raise RequestRefused(codes.GENERIC_ERROR, NOT_OPENED)
        if self._running >= AT_ONCE:
            raise RequestRefused(codes.OVERLOADED, "too many changes of the profile are in progress", 1)
        self._running += 1
        calls = ChangeCalls(self.client, access, _WORDS)
        words = {"number": change.account, "action": "pin" if isinstance(change, core.SetPin) else "profile"}
        try:
            await calls.complete(self.context, lambda: self._make(change, calls), lock=self.mirror.lock)
        except RequestRefused as refused:
            CHANGES.labels("failed" if isinstance(refused, ChangeUnfinished) else "refused").inc()
            log.warning("upstream.profile_not_changed", extra={**words, "error": str(refused)})
            if calls.effect is not ChangeEffect.NONE:
                self.mirror.wake()
            raise
        finally:
            self._running -= 1
        CHANGES.labels("made").inc()
        log.info("upstream.profile_changed", extra=words)

    async def _make(self, change: core.ChangeProfile | core.SetPin, calls: ChangeCalls) -> Work | None:
        if isinstance(change, core.SetPin):
            body = msgspec.json.encode({"pin": change.pin})
            await calls.post(calls.access.upstream.phone_number_id, body, CloudSuccess)
            return None
        try:
            return await self._change(change, calls)
        finally:
            self.mirror.changes += 1

    async def _change(self, change: core.ChangeProfile, calls: ChangeCalls) -> Work:
        """Change the profile in the Cloud API. Returns the work that changes the mirrored one likewise."""
        number, wanted = calls.access.upstream.phone_number_id, _read_wanted(change.fields)
        found = await fetch_profile(calls.fetch, number)
        missing = found.lacks(wanted)
        photo = await self._read_photo(change) if change.photo else None
        posted = missing if photo is None else {**missing, "profile_picture_handle": await self._upload(photo, calls)}
        if posted:
            body = msgspec.json.encode({"messaging_product": "whatsapp", **posted})
            await calls.post(f"{number}/whatsapp_business_profile", body, CloudSuccess)
        made = msgspec.structs.replace(found, **missing)

        async def work(connection: Connection) -> None:
            await keep(connection, change.account, made)
            if photo is not None:
                await keep_photo(connection, change.account, photo)

        return work

    async def _read_photo(self, change: core.ChangeProfile) -> Photo:
        """Return the new photo. Raises `RequestRefused`."""
        try:
            file = await self.context.files.open(change.photo)
            try:
                content = await file.reader.read(min(file.size, MAX_PHOTO))
            finally:
                await file.reader.close()
        except (FileGone, OSError) as error:
            log.warning("upstream.photo_not_read", extra={"number": change.account, "error": repr(error)})
            details = "the photo cannot be read from the file store: nothing was changed"
            raise RequestRefused(codes.NOT_READY, details, 1) from error
        return Photo(change.photo_type, content)

    async def _upload(self, photo: Photo, calls: ChangeCalls) -> str:
        """Upload a photo. Returns its handle. Raises the errors of `ChangeCalls.fetch`."""
        access = calls.access
        query = {"file_length": len(photo.content), "file_type": photo.type, "file_name": "photo"}
        start = f"{await self._find_app(calls)}/uploads?{urllib.parse.urlencode(query)}"
        session = await calls.prepare(self.client.post(access.url(start), access.token, b""), _Session)
        sent = self.client.post_bytes(access.url(session.id), access.token, photo.content)
        return (await calls.prepare(sent, _Handle)).h

    async def _find_app(self, calls: ChangeCalls) -> str:
        """Return the id of the app that the access token belongs to. Raises the errors of `ChangeCalls.fetch`."""
        token = calls.access.token
        if not hmac.compare_digest(self._app[0].encode(), token.encode()):
            found = await calls.fetch(f"debug_token?{urllib.parse.urlencode({'input_token': token})}", _DebugToken)
            self._app = (token, found.data.app_id)
        return self._app[1]


def _read_wanted(fields: bytes) -> Mapping[str, Any]:
    """Return the wanted values as the Cloud API names them. Raises `RequestRefused` for an unknown industry."""
    given: dict[str, Any] = msgspec.json.decode(fields, type=dict[str, Any])
    wanted = {name: value for name, value in given.items() if name in _NAMES}
    if "vertical" in wanted:
        text = wanted["vertical"]
        wanted["vertical"] = verticals.to_cloud(text)
        if wanted["vertical"] is None:
            known = ", ".join(verticals.KNOWN)
            raise RequestRefused(codes.PARAMETER_INVALID, f"vertical: the Cloud API has none of this name, but {known}")
    return wanted
