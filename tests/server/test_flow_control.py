"""Fair sharing between the users of a server. Work is counted: each reading of the clock costs a
fixed time, so every piece of work between two waits costs as much as every other."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import count
from random import Random

from prometheus_client import CollectorRegistry

from datum_compute.api.http import MERGE_PATCH, Request, Response
from datum_compute.api.meta.codec import decode
from datum_compute.client.transport.in_process import InProcessTransport
from datum_compute.client.transport.retry import RetryingTransport
from datum_compute.server.access.authentication import User
from datum_compute.server.flowcontrol.control import SLICE_S, FlowLimits
from datum_compute.server.metrics import ServerMetrics
from testkit.api_server.granting import RBAC, cluster_binding, cluster_role, rule, user
from testkit.api_server.running_server import (
    PROJECT,
    WORKLOADS,
    InProcessServer,
    running_server,
    workload,
)

ANN, BOB = "token-of-ann", "token-of-bob"
USERS = {token: User(name, (), frozenset({"*"})) for token, name in ((ANN, "ann"), (BOB, "bob"))}
STEP_S = 0.0003


@dataclass
class StepClock:
    """A clock that stops until ``step_s`` is set; then every reading advances it by that."""

    step_s: float = 0.0
    now_s: float = 0.0

    def __call__(self) -> float:
        self.now_s += self.step_s
        return self.now_s


@asynccontextmanager
async def busy_server(
    clock: StepClock, limits: FlowLimits | None = None
) -> AsyncIterator[InProcessServer]:
    """Ann and bob may do everything with workloads on the platform and in the project."""
    registry = ServerMetrics(CollectorRegistry())
    async with running_server(
        users=USERS, work_clock=clock, flow_limits=limits, metrics=registry
    ) as server:
        verbs = "get list watch create update patch delete deletecollection"
        for prefix in ("", PROJECT):
            path = f"{prefix}{RBAC}"
            held = cluster_role("held", rule(verbs, "workloads"))
            await server.json("POST", f"{path}/clusterroles", held)
            bound = cluster_binding("held", "held", user("ann"), user("bob"))
            await server.json("POST", f"{path}/clusterrolebindings", bound)
            await server.json("POST", f"{prefix}{WORKLOADS}", workload("web"))
        clock.step_s = STEP_S
        yield server


def flood(server: InProcessServer, requests: int, ended: list[str]) -> list[asyncio.Task[Response]]:
    async def get() -> Response:
        response = await server.ask("GET", f"{PROJECT}{WORKLOADS}/web", token=ANN)
        ended.append("ann")
        return response

    return [asyncio.create_task(get()) for _ in range(requests)]


async def test_a_request_of_another_plane_overtakes_a_flood() -> None:
    async with busy_server(StepClock(), FlowLimits(flow_requests_max=5000)) as server:
        ended: list[str] = []
        tasks = flood(server, 1000, ended)
        for _ in range(3):
            await asyncio.sleep(0)
        before = len(ended)
        await server.json("GET", f"{WORKLOADS}/web", token=BOB)
        assert len(ended) - before < 10
        before = len(ended)
        patch = {"metadata": {"labels": {"a": "b"}}}
        headers = {"content-type": MERGE_PATCH}
        await server.json("PATCH", f"{WORKLOADS}/web", patch, token=BOB, headers=headers)
        assert len(ended) - before < 30
        assert all(response.status == 200 for response in await asyncio.gather(*tasks))


async def test_too_many_waiting_requests_get_429_and_our_client_tries_again() -> None:
    limits = FlowLimits(flow_requests_max=20, rejection_delay_s=0)
    async with busy_server(StepClock(), limits) as server:
        tasks = flood(server, 200, [])
        responses = await asyncio.gather(*tasks)
        rejected = [response for response in responses if response.status == 429]
        assert len(rejected) > 100
        assert rejected[0].headers["retry-after"] == "1"
        status = decode(rejected[0].body)
        assert status["reason"] == "TooManyRequests"
        assert status["details"]["retryAfterSeconds"] == 1
        page = (await server.ask("GET", "/metrics")).body.decode()
        counted = 'datum_apiserver_flow_rejected_total{level="users",reason="queue-full"}'
        assert f"{counted} {len(rejected)}.0" in page


async def test_an_operator_is_served_while_users_flood_the_server() -> None:
    async with busy_server(StepClock(), FlowLimits(flow_requests_max=5000)) as server:
        ended: list[str] = []
        tasks = flood(server, 500, ended)
        await asyncio.sleep(0)
        before = len(ended)
        for number in range(20):
            await server.json("GET", f"{WORKLOADS}/web", resourceVersion="0" if number else "")
        assert len(ended) == before  # reads of masters never wait, so no other request ran
        await asyncio.gather(*tasks)


async def test_a_request_without_valid_credentials_waits_behind_others() -> None:
    async with busy_server(StepClock()) as server:
        ended: list[str] = []

        async def ask(number: int) -> None:
            response = await server.ask("GET", WORKLOADS, token=f"wrong-{number}")
            assert response.status == 401
            ended.append("anonymous")

        anonymous_requests = [asyncio.create_task(ask(number)) for number in range(100)]
        await asyncio.sleep(0)
        await asyncio.gather(*flood(server, 50, ended))
        assert ended.count("anonymous") < 60
        await asyncio.gather(*anonymous_requests)


async def test_what_a_watch_encodes_is_charged_to_its_user() -> None:
    clock = StepClock()
    async with busy_server(clock) as server:
        watches = [await server.watch(f"{PROJECT}{WORKLOADS}", token=ANN) for _ in range(20)]
        for events in watches:
            assert await events.names(1) == [("ADDED", "web")]
        before_s = await work_s(server)
        await server.merge(f"{PROJECT}{WORKLOADS}/web", {"metadata": {"labels": {"a": "b"}}})
        for events in watches:
            assert await events.names(1) == [("MODIFIED", "web")]
        assert await work_s(server) - before_s >= 20 * STEP_S


async def test_many_watches_of_a_user_do_not_delay_another_user() -> None:
    async with busy_server(StepClock()) as server:
        watches = [await server.watch(f"{PROJECT}{WORKLOADS}", token=ANN) for _ in range(300)]
        received: list[str] = []

        async def receive(number: int) -> None:
            await watches[number].names(2)
            received.append("event")

        tasks = [asyncio.create_task(receive(number)) for number in range(len(watches))]
        for _ in range(3):
            await asyncio.sleep(0)
        before = len(received)
        await server.json("GET", f"{WORKLOADS}/web", token=BOB)
        assert len(received) - before < 20
        await server.merge(f"{PROJECT}{WORKLOADS}/web", {"metadata": {"labels": {"a": "b"}}})
        await asyncio.gather(*tasks)


async def test_an_open_watch_does_not_count_as_waiting() -> None:
    async with busy_server(StepClock(), FlowLimits(flow_requests_max=5)) as server:
        watches = [await server.watch(f"{PROJECT}{WORKLOADS}", token=ANN) for _ in range(50)]
        for events in watches:
            await events.names(1)
        assert (await server.ask("GET", f"{PROJECT}{WORKLOADS}/web", token=ANN)).status == 200


async def test_lists_and_deletions_of_many_objects_give_up_the_loop() -> None:
    clock = StepClock()
    async with busy_server(clock, FlowLimits(flow_requests_max=5000)) as server:
        clock.step_s = 0.0
        for number in range(150):
            await server.json("POST", f"{PROJECT}{WORKLOADS}", workload(f"w{number}"))
        clock.step_s = SLICE_S / 2
        table = {"accept": "application/json;as=Table;g=meta.k8s.io;v=v1"}
        for method, headers in (("GET", None), ("GET", table), ("DELETE", None)):
            path = f"{PROJECT}{WORKLOADS}"
            asked = server.ask(method, path, token=ANN, headers=headers, labelSelector="!absent")
            task = asyncio.create_task(asked)
            passes = count()
            while not task.done():
                next(passes)
                await asyncio.sleep(0)
            response = task.result()
            assert response.status == 200, response.body
            body = decode(response.body)
            assert len(body["rows" if headers else "items"]) == 151
            assert next(passes) > 8, method


async def test_a_rejected_controller_is_retried_by_its_transport() -> None:
    """The client waits for Retry-After."""
    limits = FlowLimits(flow_requests_max=0, rejection_delay_s=0, retry_after_s=0)
    async with busy_server(StepClock(), limits) as server:
        clocks = flood(server, 20, [])
        transport = RetryingTransport(InProcessTransport(server.api.dispatch), Random(1))
        request = Request(
            "GET", f"{PROJECT}{WORKLOADS}/web", {}, {"authorization": f"Bearer {ANN}"}, b""
        )
        assert (await transport.send(request)).status == 200
        await asyncio.gather(*clocks)


async def work_s(server: InProcessServer) -> float:
    page = (await server.ask("GET", "/metrics")).body.decode()
    line = next(
        line
        for line in page.splitlines()
        if line.startswith('datum_apiserver_flow_work_seconds_total{level="users"}')
    )
    return float(line.rpartition(" ")[2])


async def test_invented_planes_give_no_share_of_their_own() -> None:
    clock = StepClock()
    async with busy_server(clock) as server:
        flows = server.api._flow_control._queue
        await server.ask("GET", f"{PROJECT}{WORKLOADS}/web", token=ANN)
        before = flows.count_flows()
        for number in range(20):
            path = PROJECT.replace("/demo/", f"/invented-{number}/")
            response = await server.ask("GET", f"{path}{WORKLOADS}/web", token=ANN)
            assert response.status == 403
            response = await server.ask("GET", f"{path}{WORKLOADS}/web", token="unknown")
            assert response.status == 401
        assert flows.count_flows() - before <= 2  # on the platform: of ann and without credentials
