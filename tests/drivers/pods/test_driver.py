"""The pods driver follows the protocol and reports the state of pods."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from random import Random
from typing import TypeVar

import msgspec
import pytest

from datum_compute.api.compute.instance import Container, ContainerPort
from datum_compute.drivers.driver import (
    NOT_OBSERVED,
    OBSERVATION_DEADLINE_S,
    Driver,
    MachineState,
    Observation,
)
from datum_compute.drivers.pods.driver import PodsDriver
from testkit.conformance.driver import ADOPTION, LIFE, SPEC, Adopt, Settle
from testkit.fakes.kubelet import EVICTED_S
from testkit.fakes.pods import MemoryPods
from testkit.sim.loop import VirtualLoop, run_virtual

T = TypeVar("T")
ID = "ns/web-0/1"
ABSENT = "ns/web-9/1"


def a_driver(pods: MemoryPods, loop: asyncio.AbstractEventLoop) -> PodsDriver:
    return PodsDriver(pods, unix_s=loop.time, elapsed_s=loop.time)


def phase_of(state: Observation) -> str:
    return state.phase if isinstance(state, MachineState) else str(state)


def run(
    story: Callable[[PodsDriver, MemoryPods], Awaitable[T]], *, is_watch_lost: bool = False
) -> T:
    """Run the story; with ``is_watch_lost`` the driver does not watch the pods."""

    async def main(loop: VirtualLoop) -> T:
        pods = MemoryPods(loop.time)
        driver = a_driver(pods, loop)
        tasks = [loop.create_task(pods.run())]
        tasks += [] if is_watch_lost else [loop.create_task(driver.run())]
        try:
            return await story(driver, pods)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    return run_virtual(Random(1), main)


@pytest.mark.parametrize("check", LIFE, ids=lambda check: check.__name__)
def test_conformance(check: Callable[[Driver, Settle], Awaitable[None]]) -> None:
    async def story(driver: PodsDriver, _pods: MemoryPods) -> bool:
        await check(driver, lambda: asyncio.sleep(2))
        return True

    assert run(story)


@pytest.mark.parametrize("check", ADOPTION, ids=lambda check: check.__name__)
def test_adoption_conformance(
    check: Callable[[Driver, Settle, Adopt], Awaitable[None]],
) -> None:
    async def story(driver: PodsDriver, pods: MemoryPods) -> bool:
        loop = asyncio.get_running_loop()
        tasks: list[asyncio.Task[None]] = []

        async def adopt() -> Driver:
            adopted = a_driver(pods, loop)
            tasks.append(loop.create_task(adopted.run()))
            return adopted

        await check(driver, lambda: asyncio.sleep(2), adopt)
        for task in tasks:
            task.cancel()
        return True

    assert run(story)


def test_machines_of_a_lost_cluster_become_unknown_after_the_deadline() -> None:
    async def story(driver: PodsDriver, pods: MemoryPods) -> None:
        await driver.start(ID, SPEC)
        await asyncio.sleep(2)
        before = await driver.observe(ID)
        pods.lose_watches()
        pods.away = True
        await asyncio.sleep(OBSERVATION_DEADLINE_S - 3)
        assert await driver.observe(ID) is NOT_OBSERVED
        driver._pending_changes.clear()
        await asyncio.sleep(5)
        assert list(driver._pending_changes) == [ID], "the machine is announced"
        lost = await driver.observe(ID)
        assert isinstance(lost, MachineState)
        assert (lost.phase, lost.reason) == ("Unknown", "NotObserved")
        driver._pending_changes.clear()
        pods.away = False
        await asyncio.sleep(3)
        assert list(driver._pending_changes) == [ID], "and again when the cluster is back"
        assert await driver.observe(ID) == before
        assert pods.created == 1

    run(story)


def test_a_failed_read_neither_ends_the_watch_nor_adds_to_a_later_one() -> None:
    async def story(driver: PodsDriver, pods: MemoryPods) -> None:
        await driver.start(ID, SPEC)
        await asyncio.sleep(2)
        pods.away = True
        assert await driver.observe(ABSENT) is NOT_OBSERVED
        assert phase_of(await driver.observe(ID)) == "Running", "the watch keeps the cache current"
        pods.away = False
        assert await driver.observe(ABSENT) is None
        await asyncio.sleep(OBSERVATION_DEADLINE_S + 10)
        pods.away = True
        assert await driver.observe(ABSENT) is NOT_OBSERVED, "the cluster answered in between"

    run(story)


def test_the_message_of_an_unknown_machine_contains_the_error() -> None:
    async def story(driver: PodsDriver, pods: MemoryPods) -> None:
        pods.away = True
        assert await driver.observe(ID) is NOT_OBSERVED
        await asyncio.sleep(OBSERVATION_DEADLINE_S)
        state = await driver.observe(ID)
        assert isinstance(state, MachineState)
        assert state.message == "cannot read the pod: the cluster does not respond"

    run(story)


def test_a_pod_does_not_sleep() -> None:
    """Kubernetes cannot pause a pod."""

    async def story(driver: PodsDriver, _pods: MemoryPods) -> tuple[str, float]:
        await driver.start(ID, SPEC)
        await asyncio.sleep(2)
        await driver.sleep(ID, "stop")
        return phase_of(await driver.observe(ID)), await driver.wake(ID)

    assert run(story) == ("Running", 0.0)


def state_after(image: str, after_s: float) -> MachineState:
    async def story(driver: PodsDriver, _pods: MemoryPods) -> Observation:
        container = Container(name="app", image=image)
        await driver.start(ID, msgspec.structs.replace(SPEC, containers=[container]))
        await asyncio.sleep(after_s)
        return await driver.observe(ID)

    state = run(story)
    assert isinstance(state, MachineState)
    return state


@pytest.mark.parametrize(
    ("image", "phase", "reason", "message"),
    [
        ("web:1", "Running", "", ""),
        ("fail.example/web:1", "Failed", "ImageUnavailable", "Back-off pulling image"),
        ("config.example/web:1", "Failed", "ConfigurationError", 'secret "key" not found'),
        ("command.example/web:1", "Failed", "ConfigurationError", "executable file not found"),
        ("crash.example/web:1", "Failed", "InstanceCrashing", "exited with code 1"),
        ("oom.example/web:1", "Failed", "InstanceCrashing", "OOM, exit code 137"),
        ("nonode.example/web:1", "Pending", "Unschedulable", "3 Insufficient cpu"),
        ("unready.example/web:1", "Running", "Starting", "readiness"),
    ],
)
def test_messages_of_the_kubelet_are_reported(
    image: str, phase: str, reason: str, message: str
) -> None:
    state = state_after(image, 2)
    assert (state.phase, state.reason) == (phase, reason)
    assert message in state.message


def test_a_closed_port_is_reported() -> None:
    async def story(driver: PodsDriver, _pods: MemoryPods) -> Observation:
        ports = [ContainerPort(name="http", port=8080)]
        container = Container(name="app", image="unready.example/web:1", ports=ports)
        await driver.start(ID, msgspec.structs.replace(SPEC, containers=[container]))
        await asyncio.sleep(2)
        return await driver.observe(ID)

    state = run(story)
    assert isinstance(state, MachineState)
    assert (state.phase, state.reason) == ("Running", "NotReady")
    assert state.message == "port 8080 (http) does not accept connections"


def test_a_pod_of_an_earlier_release_is_not_replaced() -> None:
    """It has no port check."""

    async def story(driver: PodsDriver, pods: MemoryPods) -> None:
        await driver.start(ID, SPEC)
        await asyncio.sleep(2)
        ports = [ContainerPort(name="http", port=8080)]
        checked = Container(name="app", image="web:1", ports=ports)
        await driver.start(ID, msgspec.structs.replace(SPEC, containers=[checked]))
        await asyncio.sleep(2)
        assert phase_of(await driver.observe(ID)) == "Running"
        assert pods.created == 1

    run(story)


def test_a_crash_reports_exit_code_and_last_lines() -> None:
    state = state_after("crash.example/web:1", 2)
    assert (state.exit_code, state.restarts) == (1, 3)
    assert state.last_lines == ("first line", "it went wrong")


def test_an_evicted_pod_is_deleted_to_make_room_for_another() -> None:
    async def story(driver: PodsDriver, pods: MemoryPods) -> None:
        container = Container(name="app", image="evicted.example/web:1")
        spec = msgspec.structs.replace(SPEC, containers=[container])
        await driver.start(ID, spec)
        await asyncio.sleep(EVICTED_S + 1)
        state = await driver.observe(ID)
        assert isinstance(state, MachineState)
        assert "Evicted: The node was low on resource" in state.message
        await asyncio.sleep(1)
        assert await driver.observe(ID) is None, "removed, so another may be started"
        await driver.start(ID, spec)
        await asyncio.sleep(1)
        state = await driver.observe(ID)
        assert isinstance(state, MachineState)
        assert state.phase == "Running"
        assert pods.created == 2

    run(story)


def test_without_a_watch_pods_are_read_from_the_cluster() -> None:
    async def story(driver: PodsDriver, pods: MemoryPods) -> None:
        await driver.start(ID, SPEC)
        other = a_driver(pods, asyncio.get_running_loop())
        assert isinstance(await other.observe(ID), MachineState), "another process, without a cache"
        await other.start(ID, SPEC)
        assert pods.created == 1
        pods.away = True
        third = a_driver(pods, asyncio.get_running_loop())
        assert await third.observe(ID) is NOT_OBSERVED
        await asyncio.sleep(OBSERVATION_DEADLINE_S - 1)
        assert await third.observe(ID) is NOT_OBSERVED
        await asyncio.sleep(1)
        assert phase_of(await third.observe(ID)) == "Unknown"
        pods.away = False
        assert phase_of(await third.observe(ID)) == "Running", "read from the cluster"

    run(story, is_watch_lost=True)


def test_the_watch_resumes_after_the_cluster_was_unreachable() -> None:
    async def story(driver: PodsDriver, pods: MemoryPods) -> None:
        await driver.start(ID, SPEC)
        await asyncio.sleep(1)
        pods.away = True
        await driver.observe(ID)  # from the cache
        await asyncio.sleep(5)
        pods.away = False
        await asyncio.sleep(2)
        await driver.remove(ID)
        await asyncio.sleep(2)
        assert await driver.observe(ID) is None
        assert await driver.machines() == []

    run(story)


def test_machines_are_listed_by_server() -> None:
    async def story(driver: PodsDriver, _pods: MemoryPods) -> None:
        for machine_id in ("ns/web-0/1", "ns/web-0/2", "ns/web-00/3", "other/web-0/4"):
            await driver.start(machine_id, SPEC)
        assert await driver.machines("ns/web-0/") == ["ns/web-0/1", "ns/web-0/2"]
        assert len(await driver.machines()) == 4

    run(story)
