"""Credentials of a number that sends through the real Cloud API, as they are stored: sealed under the settings key."""

from __future__ import annotations

import logging

import msgspec

from tidings.e2ee.installation_secrets import SecretSealer, UnreadableSecret
from tidings.storage.business import certificates
from tidings.storage.database import Connection

log = logging.getLogger(__name__)


class UpstreamCredentials(msgspec.Struct, frozen=True):
    """Secrets of one number. `repr` shows none of them."""

    token: str  # access token, which authorizes calls
    app_secret: str  # signs the webhooks that the Cloud API posts to us
    callback_secret: str  # last part of the callback's path
    verify_token: str  # token that the verification of the callback must contain
    previous_app_secret: str = ""  # accepted as well, while the app secret is replaced; empty for none
    previous_until: int = 0  # Unix milliseconds until which the previous app secret is accepted

    def __repr__(self) -> str:
        return "UpstreamCredentials(…)"

    def secrets_at(self, now: int) -> tuple[str, ...]:
        """Return the app secrets that are accepted at `now`, Unix milliseconds."""
        if self.previous_app_secret and now < self.previous_until:
            return self.app_secret, self.previous_app_secret
        return (self.app_secret,)


def sealed(safe: SecretSealer, account: str, credentials: UpstreamCredentials) -> bytes:
    """Return the credentials as they are stored."""
    return safe.seal(account, certificates.CLOUD_UPSTREAM, msgspec.json.encode(credentials))


async def find(connection: Connection, safe: SecretSealer, account: str) -> UpstreamCredentials | None:
    """Find the credentials of a number. If they cannot be opened, log an error and return None, as for none."""
    content = await certificates.find_certificate(connection, account, certificates.CLOUD_UPSTREAM)
    if content is None:
        return None
    try:
        opened = safe.open(account, certificates.CLOUD_UPSTREAM, content)
        return msgspec.json.decode(opened, type=UpstreamCredentials)
    except (UnreadableSecret, msgspec.DecodeError) as error:
        log.error("upstream.credentials_unreadable", extra={"account": account, "error": str(error)})
        return None
