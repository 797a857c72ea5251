"""An exec session reports the end of its command, and ends the command with its connection."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from datum_compute.api.gateway import STDERR, ExecRequest, ExecResult, encode_exec_result
from datum_compute.drivers.containers.engine import EngineError
from datum_compute.drivers.containers.exec import ContainerExecSession, start_exec
from datum_compute.drivers.queries import NotRunning
from testkit.sim.loop import VirtualLoop, run_virtual


class ScriptedEngine:
    """An engine whose command ends when it is killed, or after ``polls`` inspections."""

    def __init__(self, *, polls: int = 1_000_000, exit_code: int = 0) -> None:
        self.polls = polls
        self.exit_code = exit_code
        self.create_error: EngineError | None = None
        self.start_error: EngineError | None = None

    async def request(self, method: str, path: str, query: Any = None, body: Any = None) -> Any:
        if path.endswith("/exec"):
            if self.create_error is not None:
                raise self.create_error
            return {"Id": "e1"}
        self.polls -= 1
        is_running = self.polls >= 0
        exit_code = 0 if is_running else self.exit_code
        return {"Running": is_running, "Pid": 42, "ExitCode": exit_code}

    async def upgrade(self, path: str, body: Any) -> ClosedOutput:
        if self.start_error is not None:
            raise self.start_error
        return ClosedOutput()


class ClosedOutput:
    """A connection whose command has closed its output."""

    async def read(self) -> bytes:
        return b""

    def close(self) -> None: ...


class RecordedKills:
    def __init__(self, engine: ScriptedEngine, *, survives: bool = False) -> None:
        self._engine, self._survives = engine, survives
        self.kills: list[tuple[int, bool]] = []

    def __call__(self, pid: int, container_id: str, by_force: bool) -> None:
        self.kills.append((pid, by_force))
        if by_force or not self._survives:
            self._engine.polls = 0


async def start(engine: Any, kill: Any) -> ContainerExecSession:
    return await start_exec(engine, "c1", ExecRequest(command=["sh"]), kill)


def test_the_exit_code_is_reported_after_the_process_has_ended() -> None:
    """The output ends before the process."""
    engine = ScriptedEngine(polls=3, exit_code=7)

    async def main(_loop: VirtualLoop) -> list[bytes | None]:
        session = await start(engine, RecordedKills(engine))
        return [await session.receive(), await session.receive()]

    assert run_virtual(Random(1), main) == [encode_exec_result(ExecResult(exit_code=7)), None]


@pytest.mark.parametrize("survives", [False, True])
def test_closing_the_session_terminates_the_command_and_kills_it_if_it_survives(
    survives: bool,
) -> None:
    engine = ScriptedEngine()
    kill = RecordedKills(engine, survives=survives)

    async def main(_loop: VirtualLoop) -> None:
        session = await start(engine, kill)
        await session.aclose()

    run_virtual(Random(1), main)
    assert kill.kills == ([(42, False), (42, True)] if survives else [(42, False)])


def test_a_command_that_cannot_be_started_ends_like_in_a_shell() -> None:
    engine = ScriptedEngine()
    engine.start_error = EngineError(400, "exec: executable file not found in $PATH")

    async def main(_loop: VirtualLoop) -> list[bytes | None]:
        session = await start(engine, RecordedKills(engine))
        return [await session.receive(), await session.receive(), await session.receive()]

    message = "exec: executable file not found in $PATH"
    assert run_virtual(Random(1), main) == [
        bytes((STDERR,)) + f"{message}\n".encode(),
        encode_exec_result(ExecResult(exit_code=127, message=message)),
        None,
    ]


def test_a_container_that_does_not_run_has_no_session() -> None:
    engine = ScriptedEngine()
    engine.create_error = EngineError(409, "container c1 is not running")

    async def main(_loop: VirtualLoop) -> None:
        with pytest.raises(NotRunning, match="is not running"):
            await start(engine, RecordedKills(engine))

    run_virtual(Random(1), main)
