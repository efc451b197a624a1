"""Explanations of validation errors for the API client. Only this module knows the validators' own messages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tidings.wire.codes import PARAMETER_INVALID, PARAMETER_MISSING

# Keyed by pydantic's type of error. The fields in braces come from its context.
_SENTENCES = {
    "string_type": "should be a string",
    "int_type": "should be a whole number",
    "int_parsing": "should be a whole number",
    "int_from_float": "should be a whole number",
    "int_parsing_size": "should be a whole number of at most 64 bits",
    "float_type": "should be a number",
    "float_parsing": "should be a number",
    "finite_number": "should be a number",
    "bool_type": "should be true or false",
    "bool_parsing": "should be true or false",
    "list_type": "should be a list",
    "tuple_type": "should be a list",
    "dict_type": "should be a JSON object",
    "model_type": "should be a JSON object",
    "model_attributes_type": "should be a JSON object",
    "dataclass_type": "should be a JSON object",
    "none_required": "should be null, or absent",
    "literal_error": "should be {expected}",
    "enum": "should be {expected}",
    "union_tag_invalid": "should be {expected_tags}",
    "union_tag_not_found": "should be a JSON object that says its type",
    "greater_than_equal": "should be at least {ge}",
    "greater_than": "should be more than {gt}",
    "less_than_equal": "should be at most {le}",
    "less_than": "should be less than {lt}",
    "string_too_long": "should have at most {max_length} characters",
    "too_long": "should have at most {max_length} entries",
}
# Used for all other types of errors.
_OTHERWISE = "does not match /openapi.json"


def reason_of(entry: Mapping[str, Any]) -> tuple[int, str]:
    """Return the code and the explanation of one of pydantic's errors."""
    kind, context = entry["type"], entry.get("ctx", {})
    if kind == "missing":
        return PARAMETER_MISSING, "is missing"
    if kind == "refused":
        return context["code"], entry["msg"]
    if kind == "value_error":
        return PARAMETER_INVALID, str(context["error"])
    if kind == "string_too_short":
        return PARAMETER_INVALID, _at_least(context["min_length"], "characters")
    if kind == "too_short":
        return PARAMETER_INVALID, _at_least(context["min_length"], "entries")
    return PARAMETER_INVALID, _SENTENCES.get(kind, _OTHERWISE).format_map(context)


def _at_least(count: int, what: str) -> str:
    return "should not be empty" if count == 1 else f"should have at least {count} {what}"


def unreadable(words: str) -> str:
    """Return the mistake in a body that is not JSON, from the message of msgspec's decoder."""
    if "truncated" in words:
        return "it ends too early"
    if "out of range" in words.lower():
        return "a number in it is beyond 64 bits"
    return words.removeprefix("JSON is malformed: ")
