"""Profile of the number in the Cloud API, mirrored into ours, from which v1 reads it."""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import logging
from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
from prometheus_client import Counter

from coreapp.context import ShardContext
from coreapp.graph_api.client import GraphClient
from coreapp.upstream.templates import INTERVAL, RETRY_SECONDS, Fetch, MirrorFailed, get_object
from tidings.aio.service import Wakeup
from tidings.egress.download import Downloader, DownloadTooLarge
from tidings.egress.guard import EgressGuard
from tidings.media import signatures
from tidings.storage import outages
from tidings.storage.business import profiles
from tidings.storage.business.profiles import Photo, StoredProfile
from tidings.storage.database import Connection
from tidings.wire.cloud import verticals

log = logging.getLogger(__name__)

READS = Counter("tidings_cloud_profile_reads_total", "Reads of the number's profile in the Cloud API", ["result"])

FIELDS = "about,address,description,email,profile_picture_url,websites,vertical"
PHOTO_SECONDS = 20.0
MAX_PHOTO = 5 * 1024 * 1024  # bytes

# Longer than the Cloud API allows, and short enough for our tables.
_Text = Annotated[str, msgspec.Meta(max_length=2_048)]


class CloudProfile(msgspec.Struct):
    """Profile of a number in the Cloud API. Values that are not set are empty."""

    about: Annotated[str, msgspec.Meta(max_length=255)] = ""
    address: _Text = ""
    description: _Text = ""
    email: _Text = ""
    vertical: _Text = verticals.UNDEFINED
    websites: Annotated[list[_Text], msgspec.Meta(max_length=16)] = []
    profile_picture_url: str = ""

    def lacks(self, wanted: Mapping[str, Any]) -> dict[str, Any]:
        """Return those of the wanted values that it does not have, by field."""
        present = msgspec.structs.asdict(self) | {"vertical": verticals.to_cloud(self.vertical)}
        return {name: value for name, value in wanted.items() if present[name] != value}

    @property
    def stored(self) -> StoredProfile:
        """Return the business profile in the form of v1."""
        industry = verticals.of_cloud(self.vertical)
        return StoredProfile(self.address, self.description, self.email, industry, tuple(self.websites))


class _Profiles(msgspec.Struct):
    data: Annotated[list[CloudProfile], msgspec.Meta(min_length=1)]


async def fetch_profile(fetch: Fetch, phone_number_id: str) -> CloudProfile:
    """Return the profile of a number. Raises the errors of `fetch`."""
    found = await fetch(f"{phone_number_id}/whatsapp_business_profile?fields={FIELDS}", _Profiles)
    profile: CloudProfile = found.data[0]
    return profile


async def keep(connection: Connection, account: str, found: CloudProfile) -> bool:
    """Store texts of a profile. Returns whether one differs from the stored ones."""
    is_new = False
    if await profiles.find_about(connection, account) != found.about:
        await profiles.set_about(connection, account, found.about)
        is_new = True
    if await profiles.find_business(connection, account) != found.stored:
        await profiles.set_business(connection, account, found.stored)
        is_new = True
    return is_new


async def keep_photo(connection: Connection, account: str, photo: Photo | None) -> bool:
    """Store a photo, or that there is none. Returns whether it differs from the stored one."""
    if await profiles.find_photo(connection, account) == photo:
        return False
    await profiles.set_photo(connection, account, photo)
    return True


@dataclasses.dataclass(eq=False, repr=False)
class ProfileMirror:
    """Service of a number's first shard that mirrors the profile every 10 minutes, and after a change that failed."""

    name = "profile-mirror"

    context: ShardContext
    client: GraphClient

    def __post_init__(self) -> None:
        self._wakeup = Wakeup()
        self.lock = asyncio.Lock()  # held during a change, and while a read is stored
        self._photo_error = ""  # error of the last read of the photo; empty for none
        self.changes = 0  # changes since the start, failed ones included; a read that started before one is discarded
        guard = EgressGuard(self.context.settings.outgoing_webhooks)
        self._downloader = Downloader(guard, cpu_limit=self.context.shared.media_reads)

    def wake(self) -> None:
        """Read the profile soon."""
        self._wakeup.wake()

    async def run(self, stop: asyncio.Event) -> None:
        with self._wakeup.woken_by(stop):
            while not stop.is_set():
                await self._wakeup.wait(INTERVAL if await self.run_once() else RETRY_SECONDS)

    async def run_once(self) -> bool:
        """Read the profile once. Returns whether that succeeded. Texts are stored without an unreadable photo."""
        access, account, before = self.context.config.upstream, self.context.account, self.changes
        if access is None or not access.token:
            return False
        try:
            get = functools.partial(get_object, self.client, access)
            found = await fetch_profile(get, access.upstream.phone_number_id)
            photo, photo_error = await self._find_photo(found.profile_picture_url)
            async with self.lock:
                if self.changes != before:
                    return False

                async def work(connection: Connection) -> bool:
                    has_texts = await keep(connection, account, found)
                    has_photo = not photo_error and await keep_photo(connection, account, photo)
                    return has_photo or has_texts

                is_new = await self.context.persist(work, retry_seconds=10.0)
        except MirrorFailed as error:
            READS.labels("failed").inc()
            log.warning("upstream.profile_not_read", extra={"number": account, "error": str(error)})
            return False
        except Exception as error:
            if not outages.is_outage(error):
                raise
            log.warning("upstream.profile_not_stored", extra={"number": account, "error": outages.brief(error)})
            return False
        READS.labels("failed" if photo_error else "read").inc()
        if is_new:
            log.info("upstream.profile", extra={"number": account})
        if photo_error not in ("", self._photo_error):
            log.warning("upstream.photo_not_read", extra={"number": account, "error": photo_error})
        self._photo_error = photo_error
        return not photo_error

    async def _find_photo(self, url: str) -> tuple[Photo | None, str]:
        """Return the photo, `None` for none, and why it cannot be downloaded; empty if it was."""
        try:
            return await self._download(url) if url else None, ""
        except MirrorFailed as error:
            return None, str(error)

    async def _download(self, url: str) -> Photo:
        """Download the photo, without the token: its host is another one. Raises `MirrorFailed`."""
        content = bytearray()
        try:
            async with self._downloader.fetch(url, limit=MAX_PHOTO, seconds=PHOTO_SECONDS) as response:
                if response.status != 200:
                    raise MirrorFailed(f"the profile photo: HTTP {response.status}")
                async for chunk in response.chunks():
                    content += chunk
        except (OSError, ValueError, DownloadTooLarge) as error:
            raise MirrorFailed(f"the profile photo: {error!r}"[:200]) from error
        head = bytes(content[:16])
        if not signatures.is_jpeg(head) and not signatures.is_png(head):
            raise MirrorFailed("the profile photo is neither JPEG nor PNG")
        return Photo("image/png" if signatures.is_png(head) else "image/jpeg", bytes(content))
