"""Bounded reading of JSON bodies, validated against a model, independent of their Content-Type."""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
import re
from collections.abc import Collection, Mapping
from typing import Any, Generic, TypeVar

import msgspec
import pydantic
from fastapi import Depends, Request
from pydantic_core import PydanticCustomError

from tidings.http.exchange import RECEIVED
from tidings.wire.codes import INVALID_REQUEST, PARAMETER_INVALID, PARAMETER_MISSING
from webapp.http import dependencies, headers
from webapp.http.errors import BodyTooLarge, InvalidRequest, Problem

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
    "extra_forbidden": "is not a known field",
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
    if "surrogate" in words:
        return f"a string in it has a lone surrogate {words[words.find('(byte') :]}"
    if "truncated" in words:
        return "it ends too early"
    if "out of range" in words.lower():
        return "a number in it is beyond 64 bits"
    return words.removeprefix("JSON is malformed: ")


# Seconds in which a body must arrive.
_TIMEOUT = 30.0
# Maximum number of entries in `errors` of one response.
_MAX_PROBLEMS = 20
# Maximum nesting of arrays and objects. No body of the API needs more, and later readers can handle it.
_MAX_DEPTH = 100
# A number beyond 64 bits has at least 19 digits, so two digits follow each other among every ninth byte of its text.
# Searching all bytes takes several times as long as parsing them.
_TWO_DIGITS = re.compile(rb"[0-9]{2}")
# Bytes of the text of one escaped UTF-16 code unit.
_ESCAPE_BYTES = len(r"\uD800")
# Prefix of the tags of tagged unions, which keeps them out of the paths in error texts.
TAG = "#"

# Sent before the JSON by some clients. RFC 8259, section 8.1, allows readers to ignore it.
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"

_decode = msgspec.json.Decoder().decode


class Body(pydantic.BaseModel):
    """Base of all request bodies. Unknown fields are ignored, because clients of many versions send them."""

    model_config = pydantic.ConfigDict(extra="ignore", frozen=True)


Model = TypeVar("Model", bound=pydantic.BaseModel)


@dataclasses.dataclass(frozen=True, slots=True)
class BodyLimit:
    """Limit of a JSON body, for routes without a separate limit."""

    bytes: int  # bytes


class JSONBody(Generic[Model]):
    """Dependency that reads the body as a `model`. An empty body counts as `{}`.

    The framework's own reading is not used. It runs before all dependencies, thus before authentication. It has
    no limits, and accepts values that JSON does not have.
    """

    def __init__(self, model: type[Model], limit: int = 0) -> None:
        self.model = model
        self._limit = limit

    async def read(self, request: Request) -> Model:
        """Read and validate the body. Raises `InvalidRequest` that names each wrong field."""
        limit = self._limit or dependencies.find(request, BodyLimit).bytes
        return check(self.model, await read_json(request, limit=limit))


def raw_body(limit: int) -> Any:
    """Return a dependency that reads the unparsed body, of at most `limit` bytes. Place it after the caller."""

    async def read(request: Request) -> bytes:
        return await receive(request, limit)

    return Depends(read)


def json_body(model: type[pydantic.BaseModel], limit: int = 0) -> Any:
    """Return a dependency that reads a JSON body: `Annotated[Subject, json_body(Subject)]`.

    Place it after the caller.

    limit: maximum size in bytes; 0 for the general limit
    """
    return Depends(JSONBody(model, limit).read)


def refusal(code: int, text: str, **values: Any) -> PydanticCustomError:
    """Return an error for a validator to raise whose problem has this code rather than 1009."""
    return PydanticCustomError("refused", text, {"code": code, **values})


async def read_json(request: Request, *, limit: int) -> object:
    """Return the parsed body before validation. An empty body counts as `{}`. Raises `InvalidRequest`."""
    return parse(await receive(request, limit))


def check(model: type[Model], value: object) -> Model:
    """Validate a parsed body as a `model`. Raises `InvalidRequest`."""
    try:
        return model.model_validate(value)
    except pydantic.ValidationError as error:
        found = error.errors(include_url=False, include_input=False)[:_MAX_PROBLEMS]
        raise InvalidRequest([_problem(entry) for entry in found]) from None


