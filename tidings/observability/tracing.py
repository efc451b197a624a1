"""Traces of single messages across all processes, by OpenTelemetry; they cost nothing while disabled.

A Webapp starts a trace, or continues a client's. The context, W3C's `traceparent`, travels with a message over the
link, in its job, in a field of the envelope that the network can read, and to the webhook. It is only passed on when
the trace is sampled.
"""

from __future__ import annotations

import contextlib
import enum
import importlib
import importlib.util
import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Protocol

from tidings.config import env

# Variables that enable traces and name the receiver.
ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
_PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
_OURS = "http/protobuf"
_IMPLEMENTATION = "tidings.observability.opentelemetry_tracer"
_CONTEXT = re.compile(r"00-[0-9a-f]{32}-[0-9a-f]{16}-01")

Attributes = Mapping[str, str | int | float | bool]


class Kind(enum.Enum):
    """OpenTelemetry span kind: role of a process in a traced operation."""

    SERVER = "server"
    CONSUMER = "consumer"
    PRODUCER = "producer"
    CLIENT = "client"


class Span(Protocol):
    """Work on one message in one process. `traceparent` is the context for the work that follows."""

    @property
    def traceparent(self) -> str: ...

    def end(self, *, name: str = "", error: str = "", attributes: Attributes | None = None) -> None:
        """End the span, with success or an error. name: replaces the initial name."""


class Tracer(Protocol):
    """Starts spans. Its methods neither wait nor raise."""

    def start(self, name: str, parent: str = "", *, kind: Kind, attributes: Attributes | None = None) -> Span | None:
        """Start a span; `None` when it is not sampled. parent: a `traceparent`, empty for a new trace."""

    def close(self) -> None:
        """Export the spans that have ended, for a few seconds at most."""


class Traces:
    """Holder of this process's tracer, global like its metrics; the tracer is `None` when tracing is disabled."""

    def __init__(self) -> None:
        self.tracer: Tracer | None = None


TRACES = Traces()


def start(name: str, parent: str, *, kind: Kind, attributes: Attributes | None = None) -> Span | None:
    """Start a span in an existing trace; `None` without a parent, or when tracing is disabled."""
    tracer = TRACES.tracer
    return tracer.start(name, parent, kind=kind, attributes=attributes) if tracer is not None and parent else None


def is_context(text: str) -> bool:
    """Return whether the text is a `traceparent` of a sampled trace."""
    return len(text) == 55 and _CONTEXT.fullmatch(text) is not None


def are_wanted(variables: Mapping[str, str]) -> bool:
    """Return whether the standard variables enable traces. Raises `env.mistake` for an unsupported value."""
    if not any(variables.get(name) for name in ENDPOINTS):
        return False
    if variables.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return False
    if variables.get("OTEL_TRACES_EXPORTER", "otlp") == "none":
        return False
    protocol = next((variables[name] for name in _PROTOCOLS if variables.get(name)), _OURS)
    if protocol != _OURS:
        raise env.mistake(f"OTEL_EXPORTER_OTLP_PROTOCOL={protocol!r}: only {_OURS} is supported")
    if not _is_installed("opentelemetry.exporter.otlp.proto.http"):
        raise env.mistake("OTEL_EXPORTER_OTLP_ENDPOINT requires OpenTelemetry: install tidings[otel]")
    return True


def _is_installed(package: str) -> bool:
    try:
        return importlib.util.find_spec(package) is not None
    except ModuleNotFoundError:
        return False


# Type of a settings field.
Wanted = Annotated[bool, env.computed(lambda data: are_wanted(data["variables"]))]


@contextlib.contextmanager
def enabled(process: str, version: str, *, wanted: bool) -> Iterator[None]:
    """Provide a tracer within the block, if one is wanted. The SDK reads its variables itself."""
    if not wanted:
        yield
        return
    implementation: Any = importlib.import_module(_IMPLEMENTATION)
    tracer: Tracer = implementation.open_tracer(process, version)
    TRACES.tracer = tracer
    try:
        yield
    finally:
        TRACES.tracer = None
        tracer.close()
