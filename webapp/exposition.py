"""Metrics in the two forms of the API: JSON, and Prometheus text."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Literal

import prometheus_client
from fastapi import Depends, Query, Request, Response
from prometheus_client import Metric
from pydantic import WithJsonSchema

from tidings.wire.codes import PARAMETER_INVALID
from webapp import answers, headers
from webapp.errors import InvalidRequest

Format = Literal["json", "prometheus"]
# Of the parameter `format`, which `choose` checks.
Parameter = Annotated[str | None, Query(), WithJsonSchema({"type": "string", "enum": ["json", "prometheus"]})]

OPENAPI: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "JSON, or text with format=prometheus",
        "content": {
            "application/json": {"schema": {"type": "object"}},
            "text/plain": {"schema": {"type": "string"}},
        },
    }
}


class _Families:
    """Metrics in the form of a registry, for `generate_latest`."""

    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families


async def choose(request: Request, format: Parameter = None) -> Format:
    """The form that `format` asks for, or an `Accept` with Prometheus's types; else JSON. Raises `InvalidRequest`.

    Many programs that want JSON name `text/plain`, too.
    """
    if format == "json" or format == "prometheus":
        return format  # type: ignore[return-value]
    if format is not None:
        raise InvalidRequest.because(PARAMETER_INVALID, "format: should be json or prometheus")
    accept = headers.find(request.scope, b"accept") or b""
    wants_text = b"openmetrics" in accept or b"text/plain" in accept
    return "prometheus" if wants_text and b"application/json" not in accept else "json"


# For the signature of a route.
Form = Annotated[Format, Depends(choose)]


def answer(form: Format, path: Sequence[str], nodes: Mapping[str, Sequence[Metric]]) -> Response:
    """The metrics of one process under the key "", or of several under their names.

    path: the keys around them in JSON.
    """
    if form == "prometheus":
        text = prometheus_client.generate_latest(_Families(_merge(nodes)))
        return Response(text, media_type=prometheus_client.CONTENT_TYPE_LATEST)
    content: Any = {name: as_json(families) for name, families in nodes.items()}
    if set(nodes) <= {""}:
        content = content.get("", {})
    for key in reversed(path):
        content = {key: content}
    return answers.answer(content)


def as_json(families: Iterable[Metric]) -> dict[str, Any]:
    """By name: type, help and the values with their labels. What is no number is left out."""
    found: dict[str, Any] = {}
    for family in families:
        kind = "gauge" if family.type in ("gauge", "unknown", "info", "stateset") else "counter"
        for sample in family.samples:
            if sample.name.endswith("_created") or not math.isfinite(sample.value):
                continue
            name = family.name if family.type == "counter" else sample.name
            entry = found.setdefault(name, {"type": kind, "help": family.documentation, "data": []})
            value = int(sample.value) if float(sample.value).is_integer() else sample.value
            entry["data"].append({"labels": dict(sample.labels), "value": value})
    return found


def _merge(nodes: Mapping[str, Sequence[Metric]]) -> list[Metric]:
    """One family for each name; with several nodes each sample says whose it is."""
    merged: dict[str, Metric] = {}
    for node, families in nodes.items():
        for family in families:
            into = merged.setdefault(family.name, Metric(family.name, family.documentation, family.type))
            for sample in family.samples:
                if not sample.name.endswith("_created"):
                    labels = {**sample.labels, "node": node} if node else sample.labels
                    into.samples.append(sample._replace(labels=labels))
    return list(merged.values())
