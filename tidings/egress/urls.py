"""Parsing of HTTP URLs, shared by all code that checks or calls them, so that all agree on the host."""

from __future__ import annotations

import base64
import dataclasses
import functools
import urllib.parse

Origin = tuple[str, int, bool]  # host, port, TLS


@dataclasses.dataclass(frozen=True, slots=True)
class HttpTarget:
    """Parts of an HTTP URL."""

    # Host without brackets, in ASCII and lower case; port; TLS.
    origin: Origin
    # Value of `Host`.
    named: str
    # With the query, quoted for a request line.
    path: str
    # Value of `Authorization` if the URL has a user, else empty. Not for logs.
    authorization: str = dataclasses.field(repr=False, default="")

    @property
    def shown(self) -> str:
        """Origin as a URL, for logs and errors."""
        return f"http{'s' if self.origin[2] else ''}://{self.named}"


@functools.lru_cache(64)
def parse(url: str) -> HttpTarget:
    """Parse a URL. Raises `ValueError`, whose text does not contain the URL."""
    try:
        parts = urllib.parse.urlsplit(url)
        port = parts.port
    except ValueError:
        raise ValueError("it is not a URL") from None
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0:
        raise ValueError("the URL is neither http:// nor https://, or names no host")
    secure = parts.scheme == "https"
    try:
        host = parts.hostname if ":" in parts.hostname else parts.hostname.encode("idna").decode().lower()
    except UnicodeError:
        raise ValueError("the URL's host is not a host name") from None
    if not host or not host.isprintable() or " " in host:
        raise ValueError("the URL's host is not a host name")
    named = f"[{host}]" if ":" in host else host
    if port is not None:
        named += f":{port}"
    path = urllib.parse.quote(parts.path or "/", safe="/%:@!$&'()*+,;=~")
    if parts.query:
        path += "?" + urllib.parse.quote(parts.query, safe="/?%:@!$&'()*+,;=~")
    authorization = ""
    if parts.username is not None:
        credentials = f"{urllib.parse.unquote(parts.username)}:{urllib.parse.unquote(parts.password or '')}"
        authorization = basic(credentials)
    return HttpTarget((host, port or (443 if secure else 80), secure), named, path, authorization)


def basic(credentials: str) -> str:
    """Return the value of `Authorization` for `user:password`."""
    return f"Basic {base64.b64encode(credentials.encode()).decode()}"
