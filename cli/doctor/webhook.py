"""Check of the business's webhook: allowed by the egress rules, reachable, with a valid certificate, and fast enough.

By default the check sends an `OPTIONS` request without a body and accepts any response. On request it POSTs an empty
object instead, signed like a callback, with the event id `evt_0`, which no callback has.
"""

from __future__ import annotations

import asyncio
import dataclasses
import ssl
import time
from collections.abc import Sequence
from pathlib import Path

from cli.doctor import certificates, clock, http_probe
from cli.doctor.findings import Finding, Level, error, fine, warning
from coreapp import signature
from tidings.egress import trust, urls
from tidings.egress.guard import EgressGuard, Forbidden
from tidings.egress.settings import OutgoingSettings
from tidings.net import tls

SECONDS = 15.0  # timeout of the response, the default of a Coreapp's attempt
SLOW_SECONDS = 3.0
BODY = b"{}"
EVENT = "evt_0"


class _UnusableTrust(Exception):
    """Authorities or revocation lists cannot be loaded, so a Coreapp posts to no https URL."""


@dataclasses.dataclass(eq=False, repr=False, slots=True)
class WebhookCheck:
    """Check of one webhook URL."""

    name = "webhook"

    url: str
    outgoing: OutgoingSettings
    _: dataclasses.KW_ONLY
    authorities: bytes = b""  # PEM of authorities to verify the server; empty for the system's authorities
    revocations: Path | None = None  # PEM file of certificate revocation lists; `None` for no check
    keys: Sequence[bytes] = ()  # keys that sign the request
    post: bool = False  # POST an empty object instead of sending `OPTIONS`

    async def run(self) -> Sequence[Finding]:
        if not self.url:
            remedy = "PATCH /v1/settings/application with webhooks.url: callbacks wait until then"
            return [warning(self.name, "no URL is set", remedy)]
        try:
            target = urls.parse(self.url)
            answer = await self._ask(target, self._context() if target.origin[2] else None)
        except _UnusableTrust as failure:
            text = f"{target.shown}: the authorities and revocation lists for webhooks cannot be loaded: {failure}"
            where = f"TIDINGS_WEBHOOK_CRL ({self.revocations}) and " if self.revocations is not None else ""
            return [error(self.name, text, f"check {where}the authority set by POST /v1/certificates/webhooks/ca")]
        except Forbidden as refusal:
            return [error(self.name, str(refusal), "use another URL, or set TIDINGS_OUTGOING_ALLOW_WEBHOOKS")]
        except ssl.SSLError as failure:
            remedy = "use a certificate for this name, or set its CA by POST /v1/certificates/webhooks/ca"
            if self.revocations is not None:
                remedy += f", or a current revocation list of its issuer in {self.revocations}"
            return [error(self.name, f"{target.shown}: {tls.describe(failure)}", remedy)]
        except ValueError as failure:
            return [error(self.name, str(failure), "set another URL")]
        except OSError as failure:
            why = f"no response within {SECONDS:g} s" if isinstance(failure, TimeoutError) else str(failure)
            remedy = "check that it runs and is reachable from this machine"
            return [error(self.name, f"{target.shown}: {why}", remedy)]
        return self.evaluate(target.shown, answer)

    def evaluate(self, shown: str, answer: http_probe.ProbeResponse) -> list[Finding]:
        """Return the findings for a response.

        shown: the URL without parts that may be secret.
        """
        sent = "POST of {}" if self.post else "OPTIONS"
        text = f"{shown} answers {sent} with HTTP {answer.status} in {answer.answered:.2f} s"
        text += f" (connected in {answer.connected:.2f} s{', ' + answer.tls if answer.tls else ''})"
        found = [fine(self.name, text)]
        if answer.answered > SLOW_SECONDS:
            remedy = f"answer within {SLOW_SECONDS:g} s: store the callback, answer 200, and process it afterwards"
            found = [warning(self.name, text, remedy)]
        elif self.post and answer.status != 200:
            found = [warning(self.name, text, "a callback counts as delivered when the answer is 200")]
        if answer.date is not None:
            compared = clock.compare("clock of the webhook", answer.date, answer.at, exact=False)
            if compared.level is not Level.FINE:
                found.append(compared)
        if answer.ends:
            found.append(certificates.evaluate_expiry("certificate of the webhook", answer.ends, answer.at))
        return found

    def _context(self) -> ssl.SSLContext:
        """Return the context that a Coreapp verifies the webhook with. Raises `_UnusableTrust`."""
        try:
            return trust.context(self.authorities, self.revocations)
        except (OSError, ValueError, TypeError) as failure:
            raise _UnusableTrust(str(failure)) from None

    async def _ask(self, target: urls.HttpTarget, context: ssl.SSLContext | None) -> http_probe.ProbeResponse:
        host, port, _ = target.origin
        started = time.monotonic()
        async with asyncio.timeout(SECONDS):
            sock = await EgressGuard(self.outgoing).connect(host, port)
            return await http_probe.send_request(sock, self._request(target), host=host, tls=context, started=started)

    def _request(self, target: urls.HttpTarget) -> bytes:
        lines = [
            f"{'POST' if self.post else 'OPTIONS'} {target.path} HTTP/1.1",
            f"Host: {target.named}",
            "User-Agent: tidings",
            "Connection: close",
        ]
        if target.authorization:
            lines.append(f"Authorization: {target.authorization}")
        body = BODY if self.post else b""
        if self.post:
            signed = signature.headers(self.keys, EVENT, int(time.time()), BODY)
            lines += ["Content-Type: application/json", *(f"{name}: {value}" for name, value in signed.items())]
        lines.append(f"Content-Length: {len(body)}")
        return "\r\n".join([*lines, "", ""]).encode("latin-1") + body
