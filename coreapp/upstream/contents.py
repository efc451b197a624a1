"""Kept contents of messages, of which a number of the Cloud API has none."""

from __future__ import annotations

from coreapp.recovery.sent_content import SentContents


class NoKeptContents(SentContents):
    """Keeps no content: no recipient can request that a message is encrypted again."""

    def keep(self, message_id: str, peer: str, content: bytes, *, encrypted: bool) -> bytes | None:
        return None
