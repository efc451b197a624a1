"""Union of all interactive contents, distinguished by `type`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import pydantic
from pydantic.json_schema import SkipJsonSchema

from webapp.api.messages.interactive.buttons import ButtonMessage
from webapp.api.messages.interactive.flows import FlowMessage, LocationRequestMessage
from webapp.api.messages.interactive.lists import ListMessage
from webapp.api.messages.interactive.products import CatalogMessage, ProductListMessage, ProductMessage
from webapp.http.bodies import TAG, Body

Type = Literal["list", "button", "product", "product_list", "catalog_message", "flow", "location_request_message"]
_TYPES = frozenset(Type.__args__)  # type: ignore[attr-defined]


class OfNoKnownType(Body):
    """Model for a missing or unknown type. Its validation always fails, with an error that names the known types."""

    type: Type


def _tag(value: Any) -> str:
    kind = value.get("type") if isinstance(value, dict) else getattr(value, "type", None)
    return f"{TAG}{kind}" if isinstance(kind, str) and kind in _TYPES else f"{TAG}none"


Interactive = Annotated[
    Annotated[ListMessage, pydantic.Tag(f"{TAG}list")]
    | Annotated[ButtonMessage, pydantic.Tag(f"{TAG}button")]
    | Annotated[ProductMessage, pydantic.Tag(f"{TAG}product")]
    | Annotated[ProductListMessage, pydantic.Tag(f"{TAG}product_list")]
    | Annotated[CatalogMessage, pydantic.Tag(f"{TAG}catalog_message")]
    | Annotated[FlowMessage, pydantic.Tag(f"{TAG}flow")]
    | Annotated[LocationRequestMessage, pydantic.Tag(f"{TAG}location_request_message")]
    | Annotated[SkipJsonSchema[OfNoKnownType], pydantic.Tag(f"{TAG}none")],
    pydantic.Discriminator(_tag),
]
