"""A field accepts what its schema describes: tested with valid, nearly valid, and any other values."""

from __future__ import annotations

from typing import Annotated, Any

import hypothesis
import jsonschema
import pydantic
import pytest
from hypothesis import strategies as st

from webapp.api.messages.fields import Degrees
from webapp.http.constraints import BASE64, NO_CONTROLS, WEB_ADDRESS, Digits, Integer, Matches
from webapp.http.openapi.document import AcceptedBooleansSchema

FIELDS: dict[str, Any] = {
    "controls": Annotated[str, Matches(NO_CONTROLS, "should have no control characters")],
    "base64": Annotated[str, Matches(BASE64, "should be base64")],
    "address": Annotated[str, Matches(f"^{WEB_ADDRESS}$", "should be an address")],
    "code": Annotated[str, pydantic.Field(max_length=16), Digits(6, 6, separated=True)],
    "pin": Annotated[str, Digits(6, 6)],
    "number": Annotated[str, pydantic.Field(max_length=64), Digits(4, 14, separated=True)],
    "integer": Integer,
    "hour": Annotated[Integer, pydantic.Field(ge=0, le=23)],
    "milliseconds": Annotated[Integer, pydantic.Field(ge=1, le=86_400_000)],
    "truth": bool,
    "latitude": Annotated[float, Degrees(90)],
    "longitude": Annotated[float, Degrees(180)],
}
NEAR = st.text("0123456789 .()+-\u00a0=/AQhtpsfyeson:\n\x00", max_size=18) | st.sampled_from(
    [
        *("QQ==", "QQ=", "QQQ=", "Q===", "QQQQ==", "http://a", "HTTPS://ä", "http://a b", "http://a\n"),
        *("123-456", "+123456", "90.0", "91", "-90.1", "180", "-181", "179.5"),
    ]
)
VALUES = (
    NEAR
    | st.text(max_size=20)
    | st.integers(-(2**63), 2**63 - 1)
    | st.integers(-1, 100_000_000)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.integers(-5, 1_000_000).map(float)
    | st.booleans()
    | st.none()
    | st.lists(st.integers(), max_size=1)
)
# Numbers in strings: the schema may omit accepted forms where a complete pattern would be unreadable.
MORE_IS_TAKEN = {"integer", "hour", "milliseconds", "latitude", "longitude"}


@pytest.mark.parametrize("name", FIELDS)
def test_a_field_accepts_what_its_schema_describes(name: str) -> None:
    adapter = pydantic.TypeAdapter(FIELDS[name])
    checker = jsonschema.Draft202012Validator(adapter.json_schema(schema_generator=AcceptedBooleansSchema))

    @hypothesis.settings(max_examples=500)
    @hypothesis.given(VALUES)
    def agree(value: Any) -> None:
        # In JSON Schema `$` matches only at the end of a text, but this checker also accepts a line break after it.
        hypothesis.assume(not (isinstance(value, str) and value.endswith("\n")))
        try:
            adapter.validate_python(value)
            taken = True
        except pydantic.ValidationError:
            taken = False
        described = checker.is_valid(value)
        assert taken == described or (taken and isinstance(value, str) and name in MORE_IS_TAKEN)

    agree()
