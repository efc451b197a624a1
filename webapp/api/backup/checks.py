"""Checks of a backup before it is put in force: each part passes the checks of the call that sets it."""

from __future__ import annotations

import dataclasses
import datetime
import ssl
from collections.abc import Callable
from typing import Annotated, Any, TypeVar

import argon2
import msgspec
import pydantic

from tidings.egress import trust
from tidings.storage.business.profiles import Photo
from tidings.storage.business.stickerpacks import Pack, Sticker
from tidings.wire.codes import PARAMETER_INVALID
from tidings.wire.decoding import UNREADABLE
from webapp.api.account.schemas import Shards
from webapp.api.application_settings.schemas import Changes, WebhookHeaders
from webapp.api.backup.contents import BackupProvider, Contents, StickerPack
from webapp.api.business_encryption import BusinessEncryption, normalise
from webapp.api.compliance.schemas import Compliance
from webapp.api.compliance.service import as_kept
from webapp.api.media_providers.schemas import MediaProviders
from webapp.api.profile.schemas import MAX_PHOTO, About, BusinessProfile
from webapp.api.stickerpacks.schemas import NewSticker, NewStickerpack
from webapp.api.stickerpacks.service import MAX_PACKS, MAX_STICKERS
from webapp.http import bodies, pem, pictures, tls
from webapp.http.bodies import Body
from webapp.http.constraints import Matches
from webapp.http.errors import InvalidRequest, Problem
from webapp.http.pem import MAX_PEM, CertificateBundle, CertificateExpired, UnusablePem

# Bounds on the cost parameters that a PIN's hash names. Hashes made here take 19 MiB and 2 passes.
_MAX_HASH = 255  # characters
_MAX_MEMORY_KIB, _MAX_PASSES, _MAX_LANES = 256 * 1024, 16, 16
_MAX_POSITION = 999_999_999

Value = TypeVar("Value")


@dataclasses.dataclass(frozen=True, slots=True)
class CheckedBackup:
    """Backup that may be put in force."""

    contents: Contents  # contents, without the API's certificate when it has expired
    outdated: str  # reason why the API's certificate is left out; empty when it is not


class _Sticker(NewSticker):
    position: Annotated[int, pydantic.Field(ge=0, le=_MAX_POSITION)]


class _StickerPack(NewStickerpack):
    id: Annotated[str, Matches("^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$", "should be a UUID")]
    stickers: Annotated[list[_Sticker], pydantic.Field(max_length=MAX_STICKERS)]


class _Profile(BusinessProfile):
    # The Cloud API sets longer ones.
    description: Annotated[str, pydantic.Field(max_length=512)] | None = None


class _Parts(Body):
    """Parts of a backup. The names are those of `Contents`, so that an error names the part."""

    shards: Shards
    settings: Changes
    webhook_headers: WebhookHeaders
    about: About
    business: _Profile
    compliance: Compliance | None
    providers: MediaProviders
    stickerpacks: Annotated[list[_StickerPack], pydantic.Field(max_length=MAX_PACKS)]


def check(found: Contents, account: str, now: datetime.datetime) -> CheckedBackup:
    """Return the contents of a backup in the form in which they are stored.

    Takes some milliseconds: call it in a thread.

    An expired certificate of the API is left out: it was valid when the backup was made. Raises `InvalidRequest`
    that names each wrong part. The caller checks whether the webhook's URL may be called.
    """
    if found.number != account:
        raise _wrong(f"data: is a backup of {found.number[:20]}, not of {account}")
    try:
        return _check(found, account, now)
    except InvalidRequest as error:
        raise InvalidRequest([Problem(entry.code, f"data: {entry.details}") for entry in error.problems]) from None


def _check(found: Contents, account: str, now: datetime.datetime) -> CheckedBackup:
    parts = bodies.check(_Parts, _as_posted(found, account))
    external, outdated = _external(found.external, now)
    return CheckedBackup(
        Contents(
            version=found.version,
            number=account,
            keys=found.keys,
            shards=parts.shards,
            pin_hash=_pin_hash(found.pin_hash),
            settings=msgspec.json.encode(parts.settings.document()).decode(),
            about=parts.about.text,
            business=found.business,
            photo=None if found.photo is None else _photo(found.photo),
            external=external,
            webhook_ca=None if found.webhook_ca is None else _authorities(found.webhook_ca),
            providers=_providers(parts.providers),
            stickerpacks=[_pack(account, pack) for pack in parts.stickerpacks],
            flows_key=None if found.flows_key is None else _flows_key(found.flows_key),
            compliance=None if parts.compliance is None else as_kept(parts.compliance),
            webhook_headers=parts.webhook_headers,
            has_shards_in_use=found.has_shards_in_use,
        ),
        outdated,
    )


