"""Sealing of the webhook URL, which may contain a password or a token, in the settings of an account."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Mapping
from typing import Any

import msgspec

from tidings.e2ee.installation_secrets import WEBHOOK_URL, SecretSealer, UnreadableSecret
from tidings.storage.business.application_settings import ApplicationSettings

log = logging.getLogger(__name__)


def opened(safe: SecretSealer, account: str, settings: ApplicationSettings) -> ApplicationSettings:
    """Return the settings with the URL as it was set. If it cannot be opened, log an error and return no URL."""
    webhooks = settings.webhooks
    try:
        url = safe.open_text(account, WEBHOOK_URL, webhooks.url)
    except UnreadableSecret as error:
        log.error("webhook.unreadable", extra={"account": account, "error": str(error)})
        url = ""
    return dataclasses.replace(settings, webhooks=dataclasses.replace(webhooks, url=url))


def sealed(safe: SecretSealer, account: str, changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the changes of settings in the form in which they are stored."""
    webhooks = changes.get("webhooks")
    if not isinstance(webhooks, Mapping) or not webhooks.get("url"):
        return dict(changes)
    return {**changes, "webhooks": {**webhooks, "url": safe.seal_text(account, WEBHOOK_URL, webhooks["url"])}}


def opened_document(safe: SecretSealer, account: str, document: str) -> str:
    """Return the JSON of the settings with the URL as it was set. Raises `UnreadableSecret`."""
    whole = msgspec.json.decode(document, type=dict[str, Any])
    webhooks = whole.get("webhooks")
    if isinstance(webhooks, dict) and "url" in webhooks:
        webhooks["url"] = safe.open_text(account, WEBHOOK_URL, webhooks["url"])
    return msgspec.json.encode(whole).decode()
