"""Lookup of one header of a request, without building a mapping of all."""

from __future__ import annotations

from starlette.types import Scope


def find(scope: Scope, name: bytes) -> bytes | None:
    """Return the first value of the header `name`, which is in lower case; `None` without one."""
    for key, value in scope["headers"]:
        if key == name:
            return bytes(value)
    return None