def _as_posted(found: Contents, account: str) -> dict[str, Any]:
    ids = {entry.pack.id for entry in found.stickerpacks}
    if len(ids) < len(found.stickerpacks) or any(not _is_consistent(entry, account) for entry in found.stickerpacks):
        raise _wrong("stickerpacks: are not consistent")
    return {
        "shards": found.shards,
        "settings": _decode("settings", found.settings),
        "webhook_headers": found.webhook_headers,
        "about": {"text": found.about},
        "business": dataclasses.asdict(found.business),
        "compliance": None if found.compliance is None else dataclasses.asdict(found.compliance),
        "providers": [
            {"name": entry.name, "type": entry.kind, "config": _decode(f"providers[{index}].config", entry.config)}
            for index, entry in enumerate(found.providers)
        ],
        "stickerpacks": [
            dataclasses.asdict(entry.pack) | {"stickers": [dataclasses.asdict(sticker) for sticker in entry.stickers]}
            for entry in found.stickerpacks
        ],
    }


def _is_consistent(entry: StickerPack, account: str) -> bool:
    positions = {sticker.position for sticker in entry.stickers}
    of_it = all(sticker.pack == entry.pack.id for sticker in entry.stickers)
    return entry.pack.account == account and of_it and len(positions) == len(entry.stickers)


def _decode(part: str, text: str | bytes) -> Any:
    try:
        return msgspec.json.decode(text)
    except UNREADABLE:
        raise _wrong(f"{part}: should be JSON") from None


def _pin_hash(text: str) -> str:
    if not text:
        return text
    try:
        cost = argon2.extract_parameters(text)
    except argon2.exceptions.InvalidHashError:
        raise _wrong("pin_hash: should be a hash of argon2") from None
    if (
        len(text) > _MAX_HASH
        or not text.isascii()
        or not text.isprintable()
        or cost.memory_cost > _MAX_MEMORY_KIB
        or cost.time_cost > _MAX_PASSES
        or cost.parallelism > _MAX_LANES
    ):
        raise _wrong("pin_hash: should be one that was made here")
    return text


def _photo(found: Photo) -> Photo:
    picture = _named("photo", lambda: pictures.check(found.content, MAX_PHOTO))
    return Photo(picture.type, picture.content)


def _external(found: bytes | None, now: datetime.datetime) -> tuple[bytes | None, str]:
    if found is None:
        return None, ""
    try:
        bundle = CertificateBundle.parse(_sized("external", found), now)
        tls.check(bundle.pem)
    except CertificateExpired as error:
        return None, str(error)
    except (UnusablePem, ssl.SSLError) as error:
        raise _wrong(f"external: {error}") from None
    return bundle.pem, ""


def _authorities(found: bytes) -> bytes:
    try:
        authorities = pem.parse_authorities(_sized("webhook_ca", found))
        trust.context(authorities)
    except (UnusablePem, ssl.SSLError) as error:
        raise _wrong(f"webhook_ca: {error}") from None
    return authorities


def _sized(part: str, content: bytes) -> bytes:
    if len(content) > MAX_PEM:
        raise _wrong(f"{part}: is over the limit of {MAX_PEM} bytes")
    return content


def _providers(given: MediaProviders) -> list[BackupProvider]:
    by_name = {entry.name: entry for entry in given.root}
    return [
        BackupProvider(name, entry.type, msgspec.json.encode(entry.config.model_dump(exclude_none=True)))
        for name, entry in by_name.items()
    ]


def _pack(account: str, given: _StickerPack) -> StickerPack:
    links = given.ios_app_store_link or "", given.android_app_store_link or ""
    return StickerPack(
        Pack(given.id, account, given.publisher, given.name, *links),
        [
            Sticker(given.id, sticker.position, sticker.image_data_id, tuple(sticker.emojis or ()))
            for sticker in given.stickers
        ],
    )


def _flows_key(found: bytes) -> bytes:
    text = found.decode(errors="replace")
    posted = _named("flows_key", lambda: bodies.check(BusinessEncryption, {"business_public_key": text}))
    return _named("flows_key", lambda: normalise(posted.business_public_key))


def _named(part: str, work: Callable[[], Value]) -> Value:
    try:
        return work()
    except InvalidRequest as error:
        raise _wrong(f"{part}: {error.problems[0].details.partition(': ')[2]}") from None


def _wrong(why: str) -> InvalidRequest:
    return InvalidRequest.because(PARAMETER_INVALID, why)
