"""Registration, profile, certificates, media providers and sticker packs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from tidings.storage.business import certificates, media_providers, profiles, registrations, stickerpacks
from tidings.storage.business.media_providers import MediaProviderRow
from tidings.storage.business.profiles import Photo, StoredProfile
from tidings.storage.business.registrations import RegistrationRow
from tidings.storage.business.stickerpacks import Pack, PackFull, Sticker
from tidings.storage.database import Database

A, B = "15550000000", "15559999999"


@pytest.fixture
async def database(database_factory: Callable[[str], Awaitable[Database]]) -> Database:
    return await database_factory("business")


async def test_registration_fields_are_set_independently(database: Database) -> None:
    async with database.transaction() as connection:
        assert await registrations.find_registration(connection, A) == RegistrationRow(A)
        await registrations.set_pin_hash(connection, A, "$argon2id$x")
        await registrations.set_shards(connection, A, 8)
        await registrations.note_registered(connection, A, 1_700_000_000_000)
    async with database.reading() as connection:
        assert await registrations.find_registration(connection, A) == RegistrationRow(
            A, 8, "$argon2id$x", 1_700_000_000_000
        )
        assert await registrations.find_registration(connection, B) == RegistrationRow(B)


async def test_profile_fields_are_set_independently(database: Database) -> None:
    photo = Photo("image/png", bytes(range(256)) * 4096)
    business = StoredProfile("Straße 1", "👋", "a@example.com", "Other", ("https://example.com",))
    async with database.transaction() as connection:
        assert await profiles.find_about(connection, A) == ""
        assert await profiles.find_photo(connection, A) is None
        assert await profiles.find_business(connection, A) == StoredProfile()
        await profiles.set_about(connection, A, "😀" * 139)
        await profiles.set_photo(connection, A, photo)
        await profiles.set_business(connection, A, business)
    async with database.transaction() as connection:
        assert await profiles.find_about(connection, A) == "😀" * 139
        assert await profiles.find_photo(connection, A) == photo
        assert await profiles.has_photo(connection, A)
        assert await profiles.find_business(connection, A) == business
        assert not await profiles.has_photo(connection, B)
        await profiles.set_photo(connection, A, None)
        assert await profiles.find_photo(connection, A) is None
        assert not await profiles.has_photo(connection, A)


async def test_a_certificate_is_added_if_missing_replaced_and_deleted(database: Database) -> None:
    kind = certificates.EXTERNAL
    async with database.transaction() as connection:
        assert await certificates.find_certificate(connection, A, kind) is None
        await certificates.add_certificate_if_missing(connection, A, kind, b"\0first")
        await certificates.add_certificate_if_missing(connection, A, kind, b"second")
        assert await certificates.find_certificate(connection, A, kind) == b"\0first"
        await certificates.set_certificate(connection, A, kind, b"third")
        assert await certificates.find_certificate(connection, A, kind) == b"third"
        assert await certificates.find_certificate(connection, B, kind) is None
        assert await certificates.delete_certificate(connection, A, kind)
        assert not await certificates.delete_certificate(connection, A, kind)


async def test_media_providers_are_found_by_their_exact_name(database: Database) -> None:
    first, second = MediaProviderRow(A, "Files", "www", b"\0x"), MediaProviderRow(A, "files", "www", b"y")
    async with database.transaction() as connection:
        await media_providers.save_providers(connection, [first, second])
        await media_providers.save_providers(connection, [])
        assert set(await media_providers.list_providers(connection, A)) == {first, second}
        assert await media_providers.find_provider(connection, A, "Files") == first
        assert await media_providers.find_provider(connection, A, "files ") is None
        assert await media_providers.find_provider(connection, B, "files") is None
        replaced = MediaProviderRow(A, "files", "www", b"z")
        await media_providers.save_providers(connection, [replaced])
        assert await media_providers.delete_provider(connection, A, "Files")
        assert await media_providers.list_providers(connection, A) == [replaced]
        await media_providers.delete_providers(connection, A)
        assert await media_providers.list_providers(connection, A) == []


async def test_sticker_packs_belong_to_one_account_and_are_deleted_with_their_stickers(database: Database) -> None:
    pack, other = Pack("p1", A, "Tidings", "Party"), Pack("p2", B, "Tidings", "Party")
    async with database.transaction() as connection:
        await stickerpacks.add_pack(connection, pack, limit=1)
        await stickerpacks.add_pack(connection, other, limit=1)
        with pytest.raises(PackFull):
            await stickerpacks.add_pack(connection, Pack("p3", A, "x", "y"), limit=1)
        assert await stickerpacks.list_packs(connection, A) == [pack]
        assert await stickerpacks.find_pack(connection, A, "p2") is None
        assert not await stickerpacks.change_pack(connection, A, "p2", {"name": "mine"})
        assert await stickerpacks.change_pack(connection, A, "p1", {"name": "Feast"})
        assert await stickerpacks.change_pack(connection, A, "p1", {})
        for expected in (0, 1):
            assert await stickerpacks.add_sticker(connection, pack, "m", ["🎉"], limit=2) == expected
        with pytest.raises(PackFull):
            await stickerpacks.add_sticker(connection, pack, "m", [], limit=2)
        assert await stickerpacks.change_sticker(connection, "p1", 1, {"image_data_id": "n", "emojis": ("😀", "😎")})
        assert not await stickerpacks.change_sticker(connection, "p1", 7, {"image_data_id": "n"})
        assert await stickerpacks.find_sticker(connection, "p1", 1) == Sticker("p1", 1, "n", ("😀", "😎"))
        assert await stickerpacks.delete_sticker(connection, "p1", 0)
        assert not await stickerpacks.delete_sticker(connection, "p1", 0)
        assert await stickerpacks.list_stickers(connection, "p1") == [Sticker("p1", 1, "n", ("😀", "😎"))]
        assert not await stickerpacks.delete_pack(connection, A, "p2")
        assert await stickerpacks.delete_pack(connection, A, "p1")
        assert await stickerpacks.list_stickers(connection, "p1") == []
        await stickerpacks.put_pack(connection, pack, [Sticker("p1", 5, "m", ())])
        await stickerpacks.delete_packs(connection, A)
        assert await stickerpacks.list_packs(connection, A) == []
        assert await stickerpacks.list_stickers(connection, "p1") == []
        assert await stickerpacks.list_packs(connection, B) == [other]
        await stickerpacks.delete_packs(connection, A)
