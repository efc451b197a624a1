"""Plaintext connections to other machines, and whether the settings allow them."""

from __future__ import annotations

import dataclasses
import ssl
from collections.abc import Iterable, Mapping
from typing import Annotated, Any

from tidings.config import env
from tidings.net import tls
from tidings.net.tls import FileContext, TlsFiles

VARIABLE = "TIDINGS_ALLOW_PLAINTEXT"
PARTS = ("link", "network", "database", "redis", "metrics", "files")
LINK, NETWORK, DATABASE, REDIS, METRICS, FILES = PARTS
OWN = "TIDINGS_TLS_CERTIFICATE, TIDINGS_TLS_KEY and TIDINGS_TLS_CA"


class PlaintextRefused(ConnectionError):
    """A connection to another machine would have no TLS, and no setting allows that. It was not made."""


@dataclasses.dataclass(frozen=True, slots=True)
class Endpoint:
    """A listener, or a server that this process calls."""

    # One of `PARTS`, or `api`, which has a separate switch.
    part: str
    # Setting that holds the address.
    variable: str
    # Host in that address.
    host: str
    # Whether it has TLS.
    secured: bool
    # Settings that would give it TLS.
    remedy: str

    @property
    def is_open(self) -> bool:
        """Return whether it is in plaintext and not confined to this machine."""
        return not self.secured and not env.is_loopback(self.host)


@dataclasses.dataclass(frozen=True, slots=True)
class LinkCalls:
    """Security of the calls to Coreapps, whose hosts are in the shard map."""

    # `None` without TLS.
    context: FileContext | None = None
    # Whether other machines may be called in plaintext.
    plaintext: bool = False

    def context_for(self, host: str) -> FileContext | None:
        """Return the TLS context for a host; `None` for plaintext. Raises `PlaintextRefused`."""
        if self.context is None and not self.plaintext and not env.is_loopback(host):
            raise PlaintextRefused(f"{host} is not on this machine and TLS is not configured: set {OWN}")
        return self.context


# Without TLS.
ON_THIS_MACHINE = LinkCalls()


def require(endpoints: Iterable[Endpoint], allowed: frozenset[str]) -> None:
    """Raise `env.mistake` for what is in plaintext and not allowed."""
    wrong = [
        f"{endpoint.variable}: {endpoint.host} is not on this machine and TLS is not configured: "
        f"set {endpoint.remedy}, or allow plaintext with {VARIABLE}={endpoint.part}"
        for endpoint in endpoints
        if endpoint.is_open and endpoint.part in PARTS and endpoint.part not in allowed
    ]
    if wrong:
        raise env.mistake("; ".join(dict.fromkeys(wrong)))


def metrics_endpoint(variable: str, host: str, allowed: frozenset[str]) -> Endpoint:
    """Return the metrics listener: with TLS unless plaintext is allowed, by a generated certificate if none is set."""
    return Endpoint(METRICS, variable, host, METRICS not in allowed, f"{VARIABLE} without {METRICS}")


def link_calls(files: TlsFiles, allowed: frozenset[str], server_name: str = "") -> LinkCalls:
    """Return the security of this process's calls to Coreapps. Raises `UnusableCertificate`.

    files: certificate of this process, and authorities that verify the Coreapps.
    server_name: name in the certificates of all Coreapps; empty if each certificate names its own host.
    """
    context = tls.client("link", files, least=ssl.TLSVersion.TLSv1_3, server_name=server_name) if files.chain else None
    return LinkCalls(context, LINK in allowed)


def _parse_allowed(value: str) -> frozenset[str]:
    words = {word.strip().lower() for word in value.split(",")} - {""}
    if len(words) == 1 and words <= {"1", "true", "yes", "on", "all"}:
        return frozenset(PARTS)
    if words <= {"0", "false", "no", "off"}:
        return frozenset()
    if not words <= set(PARTS):
        raise env.wrong(f"is neither 1 nor a list of {', '.join(PARTS)}")
    return frozenset(words)


def _installation_files(data: Mapping[str, Any]) -> TlsFiles:
    """Return this process's certificate for internal connections, and the authorities that verify the others'."""
    variables: Mapping[str, str] = data["variables"]
    files = TlsFiles(*(variables.get(f"TIDINGS_TLS_{word}", "") for word in ("CERTIFICATE", "KEY", "CA")))
    if bool(files.chain) != bool(files.key) or (files.chain and not files.authorities):
        raise env.mistake(f"{OWN} go together")
    return files


class _Allowed(env.Variables):
    allowed: Annotated[frozenset[str], env.text(_parse_allowed)] = env.variable(VARIABLE, frozenset())


def read_allowed(variables: Mapping[str, str]) -> frozenset[str]:
    """Return the parts that may be in plaintext."""
    return _Allowed(variables=variables).allowed


Allowed = Annotated[frozenset[str], env.text(_parse_allowed)]
ALLOWED: Any = env.variable(VARIABLE, frozenset(), shown=False)
InstallationFiles = Annotated[TlsFiles, env.computed(_installation_files)]
