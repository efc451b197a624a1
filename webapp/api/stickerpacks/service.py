"""Store and return sticker packs."""

from __future__ import annotations

import uuid
from collections.abc import Sequence

from tidings.media.kinds import STICKER
from tidings.storage.business import stickerpacks
from tidings.storage.business.stickerpacks import Pack, PackFull, Sticker
from tidings.storage.database import Database
from tidings.wire.codes import NOT_FOUND, PARAMETER_INVALID
from webapp.api.media.references import References
from webapp.api.stickerpacks import schemas
from webapp.auth.tokens import Caller
from webapp.http.errors import InvalidRequest

MAX_PACKS, MAX_STICKERS = 200, 30
_FILE = "image_data_id"  # field of a sticker


class Stickerpacks:
    """Sticker packs of the caller's account.

    All methods raise `InvalidRequest` when the pack or the sticker does not exist.
    """

    def __init__(self, database: Database, files: References) -> None:
        self._database = database
        self._files = files

    async def list(self, caller: Caller) -> Sequence[Pack]:
        async with self._database.reading() as connection:
            return await stickerpacks.list_packs(connection, caller.account)

    async def get(self, caller: Caller, pack_id: str) -> Pack:
        async with self._database.reading() as connection:
            pack = await stickerpacks.find_pack(connection, caller.account, _id(pack_id))
        if pack is None:
            raise _no_pack(pack_id)
        return pack

    async def create(self, caller: Caller, given: schemas.NewStickerpack) -> str:
        pack = Pack(
            id=str(uuid.uuid4()),
            account=caller.account,
            publisher=given.publisher,
            name=given.name,
            ios_app_store_link=given.ios_app_store_link or "",
            android_app_store_link=given.android_app_store_link or "",
        )
        try:
            await self._database.commit(lambda connection: stickerpacks.add_pack(connection, pack, limit=MAX_PACKS))
        except PackFull as error:
            raise InvalidRequest.because(PARAMETER_INVALID, f"stickerpacks: {error}, which is the limit") from None
        return pack.id

    async def change(self, caller: Caller, pack_id: str, given: schemas.StickerpackChange) -> None:
        changes = given.model_dump(exclude_none=True)
        changed = await self._database.persist(
            lambda connection: stickerpacks.change_pack(connection, caller.account, _id(pack_id), changes),
            retry_seconds=5.0,
        )
        if not changed:
            raise _no_pack(pack_id)

    async def delete(self, caller: Caller, pack_id: str) -> None:
        deleted = await self._database.commit(
            lambda connection: stickerpacks.delete_pack(connection, caller.account, _id(pack_id))
        )
        if not deleted:
            raise _no_pack(pack_id)

    async def list_stickers(self, caller: Caller, pack_id: str) -> Sequence[Sticker]:
        pack = await self.get(caller, pack_id)
        async with self._database.reading() as connection:
            return await stickerpacks.list_stickers(connection, pack.id)

    async def get_sticker(self, caller: Caller, pack_id: str, index: str) -> Sticker:
        pack = await self.get(caller, pack_id)
        async with self._database.reading() as connection:
            sticker = await stickerpacks.find_sticker(connection, pack.id, _index(index))
        if sticker is None:
            raise _no_sticker(index)
        return sticker

    async def add_sticker(self, caller: Caller, pack_id: str, given: schemas.NewSticker) -> int:
        pack = await self.get(caller, pack_id)
        await self._files.check_file(caller, _FILE, STICKER, given.image_data_id)
        try:
            position = await self._database.commit(
                lambda connection: stickerpacks.add_sticker(
                    connection, pack, given.image_data_id, given.emojis or (), limit=MAX_STICKERS
                )
            )
        except PackFull as error:
            raise InvalidRequest.because(PARAMETER_INVALID, f"stickers: {error}, which is the limit") from None
        if position is None:
            raise _no_pack(pack_id)
        return position

    async def change_sticker(self, caller: Caller, pack_id: str, index: str, given: schemas.StickerChange) -> None:
        pack = await self.get(caller, pack_id)
        changes: dict[str, object] = {}
        if given.image_data_id is not None:
            await self._files.check_file(caller, _FILE, STICKER, given.image_data_id)
            changes["image_data_id"] = given.image_data_id
        if given.emojis is not None:
            changes["emojis"] = tuple(given.emojis)
        changed = await self._database.persist(
            lambda connection: stickerpacks.change_sticker(connection, pack.id, _index(index), changes),
            retry_seconds=5.0,
        )
        if not changed:
            raise _no_sticker(index)

    async def delete_sticker(self, caller: Caller, pack_id: str, index: str) -> None:
        pack = await self.get(caller, pack_id)
        deleted = await self._database.commit(
            lambda connection: stickerpacks.delete_sticker(connection, pack.id, _index(index))
        )
        if not deleted:
            raise _no_sticker(index)


def _id(text: str) -> str:
    # Ids are ASCII. Databases compare other text differently.
    return text if text.isascii() and text.isprintable() and len(text) <= 36 else ""


def _index(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 9 else -1


def _no_pack(pack_id: str) -> InvalidRequest:
    return InvalidRequest.because(NOT_FOUND, f"there is no sticker pack {pack_id[:64]!r}")


def _no_sticker(index: str) -> InvalidRequest:
    return InvalidRequest.because(NOT_FOUND, f"there is no sticker {index[:64]!r} in the pack")
