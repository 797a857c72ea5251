"""Containers run under the engine's init process, so that every program can be stopped.

The kernel drops signals that PID 1 has no handler for: a program that runs as PID 1 and does not
handle SIGTERM ends only by SIGKILL, after the whole grace period. Exit code 143 means SIGTERM, 137
means SIGKILL.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from datum_compute.api.compute.data_sources import ConfigMapVolume, Volume, VolumeAttachment
from datum_compute.api.conditions import Reason
from datum_compute.drivers.driver import DataFile, MachineData
from testkit.processes.container_cell import ID, Cell
from testkit.processes.container_engine import TestEngine
from testkit.processes.container_platform import Real
from testkit.processes.local_platform import eventually

pytestmark = pytest.mark.timeout(180)

SERVER = ID.rpartition("/")[0]
ENDLESS = ("sleep", "1000")
BY_TERM, BY_KILL = 143, 137
# Longer than a test waits, so that a stop by SIGKILL after the grace period fails the test.
GRACE_S = 120


@pytest.fixture
def no_init(engine: TestEngine) -> Iterator[TestEngine]:
    """The engine, restarted with a configuration that names an init program that does not exist."""
    engine.restart_engine(init_path=str(engine.root / "no-such-init"))
    yield engine
    engine.restart_engine()


def get_first_process(cell: Cell) -> str:
    (name,) = cell.containers()
    return cell.engine.podman("exec", name, "cat", "/proc/1/cmdline").split("\0")[0]


async def remove_and_get_exit_code(cell: Cell) -> int | None:
    """Remove the machine and return the exit code of its container."""
    await cell.driver.remove(ID)
    await cell.wait_until_gone()
    return (await cell.driver.queries.crashes(SERVER))[-1].exit_code


async def test_a_program_without_a_handler_ends_by_sigterm(cell: Cell) -> None:
    await cell.driver.start(ID, cell.spec(*ENDLESS, termination_grace_period_seconds=GRACE_S))
    await cell.wait_until_running()
    assert get_first_process(cell) != "sleep"
    assert await remove_and_get_exit_code(cell) == BY_TERM


async def test_a_shell_without_a_trap_and_its_child_end_by_sigterm(cell: Cell) -> None:
    script = ("sh", "-c", "sleep 1000; echo never")
    await cell.driver.start(ID, cell.spec(*script, termination_grace_period_seconds=GRACE_S))
    await cell.wait_until_running()
    assert await remove_and_get_exit_code(cell) == BY_TERM


async def test_a_program_that_handles_sigterm_still_exits_on_its_own(cell: Cell) -> None:
    script = ("sh", "-c", "trap 'exit 7' TERM; while true; do sleep 0.1; done")
    await cell.driver.start(ID, cell.spec(*script, termination_grace_period_seconds=GRACE_S))
    await cell.wait_until_running()
    assert await remove_and_get_exit_code(cell) == 7


async def test_init_false_runs_the_program_as_pid_1(cell: Cell) -> None:
    await cell.driver.start(ID, cell.spec(*ENDLESS, init=False))
    await cell.wait_until_running()
    assert get_first_process(cell) == "sleep"
    assert (await cell.driver.queries.driver()).without_init == 0, "no init process was requested"
    assert await remove_and_get_exit_code(cell) == BY_KILL


@pytest.mark.parametrize("program", ["/no/such/program", "no-such-program"])
async def test_a_program_that_does_not_exist_is_still_refused_by_the_engine(
    cell: Cell, program: str
) -> None:
    """With an init process the container would start and look like a program that crashes."""
    await cell.driver.start(ID, cell.spec(program))
    failed = await cell.wait_for_state(lambda s: s.phase == "Failed")
    assert failed.reason == Reason.CONFIGURATION_ERROR
    assert program in failed.message


async def test_a_program_on_a_volume_runs(cell: Cell) -> None:
    spec = cell.spec(
        "/data/run",
        volumes=[Volume(name="v", config_map=ConfigMapVolume(name="c"))],
        volume_attachments=[VolumeAttachment(name="v", mount_path="/data")],
    )
    script = DataFile("run", b"#!/bin/sh\nexec sleep 1000\n", 0o555)
    await cell.driver.start(ID, spec, MachineData(files={"v": (script,)}))
    await cell.wait_until_running()


async def test_a_machine_falls_asleep_by_stop_and_wakes_without_waiting_for_sigkill(
    cell: Cell,
) -> None:
    await cell.driver.start(ID, cell.spec(*ENDLESS, termination_grace_period_seconds=GRACE_S))
    await cell.wait_until_running()
    await cell.driver.sleep(ID, "stop")
    (name,) = cell.containers()
    ended = cell.engine.podman("inspect", "--format", "{{.State.ExitCode}}", name)
    assert int(ended) == BY_TERM
    await cell.driver.wake(ID)
    await cell.wait_until_running()


async def test_a_machine_runs_without_init_if_the_engine_has_none_and_reports_it(
    no_init: TestEngine, cell: Cell
) -> None:
    await cell.driver.start(ID, cell.spec(*ENDLESS))
    await cell.wait_until_running()
    assert get_first_process(cell) == "sleep"
    assert (await cell.driver.queries.driver()).without_init == 1
    assert await remove_and_get_exit_code(cell) == BY_KILL
    assert (await cell.driver.queries.driver()).without_init == 0


async def test_an_existing_container_is_kept_when_the_engine_gets_an_init_program(
    engine: TestEngine, cell: Cell
) -> None:
    engine.restart_engine(init_path=str(engine.root / "no-such-init"))
    try:
        await cell.driver.start(ID, cell.spec(*ENDLESS))
        await cell.wait_until_running()
    finally:
        engine.restart_engine()
    before = engine.podman("ps", "--quiet", "--no-trunc").split()
    await cell.kill()
    await cell.start()
    state = await cell.wait_until_running()
    assert engine.podman("ps", "--quiet", "--no-trunc").split() == before
    assert state.restarts == 0


def test_doctor_names_the_package_that_the_engine_lacks(no_init: TestEngine, real: Real) -> None:
    image = no_init.image("web:1")
    done = real.deploy("shop", f"--image={image}", "--city=DFW")
    assert done.returncode == 0, done.stderr
    eventually(lambda: len(real.ready("shop")) == 1, "the instance runs without an init process")
    report = real.run("doctor")
    assert report.returncode == 0, report.stderr
    assert "catatonit" in report.stdout
