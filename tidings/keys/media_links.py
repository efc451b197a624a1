"""URLs of files in the Cloud API that are valid for five minutes, and only together with a token."""

from __future__ import annotations

from urllib.parse import urlencode

from tidings.aio.clock import Clock
from tidings.keys.signed_links import LinkSigner

VALID = 300  # seconds
PATH = "/whatsapp_business/attachments/"


class MediaLinks:
    """Signer of the URLs of files."""

    def __init__(self, key: str, clock: Clock) -> None:
        """key: the link key, which all Webapps and Coreapps of the installation share"""
        self._signer = LinkSigner("media links", key)
        self._clock = clock

    def url(self, api_url: str, account: str, cloud_id: str) -> str:
        """Return the URL of a file.

        api_url: URL of the API without a path, such as `https://wa.example`
        """
        return f"{api_url}{PATH}?{self.query(account, cloud_id)}"

    def query(self, account: str, cloud_id: str) -> str:
        """Return the query of the URL of a file."""
        expires_at = str(int(self._clock.now()) + VALID)
        signature = self._signer.sign(account, cloud_id, expires_at)
        return urlencode({"mid": cloud_id, "ext": expires_at, "hash": signature})

    def is_valid(self, account: str, cloud_id: str, expires_at: str, signature: str) -> bool:
        """Return whether `query` made these values within the last five minutes."""
        is_signed = self._signer.is_valid(signature, account, cloud_id, expires_at)
        return is_signed and self._clock.now() < int(expires_at)
