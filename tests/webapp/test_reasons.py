"""The reason for a refusal is a sentence about a field, never the text of a validation library."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest

from tests.webapp.conftest import BODIES, Served, body, errors
from tests.webapp.message_cases import good
from tests.webapp.test_malformed import Operation, operations, with_each_value
from tidings.wire.codes import PARAMETER_INVALID, PARAMETER_MISSING
from webapp.api.messages import schemas
from webapp.api.templates.schemas import Definition
from webapp.http.bodies import check
from webapp.http.errors import InvalidRequest

# Each is invalid for most fields: in type, length, format or size.
WRONG = {
    "null": "null",
    "true": "true",
    "a number": "5",
    "a fraction": "-1.5",
    "a large number": str(2**62),
    "an empty string": '""',
    "a word": '"\u20ac uro"',
    "a long string": json.dumps("x" * 20_000),
    "an empty list": "[]",
    "a list of numbers": "[1]",
    "a long list": json.dumps([{}] * 600),
    "an object": "{}",
    "an object of another kind": '{"type": "nothing", "id": []}',
}
OF_VALIDATORS = re.compile(
    r"valid (string|integer|number|boolean|list|dict|tuple)|Input |Value error|pydantic|msgspec|\bmatch|pattern"
    r"|\^|\$|\[[a-zA-Z0-9]-|\{\d|\\[a-zA-Z]|greater than|less than or|String |List |Tag |Object |\bunion\b|malformed"
    r"|openapi"
)
# Template lists have the template's name in brackets.
NAMED = re.compile(r"([A-Za-z_#/-]+|\[\d+\])(\[\d+\]|\.[A-Za-z0-9_]+)*( \(.*\))?: \S", re.DOTALL)


def without_each_field(value: Any) -> Iterator[Any]:
    """Yield copies of a body, each without one of its fields at any depth."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        if isinstance(value, dict):
            yield {name: other for name, other in value.items() if name != key}
        for changed in without_each_field(inner):
            copy = dict(value) if isinstance(value, dict) else list(value)
            copy[key] = changed
            yield copy


def is_a_sentence(code: int, details: str, sent: str) -> bool:
    """Assert that the details are a sentence, and return whether it names a field."""
    assert not OF_VALIDATORS.search(details), f"{details!r} for {sent[:500]}"
    named = code in (PARAMETER_MISSING, PARAMETER_INVALID)
    assert not named or NAMED.match(details), f"{details!r} for {sent[:500]}"
    return named


async def count_told(api: Served, operation: Operation, texts: Iterable[str]) -> int:
    """Return how many of the bodies were refused with the name of a field."""
    told = 0
    for text in texts:
        response = await api.http.request(
            operation.method, operation.path, content=text.encode(), headers=operation.headers
        )
        if response.status_code >= 400:
            assert response.status_code < 500, text[:500]
            sent = f"{operation.method} {operation.path} {text}"
            told += sum(is_a_sentence(error["code"], error["details"], sent) for error in errors(response)) > 0
    return told


@pytest.mark.parametrize("name", WRONG)
async def test_every_operation_explains_an_invalid_value_in_a_sentence(api: Served, name: str) -> None:
    told = 0
    for operation in await operations(api):
        told += await count_told(api, operation, with_each_value(operation.good, WRONG[name]))
    assert told > 5


async def test_every_operation_explains_a_missing_field_in_a_sentence(api: Served) -> None:
    for operation in await operations(api):
        await count_told(api, operation, map(json.dumps, without_each_field(operation.good)))
        await count_told(api, operation, ["", "[", '{"a":', "nonsense", str(2**70), "[1]"])


@pytest.mark.parametrize("path", ["/v1/stats/app", "/v1/stats/db", "/metrics", "/v1/settings/profile/photo"])
async def test_invalid_query_parameters_are_explained_in_a_sentence(api: Served, path: str) -> None:
    for given in ("x", "", "1", "[]"):
        response = await api.http.get(path, params={"format": given})
        assert response.status_code == 400
        assert is_a_sentence(errors(response)[0]["code"], errors(response)[0]["details"], given)


@pytest.mark.parametrize("file", sorted(file.stem for file in (BODIES / "messages").glob("*.json")))
def test_every_message_type_explains_errors_in_sentences(file: str) -> None:
    for case in good(file):
        message = case.values[0]
        if not isinstance(message, dict):
            continue
        for text in (
            *(text for wrong in WRONG.values() for text in with_each_value(message, wrong)),
            *map(json.dumps, without_each_field(message)),
        ):
            refused(schemas.read, text)


def test_template_definitions_explain_errors_in_sentences() -> None:
    for definition in body("templates_good"):
        for wrong in WRONG.values():
            for text in with_each_value(definition, wrong):
                refused(functools.partial(check, Definition), text)


def refused(take: Callable[[object], object], text: str) -> None:
    try:
        take(json.loads(text))
    except InvalidRequest as error:
        for problem in error.problems:
            is_a_sentence(problem.code, problem.details, text)