async def receive(request: Request, limit: int) -> bytes:
    """Return the unparsed body. Raises `BodyTooLarge` and `InvalidRequest`."""
    declared = headers.find(request.scope, b"content-length")
    if declared is not None and declared.isdigit() and (len(declared) > 12 or int(declared) > limit):
        raise BodyTooLarge(limit)
    if RECEIVED in request.scope:
        # A timeout costs more than parsing the body of a message.
        return await _read(request, limit)
    try:
        async with asyncio.timeout(_TIMEOUT):
            return await _read(request, limit)
    except TimeoutError:
        raise InvalidRequest.because(INVALID_REQUEST, f"the body did not arrive within {_TIMEOUT:.0f} s") from None


async def _read(request: Request, limit: int) -> bytes:
    chunks: list[bytes] = []
    size, has_more = 0, True
    while has_more:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise InvalidRequest.because(INVALID_REQUEST, "the connection closed before the body was complete")
        chunk = message.get("body", b"")
        size += len(chunk)
        if size > limit:
            raise BodyTooLarge(limit)
        chunks.append(chunk)
        has_more = message.get("more_body", False)
    return b"".join(chunks)


def parse(raw: bytes) -> object:
    """Return parsed JSON. Empty text counts as `{}`.

    Raises `InvalidRequest`, also for values that JSON does not have (NaN, Infinity, lone surrogates), numbers beyond
    64 bits and deep nesting.
    """
    raw = raw.removeprefix(_BYTE_ORDER_MARK)
    try:
        value = _decode(raw) if raw.strip() else {}
    except msgspec.ValidationError as error:
        raise InvalidRequest.because(INVALID_REQUEST, f"the body is invalid: {unreadable(str(error))}") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        words = _surrogate_error(raw) or str(error)
        raise InvalidRequest.because(INVALID_REQUEST, f"the body is not JSON: {unreadable(words)}") from None
    except RecursionError:
        raise _too_deep() from None
    if raw.count(b"{") + raw.count(b"[") > _MAX_DEPTH and _is_too_deep(value):
        raise _too_deep()
    if _TWO_DIGITS.search(raw[::9]) and _has_too_large_number(value):
        raise InvalidRequest.because(INVALID_REQUEST, "the body has a number beyond 64 bits")
    return value


def _surrogate_error(raw: bytes) -> str:
    """Return the decoder's message about a lone surrogate; empty for another mistake.

    The decoder reports a surrogate in the last bytes of a body as a truncated one.
    """
    try:
        _decode(raw + b" " * _ESCAPE_BYTES)
    except msgspec.DecodeError as error:
        return str(error) if "surrogate" in str(error) else ""
    except UnicodeDecodeError:
        pass
    return ""


def _has_too_large_number(value: object) -> bool:
    left: list[Any] = [value]
    while left:
        one = left.pop()
        if isinstance(one, dict):
            left += one.values()
        elif isinstance(one, list):
            left += one
        elif isinstance(one, int) and not -(2**63) <= one < 2**64:
            return True
    return False


def _is_too_deep(value: object) -> bool:
    level: list[Any] = [value]
    for _ in range(_MAX_DEPTH):
        inside = [one.values() if isinstance(one, dict) else one for one in level]
        level = [one for one in itertools.chain.from_iterable(inside) if isinstance(one, (dict, list))]
        if not level:
            return False
    return True


def _too_deep() -> InvalidRequest:
    return InvalidRequest.because(INVALID_REQUEST, f"the body is nested more than {_MAX_DEPTH} deep")


def _problem(entry: Mapping[str, Any]) -> Problem:
    code, reason = reason_of(entry)
    return Problem(code, f"{_path(entry['loc'])}: {reason}")


def type_of(value: Any) -> str:
    """Return the `type` of a decoded object, or of its model; empty for a missing or wrong one."""
    kind = value.get("type") if isinstance(value, dict) else getattr(value, "type", None)
    return kind if isinstance(kind, str) else ""


def tag_of(kind: str, known: Collection[str]) -> str:
    """Return the tag of the member of a tagged union for a type: that of no known type for any other."""
    return f"{TAG}{kind}" if kind in known else f"{TAG}none"


def _path(loc: tuple[int | str, ...]) -> str:
    text = ""
    for part in loc:
        if isinstance(part, str) and part.startswith(TAG):
            # The tag of a union member, which the caller never wrote.
            continue
        text += f"[{part}]" if isinstance(part, int) else f".{part}"
    return text.removeprefix(".") or "body"
