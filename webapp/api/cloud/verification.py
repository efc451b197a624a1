"""Verification of callbacks: a GET to which the receiver responds with the challenge."""

from __future__ import annotations

import hmac
import secrets
from urllib.parse import urlencode, urlsplit

from tidings.egress import trust
from tidings.egress.download import Downloader, DownloadTooLarge
from tidings.egress.guard import EgressGuard
from tidings.storage.business import certificates
from tidings.storage.database import Database
from webapp.api.cloud import errors
from webapp.api.cloud.errors import GraphError

VERIFICATION_FAILED = 2200
TIMEOUT = 10.0  # seconds
MAX_RESPONSE = 1_024  # bytes
MAX_URL = 2_048  # characters of an app's callback
MAX_OVERRIDE = 200  # characters of the callback of a WABA or a number


class CallbackVerifier:
    """Verifies callbacks before they are set, with the certificates that webhooks are verified against."""

    def __init__(self, database: Database, guard: EgressGuard) -> None:
        self._database = database
        self._guard = guard

    async def verify(self, account: str, url: str, token: str) -> None:
        """Request the callback with a new challenge. Raises `GraphError` unless it responds with the challenge."""
        challenge = str(secrets.randbelow(9 * 10**9) + 10**9)
        query = urlencode({"hub.mode": "subscribe", "hub.challenge": challenge, "hub.verify_token": token})
        full_url = f"{url}{'&' if urlsplit(url).query else '?'}{query}"
        try:
            status, response = await self._get(account, full_url)
        except (OSError, TimeoutError, ValueError, DownloadTooLarge) as error:
            raise failed(str(error) or type(error).__name__) from None
        if status != 200:
            raise failed(f"HTTP Status Code = {status}")
        if not hmac.compare_digest(response.strip(), challenge.encode()):
            raise failed("The response does not match the challenge, expected value is the digits of hub.challenge")

    async def _get(self, account: str, url: str) -> tuple[int, bytes]:
        async with self._database.reading() as connection:
            authorities = await certificates.find_certificate(connection, account, certificates.WEBHOOK_CA) or b""
        downloader = Downloader(self._guard, trust.context(authorities) if authorities else None)
        async with downloader.fetch(url, limit=MAX_RESPONSE, seconds=TIMEOUT) as response:
            return response.status, b"".join([piece async for piece in response.chunks()])


def check_url(name: str, url: str, limit: int) -> None:
    """Raise `GraphError` that names the parameter unless it is an http(s) URL of at most `limit` characters."""
    try:
        parts = urlsplit(url)
        fits = parts.scheme in ("http", "https") and bool(parts.hostname) and not parts.fragment
    except ValueError:
        fits = False
    if not fits or len(url) > limit or not url.isascii() or not url.isprintable():
        raise errors.invalid(f"{name}: should be an http(s) URL without # of at most {limit} characters")


def failed(reason: str) -> GraphError:
    """Return the error of a callback that does not respond with the challenge."""
    return GraphError(
        f"(#{VERIFICATION_FAILED}) Callback verification failed with the following errors: {reason[:200]}",
        code=VERIFICATION_FAILED,
    )
