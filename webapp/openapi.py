"""The OpenAPI document: request bodies, security and errors, which the routes check by themselves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pydantic
from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic.json_schema import models_json_schema

BASIC = "basic"
BEARER = "bearer"
API_KEY = "apikey"

_SCHEMES: dict[str, Any] = {
    BASIC: {"type": "http", "scheme": "basic"},
    BEARER: {"type": "http", "scheme": "bearer", "bearerFormat": "JWT"},
    API_KEY: {"type": "apiKey", "in": "header", "name": "Authorization", "description": "`Apikey` and the key"},
}
_REFERENCE = "#/components/schemas/{model}"


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
    details: str = pydantic.Field(examples=["text.body: should be a valid string"])


class ErrorAnswer(pydantic.BaseModel):
    """The body of every 4xx and 5xx."""

    errors: list[Error] = pydantic.Field(min_length=1)
    meta: Meta


RESPONSES: dict[int | str, dict[str, Any]] = {
    "4XX": {"model": ErrorAnswer, "description": "The request was refused"},
    "5XX": {"model": ErrorAnswer, "description": "The request failed"},
}


def operation(*schemes_and_body: str | type[pydantic.BaseModel], required: bool = True) -> dict[str, Any]:
    """What a route adds to its operation: the schemes that open it, each enough by itself, and its body."""
    schemes = [scheme for scheme in schemes_and_body if isinstance(scheme, str)]
    extra: dict[str, Any] = {"security": [{scheme: []} for scheme in schemes]}
    for model in schemes_and_body:
        if not isinstance(model, str):
            schema = {"$ref": _REFERENCE.format(model=model.__name__)}
            extra["requestBody"] = {"required": required, "content": {"application/json": {"schema": schema}}}
    return extra


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
            _, definitions = models_json_schema([(body, "validation") for body in bodies], ref_template=_REFERENCE)
            components = made.setdefault("components", {})
            components.setdefault("schemas", {}).update(definitions["$defs"])
            components["securitySchemes"] = _SCHEMES
            app.openapi_schema = made
        return app.openapi_schema

    app.openapi = document  # type: ignore[method-assign]
