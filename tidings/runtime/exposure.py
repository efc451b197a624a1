"""What goes over a network in the clear, and whether anybody asked for that."""

from __future__ import annotations

import dataclasses
import ssl
from collections.abc import Iterable, Mapping
from typing import Annotated, Any

from tidings.runtime import env, tls
from tidings.runtime.tls import FileContext, TlsFiles

VARIABLE = "TIDINGS_ALLOW_PLAINTEXT"
PARTS = ("link", "network", "database", "redis", "metrics", "files")
LINK, NETWORK, DATABASE, REDIS, METRICS, FILES = PARTS
OWN = "TIDINGS_TLS_CERTIFICATE, TIDINGS_TLS_KEY and TIDINGS_TLS_CA"


class PlaintextRefused(ConnectionError):
    """A connection off this machine would have no TLS, and nobody asked for that. It was not made."""


@dataclasses.dataclass(frozen=True, slots=True)
class Way:
    """A listener or a server that is called.

    part: of `PARTS`, or `api`, which has a switch of its own. variable: that names the address; host: its host.
    secured: it has TLS. remedy: the variables that would give it.
    """

    part: str
    variable: str
    host: str
    secured: bool
    remedy: str

    @property
    def is_open(self) -> bool:
        """In the clear, and not on this machine."""
        return not self.secured and not env.is_loopback(self.host)


@dataclasses.dataclass(frozen=True, slots=True)
class LinkCalls:
    """How Coreapps are called, whose hosts the shard map says. plaintext: also in the clear, off this machine."""

    context: FileContext | None = None
    plaintext: bool = False

    def context_for(self, host: str) -> FileContext | None:
        """`None` for a connection in the clear. Raises `PlaintextRefused`."""
        if self.context is None and not self.plaintext and not env.is_loopback(host):
            raise PlaintextRefused(f"{host} is not on this machine and there is no TLS: set {OWN}")
        return self.context


# Without TLS.
ON_THIS_MACHINE = LinkCalls()


def require(ways: Iterable[Way], allowed: frozenset[str]) -> None:
    """Raises `env.mistake` for what is open and was not asked for."""
    wrong = [
        f"{way.variable}: {way.host} is not on this machine and there is no TLS: set {way.remedy}, "
        f"or ask for plaintext with {VARIABLE}={way.part}"
        for way in ways
        if way.is_open and way.part in PARTS and way.part not in allowed
    ]
    if wrong:
        raise env.mistake("; ".join(dict.fromkeys(wrong)))


def metrics_way(variable: str, host: str, allowed: frozenset[str]) -> Way:
    """The metrics: with TLS where nothing else was asked for, by a certificate that is made where there is none."""
    return Way(METRICS, variable, host, METRICS not in allowed, f"{VARIABLE} without {METRICS}")


def link_calls(files: TlsFiles, allowed: frozenset[str]) -> LinkCalls:
    """For those who call Coreapps, with a certificate of their own. Raises `UnusableCertificate`."""
    context = tls.client("link", files, least=ssl.TLSVersion.TLSv1_3) if files.chain else None
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
    """The certificate of this process for the other ones, and the authorities that vouch for theirs."""
    variables: Mapping[str, str] = data["variables"]
    files = TlsFiles(*(variables.get(f"TIDINGS_TLS_{word}", "") for word in ("CERTIFICATE", "KEY", "CA")))
    if bool(files.chain) != bool(files.key) or (files.chain and not files.authorities):
        raise env.mistake(f"{OWN} go together")
    return files


class _Allowed(env.Variables):
    allowed: Annotated[frozenset[str], env.text(_parse_allowed)] = env.variable(VARIABLE, frozenset())


def read_allowed(variables: Mapping[str, str]) -> frozenset[str]:
    """The parts that may be in the clear."""
    return _Allowed(variables=variables).allowed


Allowed = Annotated[frozenset[str], env.text(_parse_allowed)]
ALLOWED: Any = env.variable(VARIABLE, frozenset(), shown=False)
InstallationFiles = Annotated[TlsFiles, env.made(_installation_files)]
