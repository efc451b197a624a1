"""The application settings of an account, `/v1/settings/application`: what was set, and the defaults of the rest."""

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

# One JSON object for each account, with only what was set, in the shape of `ApplicationSettings`.
table = sa.Table(
    "application_settings",
    metadata,
    sa.Column("account", types.key(20), primary_key=True),
    sa.Column("version", sa.BigInteger, nullable=False),
    sa.Column("document", types.long_text(), nullable=False),
    mysql_engine="InnoDB",
)


@dataclasses.dataclass(frozen=True, slots=True)
class PostedStatuses:
    """Which statuses of a message are posted to the webhook; `failed` always is."""

    sent: bool = False
    delivered: bool = True
    read: bool = True


@dataclasses.dataclass(frozen=True, slots=True)
class Webhooks:
    """Where callbacks go. An empty `url` is none at all; max_concurrent_requests: 6, 12, 18 or 24 POSTs in flight."""

    url: str = ""
    max_concurrent_requests: int = 6
    message: PostedStatuses = PostedStatuses()


@dataclasses.dataclass(frozen=True, slots=True)
class Media:
    """Which kinds of inbound media are downloaded before their callback."""

    auto_download: tuple[MediaKind, ...] = ("image", "document", "audio", "video", "voice", "sticker")


@dataclasses.dataclass(frozen=True, slots=True)
class GarbageCollector:
    """What is cleaned up by itself."""

    messages: bool = True
    media: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class ApplicationSettings:
    """All application settings, named and nested as in the API. Which statuses are posted is `webhooks.message`.

    callback_persist:               callbacks wait in the database, not in memory only.
    callback_backoff_delay_ms:      the wait before the n-th retry of a callback is n times this …
    max_callback_backoff_delay_ms:  … and at most this.
    sent_status:                    the old name of `webhooks.message.sent`; always equal to it.
    heartbeat_interval, unhealthy_interval: seconds.
    """

    callback_persist: bool = True
    callback_backoff_delay_ms: int = 3_000
    max_callback_backoff_delay_ms: int = 900_000
    webhooks: Webhooks = Webhooks()
    sent_status: bool = False
    pass_through: bool = False
    media: Media = Media()
    garbagecollector_enable: GarbageCollector = GarbageCollector()
    heartbeat_interval: int = 5
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
    """The settings of an account; the defaults where nothing was set."""
    document = (await connection.execute(sa.select(table.c.document).where(table.c.account == account))).scalar()
    return DEFAULTS if document is None else _decode(document)


async def find_document(connection: AsyncConnection, account: str) -> str:
    """The JSON object with what was set for the account, and nothing else."""
    document = (await connection.execute(sa.select(table.c.document).where(table.c.account == account))).scalar()
    return "{}" if document is None else str(document)


async def find_version(connection: AsyncConnection, account: str) -> int:
    """A number that grows with each change of the account's settings; 0 when nothing was ever set."""
    version = (await connection.execute(sa.select(table.c.version).where(table.c.account == account))).scalar()
    return 0 if version is None else version


async def change_settings(connection: AsyncConnection, account: str, changes: Mapping[str, Any]) -> ApplicationSettings:
    """Set what `changes` names, in the shape of `ApplicationSettings`, and leave the rest; returns what holds now.

    Of `sent_status` and `webhooks.message.sent`, two names for one thing, either may be named; of two that differ, the
    one that changes something wins: whoever writes back what they read has changed one of them.
    Raises `msgspec.ValidationError` when the changes do not fit that shape.
    """
    version, document = await _lock(connection, account)
    merged = _merge(msgspec.json.decode(document, type=dict[str, Any]), changes)
    named = changes.get("sent_status"), changes.get("webhooks", {}).get("message", {}).get("sent")
    sent = {value for value in named if value is not None}
    if len(sent) > 1:
        sent -= {_decode(document).sent_status}
    for value in sent:
        merged = _merge(merged, {"sent_status": value, "webhooks": {"message": {"sent": value}}})
    settings = msgspec.convert(merged, ApplicationSettings)
    await _write(connection, account, version + 1, msgspec.json.encode(merged).decode())
    return settings


async def reset_settings(connection: AsyncConnection, account: str) -> None:
    """Back to the defaults."""
    version, _ = await _lock(connection, account)
    await _write(connection, account, version + 1, "{}")


async def _lock(connection: AsyncConnection, account: str) -> tuple[int, str]:
    # The row must be there before it can be locked against a change at the same time.
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
