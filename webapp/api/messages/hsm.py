"""Content of an hsm message: the old form of a template message, with one list of parameters for the body."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

import pydantic
from pydantic.config import JsonDict

from tidings.wire.codes import PARAMETER_INVALID, PARAMETER_MISSING
from webapp.api.messages.template import LanguageCode, Namespace
from webapp.http.bodies import Body, refusal
from webapp.http.constraints import Integer, Length, Matches, Maybe, either


class Currency(Body):
    """An amount of money. `amount_1000` is the amount times 1,000."""

    currency_code: Annotated[str, Matches("^[A-Za-z]{3}$", "should be three letters, like EUR")]
    amount_1000: Integer


class Moment(Body):
    """A point in time by its components. `day_of_week` is 1 for Monday to 7 for Sunday."""

    day_of_week: Annotated[Integer, pydantic.Field(ge=1, le=7)] | None = None
    day_of_month: Annotated[Integer, pydantic.Field(ge=1, le=31)] | None = None
    year: Integer | None = None
    month: Annotated[Integer, pydantic.Field(ge=1, le=12)] | None = None
    hour: Annotated[Integer, pydantic.Field(ge=0, le=23)] | None = None
    minute: Annotated[Integer, pydantic.Field(ge=0, le=59)] | None = None


class Epoch(Body):
    """A point in time in Unix seconds."""

    timestamp: Integer


class DateTime(Body):
    """A point in time, by its components or as Unix time."""

    model_config = pydantic.ConfigDict(json_schema_extra=either("component", "unix_epoch"))

    component: Moment | None = None
    unix_epoch: Epoch | None = None

    @pydantic.model_validator(mode="after")
    def _is_one(self) -> DateTime:
        if (self.component is None) == (self.unix_epoch is None):
            raise refusal(PARAMETER_INVALID, "should have either component or unix_epoch")
        return self


class Localizable(Body):
    """A parameter. `default` is the text that is shown. The other fields describe its meaning."""

    default: Annotated[str, Length(32_768, empty=PARAMETER_MISSING)]
    currency: Currency | None = None
    date_time: DateTime | None = None


class HsmLanguage(Body):
    """Language of the template.

    The policy `fallback` of old clients is treated as `deterministic`: no other language is used.
    """

    policy: Maybe[Literal["deterministic", "fallback"]] = None
    code: LanguageCode


# `fallback_lc` is a country. `fallback_lg` and `fallback` are a language, or a language and a country.
_COUNTRY = r"^[A-Za-z]{2,4}$"
_WHOLE = r"^[A-Za-z]{2,4}(?:[_-][A-Za-z]{2,4})?$"


def _old_code(given: Mapping[Any, Any]) -> str:
    """Return the language that a body of an old client names; empty for none."""

    def part(name: str, pattern: str) -> str:
        value = given.get(name)
        return value if isinstance(value, str) and re.search(pattern, value, re.ASCII) else ""

    language = (part("fallback_lg", _WHOLE) or part("fallback", _WHOLE)).replace("-", "_")
    country = part("fallback_lc", _COUNTRY) if given.get("fallback_lg") else ""
    return f"{language}_{country.upper()}" if country and "_" not in language else language


def _describe_languages(schema: JsonDict) -> None:
    required = schema["required"]
    assert isinstance(required, list)
    required.remove("language")
    schema["anyOf"] = [
        {"required": ["language"]},
        {"required": ["fallback_lg"], "properties": {"fallback_lg": {"type": "string", "pattern": _WHOLE}}},
        {"required": ["fallback"], "properties": {"fallback": {"type": "string", "pattern": _WHOLE}}},
    ]


class Hsm(Body):
    """A template message in the old form. `element_name` is the template's name.

    Old clients name the language as `fallback_lg` and `fallback_lc` (a country), or as `fallback`. These are used
    only without `language`.
    """

    model_config = pydantic.ConfigDict(json_schema_extra=_describe_languages)

    namespace: Namespace
    element_name: Annotated[str, Length(512)]
    language: HsmLanguage
    localizable_params: list[Localizable] | None = None

    @pydantic.model_validator(mode="before")
    @classmethod
    def _read_old_language(cls, value: object) -> object:
        if isinstance(value, Mapping) and value.get("language") is None and (code := _old_code(value)):
            return {**value, "language": {"code": code}}
        return value
