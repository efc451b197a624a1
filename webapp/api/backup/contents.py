"""Contents of a backup except the keys, read from and written to the tables of one account."""

from __future__ import annotations

import msgspec

from tidings.e2ee.installation_secrets import SecretSealer, provider_label
from tidings.keys import webhook_url
from tidings.storage.business import (
    application_settings,
    certificates,
    layouts,
    media_providers,
    numbers,
    profiles,
    registrations,
    stickerpacks,
)
from tidings.storage.business.media_providers import MediaProviderRow
from tidings.storage.business.profiles import Photo, StoredCompliance, StoredProfile
from tidings.storage.business.stickerpacks import Pack, Sticker
from tidings.storage.database import Connection

VERSION = 1


class BackupProvider(msgspec.Struct):
    """Media provider with its configuration in plain text.

    It is not sealed because the installation that restores it may have a different master key.
    """

    name: str
    kind: str
    config: bytes


class StickerPack(msgspec.Struct):
    """Sticker pack with its stickers."""

    pack: Pack
    stickers: list[Sticker]


class Contents(msgspec.Struct):
    """Everything that is set for one number."""

    version: int
    number: str
    keys: str  # the Coreapp's part, sealed under the same password
    shards: int  # number of shards; see `has_shards_in_use`
    pin_hash: str  # hash of the registration's two-step PIN; empty without one
    settings: str  # JSON of the settings that were set
    about: str
    business: StoredProfile
    photo: Photo | None
    external: bytes | None  # the API's certificate with its private key, PEM
    webhook_ca: bytes | None
    providers: list[BackupProvider]
    stickerpacks: list[StickerPack]
    # Optional because older backups lack them.
    flows_key: bytes | None = None
    compliance: StoredCompliance | None = None
    webhook_headers: dict[str, str] = msgspec.field(default_factory=dict)  # headers of the posts
    # Whether `shards` was in use. In older backups it is 1 unless `POST /v1/account/shards` has set it.
    has_shards_in_use: bool = False


async def read(connection: Connection, safe: SecretSealer, account: str, keys: str) -> Contents:
    """Return the current settings, with the given keys. Raises `UnreadableSecret`."""
    registration = await registrations.find_registration(connection, account)
    layout = await layouts.find(connection, await _find_block(connection, account))
    settings = await application_settings.find_settings(connection, account)
    external = await certificates.find_certificate(connection, account, certificates.EXTERNAL)
    packs = [
        StickerPack(pack, list(await stickerpacks.list_stickers(connection, pack.id)))
        for pack in await stickerpacks.list_packs(connection, account)
    ]
    return Contents(
        version=VERSION,
        number=account,
        keys=keys,
        shards=layout.wanted or layout.shards,
        pin_hash=registration.pin_hash,
        settings=webhook_url.opened_document(
            safe, account, await application_settings.find_document(connection, account)
        ),
        about=await profiles.find_about(connection, account),
        business=await profiles.find_business(connection, account),
        photo=await profiles.find_photo(connection, account),
        external=None if external is None else safe.open(account, certificates.EXTERNAL, external),
        webhook_ca=await certificates.find_certificate(connection, account, certificates.WEBHOOK_CA),
        providers=[
            BackupProvider(
                provider.name,
                provider.kind,
                safe.open(account, provider_label(provider.name), provider.config),
            )
            for provider in await media_providers.list_providers(connection, account)
        ],
        stickerpacks=packs,
        flows_key=await certificates.find_certificate(connection, account, certificates.FLOWS_KEY),
        compliance=await profiles.find_compliance(connection, account),
        webhook_headers=dict(webhook_url.headers_of(safe, account, settings)),
        has_shards_in_use=True,
    )


async def _find_block(connection: Connection, account: str) -> int:
    """Return the shard block of a number."""
    number = await numbers.find(connection, account)
    return number.shard_block if number is not None else 0


async def write(
    connection: Connection, safe: SecretSealer, account: str, contents: Contents, *, keep_external: bool = False
) -> None:
    """Replace the current settings by checked contents, and request the number of shards.

    keep_external: keep the API's present certificate
    """
    await registrations.set_shards(connection, account, contents.shards)
    if contents.has_shards_in_use or contents.shards > 1:
        await layouts.request(connection, contents.shards, await _find_block(connection, account))
    await registrations.set_pin_hash(connection, account, contents.pin_hash)
    await application_settings.reset_settings(connection, account)
    settings = msgspec.json.decode(contents.settings)
    if url := settings.get("webhooks", {}).get("url"):
        settings["webhooks"]["url"] = webhook_url.with_headers(url, contents.webhook_headers)
    await application_settings.change_settings(connection, account, webhook_url.sealed(safe, account, settings))
    await profiles.set_about(connection, account, contents.about)
    await profiles.set_business(connection, account, contents.business)
    await profiles.set_photo(connection, account, contents.photo)
    await profiles.set_compliance(connection, account, contents.compliance)
    external = None if contents.external is None else safe.seal(account, certificates.EXTERNAL, contents.external)
    kept = [(certificates.WEBHOOK_CA, contents.webhook_ca), (certificates.FLOWS_KEY, contents.flows_key)]
    if not keep_external:
        kept.append((certificates.EXTERNAL, external))
    for kind, content in kept:
        if content is None:
            await certificates.delete_certificate(connection, account, kind)
        else:
            await certificates.set_certificate(connection, account, kind, content)
    await media_providers.delete_providers(connection, account)
    await media_providers.save_providers(
        connection,
        [
            MediaProviderRow(
                account,
                entry.name,
                entry.kind,
                safe.seal(account, provider_label(entry.name), entry.config),
            )
            for entry in contents.providers
        ],
    )
    await stickerpacks.delete_packs(connection, account)
    for entry in contents.stickerpacks:
        await stickerpacks.put_pack(connection, entry.pack, entry.stickers)
