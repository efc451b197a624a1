"""Traces of single messages over all processes: free while nobody asks for them, by OpenTelemetry when somebody does.

A Webapp begins them, or goes on with a caller's. The context, W3C's `traceparent`, goes with a message over the link,
in its job, in the field of an envelope that the network may see, and to the webhook. What is not sampled has none.
"""

from __future__ import annotations

import contextlib
import enum
import importlib
import importlib.util
import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Protocol

from tidings.runtime import env

# What asks for traces, besides saying where they go.
ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
_PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
_OURS = "http/protobuf"
_IMPLEMENTATION = "tidings.runtime.opentelemetry_tracer"
_CONTEXT = re.compile(r"00-[0-9a-f]{32}-[0-9a-f]{16}-01")

Attributes = Mapping[str, str | int | float | bool]


class Kind(enum.Enum):
    """Part of a process in what is traced."""

    SERVER = "server"
    CONSUMER = "consumer"
    PRODUCER = "producer"
    CLIENT = "client"


class Span(Protocol):
    """Work on one message in one process. traceparent: for whoever goes on with it."""

    @property
    def traceparent(self) -> str: ...

    def end(self, *, name: str = "", error: str = "", attributes: Attributes | None = None) -> None:
        """It is done, or failed with an error. name: a better one than it began with."""
        ...


class Tracer(Protocol):
    """Begins spans. It neither waits nor raises."""

    def start(self, name: str, parent: str = "", *, kind: Kind, attributes: Attributes | None = None) -> Span | None:
        """parent: a `traceparent`, empty for a new trace. `None` for what is not sampled."""
        ...

    def close(self) -> None:
        """Export what has ended, for a few seconds at most."""
        ...


class Traces:
    """The tracer of this process, as its metrics are the process's; `None` while there are no traces."""

    def __init__(self) -> None:
        self.tracer: Tracer | None = None


TRACES = Traces()


def start(name: str, parent: str, *, kind: Kind, attributes: Attributes | None = None) -> Span | None:
    """Go on with a trace; `None` where there is none, or this process has no tracer."""
    tracer = TRACES.tracer
    return tracer.start(name, parent, kind=kind, attributes=attributes) if tracer is not None and parent else None


def is_context(text: str) -> bool:
    """Is it a `traceparent` that was sampled?"""
    return len(text) == 55 and _CONTEXT.fullmatch(text) is not None


def are_wanted(variables: Mapping[str, str]) -> bool:
    """Do the standard variables ask for traces? Raises `env.mistake` for what cannot be done."""
    if not any(variables.get(name) for name in ENDPOINTS):
        return False
    if variables.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return False
    if variables.get("OTEL_TRACES_EXPORTER", "otlp") == "none":
        return False
    protocol = next((variables[name] for name in _PROTOCOLS if variables.get(name)), _OURS)
    if protocol != _OURS:
        raise env.mistake(f"OTEL_EXPORTER_OTLP_PROTOCOL={protocol!r}: only {_OURS} is spoken")
    if not _is_installed("opentelemetry.exporter.otlp.proto.http"):
        raise env.mistake("OTEL_EXPORTER_OTLP_ENDPOINT needs OpenTelemetry: install tidings[otel]")
    return True


def _is_installed(package: str) -> bool:
    try:
        return importlib.util.find_spec(package) is not None
    except ModuleNotFoundError:
        return False


# For the settings of a process.
Wanted = Annotated[bool, env.made(lambda data: are_wanted(data["variables"]))]


@contextlib.contextmanager
def kept(process: str, version: str, *, wanted: bool) -> Iterator[None]:
    """Have a tracer meanwhile, if one is wanted. The SDK reads its variables by itself."""
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
