"""Settings by which clients of the message network verify it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any
from urllib.parse import urlsplit

from tidings.config import env
from tidings.net import exposure, tls
from tidings.net.tls import TlsFiles

DEFAULT_URL = "http://127.0.0.1:9095"
REMEDY = "https:// with TIDINGS_NETWORK_CA"


def _files(data: Mapping[str, Any]) -> TlsFiles:
    """Return the installation's TLS files, with other authorities for the network if `TIDINGS_NETWORK_CA` is set."""
    own: TlsFiles = data["tls_files"]
    return TlsFiles(own.chain, own.key, data["variables"].get("TIDINGS_NETWORK_CA", "") or own.authorities)


# Type of a settings field.
NetworkFiles = Annotated[TlsFiles, env.computed(_files)]


def tcp_tls(url: str) -> Any:
    """Return the validator of a field: the TCP side has TLS if the HTTP side has it.

    `TIDINGS_NETWORK_TCP_TLS` overrides that.

    url: name of the field with the HTTP side's URL.
    """
    return env.computed(lambda data: data[url].startswith("https:"), env.parse_flag)


TCP_TLS: Any = env.variable("TIDINGS_NETWORK_TCP_TLS", None)


def url_at(address: tuple[str, int]) -> str:
    """Return the URL of a network that listens on this machine, at the default port if it listens elsewhere."""
    host, port = address
    if not env.is_loopback(host):
        return DEFAULT_URL
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def http_endpoint(url: str) -> exposure.Endpoint:
    """Return the connection to the network's HTTP side."""
    host = urlsplit(url).hostname or ""
    return exposure.Endpoint(exposure.NETWORK, "TIDINGS_NETWORK_HTTP_URL", host, url.startswith("https:"), REMEDY)


def tcp_endpoint(host: str, *, secured: bool) -> exposure.Endpoint:
    """Return the connection to the network's TCP side."""
    return exposure.Endpoint(
        exposure.NETWORK, "TIDINGS_NETWORK_TCP_ADDRESS", host, secured, "TIDINGS_NETWORK_TCP_TLS=1"
    )


def make_context(files: TlsFiles, *endpoints: exposure.Endpoint) -> tls.FileContext | None:
    """Return the context that verifies the network; `None` when no endpoint has TLS. Raises `UnusableCertificate`."""
    return tls.client("network", files) if any(endpoint.secured for endpoint in endpoints) else None
