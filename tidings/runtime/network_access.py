"""How those who call the message network check it: the variables that they share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any
from urllib.parse import urlsplit

from tidings.runtime import env, exposure, tls
from tidings.runtime.tls import TlsFiles

REMEDY = "https:// with TIDINGS_NETWORK_CA"


def _files(data: Mapping[str, Any]) -> TlsFiles:
    """The installation's own, with other authorities for the network when it has a certificate of theirs."""
    own: TlsFiles = data["tls_files"]
    return TlsFiles(own.chain, own.key, data["variables"].get("TIDINGS_NETWORK_CA", "") or own.authorities)


# For fields of settings of an installation.
NetworkFiles = Annotated[TlsFiles, env.made(_files)]


def tcp_tls(url: str) -> Any:
    """For a field: the TCP side has TLS where the HTTP side has, unless `TIDINGS_NETWORK_TCP_TLS` says otherwise.

    url: the field of the HTTP side's.
    """
    return env.made(lambda data: data[url].startswith("https:"), env.parse_flag)


TCP_TLS: Any = env.variable("TIDINGS_NETWORK_TCP_TLS", None)


def http_way(url: str) -> exposure.Way:
    """The way to the HTTP side."""
    host = urlsplit(url).hostname or ""
    return exposure.Way(exposure.NETWORK, "TIDINGS_NETWORK_HTTP_URL", host, url.startswith("https:"), REMEDY)


def tcp_way(host: str, *, secured: bool) -> exposure.Way:
    """The way to the TCP side."""
    return exposure.Way(exposure.NETWORK, "TIDINGS_NETWORK_TCP_ADDRESS", host, secured, "TIDINGS_NETWORK_TCP_TLS=1")


def make_context(files: TlsFiles, *ways: exposure.Way) -> tls.FileContext | None:
    """How the network is checked; `None` where no way to it has TLS. Raises `UnusableCertificate`."""
    return tls.client("network", files) if any(way.secured for way in ways) else None
