"""Examples for the OpenAPI document, composed from the examples of the fields."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

_JSON = "application/json"
# Examples of path parameters, by name.
PATH_PARAMETERS: Mapping[str, str] = {
    "group_id": "15550000000-1795238571",
    "id": "583b6a66-dba8-4f80-82cd-15b5b0ae50dd",
    "index": "0",
    "media_id": "0d0e1a6a-38bb-4a7b-9d59-37ba5eee6a5e",
    "message_id": "gBEG0VbZZDBzMFefXNpbOZj5qac",
    "name": "order_confirmation",
    "username": "observer",
    "wa_id": "15550110001",
}


class ExampleMissing(Exception):
    """A field that needs an explicit example has none. `str()` names the field."""


def add(document: dict[str, Any]) -> None:
    """Add an example to each JSON body, JSON response and path parameter, except where a field has none."""
    schemas = document["components"]["schemas"]
    for name, operation in _operations(document):
        for parameter in operation.get("parameters", ()):
            if parameter["in"] == "path" and "example" not in parameter:
                own = parameter["schema"].get("examples")
                parameter["example"] = own[0] if own else PATH_PARAMETERS.get(parameter["name"], "1")
        for where, part in _parts(operation):
            media = part.get("content", {}).get(_JSON)
            if media is not None and "example" not in media and "examples" not in media:
                with contextlib.suppress(ExampleMissing):
                    media["example"] = compose(media["schema"], schemas, f"{name} {where}")


def compose(schema: Mapping[str, Any], schemas: Mapping[str, Any], where: str) -> Any:
    """Return a value of `schema` with the required fields and the optional ones that have an example.

    Raises `ExampleMissing`.
    """
    if "$ref" in schema:
        return compose(schemas[schema["$ref"].rpartition("/")[2]], schemas, where)
    if schema.get("examples"):
        return schema["examples"][0]
    for name in ("example", "const"):
        if name in schema:
            return schema[name]
    if schema.get("enum"):
        return schema["enum"][0]
    if "properties" in schema:
        properties = schema["properties"]
        chosen = [name for name in properties if name in schema.get("required", ()) or "examples" in properties[name]]
        return {name: compose(properties[name], schemas, f"{where}.{name}") for name in chosen}
    for name in ("anyOf", "oneOf"):
        for choice in schema.get(name, ()):
            if choice.get("type") != "null":
                return compose(choice, schemas, where)
    if schema.get("type") == "object":
        return {}
    if schema.get("type") == "array":
        return [compose(schema["items"], schemas, f"{where}[0]")]
    if schema.get("type") == "boolean":
        return True
    raise ExampleMissing(where)


def _operations(document: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            yield f"{method.upper()} {path}", operation


def _parts(operation: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    if "requestBody" in operation:
        yield "body", operation["requestBody"]
    yield from operation["responses"].items()
