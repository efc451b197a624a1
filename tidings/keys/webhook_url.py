"""Sealing of the webhook URL, which may contain a password or a token, in the settings of an account.

Headers that each callback carries are sealed with the URL, so that another URL never receives them.
"""

from __future__ import annotations

import dataclasses
import logging
import re
from collections.abc import Mapping
from typing import Any

import msgspec

from tidings.e2ee.installation_secrets import WEBHOOK_URL, SecretSealer, UnreadableSecret
from tidings.storage.business.application_settings import ApplicationSettings

log = logging.getLogger(__name__)

Headers = Mapping[str, str]

# Between the JSON of the headers and the URL, which has none. An earlier release takes such a text for no URL.
_SEPARATOR = "\n"
_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,64}")
MAX_VALUE = 2_048  # characters
_OURS = re.compile(
    r"host|content-.*|transfer-encoding|connection|keep-alive|proxy-.*|upgrade|te|trailer|expect|user-agent|webhook-.*"
    r"|x-request-id|traceparent"
)


def is_header(name: str, value: str) -> bool:
    """Return whether callbacks may carry a header: it is well-formed and none that they have already."""
    is_plain = value.isascii() and value.isprintable() and len(value) <= MAX_VALUE
    return _NAME.fullmatch(name) is not None and is_plain and _OURS.fullmatch(name.lower()) is None


def with_headers(url: str, headers: Headers) -> str:
    """Return a URL and its headers as one text, to be sealed."""
    return f"{msgspec.json.encode(headers).decode()}{_SEPARATOR}{url}" if headers else url


def headers_of(safe: SecretSealer, account: str, settings: ApplicationSettings) -> Headers:
    """Return the headers that callbacks carry; none when they cannot be opened, which `opened` logs."""
    try:
        text = safe.open_text(account, WEBHOOK_URL, settings.webhooks.url)
    except UnreadableSecret:
        return {}
    headers, separator, _ = text.partition(_SEPARATOR)
    return msgspec.json.decode(headers, type=dict[str, str]) if separator else {}


def opened(safe: SecretSealer, account: str, settings: ApplicationSettings) -> ApplicationSettings:
    """Return the settings with the URL as it was set. If it cannot be opened, log an error and return no URL."""
    webhooks = settings.webhooks
    try:
        url = _url_in(safe.open_text(account, WEBHOOK_URL, webhooks.url))
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
    """Return the JSON of the settings with the URL as it was set, without its headers. Raises `UnreadableSecret`."""
    whole = msgspec.json.decode(document, type=dict[str, Any])
    webhooks = whole.get("webhooks")
    if isinstance(webhooks, dict) and "url" in webhooks:
        webhooks["url"] = _url_in(safe.open_text(account, WEBHOOK_URL, webhooks["url"]))
    return msgspec.json.encode(whole).decode()


def _url_in(text: str) -> str:
    return text.rpartition(_SEPARATOR)[2]
