"""Spans: one per request and per reconcile, in one trace. Without tracing, nothing is imported."""

from __future__ import annotations

import subprocess
import sys

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from datum_compute.api.kinds import NAMESPACE
from datum_compute.api.meta.objects import Ref
from datum_compute.api.planes import HUB, path_prefix
from datum_compute.app.state_directory import StateError
from datum_compute.app.tracing import tracing
from datum_compute.client.client import Client
from datum_compute.client.transport.in_process import InProcessTransport
from datum_compute.runtime.controller import Controller, Done, Key, Outcome, for_
from datum_compute.runtime.worker import instrument
from datum_compute.telemetry.context import TRACEPARENT, Tracer
from datum_compute.telemetry.otel import otel_tracer
from testkit.api_server.running_server import TOKEN, InProcessServer, running_server

TRACE = "0af7651916cd43dd8448eb211c80319c"


class CollectedSpans:
    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        provider = TracerProvider(shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.tracer: Tracer = otel_tracer(provider)

    def spans(self) -> list[ReadableSpan]:
        return list(self._exporter.get_finished_spans())

    def named(self, name: str) -> ReadableSpan:
        (found,) = [span for span in self.spans() if span.name == name]
        return found

    def clear(self) -> None:
        self._exporter.clear()


def client_of(server: InProcessServer) -> Client:
    transport = InProcessTransport(server.api.dispatch)
    return Client(transport, prefix=path_prefix(HUB), token=TOKEN, agent="test")


def trace_of(span: ReadableSpan) -> str:
    assert span.context is not None
    return f"{span.context.trace_id:032x}"


async def test_a_request_is_a_span_that_continues_the_callers_trace() -> None:
    collected = CollectedSpans()
    async with running_server(tracer=collected.tracer) as server:
        collected.clear()
        sent = {"traceparent": f"00-{TRACE}-b7ad6b7169203331-01"}
        await server.ask("GET", "/planes/hub/api/v1/namespaces/default", headers=sent)
    span = collected.named("request")
    assert trace_of(span) == TRACE
    assert span.attributes is not None
    attributes = {k: v for k, v in span.attributes.items() if k != "datum.request"}
    assert attributes == {
        "http.request.method": "GET",
        "http.response.status_code": 200,
        "datum.plane": "hub",
        "datum.verb": "get",
        "datum.resource": "namespaces",
    }


async def test_a_malformed_traceparent_starts_a_new_trace() -> None:
    collected = CollectedSpans()
    async with running_server(tracer=collected.tracer) as server:
        collected.clear()
        for header in ("nonsense", "00-\x00-x-01", "00-" + "0" * 32 + "-" + "0" * 16 + "-01"):
            response = await server.ask("GET", "/version", headers={"traceparent": header})
            assert response.status == 200
    assert len(collected.spans()) == 3
    assert all(span.parent is None for span in collected.spans())


async def test_a_request_of_a_reconcile_belongs_to_its_trace() -> None:
    collected = CollectedSpans()
    async with running_server(tracer=collected.tracer) as server:
        client = client_of(server)

        async def reconcile(_context: None, key: Key) -> Outcome:
            await client.get(NAMESPACE, key.ref)
            return Done()

        plain = Controller(name="tests", role="hub", reconcile=reconcile, edges=(for_(NAMESPACE),))
        collected.clear()
        controller = instrument(plain, collected.tracer)
        await controller.reconcile(None, Key(HUB, Ref("", "default")))
        assert TRACEPARENT.get() == ""
    outer, inner = collected.named("reconcile"), collected.named("request")
    assert trace_of(outer) == trace_of(inner)
    assert inner.parent is not None
    assert outer.context is not None
    assert inner.parent.span_id == outer.context.span_id
    assert outer.attributes is not None
    assert outer.attributes["datum.object"] == "default"


async def test_the_span_of_a_failed_reconcile_has_an_error_status() -> None:
    collected = CollectedSpans()

    async def reconcile(_context: None, _key: Key) -> Outcome:
        raise ValueError("broken")

    plain = Controller(name="tests", role="hub", reconcile=reconcile, edges=(for_(NAMESPACE),))
    with pytest.raises(ValueError, match="broken"):
        await instrument(plain, collected.tracer).reconcile(None, Key(HUB, Ref("", "x")))
    assert not collected.named("reconcile").status.is_ok


async def test_without_a_tracer_no_header_is_sent() -> None:
    async with running_server() as server:
        assert (await client_of(server).get(NAMESPACE, Ref("", "default"))).metadata.name
        assert TRACEPARENT.get() == ""


def test_opentelemetry_is_imported_only_if_tracing_is_enabled() -> None:
    program = (
        "import sys, datum_compute.app.local_server, datum_compute.app.manager\n"
        "from datum_compute.app.tracing import tracing\n"
        "with tracing('', 'x') as tracer: assert tracer is None\n"
        "sys.exit(any(name.startswith('opentelemetry') for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_tracing_without_the_extra_names_the_extra_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("datum_compute.app.tracing.find_spec", lambda _name: None)
    with (
        pytest.raises(StateError, match=r"datum-compute\[otel\]"),
        tracing("http://127.0.0.1:4318", "x"),
    ):
        pass
