"""URLs of files in the Cloud API that are valid for five minutes, and only together with a token."""

from __future__ import annotations

import base64
import hashlib
import hmac
from urllib.parse import urlencode

from tidings.aio.clock import Clock

VALID = 300  # seconds
PATH = "/whatsapp_business/attachments/"


class MediaLinks:
    """Signer of the URLs of files."""

    def __init__(self, key: str, clock: Clock) -> None:
        """key: the link key, which all Webapps and Coreapps of the installation share"""
        self._key = hashlib.sha256(f"tidings cloud media links\n{key}".encode()).digest()
        self._clock = clock

    def url(self, api_url: str, account: str, cloud_id: str) -> str:
        """Return the URL of a file.

        api_url: URL of the API without a path, such as `https://wa.example`
        """
        return f"{api_url}{PATH}?{self.query(account, cloud_id)}"

    def query(self, account: str, cloud_id: str) -> str:
        """Return the query of the URL of a file."""
        expires_at = str(int(self._clock.now()) + VALID)
        return urlencode({"mid": cloud_id, "ext": expires_at, "hash": self._sign(account, cloud_id, expires_at)})

    def is_valid(self, account: str, cloud_id: str, expires_at: str, signature: str) -> bool:
        """Return whether `query` made these values within the last five minutes."""
        if not hmac.compare_digest(self._sign(account, cloud_id, expires_at).encode(), signature.encode()):
            return False
        return self._clock.now() < int(expires_at)

    def _sign(self, account: str, cloud_id: str, expires_at: str) -> str:
        signed = hmac.digest(self._key, f"{account}\n{cloud_id}\n{expires_at}".encode(), "sha256")
        return base64.urlsafe_b64encode(signed[:24]).decode()
