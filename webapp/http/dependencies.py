"""Dependencies of routes: the parts of the Webapp by their class, and the request's id."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, TypeVar

from fastapi import Depends, Request

Part = TypeVar("Part")


def parts_of(request: Request) -> Mapping[type, Any]:
    """Return all parts by their class, for callers that need several."""
    found: Mapping[type, Any] = request.scope["app"].parts
    return found


def find(request: Request, kind: type[Part]) -> Part:
    """Return the part of this class."""
    found: Part = request.scope["app"].parts[kind]
    return found


def part(kind: type[Part]) -> Any:
    """Return a dependency that provides a part: `Annotated[Groups, part(Groups)]`."""

    # A coroutine, because the framework runs plain functions in threads.
    async def provided(request: Request) -> Part:
        return find(request, kind)

    return Depends(provided)


async def _request_id(request: Request) -> str:
    return str(request.state.request_id)


RequestId = Annotated[str, Depends(_request_id)]
