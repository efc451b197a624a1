"""Callbacks of the Cloud API's webhooks as they are stored: sealed, because a URL may contain a password or a token."""

from __future__ import annotations

import logging

import msgspec

from tidings.e2ee.installation_secrets import SecretSealer, UnreadableSecret, cloud_callback_label
from tidings.storage.business.cloud_callbacks import CloudCallbackRow

log = logging.getLogger(__name__)


class CloudCallback(msgspec.Struct, frozen=True):
    """Callback of an app, a WABA or a number."""

    url: str
    version: str  # version of the API in which it was set
    fields: tuple[str, ...] = ()  # fields that an app is subscribed to; empty for an override
    api_url: str = ""  # URL of the API, without a path, at which it was set; empty if an earlier release set it


def sealed(safe: SecretSealer, account: str, node_id: str, callback: CloudCallback) -> CloudCallbackRow:
    """Return the row of a callback."""
    content = safe.seal(account, cloud_callback_label(node_id), msgspec.json.encode(callback))
    return CloudCallbackRow(node_id, account, content)


def opened(safe: SecretSealer, row: CloudCallbackRow) -> CloudCallback | None:
    """Return the callback in a row. If it cannot be opened, log an error and return `None`."""
    try:
        content = safe.open(row.account, cloud_callback_label(row.node_id), row.content)
        return msgspec.json.decode(content, type=CloudCallback)
    except (UnreadableSecret, msgspec.DecodeError) as error:
        log.error("cloud.callback_unreadable", extra={"node": row.node_id, "error": str(error)})
        return None
