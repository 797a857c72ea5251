"""Spans with OpenTelemetry. ``app/tracing.py`` imports this module only if tracing is enabled.

The module sets ``TRACEPARENT``, which the client sends, so that a request during a reconcile
continues the trace of the reconcile on the server. It is separate from ``app/tracing.py`` because
the extra ``otel`` is optional.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from opentelemetry.trace import SpanKind, TracerProvider
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from datum_compute.telemetry.context import TRACEPARENT, OpenSpan, Tracer


def otel_tracer(provider: TracerProvider) -> Tracer:
    tracer = provider.get_tracer("datum_compute")
    propagator = TraceContextTextMapPropagator()

    @contextmanager
    def span(name: str, attributes: Mapping[str, str], traceparent: str) -> Iterator[OpenSpan]:
        parent = traceparent or TRACEPARENT.get()
        carried = {"traceparent": parent} if parent else {}
        kind = SpanKind.SERVER if traceparent else SpanKind.INTERNAL
        with tracer.start_as_current_span(
            name, context=propagator.extract(carried), kind=kind, attributes=dict(attributes)
        ) as opened:
            carrier: dict[str, str] = {}
            propagator.inject(carrier)
            token = TRACEPARENT.set(carrier.get("traceparent", ""))
            try:
                yield opened
            finally:
                TRACEPARENT.reset(token)

    return span
