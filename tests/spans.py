"""Spans that the code under test has ended."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from tidings.observability.opentelemetry_tracer import OpenTelemetryTracer
from tidings.observability.tracing import TRACES


def tracer(exporter: InMemorySpanExporter, **options: Any) -> OpenTelemetryTracer:
    """Return a tracer whose spans are in the exporter as soon as they end.

    options: arguments of the provider.
    """
    provider = TracerProvider(shutdown_on_exit=False, **options)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return OpenTelemetryTracer(provider)


@contextlib.contextmanager
def exported(**options: Any) -> Iterator[InMemorySpanExporter]:
    """Yield the spans of a tracer that is installed for the duration of the block."""
    exporter = InMemorySpanExporter()
    TRACES.tracer = tracer(exporter, **options)
    try:
        yield exporter
    finally:
        TRACES.tracer = None
