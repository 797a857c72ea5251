"""I18: secrets are not leaked. Canary values are written everywhere and must not appear in output.

A Secret, bearer tokens and the values of environment variables are driven through deploys,
failing machines, refused and malformed requests, at debug level, with every telemetry on. Then
all output of the platform is searched: error responses, log lines in both formats, the audit log,
events, statuses, spans and metrics.
"""

from __future__ import annotations

import asyncio
import base64
import dataclasses
import io
import json
import logging
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client import CollectorRegistry

from datum_compute.api.compute.server import ServerSpec
from datum_compute.api.http import JSON_PATCH, MERGE_PATCH, PROTOBUF, YAML, Request, Response
from datum_compute.api.meta.codec import JsonObject, decode, encode
from datum_compute.api.planes import HUB, PLATFORM, cell_plane, path_prefix, project_plane
from datum_compute.app.environment import ProcessEnvironment
from datum_compute.app.platform import PlaneLayout, Platform, PlatformOptions, SecurityOptions
from datum_compute.app.state_credentials import PlaneTokens
from datum_compute.drivers.driver import NO_DATA, MachineData, PermanentError
from datum_compute.drivers.simulated.driver import MachineTable, SimulatedDriver
from datum_compute.server.access.audit import AuditEvent
from datum_compute.store.journal import MemoryJournal
from datum_compute.telemetry.logs import configure_logging
from datum_compute.telemetry.otel import otel_tracer
from testkit.api_server.running_server import workload
from testkit.sim.loop import VirtualLoop, run_virtual

PROJECT, CELL = project_plane("default"), cell_plane("dfw")
PREFIX = path_prefix(PROJECT)
SECRETS = f"{PREFIX}/api/v1/namespaces/default/secrets"
WORKLOADS = f"{PREFIX}/apis/compute.datumapis.com/v1alpha/namespaces/default/workloads"

DATA = "canary-of-secret-data"
DATA_ENCODED = base64.b64encode(DATA.encode()).decode()
TOKEN = "canary-of-the-project-token"
WRONG_TOKEN = "canary-of-a-wrong-token"
ENV = "canary-of-an-env-value"
CANARIES = (DATA, DATA_ENCODED.rstrip("="), TOKEN, WRONG_TOKEN, ENV, "canary-of-manager")


class FailingDriver(SimulatedDriver):
    """Rejects one of three starts, and raises an unexpected error at another one."""

    asked = 0

    async def start(self, machine_id: str, spec: ServerSpec, data: MachineData = NO_DATA) -> None:
        self.asked += 1
        if self.asked % 3 == 1:
            raise PermanentError("the image cannot be pulled")
        if self.asked % 3 == 2:
            raise RuntimeError("a defect of the driver")
        await super().start(machine_id, spec, data)


class OutputCollector:
    """Collects all output of the platform."""

    def __init__(self) -> None:
        self.audit: list[AuditEvent] = []
        self.answers: list[bytes] = []
        self.exporter = InMemorySpanExporter()
        self.registry = CollectorRegistry()

    def platform(self, loop: VirtualLoop) -> Platform:
        ids = iter(range(1, 1_000_000))
        environment = ProcessEnvironment(
            unix_s=lambda: 1_700_000_000 + loop.time(),
            new_uid=lambda: f"uid-{next(ids)}",
            new_suffix=lambda: f"{next(ids):05d}",
            random=Random(1),
        )
        provider = TracerProvider(shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        tokens = {plane: f"token-of-{plane}" for plane in (PLATFORM, HUB, CELL)}
        return Platform(
            PlaneLayout((PROJECT,), {CELL: FailingDriver(MachineTable(), now=environment.unix_s)}),
            environment,
            MemoryJournal(),
            PlaneTokens("canary-of-manager", {**tokens, PROJECT: TOKEN}),
            PlatformOptions(
                security=SecurityOptions(audit=self.audit.append),
                registry=self.registry,
                tracer=otel_tracer(provider),
            ),
        )

    def spans(self) -> str:
        return "\n".join(span.to_json() for span in self.exporter.get_finished_spans())


@dataclasses.dataclass
class Caller:
    platform: Platform
    collector: OutputCollector

    async def send(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        content: str = "application/json",
        token: str = TOKEN,
        **query: str,
    ) -> Response:
        sent = body if isinstance(body, bytes) else b"" if body is None else encode(body)
        headers = {"authorization": f"Bearer {token}", "content-type": content}
        request = Request(method, path, query, headers, sent)
        response = await self.platform.dispatch(request)
        assert response.status != 500, "this test does not cover internal errors"
        if response.status >= 400:
            self.collector.answers.append(response.body)
        return response


def secret(name: str, **more: Any) -> JsonObject:
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, **more}


def workload_with_env(name: str, value: Any = ENV, image: str = "web:1") -> JsonObject:
    found = workload(name, image=image)
    containers = found["spec"]["template"]["spec"]["runtime"]["sandbox"]["containers"]
    referred = {"name": "FROM", "valueFrom": {"secretKeyRef": {"name": "one", "key": "k"}}}
    containers[0]["env"] = [{"name": "PASSWORD", "value": value}, referred]
    containers[0]["envFrom"] = [{"secretRef": {"name": "two"}}]
    return found


