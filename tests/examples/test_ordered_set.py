"""The tutorial converges although requests, watches and processes fail."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import AsyncGenerator
from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from datum_compute.api.errors import ApiError, NotFound, Unreachable
from datum_compute.api.http import Request, Response
from datum_compute.api.meta.codec import decode
from datum_compute.api.meta.objects import ObjectMeta, Ref
from datum_compute.api.planes import HUB
from datum_compute.app.controllers import ServedPlanes, build_manager
from datum_compute.app.environment import ProcessEnvironment
from datum_compute.client.client import Client
from datum_compute.client.transport.interface import is_watch
from datum_compute.controllers import registry
from datum_compute.planes.bootstrap import ensure_plane
from datum_compute.planes.planes import Planes
from datum_compute.runtime.manager import Manager
from examples.ordered_set.__main__ import define
from examples.ordered_set.controllers import controllers
from examples.ordered_set.kinds import (
    FINALIZER,
    MEMBER,
    ORDERED_SET,
    Member,
    MemberStatus,
    OrderedSet,
    OrderedSetSpec,
)
from examples.ordered_set.plan import Plan, plan_ordered_set
from testkit.sim.loop import HOST, VirtualLoop, run_virtual
from tests.runtime.planes_in_process import InProcessPlanes

# --- the planner alone


def a_set(replicas: int, image: str, *, terminating: bool = False) -> OrderedSet:
    return OrderedSet(
        metadata=ObjectMeta(
            name="web",
            uid="u",
            finalizers=[FINALIZER],
            deletion_timestamp="2026-01-01T00:00:00Z" if terminating else None,
        ),
        spec=OrderedSetSpec(replicas=replicas, image=image),
    )


def apply_plan(members: dict[int, Member], plan: Plan) -> None:
    """Apply one plan. A new member is ready immediately."""
    if plan.delete is not None:
        del members[plan.delete.spec.ordinal]
    if plan.create is not None:
        ready = msgspec.structs.replace(plan.create, status=MemberStatus(ready=True))
        members[plan.create.spec.ordinal] = ready


def a_member(ordinal: int, image: str, ready: bool) -> Member:
    made = plan_ordered_set(a_set(1, image), []).create
    assert made is not None
    spec = msgspec.structs.replace(made.spec, ordinal=ordinal)
    return msgspec.structs.replace(made, spec=spec, status=MemberStatus(ready=ready))


existing_members = st.dictionaries(
    st.integers(0, 6), st.tuples(st.sampled_from(["web:1", "web:2"]), st.booleans())
)


@given(existing_members, st.integers(0, 5), st.booleans())
def test_plans_reach_the_desired_state_from_every_state_and_stop(
    existing: dict[int, tuple[str, bool]], replicas: int, terminating: bool
) -> None:
    desired = a_set(replicas, "web:2", terminating=terminating)
    members = {n: a_member(n, image, ready) for n, (image, ready) in existing.items()}
    for _ in range(50):
        plan = plan_ordered_set(desired, list(members.values()))
        if plan.is_waiting:  # the plan waits for a member to start
            members = {
                n: msgspec.structs.replace(m, status=MemberStatus(ready=True))
                for n, m in members.items()
            }
        apply_plan(members, plan)
    assert plan_ordered_set(desired, list(members.values())) == plan
    assert sorted(members) == list(range(0 if terminating else replicas))
    assert all(m.spec.image == "web:2" for m in members.values())
    assert plan.release == terminating


@given(existing_members, st.integers(0, 5))
def test_members_are_created_in_ascending_and_deleted_in_descending_order(
    existing: dict[int, tuple[str, bool]], replicas: int
) -> None:
    members = [a_member(n, image, ready) for n, (image, ready) in existing.items()]
    plan = plan_ordered_set(a_set(replicas, "web:2"), members)
    if plan.create is not None:
        below = [m for m in members if m.spec.ordinal < plan.create.spec.ordinal]
        assert [m.spec.ordinal for m in sorted(below, key=lambda m: m.spec.ordinal)] == list(
            range(plan.create.spec.ordinal)
        )
        assert all(m.status.ready for m in below)
    if plan.delete is not None and plan.delete.spec.ordinal >= replicas:
        assert plan.delete.spec.ordinal == max(existing)


# --- with the real server, and faults between it and the controllers


class FaultyTransport:
    """A transport between controllers and server that fails at random until ``calm`` is set."""

    def __init__(self, planes: InProcessPlanes, random: Random) -> None:
        self.planes = planes
        self.random = random
        self.calm = False
        self.broken: list[str] = []

    async def send(self, request: Request) -> Response:
        luck = 1.0 if self.calm else self.random.random()
        await asyncio.sleep(0.001 if self.calm else self.random.uniform(0, 0.05))
        if luck < 0.08:
            raise Unreachable("the request was lost")
        if request.method == "POST" and request.path.endswith("/members"):
            await self._check_order(decode(request.body))
        response = await self.planes.server.dispatch(request)
        if is_watch(request) and response.stream is not None:
            return Response(200, stream=self._chunks(response.stream, luck))
        if luck < 0.16:
            raise Unreachable("the response was lost")
        return response

    async def _chunks(self, stream: Any, luck: float) -> AsyncGenerator[bytes, None]:
        """Forward a watch that may end early, lag, or stop sending without an end."""
        seen = 0
        async for chunk in stream:
            seen += 1
            if not self.calm and luck < 0.3 and seen > 3:
                await asyncio.sleep(1000)
            if not self.calm and luck < 0.6 and seen > 5:
                return
            if not self.calm:
                await asyncio.sleep(self.random.uniform(0, 0.1))
            yield chunk

    async def _check_order(self, body: dict[str, Any]) -> None:
        """Record the creation of a member before all members with lower ordinals are ready."""
        ordinal = body["spec"]["ordinal"]
        stored = await self.planes.client().list(MEMBER)
        ready = {m.spec.ordinal for m in stored.items if m.status.ready}
        present = {m.spec.ordinal for m in stored.items}
        if not set(range(ordinal)) <= ready and ordinal not in present:
            self.broken.append(f"member {ordinal} was created while only {sorted(ready)} are ready")


class Story:
    """A server, the controllers of the tutorial in processes that restart, and a user."""

    def __init__(self, loop: VirtualLoop, seed: int) -> None:
        self.loop = loop
        self.random = Random(f"story-{seed}")
        self.planes = InProcessPlanes(loop)
        self.transport = FaultyTransport(self.planes, Random(f"chaos-{seed}"))
        self.starts = 0

    async def start(self) -> None:
        client = await self.planes.create()
        await ensure_plane(client, HUB)
        await define(client)
        environment = ProcessEnvironment(self.loop.time, lambda: "uid", lambda: "suffix", Random(1))
        platform_manager = build_manager(
            registry.CLUSTER, {}, environment, served=ServedPlanes(self.planes.server.inventory)
        )
        platform_manager.engage(HUB, client)
        self.loop.create_task(platform_manager.run())
        self.start_controllers()

    def start_controllers(self) -> None:
        """Kill the previous process, if any, and start a new one."""
        self.loop.kill(f"process-{self.starts}")
        self.starts += 1
        context = contextvars.copy_context()
        context.run(HOST.set, f"process-{self.starts}")
        self.loop.create_task(self._run_controllers(), context=context)

    async def _run_controllers(self) -> None:
        manager = Manager(
            controllers("hub"), lambda made: Planes(made.cached_client), Random(self.starts)
        )
        client = Client(self.transport, prefix="/planes/hub", token="token", agent="test")
        manager.engage(HUB, client)
        await manager.run()

    async def interfere(self) -> None:
        """Restart controllers and edit the labels of members, at random times."""
        for _ in range(6):
            await asyncio.sleep(self.random.uniform(1, 8))
            if self.random.random() < 0.5:
                self.start_controllers()
            members = (await self.planes.client().list(MEMBER)).items
            for member in members:
                touched = {"metadata": {"labels": {"n": str(self.random.random())[2:8]}}}
                ref = Ref("default", member.metadata.name)
                await self.planes.client().patch(MEMBER, ref, touched)

    async def wait_until_converged(self, names: list[str], image: str) -> None:
        client = self.planes.client()
        async with asyncio.timeout(300):
            while True:
                members = (await client.list(MEMBER)).items
                found = sorted(m.metadata.name for m in members if m.status.ready)
                if found == names and all(m.spec.image == image for m in members):
                    return
                await asyncio.sleep(1)


SET = Ref("default", "web")


async def run_story(loop: VirtualLoop, seed: int) -> Story:
    story = Story(loop, seed)
    await story.start()
    client = story.planes.client()
    metadata = ObjectMeta(name=SET.name, namespace=SET.namespace)
    await client.create(
        ORDERED_SET, OrderedSet(metadata=metadata, spec=OrderedSetSpec(replicas=3, image="web:1"))
    )
    await story.interfere()
    await story.wait_until_converged(["web-0", "web-1", "web-2"], "web:1")
    await client.patch(ORDERED_SET, SET, {"spec": {"image": "web:2", "replicas": 5}})
    await story.interfere()
    await client.patch(ORDERED_SET, SET, {"spec": {"replicas": 2}})
    await story.interfere()
    await story.wait_until_converged(["web-0", "web-1"], "web:2")
    return story


@pytest.mark.parametrize("seed", range(8))
def test_a_set_converges_in_order_despite_restarts_and_lost_requests(seed: int) -> None:
    async def main(loop: VirtualLoop) -> list[str]:
        story = await run_story(loop, seed)
        story.transport.calm = True
        await asyncio.sleep(120)
        client = story.planes.client()
        version = story.planes.store.version(HUB)
        await asyncio.sleep(300)
        assert story.planes.store.version(HUB) == version, "a converged set is not written"
        found = await client.get(ORDERED_SET, SET)
        assert (found.status.ready_replicas, found.status.updated_replicas) == (2, 2)
        await client.delete(ORDERED_SET, SET)
        await story.interfere()
        await story.wait_until_converged([], "web:2")
        async with asyncio.timeout(120):
            await wait_until_deleted(client)
        return story.transport.broken

    assert run_virtual(Random(seed), main) == []


async def wait_until_deleted(client: Client) -> None:
    while True:
        try:
            await client.get(ORDERED_SET, SET)
        except NotFound:
            return
        except ApiError:
            pass
        await asyncio.sleep(1)
