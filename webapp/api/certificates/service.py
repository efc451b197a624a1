"""Store certificates and put them in force."""

from __future__ import annotations

import asyncio
import dataclasses
import datetime
import logging
import ssl

from tidings.aio.clock import Clock
from tidings.e2ee.installation_secrets import SecretSealer, UnreadableSecret
from tidings.egress import trust
from tidings.storage.business import certificates
from tidings.storage.database import Database
from tidings.wire import core
from tidings.wire.codes import NOT_FOUND, PARAMETER_INVALID
from webapp.auth.tokens import Caller
from webapp.coreapps.interfaces import AllCoreapps
from webapp.http import pem, tls
from webapp.http.errors import AdministratorRequired, InvalidRequest
from webapp.http.pem import CertificateBundle, UnusablePem
from webapp.http.tls import ServerTLS

log = logging.getLogger(__name__)

# Seconds for which the response waits for each Coreapp to apply a new authority.
_TIMEOUT = 5.0


@dataclasses.dataclass(eq=False, repr=False, slots=True)
class Certificates:
    """Certificates of the caller's account."""

    database: Database
    coreapps: AllCoreapps
    _: dataclasses.KW_ONLY
    safe: SecretSealer
    server: ServerTLS | None  # listener that presents the API's certificate; `None` when the API uses plain HTTP
    clock: Clock

    async def set_external(self, caller: Caller, text: bytes) -> None:
        """Store the API's certificate, and use it for new connections.

        It is in force at once in this process, and within seconds in others. Raises `InvalidRequest`, and
        `AdministratorRequired` for an administrator of a further number.
        """
        if self.coreapps.of(caller.account).block:
            raise AdministratorRequired("the API's certificate is set by the administrator of the first number")
        now = datetime.datetime.fromtimestamp(self.clock.now(), datetime.UTC)
        try:
            bundle = await asyncio.to_thread(CertificateBundle.parse, text, now)
            await asyncio.to_thread(tls.check, bundle.pem)
        except (UnusablePem, ssl.SSLError) as error:
            raise InvalidRequest.because(PARAMETER_INVALID, f"certificate: {error}") from None
        sealed = self.safe.seal(caller.account, certificates.EXTERNAL, bundle.pem)
        await self._set(caller, certificates.EXTERNAL, sealed)
        if self.server is not None:
            await self.server.load()

    async def external(self, caller: Caller) -> CertificateBundle:
        """Return the API's certificate. Raises `InvalidRequest` when none is set."""
        if self.server is not None:
            return await self.server.bundle()
        sealed = await self._find(caller, certificates.EXTERNAL)
        try:
            return CertificateBundle.load(self.safe.open(caller.account, certificates.EXTERNAL, sealed))
        except (UnreadableSecret, UnusablePem):
            raise _missing() from None

    async def set_webhook_authorities(self, caller: Caller, text: bytes) -> None:
        """Store authorities, so that webhook servers are verified against these only. Raises `InvalidRequest`."""
        try:
            authorities = await asyncio.to_thread(pem.parse_authorities, text)
            trust.context(authorities)
        except (UnusablePem, ssl.SSLError) as error:
            raise InvalidRequest.because(PARAMETER_INVALID, f"certificate: {error}") from None
        await self._set(caller, certificates.WEBHOOK_CA, authorities)
        await self._notify(caller)

    async def webhook_authorities(self, caller: Caller) -> bytes:
        """Return the webhook authorities, PEM. Raises `InvalidRequest` when none are set."""
        return await self._find(caller, certificates.WEBHOOK_CA)

    async def delete_webhook_authorities(self, caller: Caller) -> None:
        """Verify webhook servers against the system's authorities again. Raises `InvalidRequest` when none are set."""
        await self._find(caller, certificates.WEBHOOK_CA)
        await self.database.persist(
            lambda connection: certificates.delete_certificate(connection, caller.account, certificates.WEBHOOK_CA),
            retry_seconds=5.0,
        )
        log.info("certificate.deleted", extra={"username": caller.username, "kind": certificates.WEBHOOK_CA})
        await self._notify(caller)

    async def _find(self, caller: Caller, kind: str) -> bytes:
        async with self.database.reading() as connection:
            found = await certificates.find_certificate(connection, caller.account, kind)
        if found is None:
            raise _missing()
        return found

    async def _set(self, caller: Caller, kind: str, content: bytes) -> None:
        await self.database.persist(
            lambda connection: certificates.set_certificate(connection, caller.account, kind, content),
            retry_seconds=5.0,
        )
        log.info("certificate.set", extra={"username": caller.username, "kind": kind})

    async def _notify(self, caller: Caller) -> None:
        await self.coreapps.of(caller.account).call_all(
            lambda n: core.SettingsChanged(n=n, account=caller.account), core.Done, timeout=_TIMEOUT
        )


def _missing() -> InvalidRequest:
    return InvalidRequest.because(NOT_FOUND, "there is no such certificate")