async def use_secrets(caller: Caller) -> None:
    send = caller.send
    one = f"{SECRETS}/one"
    made = await send("POST", SECRETS, secret("one", data={"k": DATA_ENCODED}, immutable=True))
    assert made.status == 201
    assert (await send("POST", SECRETS, secret("two", stringData={"k": DATA}))).status == 201
    refused: list[tuple[str, str, Any, str]] = [
        ("POST", SECRETS, secret("one", data={"k": DATA_ENCODED}), ""),
        ("POST", SECRETS, secret("bad", data={"k": f"%{DATA}"}), ""),
        ("POST", SECRETS, secret("bad", data=DATA), ""),
        ("POST", SECRETS, secret("bad", data={"k": [DATA]}), ""),
        ("POST", SECRETS, secret("bad", stringData={"k": {"deep": DATA}}), ""),
        ("POST", SECRETS, secret("bad", type="kubernetes.io/tls", data={"k": DATA_ENCODED}), ""),
        ("POST", SECRETS, f'{{"kind": "Secret", "stringData": {{"k": "{DATA}"'.encode(), ""),
        ("POST", SECRETS, f"kind: Secret\nstringData: {{k: {DATA}".encode(), YAML),
        ("POST", SECRETS, b"k8s\x00" + DATA.encode(), PROTOBUF),
        ("PATCH", one, {"data": {"k": base64.b64encode(b"other").decode()}}, MERGE_PATCH),
        ("PATCH", one, [{"op": "test", "path": "/data/k", "value": DATA}], JSON_PATCH),
        ("PATCH", one, [{"op": "add", "path": "/x/y/z", "value": DATA}], JSON_PATCH),
        ("PATCH", one, {"data": DATA}, "application/apply-patch+yaml"),
        ("PUT", one, secret("one", stringData={"k": DATA}), ""),
    ]
    for method, path, body, content in refused:
        extra = {"fieldManager": "m"} if "apply" in content else {}
        given = await send(method, path, body, content=content or "application/json", **extra)
        assert given.status >= 400, (method, path, body)


async def use_tokens(caller: Caller) -> None:
    review = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenReview",
        "spec": {"token": WRONG_TOKEN},
    }
    path = "/apis/authentication.k8s.io/v1/tokenreviews"
    answer = await caller.send("POST", path, review, token=f"token-of-{PLATFORM}")
    assert answer.status == 201
    for token, path in (
        (WRONG_TOKEN, WORKLOADS),
        (TOKEN, "/api/v1/namespaces"),
        (TOKEN, "/planes/hub/api/v1/secrets"),
        (TOKEN, f"{PREFIX}/metrics"),
    ):
        assert (await caller.send("GET", path, token=token)).status in (401, 403)


async def use_environment(caller: Caller) -> None:
    send = caller.send
    assert (await send("POST", WORKLOADS, workload_with_env("web"))).status == 201
    await asyncio.sleep(120)
    for body in (
        workload_with_env("bad", value=[ENV]),
        workload_with_env("bad", value={"secret": ENV}),
        {
            **workload_with_env("bad"),
            "spec": {**workload_with_env("bad")["spec"], "placements": []},
        },
    ):
        assert (await send("POST", WORKLOADS, body)).status >= 400
    changed = workload_with_env("web", image="web:2")["spec"]
    patched = await send("PATCH", f"{WORKLOADS}/web", {"spec": changed}, content=MERGE_PATCH)
    assert patched.status == 200
    await asyncio.sleep(120)
    assert (await send("DELETE", f"{WORKLOADS}/web")).status == 200
    await asyncio.sleep(120)


@pytest.fixture
def log_stream() -> Iterator[io.StringIO]:
    root, ours = logging.getLogger(), logging.getLogger("datum_compute")
    handlers, level, own = root.handlers[:], root.level, ours.level
    yield io.StringIO()
    root.handlers[:] = handlers
    root.setLevel(level)
    ours.setLevel(own)


@pytest.mark.parametrize("log_format", ["json", "console"])
def test_no_output_contains_a_canary(log_stream: io.StringIO, log_format: str) -> None:
    configure_logging("debug", log_format, log_stream)
    collector = OutputCollector()
    kept: list[JsonObject] = []

    async def story(loop: VirtualLoop) -> None:
        platform = collector.platform(loop)
        await platform.load()
        running = loop.create_task(platform.run())
        await platform.ready.wait()
        caller = Caller(platform, collector)
        await use_secrets(caller)
        await use_tokens(caller)
        await use_environment(caller)
        for plane in platform.store.planes():
            for resource in platform.store.resources(plane):
                records = platform.store.snapshot(plane, resource).records
                kept.extend(decode(record.body) for record in records if resource != "secrets")
        page = await caller.send("GET", "/metrics", token=f"token-of-{PLATFORM}")
        collector.answers.append(page.body)
        running.cancel()

    run_virtual(Random(1), story)
    output = {
        "answers": b"\n".join(collector.answers).decode(),
        "log": log_stream.getvalue(),
        "audit": "\n".join(map(repr, collector.audit)),
        "spans": collector.spans(),
        "events and statuses": json.dumps([{**obj, "spec": None} for obj in kept]),
    }
    assert "a defect of the driver" in output["log"], "failed reconciles are logged"
    assert "InstanceCreated" in output["events and statuses"]
    assert "uid-" in output["audit"]
    assert len(collector.audit) < 1500, "a driver that fails causes no hot loop"
    assert '"request"' in output["spans"]
    found = [f"{c} in {where}" for c in CANARIES for where, text in output.items() if c in text]
    assert not found, found


def test_the_search_finds_a_canary_in_a_header_and_a_body() -> None:
    assert any(canary in f"Authorization: Bearer {TOKEN}" for canary in CANARIES)
    assert DATA_ENCODED.rstrip("=") in json.dumps(secret("one", data={"k": DATA_ENCODED}))
