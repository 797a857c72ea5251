"""Export of spans to a collector. OpenTelemetry is only imported if a collector is configured."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec

from datum_compute import __version__
from datum_compute.app.state_directory import StateError
from datum_compute.telemetry.context import Tracer

_SIGNAL_PATH = "/v1/traces"


@contextmanager
def tracing(endpoint: str, service: str) -> Iterator[Tracer | None]:
    """Yield a tracer, or None without an endpoint. The remaining spans are sent at the end."""
    if not endpoint:
        yield None
        return
    if find_spec("opentelemetry") is None or find_spec("opentelemetry.sdk") is None:
        raise StateError(
            "spans need OpenTelemetry: install datum-compute[otel], or leave --otlp-endpoint and "
            "OTEL_EXPORTER_OTLP_ENDPOINT out"
        )
    exporter = import_module("opentelemetry.exporter.otlp.proto.http.trace_exporter")
    export = import_module("opentelemetry.sdk.trace.export")
    sdk = import_module("opentelemetry.sdk.trace")
    resource = import_module("opentelemetry.sdk.resources").Resource.create(
        {"service.name": service, "service.version": __version__}
    )
    provider = sdk.TracerProvider(resource=resource, shutdown_on_exit=False)
    sender = exporter.OTLPSpanExporter(endpoint=endpoint.rstrip("/") + _SIGNAL_PATH, timeout=2)
    provider.add_span_processor(export.BatchSpanProcessor(sender))
    tracer: Tracer = import_module("datum_compute.telemetry.otel").otel_tracer(provider)
    try:
        yield tracer
    finally:
        provider.shutdown()
