"""Request bodies and responses of `/v1/settings/application`."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Any
from urllib.parse import urlsplit

import pydantic

from tidings.keys import webhook_url
from tidings.storage.business.application_settings import ApplicationSettings, MediaKind
from tidings.wire.codes import PARAMETER_INVALID
from webapp.http.bodies import Body, refusal
from webapp.http.constraints import WEB_ADDRESS, Integer
from webapp.http.openapi.document import Meta

MAX_URL = 2_048
MAX_HEADERS = 20  # extra headers of posts to a webhook
_DAY_MS = 86_400_000


def _is_webhook_url(url: str) -> str:
    if not url:
        return url
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        usable = False
    if not usable or any(character.isspace() or not character.isprintable() for character in url):
        raise refusal(PARAMETER_INVALID, "should be an absolute URL that begins with http:// or https://")
    return url


def _is_concurrency(value: int) -> int:
    if value not in (6, 12, 18, 24):
        raise refusal(PARAMETER_INVALID, "should be 6, 12, 18 or 24")
    return value


def _are_headers(headers: dict[str, str]) -> dict[str, str]:
    for name, value in headers.items():
        if not webhook_url.is_header(name, value):
            raise refusal(PARAMETER_INVALID, "should be names and values of headers that callbacks do not have already")
    return headers


WebhookURL = Annotated[
    str,
    pydantic.Field(max_length=MAX_URL, json_schema_extra={"pattern": f"^(?:{WEB_ADDRESS})?$"}),
    pydantic.AfterValidator(_is_webhook_url),
]
WebhookHeaders = Annotated[
    dict[str, str], pydantic.Field(max_length=MAX_HEADERS), pydantic.AfterValidator(_are_headers)
]
Concurrency = Annotated[
    Integer,
    pydantic.AfterValidator(_is_concurrency),
    pydantic.WithJsonSchema({"enum": [6, 12, 18, 24, "6", "12", "18", "24"], "examples": [24]}),
]
StatusesPerPost = Annotated[Integer, pydantic.Field(ge=1, le=100)]
Milliseconds = Annotated[Integer, pydantic.Field(ge=1, le=_DAY_MS)]
Seconds = Annotated[Integer, pydantic.Field(ge=1, le=86_400)]
Word = Annotated[str, pydantic.Field(max_length=255)]


class PostedStatuses(Body):
    """Statuses that are posted to the webhook."""

    sent: bool | None = None
    delivered: bool | None = None
    read: bool | None = None


class Webhooks(Body):
    """Settings of the webhook. With an empty `url` no callbacks are posted."""

    url: WebhookURL | None = pydantic.Field(default=None, examples=["http://127.0.0.1:8080/callback"])
    max_concurrent_requests: Concurrency | None = None
    message: PostedStatuses | None = None
    max_statuses_per_post: StatusesPerPost | None = None


class Media(Body):
    """Kinds of inbound media that are downloaded."""

    auto_download: Annotated[list[MediaKind], pydantic.Field(max_length=6)] | None = None


class GarbageCollector(Body):
    """Data that is deleted automatically after its retention."""

    messages: bool | None = None
    media: bool | None = None


class Changes(Body):
    """Any subset of the settings.

    Absent and null settings keep their value. Numbers may be strings. Keys of other versions are ignored.
    """

    model_config = pydantic.ConfigDict(
        json_schema_extra={"examples": [{"sent_status": True, "webhooks": {"url": "http://127.0.0.1:8080/callback"}}]}
    )

    callback_persist: bool | None = None
    callback_backoff_delay_ms: Milliseconds | None = None
    max_callback_backoff_delay_ms: Milliseconds | None = None
    webhooks: Webhooks | None = None
    sent_status: bool | None = None
    pass_through: bool | None = None
    media: Media | None = None
    garbagecollector_enable: GarbageCollector | None = None
    db_garbagecollector_enable: bool | None = None
    heartbeat_interval: Seconds | None = None
    unhealthy_interval: Seconds | None = None
    axolotl_context_striping_disabled: bool | None = None
    notify_user_change_number: bool | None = None
    show_security_notifications: bool | None = None
    skip_referral_media_download: bool | None = None
    webhook_payload_conversation_pricingmodel_disabled: bool | None = None
    on_call_pager: Word | None = None
    verbose_logging: bool | None = None
    log_level: Word | None = None

    def document(self) -> dict[str, Any]:
        """Return the changes in the shape of `ApplicationSettings`, with old keys under their newer names."""
        changes: dict[str, Any] = self.model_dump(exclude_none=True)
        old_collector = changes.pop("db_garbagecollector_enable", None)
        if old_collector is not None:
            changes.setdefault("garbagecollector_enable", {}).setdefault("messages", old_collector)
        return changes


@dataclasses.dataclass(frozen=True, slots=True)
class ShownSettings(ApplicationSettings):
    """Application settings, with the business's number."""

    wa_id: str = ""  # the business's own number; it cannot be changed here


class Settings(pydantic.BaseModel):
    """All settings, including the defaults of those that were never set."""

    application: ShownSettings


class SettingsResponse(pydantic.BaseModel):
    """Response with all settings, nested as in the On-Premises API."""

    settings: Settings
    meta: Meta
