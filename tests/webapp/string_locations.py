"""Locations of strings in JSON bodies: those of a body, and all that a JSON schema allows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

# Names and, for an entry of a list, `ENTRY`.
StringLocation = tuple[str, ...]
ENTRY = "#"


def in_body(value: Any) -> Iterator[StringLocation]:
    """Yield the locations of all strings in a body."""
    if isinstance(value, str):
        yield ()
    inside: Iterable[tuple[str, Any]] = value.items() if isinstance(value, dict) else ()
    if isinstance(value, list):
        inside = ((ENTRY, entry) for entry in value)
    for step, inner in inside:
        for location in in_body(inner):
            yield (step, *location)


def in_schema(
    schema: Mapping[str, Any], models: Mapping[str, Any], above: tuple[str, ...] = ()
) -> Iterator[StringLocation]:
    """Yield the locations at which a schema allows a string. A model inside itself is left out.

    models: schemas that `$ref` names
    above: names of the models that contain this schema
    """
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        if name not in above:
            yield from in_schema(models[name], models, (*above, name))
        return
    if "string" in schema.get("type", ()):
        yield ()
    for word in ("anyOf", "oneOf", "allOf"):
        for part in schema.get(word, ()):
            yield from in_schema(part, models, above)
    inside = dict(schema.get("properties", {}))
    inside |= {step: schema[word] for word, step in (("items", ENTRY), ("additionalProperties", "x")) if word in schema}
    for step, inner in inside.items():
        for location in in_schema(inner, models, above) if isinstance(inner, dict) else ():
            yield (step, *location)


def depth(value: Any, location: StringLocation) -> int:
    """Return how many steps of a location a value has."""
    if not location:
        return 0
    if location[0] == ENTRY:
        return max((1 + depth(entry, location[1:]) for entry in value), default=0) if isinstance(value, list) else 0
    return 1 + depth(value[location[0]], location[1:]) if isinstance(value, dict) and location[0] in value else 0


def put(value: Any, location: StringLocation, text: str) -> Any:
    """Return a copy of a body with a text at a location. Of a list, the entry that has most of the location is changed.

    Objects and lists that are missing are created.
    """
    if not location:
        return text
    step, rest = location[0], location[1:]
    if step == ENTRY:
        entries = list(value) if isinstance(value, list) and value else [None]
        index = max(range(len(entries)), key=lambda n: depth(entries[n], rest))
        return [*entries[:index], put(entries[index], rest, text), *entries[index + 1 :]]
    fields = value if isinstance(value, dict) else {}
    return {**fields, step: put(fields.get(step), rest, text)}
