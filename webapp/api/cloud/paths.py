"""Paths of the Cloud API: an optional version, an object, and the edge of it that is called."""

from __future__ import annotations

import dataclasses
import functools
import re

# Version that a path without one has, and the oldest version that is served as it is.
DEFAULT, OLDEST = "v25.0", 20
_VERSION = re.compile(r"v[0-9]+\.[0-9]+", re.ASCII)
_SERVED = re.compile(r"v([1-9][0-9]?)\.0", re.ASCII)
# First parts of a path without a version, other than ids.
DEBUG_TOKEN, OAUTH, ME, ATTACHMENTS, UPLOAD = "debug_token", "oauth", "me", "whatsapp_business", "upload:"
NAMES = frozenset((DEBUG_TOKEN, OAUTH, ME, ATTACHMENTS))


@dataclasses.dataclass(frozen=True, slots=True)
class Version:
    """Version of a call."""

    requested: str  # version in the path; empty for none
    served: str
    warning: str = ""  # text for the client; empty for none


UNVERSIONED = Version("", DEFAULT)


@dataclasses.dataclass(frozen=True, slots=True)
class Target:
    """Object that a path names."""

    version: Version
    node: str  # id or name of the object; empty for none
    edge: str  # rest of the path; empty for the object itself
    is_known: bool = True  # whether the version exists


# Longest path whose target is cached, so that no client can fill the memory. Those of ids are shorter.
MAX_CACHED = 128


def claims(path: str) -> bool:
    """Return whether a path belongs to the Cloud API: it starts with a version, an id or a name of that API."""
    if path.startswith("/v1/"):
        return False
    return _claims(path) if len(path) <= MAX_CACHED else _claims.__wrapped__(path)


@functools.lru_cache(4_096)
def _claims(path: str) -> bool:
    first = path[1:].partition("/")[0]
    if first.isascii() and first.isdigit():
        return True
    return first in NAMES or first.startswith(UPLOAD) or _VERSION.fullmatch(first) is not None


def parse(path: str) -> Target:
    """Return what a claimed path names."""
    first, _, rest = path[1:].partition("/")
    version, is_known = UNVERSIONED, True
    if _VERSION.fullmatch(first):
        version, is_known = _version(first)
        first, _, rest = rest.partition("/")
    return Target(version, first, rest, is_known)


def _version(requested: str) -> tuple[Version, bool]:
    found = _SERVED.fullmatch(requested)
    if found is None:
        return Version(requested, DEFAULT), False
    if int(found[1]) >= OLDEST:
        return Version(requested, requested), True
    served = f"v{OLDEST}.0"
    return Version(
        requested, served, f"The call has been auto-upgraded to {served} as {requested} will be deprecated."
    ), True
