"""Traces: none by default, and configured by the standard variables."""

from __future__ import annotations

import subprocess
import sys

import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ParentBased

from tests.spans import tracer
from tidings.config import env
from tidings.installation.settings import ProcessSettings
from tidings.observability import tracing
from tidings.observability.opentelemetry_tracer import open_tracer
from tidings.observability.tracing import TRACES, Kind

CONTEXT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
ENDPOINT = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4318"}


@pytest.mark.parametrize(
    ("variables", "wanted"),
    [
        ({}, False),
        ({"OTEL_SERVICE_NAME": "x"}, False),
        (ENDPOINT, True),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://127.0.0.1:4318/v1/traces"}, True),
        ({**ENDPOINT, "OTEL_SDK_DISABLED": "true"}, False),
        ({**ENDPOINT, "OTEL_TRACES_EXPORTER": "none"}, False),
        ({**ENDPOINT, "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"}, True),
    ],
)
def test_an_endpoint_enables_traces_unless_they_are_turned_off(variables: dict[str, str], wanted: bool) -> None:
    assert tracing.are_wanted(variables) is wanted


def test_unusable_export_settings_stop_the_start(monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> None:
    variables = {**ENDPOINT, "TIDINGS_DATA_DIR": str(tmp_path)}
    with pytest.raises(env.SettingsError, match="only http/protobuf is supported"):
        ProcessSettings.read({**variables, "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"})
    monkeypatch.setattr(tracing, "_is_installed", lambda package: False)
    with pytest.raises(env.SettingsError, match=r"install tidings\[otel\]"):
        ProcessSettings.read(variables)


def test_opentelemetry_is_not_imported_without_traces() -> None:
    code = (
        "import sys, cli.process, coreapp.services;"
        "from tidings.observability import tracing\n"
        "with tracing.enabled('x', '1', wanted=False): assert tracing.TRACES.tracer is None\n"
        "assert tracing.start('x', '00-' + '1' * 32 + '-' + '1' * 16 + '-01', kind=tracing.Kind.CLIENT) is None\n"
        # Other libraries, for example the Redis client, may check whether the API is installed.
        "ours = ('opentelemetry.sdk.', 'opentelemetry.exporter', 'tidings.observability.opentelemetry')\n"
        "print([name for name in sys.modules if name.startswith(ours)])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.returncode) == ("[]\n", 0), done.stderr


@pytest.fixture
def exported() -> InMemorySpanExporter:
    return InMemorySpanExporter()


def test_a_span_continues_the_given_context(exported: InMemorySpanExporter) -> None:
    traces = tracer(exported)
    first = traces.start("first", CONTEXT, kind=Kind.SERVER, attributes={"a": 1})
    assert first is not None
    assert tracing.is_context(first.traceparent)
    second = traces.start("second", first.traceparent, kind=Kind.CLIENT)
    assert second is not None
    second.end(error="HTTP 500")
    first.end(name="renamed", attributes={"b": "c"})
    late, early = exported.get_finished_spans()
    assert f"{early.context.trace_id:032x}" == CONTEXT.split("-")[1]
    assert (early.name, dict(early.attributes), early.kind.name) == ("renamed", {"a": 1, "b": "c"}, "SERVER")
    assert late.parent.span_id == early.context.span_id
    assert (late.status.status_code.name, late.status.description) == ("ERROR", "HTTP 500")


@pytest.mark.parametrize("parent", ["", "nonsense", "00-" + "0" * 32 + "-" + "0" * 16 + "-01"])
def test_an_unusable_context_starts_a_new_trace(exported: InMemorySpanExporter, parent: str) -> None:
    span = tracer(exported).start("first", parent, kind=Kind.SERVER)
    assert span is not None
    span.end()
    (made,) = exported.get_finished_spans()
    assert made.parent is None


def test_an_unsampled_trace_has_no_span_and_no_context(exported: InMemorySpanExporter) -> None:
    unsampled = CONTEXT.removesuffix("01") + "00"
    assert tracer(exported).start("first", unsampled, kind=Kind.SERVER) is None
    traces = tracer(exported, sampler=ParentBased(ALWAYS_OFF))
    assert traces.start("first", kind=Kind.SERVER) is None
    assert not tracing.is_context(unsampled)
    assert not tracing.is_context("order-4711")


def test_an_unreachable_trace_receiver_does_not_delay_process_exit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
    monkeypatch.setenv("OTEL_SERVICE_NAME", "mine")
    monkeypatch.setattr("tidings.observability.opentelemetry_tracer.CLOSE_SECONDS", 0.2)
    with tracing.enabled("webapp", "1", wanted=True):
        assert TRACES.tracer is not None
        span = TRACES.tracer.start("x", kind=Kind.SERVER)
        assert span is not None
        span.end()
    assert TRACES.tracer is None
    made = open_tracer("webapp", "1")
    attributes = made._provider.resource.attributes
    assert (attributes["service.name"], attributes["tidings.process"]) == ("mine", "webapp")
    made.close()
