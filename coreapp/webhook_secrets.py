"""Secrets that sign callbacks: one, or after a rotation two until all receivers know the new one.

The first secret is the installation's (`TIDINGS_WEBHOOK_SECRET`). Secrets of rotations are stored sealed in the
database and replace it; every Coreapp reads them there.
"""

from __future__ import annotations

import hmac
from collections.abc import Sequence

import msgspec

from coreapp import signature
from tidings.e2ee.installation_secrets import WEBHOOK_SECRETS, SecretSealer, UnreadableSecret
from tidings.storage.business import certificates
from tidings.storage.database import Connection


class RotationPending(Exception):
    """The previous secret is still valid: with a third one some receiver would get no signature that it can verify."""


class WebhookSecret(msgspec.Struct, frozen=True):
    """One secret with the end of its validity."""

    secret: str  # `whsec_…`
    retires_at: int = 0  # time at which it stops signing, Unix milliseconds; 0 while no other secret replaces it

    @property
    def key(self) -> bytes:
        """Return the key of the secret. Raises `ValueError`."""
        return signature.secret_bytes(self.secret)


class WebhookSecrets:
    """Secrets of one account."""

    def __init__(self, account: str, first: str, safe: SecretSealer) -> None:
        """Create the access to an account's secrets.

        first: secret in use until the first rotation
        """
        self._account = account
        self.first = WebhookSecret(first)
        self._safe = safe

    async def find(self, connection: Connection, *, for_update: bool = False) -> Sequence[WebhookSecret]:
        """Return the secrets, newest first. Raises `UnreadableSecret`.

        for_update: lock them until the transaction ends
        """
        kind = certificates.WEBHOOK_SECRETS
        if for_update:
            # A row that does not exist cannot be locked, and two concurrent first rotations would both start from none.
            await certificates.add_certificate_if_missing(connection, self._account, kind, self._seal([self.first]))
        sealed = await certificates.find_certificate(connection, self._account, kind, for_update=for_update)
        if sealed is None:
            return [self.first]
        try:
            return msgspec.json.decode(
                self._safe.open(self._account, WEBHOOK_SECRETS, sealed), type=list[WebhookSecret]
            )
        except msgspec.DecodeError as error:
            raise UnreadableSecret(f"{WEBHOOK_SECRETS} of {self._account}: {error}") from error

    async def keep(self, connection: Connection, secrets: Sequence[WebhookSecret]) -> None:
        """Store these secrets in place of the present ones."""
        kind = certificates.WEBHOOK_SECRETS
        await certificates.set_certificate(connection, self._account, kind, self._seal(secrets))

    def _seal(self, secrets: Sequence[WebhookSecret]) -> bytes:
        return self._safe.seal(self._account, WEBHOOK_SECRETS, msgspec.json.encode(secrets))


def app_secret(first: str, app_id: str) -> str:
    """Return the secret of an app of the Cloud API, which signs its webhooks: 32 lower-case hexadecimal digits.

    Rotations do not change it.

    first: the installation's `TIDINGS_WEBHOOK_SECRET`. Raises `ValueError` if it is invalid.
    """
    return hmac.digest(signature.secret_bytes(first), f"tidings cloud app\n{app_id}".encode(), "sha256").hex()[:32]


def in_force(secrets: Sequence[WebhookSecret], now: int) -> Sequence[WebhookSecret]:
    """Return the secrets that sign at a time.

    now: Unix milliseconds
    """
    return [entry for entry in secrets if not entry.retires_at or entry.retires_at > now]


def rotated(secrets: Sequence[WebhookSecret], fresh: str, *, now: int, retires_at: int) -> Sequence[WebhookSecret]:
    """Return a new secret, followed by the previous one until `retires_at`. Raises `RotationPending` and `ValueError`.

    fresh: `whsec_…`
    now: Unix milliseconds
    retires_at: Unix milliseconds
    """
    signature.secret_bytes(fresh)
    valid = in_force(secrets, now)
    if len(valid) > 1:
        raise RotationPending
    before = [WebhookSecret(entry.secret, retires_at) for entry in valid if entry.secret != fresh]
    return [WebhookSecret(fresh), *before]
