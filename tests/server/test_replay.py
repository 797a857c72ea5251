"""A watcher that replays the events of any sequence of requests has the state of the store.

Operations run against a small model of the object rules; schedules and ids come from a seed.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from random import Random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from datum_compute.api.http import MERGE_PATCH
from datum_compute.api.meta.codec import JsonObject
from testkit.api_server.running_server import (
    WORKLOADS,
    Events,
    InProcessServer,
    running_server,
    workload,
)
from testkit.sim.loop import run_virtual

NAMES = ("a", "b", "c")
HOLD = "example.com/hold"
MERGE = {"content-type": MERGE_PATCH}

names = st.sampled_from(NAMES)
operations = st.one_of(
    st.tuples(st.just("create"), names, st.booleans()),
    st.tuples(st.just("label"), names, st.sampled_from(["on", "off"])),
    st.tuples(st.just("image"), names, st.sampled_from(["web:1", "web:2"])),
    st.tuples(st.just("status"), names, st.integers(0, 3)),
    st.tuples(st.just("hold"), names, st.booleans()),
    st.tuples(st.just("put"), names, st.booleans()),
    st.tuples(st.just("delete"), names, st.booleans()),
)
Operation = tuple[str, str, Any]


@dataclass
class Expected:
    """The expected state of one object."""

    held: bool
    image: str = "web:1"
    label: str | None = None
    replicas: int | None = None
    generation: int = 1
    terminating: bool = False


@dataclass
class Model:
    objects: dict[str, Expected] = field(default_factory=dict)

    def apply(self, operation: Operation) -> int:
        """Return the expected status code."""
        action, name, value = operation
        found = self.objects.get(name)
        if action == "create":
            if found:
                return 409
            self.objects[name] = Expected(held=value)
            return 201
        if found is None:
            return 404
        return self._change(action, name, value, found)

    def _change(self, action: str, name: str, value: Any, found: Expected) -> int:
        match action:
            case "label":
                found.label = value
            case "image":
                found.generation += found.image != value
                found.image = value
            case "status":
                found.replicas = value
            case "hold" if value and found.terminating and not found.held:
                return 422
            case "hold":
                found.held = value
            case "put" if not value:
                return 409
            case "delete" if found.held:
                found.generation += not found.terminating
                found.terminating = True
            case "delete":
                del self.objects[name]
        if found.terminating and not found.held:
            self.objects.pop(name, None)
        return 200


async def perform(server: InProcessServer, operation: Operation) -> int:
    action, name, value = operation
    path = f"{WORKLOADS}/{name}"
    match action:
        case "create":
            body = workload(name, finalizers=[HOLD] if value else [])
            response = await server.ask("POST", WORKLOADS, body)
        case "label":
            response = await server.ask(
                "PATCH", path, {"metadata": {"labels": {"state": value}}}, headers=MERGE
            )
        case "image":
            patch = {"spec": workload(image=value)["spec"]}
            response = await server.ask("PATCH", path, patch, headers=MERGE)
        case "status":
            patch = {"status": {"replicas": value}}
            response = await server.ask("PATCH", f"{path}/status", patch, headers=MERGE)
        case "hold":
            patch = {"metadata": {"finalizers": [HOLD] if value else None}}
            response = await server.ask("PATCH", path, patch, headers=MERGE)
        case "put":
            response = await put(server, path, name, fresh=value)
        case _:
            response = await server.ask("DELETE", path)
    return response.status


async def put(server: InProcessServer, path: str, name: str, *, fresh: bool) -> Any:
    """Send the current object, or one with an old version."""
    read = await server.ask("GET", path)
    if read.status != 200 or fresh:
        body: Any = read.body if read.status == 200 else workload(name, resourceVersion="1")
        return await server.ask("PUT", path, body)
    return await server.ask("PUT", path, workload(name, resourceVersion="1"))


def read_fields(obj: JsonObject) -> Expected:
    metadata = obj["metadata"]
    container = obj["spec"]["template"]["spec"]["runtime"]["sandbox"]["containers"][0]
    return Expected(
        held=HOLD in metadata.get("finalizers", ()),
        image=container["image"],
        label=metadata.get("labels", {}).get("state"),
        replicas=obj.get("status", {}).get("replicas"),
        generation=metadata["generation"],
        terminating="deletionTimestamp" in metadata,
    )


async def replay_events(watch: Events) -> dict[str, JsonObject]:
    """Return the objects of a watcher after the last event, and check the order of events."""
    held: dict[str, JsonObject] = {}
    for kind, obj in await watch.rest():
        name, at = obj["metadata"]["name"], int(obj["metadata"]["resourceVersion"])
        assert kind in ("ADDED", "MODIFIED", "DELETED")
        match kind:
            case "ADDED":
                assert name not in held
                held[name] = obj
            case "MODIFIED":
                assert at > int(held[name]["metadata"]["resourceVersion"])
                held[name] = obj
            case "DELETED":
                assert at > int(held.pop(name)["metadata"]["resourceVersion"])
    return held


async def list_objects(server: InProcessServer, **query: str) -> dict[str, JsonObject]:
    items = (await server.json("GET", WORKLOADS, **query))["items"]
    return {item["metadata"]["name"]: item for item in items}


@settings(max_examples=150, deadline=None)
@given(st.lists(operations, max_size=40), st.integers(0, 2**32))
def test_server_and_watchers_have_the_state_of_the_model(todo: list[Operation], seed: int) -> None:
    async def main(_: object) -> None:
        async with running_server() as server:
            model = Model()
            everything = await server.watch(WORKLOADS)
            selection = await server.watch(WORKLOADS, labelSelector="state=on")
            for operation in todo:
                expected = model.apply(operation)
                assert await perform(server, operation) == expected, operation
            present = await list_objects(server)
            assert {name: read_fields(obj) for name, obj in present.items()} == model.objects
            late = await server.watch(WORKLOADS)
            at_end = {name: o for name, o in present.items() if read_fields(o).label == "on"}
            server_side = await list_objects(server, labelSelector="state=on")
            asyncio.get_running_loop().call_later(1, server.api.close_streams)
            held = await asyncio.gather(*map(replay_events, (everything, late, selection)))
            assert held == [present, present, at_end]
            assert server_side == at_end

    run_virtual(Random(seed), main)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(operations, max_size=12), min_size=2, max_size=5), st.integers(0, 2**32))
def test_watchers_have_the_state_of_the_store_after_concurrent_writes(
    writers: list[list[Operation]], seed: int
) -> None:
    async def main(_: object) -> None:
        async with running_server() as server:
            watch = await server.watch(WORKLOADS)

            async def write(todo: list[Operation]) -> list[int]:
                return [await perform(server, operation) for operation in todo]

            codes = await asyncio.gather(*map(write, writers))
            assert {code for answered in codes for code in answered} <= {200, 201, 404, 409, 422}
            present = await list_objects(server)
            asyncio.get_running_loop().call_later(1, server.api.close_streams)
            assert await replay_events(watch) == present

    run_virtual(Random(seed), main)
