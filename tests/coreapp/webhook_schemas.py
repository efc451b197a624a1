"""JSON Schemas of the webhook bodies, below `tests/data/webhooks`."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).parents[1] / "data" / "webhooks"


def name_of(body: dict[str, Any]) -> str:
    """Return the name of the schema for a body."""
    if "statuses" in body:
        return f"status_{body['statuses'][0]['status']}"
    if "messages" in body:
        return f"inbound_{body['messages'][0]['type']}"
    return next(name for name in ("errors", "services", "contacts") if name in body)


def check(body: dict[str, Any]) -> None:
    """Raise for a body that does not match the reference."""
    _validator(name_of(body)).validate(body)


@functools.cache
def _validator(name: str) -> Any:
    jsonschema = pytest.importorskip("jsonschema")
    schema = json.loads((FOLDER / f"{name}.schema.json").read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)
