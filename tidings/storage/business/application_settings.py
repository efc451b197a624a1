"""Application settings of an account, `/v1/settings/application`: the values set and the defaults of the others."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Literal

import msgspec
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.storage import types
from tidings.storage.business import changes
from tidings.storage.business.tables import metadata
from tidings.storage.database import insert_or_ignore

MediaKind = Literal["image", "document", "audio", "video", "voice", "sticker"]

# One JSON object per account, in the shape of `ApplicationSettings`, with only the values that were set.
table = metadata.table(
    "application_settings",
    sa.Column("account", types.key(20), primary_key=True),
    sa.Column("version", sa.BigInteger, nullable=False),
    sa.Column("document", types.long_text(), nullable=False),
)


@dataclasses.dataclass(frozen=True, slots=True)
class PostedStatusSettings:
    """Statuses of a message that are posted to the webhook; "failed" is always posted."""

    sent: bool = False
    delivered: bool = True
    read: bool = True


@dataclasses.dataclass(frozen=True, slots=True)
class WebhookSettings:
    """Destination and concurrency of callbacks."""

    # Empty for no webhook.
    url: str = ""
    # POSTs in flight: 6, 12, 18 or 24.
    max_concurrent_requests: int = 6
    message: PostedStatusSettings = PostedStatusSettings()
    # Largest number of statuses in one POST, 1 to 100; 0 for the installation's default.
    max_statuses_per_post: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class MediaSettings:
    """Kinds of inbound media that are downloaded before their callback is posted."""

    auto_download: tuple[MediaKind, ...] = ("image", "document", "audio", "video", "voice", "sticker")


@dataclasses.dataclass(frozen=True, slots=True)
class GarbageCollectorSettings:
    """Kinds of data that are deleted automatically."""

    messages: bool = True
    media: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class ApplicationSettings:
    """All application settings, named and nested as in the API."""

    # True to keep callbacks in the database, False to keep them in memory only.
    callback_persist: bool = True
    # Delay before the n-th retry of a callback is n times this, milliseconds.
    callback_backoff_delay_ms: int = 3_000
    # Maximum delay before a retry, milliseconds.
    max_callback_backoff_delay_ms: int = 900_000
    webhooks: WebhookSettings = WebhookSettings()
    # Old name of `webhooks.message.sent`, always equal to it.
    sent_status: bool = False
    pass_through: bool = False
    media: MediaSettings = MediaSettings()
    garbagecollector_enable: GarbageCollectorSettings = GarbageCollectorSettings()
    # Seconds.
    heartbeat_interval: int = 5
    # Seconds.
    unhealthy_interval: int = 30
    axolotl_context_striping_disabled: bool = False
    notify_user_change_number: bool = True
    show_security_notifications: bool = False
    skip_referral_media_download: bool = False
    webhook_payload_conversation_pricingmodel_disabled: bool = False
    on_call_pager: str = ""
    verbose_logging: bool = False
    log_level: str = "info"


DEFAULTS = ApplicationSettings()


async def find_settings(connection: AsyncConnection, account: str) -> ApplicationSettings:
    """Find the settings of an account, with defaults for values that were not set."""
    document = (await connection.execute(sa.select(table.c.document).where(table.c.account == account))).scalar()
    return DEFAULTS if document is None else _decode(document)


async def find_document(connection: AsyncConnection, account: str) -> str:
    """Return the JSON object of the values that were set for the account, without defaults."""
    document = (await connection.execute(sa.select(table.c.document).where(table.c.account == account))).scalar()
    return "{}" if document is None else str(document)


async def change_settings(connection: AsyncConnection, account: str, changes: Mapping[str, Any]) -> ApplicationSettings:
    """Set the values in `changes`, in the shape of `ApplicationSettings`, and keep the others. Returns all settings.

    `sent_status` and `webhooks.message.sent` are two names of one setting, and either may be given. If both are given
    and differ, the one that differs from the present value wins: a client that writes back what it has read has changed
    only one of them. Raises `msgspec.ValidationError` when the changes do not fit the shape.
    """
    version, document = await _lock(connection, account)
    merged = _merge(msgspec.json.decode(document, type=dict[str, Any]), changes)
    named = changes.get("sent_status"), changes.get("webhooks", {}).get("message", {}).get("sent")
    sent = {value for value in named if value is not None}
    if len(sent) > 1:
        sent -= {_decode(document).sent_status}
    for value in sent:
        merged = _merge(merged, _sent(value))
    settings = msgspec.convert(merged, ApplicationSettings)
    await _write(connection, account, version + 1, msgspec.json.encode(merged).decode())
    return settings


def decided(changes: Mapping[str, Any], settings: ApplicationSettings) -> Mapping[str, Any]:
    """Return changes that led to these settings so that repeating them changes nothing."""
    if "sent_status" not in changes:
        return changes
    return _merge(dict(changes), _sent(settings.sent_status))


async def lock_settings(connection: AsyncConnection, account: str) -> ApplicationSettings:
    """Return the settings of an account, which other transactions cannot change until this one ends."""
    _, document = await _lock(connection, account)
    return _decode(document)


async def reset_settings(connection: AsyncConnection, account: str) -> None:
    """Reset all settings to their defaults."""
    version, _ = await _lock(connection, account)
    await _write(connection, account, version + 1, "{}")


async def _lock(connection: AsyncConnection, account: str) -> tuple[int, str]:
    # The row must exist before it can be locked against concurrent changes.
    await connection.execute(
        insert_or_ignore(connection, table), [{"account": account, "version": 0, "document": "{}"}]
    )
    row = await connection.execute(
        sa.select(table.c.version, table.c.document).where(table.c.account == account).with_for_update()
    )
    version, document = row.one()
    return version, document


async def _write(connection: AsyncConnection, account: str, version: int, document: str) -> None:
    await connection.execute(
        table.update().where(table.c.account == account).values(version=version, document=document)
    )
    await changes.note(connection, changes.SETTINGS)


def _sent(value: bool) -> Mapping[str, Any]:
    """Return a value under both names of `sent_status`."""
    return {"sent_status": value, "webhooks": {"message": {"sent": value}}}


def _decode(document: str) -> ApplicationSettings:
    return msgspec.json.decode(document, type=ApplicationSettings)


def _merge(document: dict[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(document)
    for key, value in changes.items():
        present = merged.get(key)
        if isinstance(value, Mapping):
            merged[key] = _merge(present if isinstance(present, dict) else {}, value)
        else:
            merged[key] = value
    return merged
