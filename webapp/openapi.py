"""The OpenAPI document: request bodies, security, errors, links and examples; the routes check by themselves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import pydantic
from fastapi import FastAPI, Query
from fastapi.openapi.utils import get_openapi
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue, models_json_schema
from pydantic_core import core_schema

from webapp import openapi_examples, openapi_links

BASIC = "basic"
BEARER = "bearer"
API_KEY = "apikey"

_SCHEMES: dict[str, Any] = {
    BASIC: {"type": "http", "scheme": "basic"},
    BEARER: {"type": "http", "scheme": "bearer", "bearerFormat": "JWT"},
    API_KEY: {"type": "apiKey", "in": "header", "name": "Authorization", "description": "`Apikey` and the key"},
}
# The parameter `format` where only a link is offered; the routes check it.
OnlyLink = Annotated[str | None, Query(), pydantic.WithJsonSchema({"type": "string", "enum": ["link"]})]
_REFERENCE = "#/components/schemas/{model}"
# What pydantic takes for true and false besides themselves.
_TRUTH_WORDS = ["1", "0", "t", "f", "y", "n", "true", "false", "yes", "no", "on", "off"]
_TRUTH: dict[str, Any] = {
    "anyOf": [
        {"type": "boolean"},
        {"type": "integer", "enum": [0, 1]},
        {
            "type": "string",
            "pattern": "^(?:"
            + "|".join(
                "".join(f"[{letter.upper()}{letter}]" if letter.isalpha() else letter for letter in word)
                for word in _TRUTH_WORDS
            )
            + ")$",
        },
    ]
}


class Meta(pydantic.BaseModel):
    """In every answer."""

    version: str = pydantic.Field(examples=["2.57.2"])
    api_status: str = pydantic.Field(examples=["stable"])


class MetaAnswer(pydantic.BaseModel):
    """A success with nothing else to say."""

    meta: Meta


class Error(pydantic.BaseModel):
    """`details` say which field and why."""

    code: int = pydantic.Field(examples=[1009])
    title: str = pydantic.Field(examples=["Parameter value is not valid"])
    details: str = pydantic.Field(examples=["text.body: should be a string"])


class ErrorAnswer(pydantic.BaseModel):
    """The body of every 4xx and 5xx."""

    errors: list[Error] = pydantic.Field(min_length=1)
    meta: Meta


RESPONSES: dict[int | str, dict[str, Any]] = {
    "4XX": {"model": ErrorAnswer, "description": "The request was refused"},
    "5XX": {"model": ErrorAnswer, "description": "The request failed"},
}


class Lenient(GenerateJsonSchema):
    """Describes bodies as they are taken: truth values also as numbers and words."""

    def bool_schema(self, schema: core_schema.BoolSchema) -> JsonSchemaValue:
        return {"type": "boolean"} if schema.get("strict") else dict(_TRUTH)


def operation(*schemes_and_body: str | type[pydantic.BaseModel]) -> dict[str, Any]:
    """What a route adds to its operation: the schemes that open it, each enough by itself, and its body.

    A body without required fields may be left out.
    """
    schemes = [scheme for scheme in schemes_and_body if isinstance(scheme, str)]
    extra: dict[str, Any] = {"security": [{scheme: []} for scheme in schemes]}
    for model in schemes_and_body:
        if not isinstance(model, str):
            schema = {"$ref": _REFERENCE.format(model=model.__name__)}
            required = not _may_be_empty(model)
            extra["requestBody"] = {"required": required, "content": {"application/json": {"schema": schema}}}
    return extra


def _may_be_empty(model: type[pydantic.BaseModel]) -> bool:
    try:
        model.model_validate({})
    except pydantic.ValidationError:
        return False
    return True


def repeatable(operation: dict[str, Any]) -> dict[str, Any]:
    """An operation that takes an idempotency key."""
    key = {
        "name": "Idempotency-Key",
        "in": "header",
        "required": False,
        "schema": {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[!-~]+$"},
        "description": "A request that is repeated under its key within 24 hours gets the first answer.",
        "example": "order-4711-confirmation",
    }
    return {**operation, "parameters": [*operation.get("parameters", []), key]}


def describe(app: FastAPI, bodies: Sequence[type[pydantic.BaseModel]]) -> None:
    """Have `app` serve a document that has the schemas of all `bodies`."""

    def document() -> dict[str, Any]:
        if app.openapi_schema is None:
            made = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
            wanted = [(body, "validation") for body in bodies]
            _, definitions = models_json_schema(wanted, ref_template=_REFERENCE, schema_generator=Lenient)  # type: ignore[arg-type]
            components = made.setdefault("components", {})
            components.setdefault("schemas", {}).update(definitions["$defs"])
            components["securitySchemes"] = _SCHEMES
            openapi_links.add(made)
            openapi_examples.add(made)
            app.openapi_schema = made
        return app.openapi_schema

    app.openapi = document  # type: ignore[method-assign]
