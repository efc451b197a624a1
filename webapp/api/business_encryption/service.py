"""Store and return the business's public key."""

from __future__ import annotations

import logging

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_public_key

from tidings.storage.business import certificates
from tidings.storage.database import Database
from tidings.wire.codes import NOT_FOUND, PARAMETER_INVALID
from webapp.auth.tokens import Caller
from webapp.http.errors import InvalidRequest

log = logging.getLogger(__name__)

BITS = 2048


class FlowKeys:
    """Public key of the caller's account."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def public_key(self, caller: Caller) -> str:
        """Return the key, PEM. Raises `InvalidRequest` when none is set."""
        async with self._database.reading() as connection:
            found = await certificates.find_certificate(connection, caller.account, certificates.FLOWS_KEY)
        if found is None:
            raise InvalidRequest.because(NOT_FOUND, "there is no public key")
        return found.decode()

    async def set_public_key(self, caller: Caller, text: str) -> None:
        """Replace the key. Raises `InvalidRequest` unless it is an RSA public key of 2,048 bits."""
        content = normalise(text)
        await self._database.persist(
            lambda connection: certificates.set_certificate(
                connection, caller.account, certificates.FLOWS_KEY, content
            ),
            patience=5.0,
        )
        log.info("business_encryption.set", extra={"username": caller.username})


def normalise(text: str) -> bytes:
    """Return an RSA public key of 2,048 bits in the one PEM form that is stored.

    Raises `InvalidRequest` for anything else.
    """
    if "PRIVATE KEY" in text:
        raise _wrong("is a private key, which should stay where it is: post the public one")
    try:
        key = load_pem_public_key(text.encode())
    except (ValueError, UnsupportedAlgorithm):
        raise _wrong("should be a public key in PEM") from None
    if not isinstance(key, RSAPublicKey) or key.key_size != BITS:
        raise _wrong(f"should be an RSA key of {BITS} bits")
    return key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


def _wrong(why: str) -> InvalidRequest:
    return InvalidRequest.because(PARAMETER_INVALID, f"business_public_key: {why}")
