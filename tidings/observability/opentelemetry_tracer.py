"""Tracer that exports spans with OTLP over HTTP, as the standard variables configure it.

Imported only when tracing is enabled.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Mapping

from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Span, SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from tidings.observability.tracing import Attributes, Kind

CLOSE_SECONDS = 3.0

_KINDS = {
    Kind.SERVER: SpanKind.SERVER,
    Kind.CONSUMER: SpanKind.CONSUMER,
    Kind.PRODUCER: SpanKind.PRODUCER,
    Kind.CLIENT: SpanKind.CLIENT,
}


class OpenTelemetrySpan:
    """A sampled span of the SDK."""

    __slots__ = ("_span", "traceparent")

    def __init__(self, span: Span, traceparent: str) -> None:
        self._span = span
        self.traceparent = traceparent

    def end(self, *, name: str = "", error: str = "", attributes: Attributes | None = None) -> None:
        """See `tracing.Span`."""
        if name:
            self._span.update_name(name)
        if attributes:
            self._span.set_attributes(dict(attributes))
        if error:
            self._span.set_status(Status(StatusCode.ERROR, error))
        self._span.end()


class OpenTelemetryTracer:
    """Spans of one provider, independent of the SDK's global one."""

    def __init__(self, provider: TracerProvider, version: str = "") -> None:
        self._provider = provider
        self._tracer = provider.get_tracer("tidings", version)
        self._contexts = TraceContextTextMapPropagator()

    def start(
        self, name: str, parent: str = "", *, kind: Kind, attributes: Attributes | None = None
    ) -> OpenTelemetrySpan | None:
        """See `tracing.Tracer`."""
        context = Context()
        if parent:
            context = self._contexts.extract({"traceparent": parent}, context)
        span = self._tracer.start_span(name, context, _KINDS[kind], dict(attributes) if attributes else None)
        made = span.get_span_context()
        if not made.trace_flags.sampled:
            return None
        return OpenTelemetrySpan(span, f"00-{made.trace_id:032x}-{made.span_id:016x}-01")

    def close(self) -> None:
        """See `tracing.Tracer`."""
        # When the receiver is away, the SDK would block until it gives up.
        closing = threading.Thread(target=self._provider.shutdown, name="traces", daemon=True)
        closing.start()
        closing.join(CLOSE_SECONDS)


def open_tracer(process: str, version: str, variables: Mapping[str, str] = os.environ) -> OpenTelemetryTracer:
    """Return a tracer for a process.

    process: such as `webapp`; the service name is then `tidings-webapp` unless the variables name one.
    """
    attributes: dict[str, str] = {
        "service.version": version,
        "service.instance.id": f"{socket.gethostname()}:{os.getpid()}",
        "tidings.process": process,
    }
    if not variables.get("OTEL_SERVICE_NAME") and "service.name=" not in variables.get("OTEL_RESOURCE_ATTRIBUTES", ""):
        attributes["service.name"] = f"tidings-{process}"
    provider = TracerProvider(resource=Resource.create(attributes), shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return OpenTelemetryTracer(provider, version)
