"""Metrics in the two formats of the API: JSON and Prometheus text."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Literal

import prometheus_client
from fastapi import Depends, Query, Request, Response
from prometheus_client import Metric
from pydantic import WithJsonSchema

from tidings.wire.codes import PARAMETER_INVALID
from webapp.http import headers, responses
from webapp.http.errors import InvalidRequest

Format = Literal["json", "prometheus"]
# Type of the parameter `format`, which `choose` checks.
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
    """Metrics with the interface of a registry, for `generate_latest`."""

    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families


async def choose(request: Request, format: Parameter = None) -> Format:
    """Return the format that `format` or an `Accept` header with a type of Prometheus names; else JSON.

    An `Accept` header that names JSON as well selects JSON, since many clients also list `text/plain`. Raises
    `InvalidRequest`.
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


def respond(form: Format, path: Sequence[str], nodes: Mapping[str, Sequence[Metric]]) -> Response:
    """Return the metrics of one process under the key "", or of several processes under their names.

    path: keys around the metrics in JSON, from the outermost
    """
    if form == "prometheus":
        text = prometheus_client.generate_latest(_Families(_merge(nodes)))
        return Response(text, media_type=prometheus_client.CONTENT_TYPE_LATEST)
    content: Any = {name: as_json(families) for name, families in nodes.items()}
    if set(nodes) <= {""}:
        content = content.get("", {})
    for key in reversed(path):
        content = {key: content}
    return responses.success(content)


def as_json(families: Iterable[Metric]) -> dict[str, Any]:
    """Return metrics by name: type, help, and the values with their labels. Values that are not finite are left out."""
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
    """Merge the families by name. With several nodes each sample gets a label that names its node."""
    merged: dict[str, Metric] = {}
    for node, families in nodes.items():
        for family in families:
            into = merged.setdefault(family.name, Metric(family.name, family.documentation, family.type))
            for sample in family.samples:
                if not sample.name.endswith("_created"):
                    labels = {**sample.labels, "node": node} if node else sample.labels
                    into.samples.append(sample._replace(labels=labels))
    return list(merged.values())
