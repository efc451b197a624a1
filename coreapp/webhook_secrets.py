"""Secrets that sign callbacks: one, and after a rotation the one before it too, until receivers know the new one.

The first is the installation's (`TIDINGS_WEBHOOK_SECRET`). Those of rotations are in the database, sealed, and take its
place; every Coreapp finds them there.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from coreapp import signature
from tidings.e2ee.installation_secrets import WEBHOOK_SECRETS, SecretSealer, UnreadableSecret
from tidings.storage.business import certificates
from tidings.storage.database import Connection


class RotationPending(Exception):
    """The secret before is still valid: with a third one some receiver would be left without a signature it knows."""


class WebhookSecret(msgspec.Struct, frozen=True):
    """secret: `whsec_…`; retires_at: when it stops signing, Unix milliseconds, 0 while nothing replaces it."""

    secret: str
    retires_at: int = 0

    @property
    def key(self) -> bytes:
        """Raises `ValueError`."""
        return signature.secret_bytes(self.secret)


class WebhookSecrets:
    """The secrets of one account."""

    def __init__(self, account: str, first: str, safe: SecretSealer) -> None:
        """first: serves until the first rotation."""
        self._account = account
        self.first = WebhookSecret(first)
        self._safe = safe

    async def find(self, connection: Connection, *, for_update: bool = False) -> Sequence[WebhookSecret]:
        """Newest first. Raises `UnreadableSecret`.

        for_update: nobody else changes them before the transaction ends.
        """
        kind = certificates.WEBHOOK_SECRETS
        if for_update:
            # A row that is not there cannot be locked: two first rotations at once would both go on from none.
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
        """From now on these."""
        kind = certificates.WEBHOOK_SECRETS
        await certificates.set_certificate(connection, self._account, kind, self._seal(secrets))

    def _seal(self, secrets: Sequence[WebhookSecret]) -> bytes:
        return self._safe.seal(self._account, WEBHOOK_SECRETS, msgspec.json.encode(secrets))


def in_force(secrets: Sequence[WebhookSecret], now: int) -> Sequence[WebhookSecret]:
    """Those that sign at a time. now: Unix milliseconds."""
    return [entry for entry in secrets if not entry.retires_at or entry.retires_at > now]


def rotated(secrets: Sequence[WebhookSecret], fresh: str, *, now: int, retires_at: int) -> Sequence[WebhookSecret]:
    """A new secret, and the one before it until `retires_at`. Raises `RotationPending` and `ValueError`."""
    signature.secret_bytes(fresh)
    valid = in_force(secrets, now)
    if len(valid) > 1:
        raise RotationPending
    before = [WebhookSecret(entry.secret, retires_at) for entry in valid if entry.secret != fresh]
    return [WebhookSecret(fresh), *before]
