"""OpenAPI document: adds request bodies, links and examples to the framework's document."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Any

import pydantic
from fastapi import FastAPI, Query
from fastapi.openapi.utils import get_openapi
from fastapi.routing import iter_route_contexts
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue, models_json_schema
from pydantic_core import core_schema

from webapp.http.bodies import JSONBody
from webapp.http.openapi import examples, links

# The parameter `format` of routes that offer only a link. The routes check it.
OnlyLink = Annotated[str | None, Query(), pydantic.WithJsonSchema({"type": "string", "enum": ["link"]})]
_REFERENCE = "#/components/schemas/{model}"
# Strings that pydantic accepts as booleans.
_BOOLEAN_WORDS = ["1", "0", "t", "f", "y", "n", "true", "false", "yes", "no", "on", "off"]
_BOOLEAN: dict[str, Any] = {
    "anyOf": [
        {"type": "boolean"},
        {"type": "integer", "enum": [0, 1]},
        {
            "type": "string",
            "pattern": "^(?:"
            + "|".join(
                "".join(f"[{letter.upper()}{letter}]" if letter.isalpha() else letter for letter in word)
                for word in _BOOLEAN_WORDS
            )
            + ")$",
        },
    ]
}


class Meta(pydantic.BaseModel):
    """Version information, which every response has."""

    version: str = pydantic.Field(examples=["2.57.2"])
    api_status: str = pydantic.Field(examples=["stable"])


class MetaResponse(pydantic.BaseModel):
    """Response to a successful request that returns no data."""

    meta: Meta


class Error(pydantic.BaseModel):
    """An error. `details` names the field and the reason."""

    code: int = pydantic.Field(examples=[1009])
    title: str = pydantic.Field(examples=["Parameter value is not valid"])
    details: str = pydantic.Field(examples=["text.body: should be a string"])


class ErrorResponse(pydantic.BaseModel):
    """Body of every response with a status of 4xx or 5xx."""

    errors: list[Error] = pydantic.Field(min_length=1)
    meta: Meta


RESPONSES: dict[int | str, dict[str, Any]] = {
    "4XX": {"model": ErrorResponse, "description": "The request was refused"},
    "5XX": {"model": ErrorResponse, "description": "The request failed"},
}


# Parameter of an operation that accepts an idempotency key.
REPEATABLE: dict[str, Any] = {
    "parameters": [
        {
            "name": "Idempotency-Key",
            "in": "header",
            "required": False,
            "schema": {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[!-~]+$"},
            "description": "A request repeated with the same key within 24 hours gets the first response.",
            "example": "order-4711-confirmation",
        }
    ]
}


class AcceptedBooleansSchema(GenerateJsonSchema):
    """Schema generator that describes booleans as they are accepted, including numbers and words."""

    def bool_schema(self, schema: core_schema.BoolSchema) -> JsonSchemaValue:
        return {"type": "boolean"} if schema.get("strict") else dict(_BOOLEAN)


def _may_be_empty(model: type[pydantic.BaseModel]) -> bool:
    try:
        model.model_validate({})
    except pydantic.ValidationError:
        return False
    return True


def describe(app: FastAPI, open_paths: Sequence[str]) -> None:
    """Make `app` serve a document that includes the request bodies.

    open_paths: paths that also accept requests without a token
    """

    def document() -> dict[str, Any]:
        if app.openapi_schema is None:
            made = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
            models = dict(_describe_bodies(made["paths"], app))
            _, definitions = models_json_schema(
                [(model, "validation") for model in models.values()],
                ref_template=_REFERENCE,
                schema_generator=AcceptedBooleansSchema,
            )
            made["components"]["schemas"].update(definitions["$defs"])
            for path in open_paths:
                made["paths"][path]["get"]["security"].append({})
            links.add(made)
            examples.add(made)
            app.openapi_schema = made
        return app.openapi_schema

    app.openapi = document  # type: ignore[method-assign]


def _describe_bodies(paths: dict[str, Any], app: FastAPI) -> Iterator[tuple[str, type[pydantic.BaseModel]]]:
    """Add the request body to each operation that has one. Yields the models with their names."""
    for context in iter_route_contexts(app.routes):
        for dependency in context.dependant.dependencies if context.methods and context.include_in_schema else ():
            body = getattr(dependency.call, "__self__", None)
            if isinstance(body, JSONBody):
                name = body.model.__name__
                content = {"application/json": {"schema": {"$ref": _REFERENCE.format(model=name)}}}
                described = {"required": not _may_be_empty(body.model), "content": content}
                for method in context.methods or ():
                    paths[str(context.path_format)][method.lower()]["requestBody"] = described
                yield name, body.model
